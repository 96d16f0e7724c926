"""A command uses the cluster of its folder or of --dir, and states which one it used."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli import cluster_choice
from drover.cli.commands import cluster as cluster_commands
from drover.local.found_clusters import register, registered_clusters
from drover.local.state import ClusterState, DirectoryLock, ProcessState, write_state
from tests.support.fake_cluster import FakeCluster, Run

Place = Callable[..., Path]


@pytest.fixture
def place(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    """Makes a directory of a running cluster, whose worker is the fake one."""
    address = os.environ["DROVER_ADDRESS"]
    monkeypatch.delenv("DROVER_ADDRESS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()

    def run(directory: Path, *, is_running: bool = True) -> Path:
        directory.mkdir(mode=0o700, parents=True)
        started_s = psutil.Process().create_time() if is_running else 0.0
        process = ProcessState(os.getpid(), address, "")
        write_state(directory, ClusterState(os.getpid(), started_s, {"worker-1": process}))
        return directory

    return run


def test_it_is_found_from_inside_and_outside_its_directory(
    place: Place, drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    place(here / "c1")
    (here / "c1" / "logs").mkdir()
    place(here / "stopped", is_running=False)
    for folder, shown in ((here, "c1"), (here / "c1", "."), (here / "c1" / "logs", "..")):
        monkeypatch.chdir(folder)
        code, out, err = drover("connector", "list")
        assert (code, out) == (0, "no connectors\n")
        assert err.startswith(f"drover: using the cluster in {shown} at 127.0.0.1:")


def test_a_command_that_names_its_cluster_prints_no_line(
    place: Place, drover: Run, tmp_path: Path
) -> None:
    directory = place(tmp_path / "far" / "c1")
    assert drover("connector", "list", "--dir", str(directory)) == (0, "no connectors\n", "")
    code, _, err = drover("connector", "list", "--dir", str(tmp_path))
    assert code == 1
    assert "no cluster runs in" in err


def test_of_several_clusters_none_is_chosen(place: Place, drover: Run, tmp_path: Path) -> None:
    place(tmp_path / "c1")
    place(tmp_path / "c2")
    code, _, err = drover("connector", "list")
    assert (code, err) == (
        1, "drover: several clusters run in this folder: name one with --dir (c1, c2)\n"
    )  # fmt: skip


def test_down_finds_the_cluster_that_other_commands_use(
    place: Place, drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Path] = []

    async def stop(directory: Path) -> bool:
        stopped.append(directory)
        return True

    monkeypatch.setattr(cluster_commands, "_stop", stop)
    DirectoryLock(place(tmp_path / "c1")).close()
    code, out, _ = drover("down")
    assert (code, stopped) == (0, [Path("c1")])
    assert "the data stays in c1: `drover down --delete-data --dir c1` deletes it" in out
    place(tmp_path / "c2")
    code, _, err = drover("down")
    assert (code, len(stopped)) == (1, 1)
    assert "name one with --dir (c1, c2)" in err


def test_the_cluster_of_another_folder_is_not_the_default(
    place: Place, drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = place(tmp_path / "elsewhere" / "c1")
    register(elsewhere)
    (address,) = registered_clusters()[0].state.addresses("worker")
    monkeypatch.setattr(cluster_choice, "DEFAULT_WORKER_ADDRESS", address)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code, _, err = drover("connector", "list")
    assert code == 1
    assert f"name one with --dir ({elsewhere})" in err
    code, _, err = drover("connector", "list", "-a", "127.0.0.1:1")
    assert code == 1
    assert err.endswith(f"--address or --dir; clusters that run: {elsewhere}\n")
    code, out, _ = drover("down")
    assert f"no cluster in .drover/up; clusters that run: {elsewhere}\n" in out
    (elsewhere / "cluster.json").unlink()
    assert registered_clusters() == []
    assert [*(tmp_path / "state" / "drover" / "clusters").iterdir()] == []


def test_documents_on_stderr_stay_documents(
    place: Place, drover: Run, tmp_path: Path, cluster: FakeCluster
) -> None:
    place(tmp_path / "c1")
    code, out, err = drover("connector", "list", "-o", "json")
    assert (code, json.loads(out)) == (0, [])
    assert "using the cluster in c1" in err
    del cluster.answers["ListConnectors"]
    code, _, err = drover("connector", "list", "-o", "json")
    assert code == 1
    assert "the cluster in c1" in json.loads(err)["cluster"]


def test_doctor_and_drain_use_the_cluster_that_other_commands_use(
    place: Place, drover: Run, tmp_path: Path, cluster: FakeCluster
) -> None:
    place(tmp_path / "c1")
    cluster.answers["DrainWorker"] = pb.DrainWorkerResponse()
    cluster.answers["GetClusterInfo"] = pb.GetClusterInfoResponse()
    _, out, _ = drover("doctor", "-o", "json")
    assert "none runs in" not in out
    drover("worker", "resume", "worker-1")
    assert cluster.requests[-1].worker_id.startswith("127.0.0.1:")
    code, _, err = drover("worker", "resume", "worker-9")
    assert code == 1
    assert "workers of the cluster here: worker-1" in err


def test_a_command_with_several_calls_prints_its_cluster_once(
    place: Place, drover: Run, tmp_path: Path, cluster: FakeCluster
) -> None:
    place(tmp_path / "c1")
    cluster.answers["DeleteConnector"] = pb.DeleteConnectorResponse()
    for _ in range(2):
        code, _, err = drover("connector", "delete", "a")
        assert code == 0
        assert err.count("drover: using the cluster in c1") == 1
