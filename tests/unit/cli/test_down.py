"""`drover down` stops clusters, and deletes their data only on request."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drover.local.process import is_alive
from drover.local.state import ClusterState, DirectoryLock, ProcessState, write_state
from tests.support.fake_cluster import Run
from tests.support.streams import Terminal


@pytest.fixture
def other() -> Iterator[psutil.Process]:
    """A process that is no supervisor of the cluster in question."""
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        yield psutil.Process(process.pid)
        process.kill()


def cluster_in(directory: Path, supervisor: psutil.Process, *, started_s: float) -> Path:
    """The directory of a cluster with the pid of ``supervisor`` in its state."""
    DirectoryLock(directory).close()
    (directory / "data").mkdir()
    processes = {"worker-1": ProcessState(supervisor.pid, "127.0.0.1:1", "")}
    write_state(directory, ClusterState(supervisor.pid, started_s, processes))
    return directory


def test_down_without_a_cluster_says_so(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = drover("down")
    assert (code, out) == (0, "nothing to stop: there is no cluster in .drover/up\n")
    assert json.loads(drover("down", "-o", "json")[1]) == {"stopped": [], "removed": []}


def test_down_deletes_data_only_on_request(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DirectoryLock(tmp_path / "c1").close()
    (tmp_path / "c1" / "data").mkdir()
    (tmp_path / "c1" / "data" / "topics.db").write_bytes(b"x" * 2**20)
    for options in ((), ("--keep-data",)):
        code, out, _ = drover("down", "--dir", str(tmp_path / "c1"), *options)
        assert code == 0
        assert f"`drover down --delete-data --dir {tmp_path / 'c1'}` deletes it" in out
    assert (tmp_path / "c1" / "data" / "topics.db").exists()
    monkeypatch.chdir(tmp_path)
    code, out, _ = drover("down", "--dir", "c1", "--delete-data", "--yes")
    assert code == 0
    assert out.splitlines()[0].startswith("to delete: c1, 2 files of 1.0 MiB in all (data, ")
    assert not (tmp_path / "c1").exists()
    assert drover("down", "--delete-data", "--keep-data")[0] == 2


@pytest.mark.parametrize(
    ("stdin", "options", "code"),
    [
        (Terminal("y\n"), (), 0),
        (Terminal("n\n"), (), 1),
        (Terminal(""), (), 1),
        (Terminal(""), ("--yes",), 0),
        (io.StringIO(), (), 0),
        (io.StringIO(), ("-o", "json"), 0),
        (io.StringIO(), ("-y",), 0),
        (io.StringIO(), ("--yes", "-o", "json"), 0),
        (None, (), 0),
        (None, ("--yes",), 0),
    ],
)
def test_data_is_deleted_in_a_terminal_after_a_yes_only(
    drover: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: psutil.Process,
    stdin: io.StringIO | None,
    options: tuple[str, ...],
    code: int,
) -> None:
    """The cluster of a refused command keeps running."""
    directory = cluster_in(tmp_path / "c1", other, started_s=other.create_time())
    monkeypatch.setattr(sys, "stdin", stdin)
    found, _, _ = drover("down", "--dir", str(directory), "--delete-data", *options)
    assert found == code
    assert directory.exists() == (code == 1)
    assert is_alive(other) == (code == 1)


def test_nothing_is_asked_if_there_is_nothing_to_delete(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    code, out, err = drover("down", "--delete-data")
    assert (code, out, err) == (0, "nothing to stop: there is no cluster in .drover/up\n", "")


def test_down_leaves_a_directory_alone_that_no_cluster_made(drover: Run, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    assert drover("down", "--dir", str(tmp_path))[0] == 0
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("inside", [True, False])
def test_files_beside_those_of_a_cluster_stay(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    """A cluster may run in a folder that has files already."""
    project = tmp_path / "project"
    DirectoryLock(project).close()
    (project / "data").mkdir()
    (project / "precious").write_text("x")
    monkeypatch.chdir(project if inside else tmp_path)
    options = () if inside else ("--dir", "project")
    code, out, err = drover("down", "--delete-data", "--yes", *options)
    assert code == 0
    assert "(data, supervisor.lock)" in out
    assert "warning: not deleted: " in err
    assert "precious, which no cluster created" in err
    assert [each.name for each in project.iterdir()] == ["precious"]


def test_data_is_deleted_from_inside_the_directory(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DirectoryLock(tmp_path / "c1").close()
    monkeypatch.chdir(tmp_path / "c1")
    assert drover("down", "--delete-data", "--yes")[0] == 0
    assert not (tmp_path / "c1").exists()


def test_what_links_lead_to_stays_and_is_named(drover: Run, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "topics.db").write_text("x")
    DirectoryLock(tmp_path / "c1").close()
    (tmp_path / "c1" / "data").symlink_to(disk)
    (tmp_path / "link").symlink_to(tmp_path / "c1")
    code, _, err = drover("down", "--dir", str(tmp_path / "link"), "--delete-data", "--yes")
    assert code == 0
    assert f"not deleted: {disk} (to which " in err
    assert (disk / "topics.db").exists()
    assert not (tmp_path / "c1").exists()
    assert not (tmp_path / "link").is_symlink()


def test_all_that_a_demo_run_left_is_deleted(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path(".drover") / "run-1"
    DirectoryLock(run).close()
    (run / "fed.csv").write_text("x")
    assert drover("down", "--delete-data", "--yes")[0] == 0
    assert not run.exists()


@pytest.mark.parametrize("options", [(), ("--delete-data", "--yes")])
def test_down_does_not_end_a_process_that_has_the_pid_of_a_former_supervisor(
    drover: Run, tmp_path: Path, other: psutil.Process, options: tuple[str, ...]
) -> None:
    started_s = other.create_time() - 1_000
    directory = cluster_in(tmp_path / "c1", other, started_s=started_s)
    code, out, _ = drover("down", "--dir", str(directory), *options)
    assert code == 0
    assert "stopped the cluster" not in out
    assert other.is_running()
    assert other.status() != psutil.STATUS_ZOMBIE
    assert directory.exists() == (not options)


@pytest.mark.parametrize("options", [(), ("--delete-data", "--yes")])
def test_down_leaves_the_cluster_of_another_folder_alone(
    drover: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: psutil.Process,
    options: tuple[str, ...],
) -> None:
    elsewhere = tmp_path / "elsewhere" / ".drover" / "up"
    cluster_in(elsewhere, other, started_s=other.create_time())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code, out, _ = drover("down", *options)
    assert (code, out) == (0, "nothing to stop: there is no cluster in .drover/up\n")
    assert other.is_running()
    assert (elsewhere / "data").exists()


def test_only_the_named_directory_is_deleted(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: psutil.Process
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster_in(tmp_path / "c1", other, started_s=0.0)
    cluster_in(tmp_path / "c2", other, started_s=other.create_time())
    code, out, _ = drover("down", "--dir", "c1", "--delete-data", "--yes")
    assert code == 0
    assert out.endswith("deleted c1\n")
    assert other.is_running()
    assert (tmp_path / "c2" / "data").exists()
