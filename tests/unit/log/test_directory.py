"""Where an embedded cluster keeps its files, and who owns them."""

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from drover.errors import InvalidArgumentError, Reason
from drover.log.directory import DataDirectory, storage_directory
from drover.private_files import user_name
from drover.testing import raises_reason
from tests.support.other_user import OTHER_ID


@pytest.mark.parametrize(
    ("url", "directory"),
    [
        ("sqlite:///var/drover", "/var/drover"),
        ("sqlite:////var/drover", "/var/drover"),
        ("sqlite:///var/drover/", "/var/drover"),
        ("SQLITE:///x", "/x"),
        ("sqlite:///with%20space/%3F%23", "/with space/?#"),
        ("sqlite:///with space/ü", "/with space/ü"),
    ],
)
def test_a_storage_url_names_a_directory(url: str, directory: str) -> None:
    assert storage_directory(url) == Path(directory)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("postgres://x/y", "sqlite:///"),
        ("/var/drover", "sqlite:///"),
        ("", "sqlite:///"),
        ("sqlite://relative/path", "absolute"),
        ("sqlite://", "name a directory"),
        ("sqlite:///", "name a directory"),
        ("sqlite:///x%00y", "name a directory"),
        ("sqlite:relative", "absolute"),
        ("sqlite:///x?mode=ro", "%3F"),
        ("sqlite://[", "Invalid"),
    ],
)
def test_a_storage_url_that_is_wrong_is_explained(url: str, word: str) -> None:
    with raises_reason(Reason.INVALID_CONFIG, "DROVER_STORAGE_URL", repr(url), word) as raised:
        storage_directory(url)
    assert isinstance(raised.error, InvalidArgumentError)
    assert [violation.field for violation in raised.error.violations] == ["DROVER_STORAGE_URL"]


def test_prepare_makes_the_directory_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "a" / "b")
    directory.prepare()
    directory.prepare()
    assert list(directory.path.iterdir()) == []


def test_prepare_reports_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with raises_reason(Reason.STORAGE_UNAVAILABLE, str(path), "DROVER_STORAGE_URL"):
            DataDirectory(path).prepare()


def test_prepare_reports_a_directory_that_cannot_be_written() -> None:
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "/proc/drover"):
        DataDirectory(Path("/proc/drover")).prepare()
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "/proc", "DROVER_STORAGE_URL"):
        DataDirectory(Path("/proc")).prepare()


def test_prepare_takes_the_rights_of_other_users(tmp_path: Path) -> None:
    fresh, open_one = DataDirectory(tmp_path / "fresh"), DataDirectory(tmp_path / "open")
    open_one.path.mkdir()
    open_one.path.chmod(0o775)
    with capture_logs() as events:
        fresh.prepare()
        open_one.prepare()
        open_one.prepare()
    for directory in (fresh, open_one):
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    (event,) = events
    assert (event["path"], event["previous_mode"]) == (str(open_one.path), "0775")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory to another user")
def test_prepare_refuses_a_directory_of_another_user(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "it's")
    directory.path.mkdir()
    os.chown(directory.path, OTHER_ID, OTHER_ID)
    with raises_reason(
        *(Reason.STORAGE_UNAVAILABLE, str(directory.path), "DROVER_STORAGE_URL"),
        f"it belongs to {user_name(OTHER_ID)}",
        f"sudo chown root {shlex.quote(str(directory.path))}",
        f"sudo chmod 700 {shlex.quote(str(directory.path))}",
    ):
        directory.prepare()
    assert list(directory.path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_prepare_refuses_a_directory_that_users_share(tmp_path: Path) -> None:
    """Such as /tmp: it must stay usable."""
    directory = DataDirectory(tmp_path / "tmp")
    directory.path.mkdir()
    directory.path.chmod(0o1777)
    (directory.path / "file").write_text("")
    os.chown(directory.path / "file", OTHER_ID, OTHER_ID)
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "mode 1777", "a directory below it"):
        directory.prepare()
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o1777


def test_a_second_owner_in_this_process_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with directory.lock("coordinator"):
        with raises_reason(Reason.STORAGE_OWNED, "another coordinator", str(tmp_path)):
            directory.lock("coordinator")
        with directory.lock("config-store"):
            pass
    directory.lock("coordinator").release()


def test_release_is_idempotent(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    first = directory.lock("coordinator")
    first.release()
    with directory.lock("coordinator"):
        first.release()
        with raises_reason(Reason.STORAGE_OWNED):
            directory.lock("coordinator")


def test_lock_reports_a_missing_directory(tmp_path: Path) -> None:
    with raises_reason(Reason.STORAGE_UNAVAILABLE, str(tmp_path / "missing")):
        DataDirectory(tmp_path / "missing").lock("coordinator")


@pytest.mark.e2e
def test_another_process_is_named_and_its_end_frees_the_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from drover.log.directory import DataDirectory;"
            "held = DataDirectory(Path(sys.argv[1])).lock('coordinator');"
            "print('held', flush=True); sys.stdin.read()",
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        directory = DataDirectory(tmp_path)
        with raises_reason(
            Reason.STORAGE_OWNED,
            f"another coordinator (pid {holder.pid}) uses {tmp_path}",
            "stop it or choose another DROVER_STORAGE_URL",
        ) as raised:
            directory.lock("coordinator")
        assert raised.error.metadata["pid"] == str(holder.pid)
        holder.kill()
        holder.wait()
        directory.lock("coordinator").release()


def test_a_shared_lock_is_for_many_and_excludes_whoever_wants_it_alone(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with directory.lock("coordinator", shared=True), directory.lock("coordinator", shared=True):
        with raises_reason(Reason.STORAGE_OWNED, f"another coordinator uses {tmp_path}"):
            directory.lock("coordinator")
        assert not directory.is_locked("coordinator")
    with directory.lock("coordinator"):
        with raises_reason(Reason.STORAGE_OWNED, "another coordinator (pid "):
            directory.lock("coordinator", shared=True)
        assert directory.is_locked("coordinator")


def test_a_lock_that_nobody_ever_took_is_free(tmp_path: Path) -> None:
    assert not DataDirectory(tmp_path).is_locked("coordinator")
