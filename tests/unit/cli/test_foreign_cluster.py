"""The drover command in a folder with a cluster's directory of another user."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.local.state import (
    DEFAULT_DIRECTORY,
    ClusterState,
    DirectoryLock,
    ProcessState,
    write_state,
)
from drover.private_files import user_name
from tests.support.fake_cluster import FakeCluster, Run
from tests.support.other_user import OTHER_ID


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster's directory that another user made below the working directory."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files to another user")
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / DEFAULT_DIRECTORY
    directory.mkdir(parents=True)
    (directory / "supervisor.lock").touch()
    process = psutil.Process()
    state = {"worker-1": ProcessState(process.pid, "127.0.0.1:1", "a.log")}
    write_state(directory, ClusterState(process.pid, process.create_time(), state))
    for path in (directory, *directory.iterdir()):
        os.chown(path, OTHER_ID, OTHER_ID)
    yield directory
    assert (directory / "cluster.json").exists()
    assert not (directory / "certs").exists()


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "command",
    [
        ["connector", "list"],
        ["connector", "status", "c"],
        ["group", "list"],
        ["worker", "drain", "worker-1"],
        ["cluster", "info"],
        ["doctor"],
        ["down"],
        ["down", "--keep-data"],
        ["down", "--delete-data"],
        ["down", "--dir", ".drover/up", "--delete-data"],
        ["up"],
        ["up", "--tls"],
    ],
)
def test_a_cluster_of_another_user_is_not_trusted(drover: Run, command: list[str]) -> None:
    """Its state file would name the process to kill, and the server that gets the passwords."""
    code, out, err = drover(*command)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert f"belongs to {user_name(OTHER_ID)}" in err


@pytest.fixture
def closed() -> Iterator[Path]:
    """A cluster's directory that the user may not read; the user is not root here."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        directory = Path(name) / "c1"
        DirectoryLock(directory).close()
        os.seteuid(OTHER_ID)
        try:
            yield directory
        finally:
            os.seteuid(0)


@pytest.mark.parametrize(
    "command", [["down"], ["down", "--delete-data"], ["connector", "list"]], ids=" ".join
)
def test_a_directory_that_may_not_be_read_is_named_with_its_owner(
    drover: Run, closed: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(closed.parent))
    code, out, err = drover(*command, "--dir", str(closed))
    assert (code, out) == (1, "")
    assert err.startswith(f"drover: {closed} belongs to root, and commands of ")


@pytest.mark.usefixtures("planted")
def test_a_given_address_is_called_beside_a_cluster_of_another_user(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    address = os.environ["DROVER_ADDRESS"]
    assert drover("connector", "list", "-a", address)[:2] == (0, "no connectors\n")
