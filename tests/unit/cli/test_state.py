import json
import os
import re
import stat
from pathlib import Path

import psutil
import pytest

from drover.local.state import (
    TARGETS_FILE,
    ClusterError,
    ClusterState,
    DirectoryLock,
    ProcessState,
    is_cluster_directory,
    is_held,
    read_state,
    remove_state,
    write_state,
)
from drover.private_files import user_name
from tests.support.other_user import OTHER_ID

of_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")


def state_of(pid: int, started_s: float) -> ClusterState:
    return ClusterState(
        supervisor_pid=pid,
        supervisor_started_s=started_s,
        processes={
            "worker-1": ProcessState(11, "127.0.0.1:1", "a.log", "127.0.0.1:101"),
            "coordinator": ProcessState(None, "127.0.0.1:2", "b.log"),
        },
    )


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = state_of(1, 2.5)
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert state.addresses("worker") == ["127.0.0.1:1"]
    targets = json.loads((tmp_path / TARGETS_FILE).read_text())
    assert targets == [{"targets": ["127.0.0.1:101"], "labels": {"process": "worker-1"}}]
    remove_state(tmp_path)
    assert read_state(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"supervisor_pid": "x"}', "\x00"])
def test_a_damaged_state_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    assert read_state(tmp_path) is None


def test_a_later_process_with_the_same_pid_is_not_the_supervisor() -> None:
    started_s = psutil.Process().create_time()
    assert state_of(os.getpid(), started_s).supervisor() is not None
    assert state_of(os.getpid(), started_s - 100).supervisor() is None


def test_a_directory_is_held_by_one_supervisor(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    assert not is_cluster_directory(directory)
    with DirectoryLock(directory):
        write_state(directory, state_of(4711, 0))
        assert is_held(directory)
        with pytest.raises(ClusterError, match=r"a cluster \(pid 4711\) already runs in"):
            DirectoryLock(directory)
    assert not is_held(directory)
    assert is_cluster_directory(directory)


def test_a_directory_is_closed_to_other_users(tmp_path: Path) -> None:
    directory, events = tmp_path / "cluster", []
    with DirectoryLock(directory, lambda name, text: events.append(f"{name} {text}")):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.chmod(0o755)
    with DirectoryLock(directory, lambda name, text: events.append(f"{name} {text}")):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for path in directory.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    (event,) = events
    assert event == (
        f"cluster {directory} was open to other users (mode 0755): its mode is now 0700"
    )


@pytest.mark.parametrize("writable", ["", "cluster.json"])
def test_a_state_that_others_may_write_is_not_read(tmp_path: Path, writable: str) -> None:
    write_state(tmp_path, state_of(1, 2.5))
    (tmp_path / writable).chmod(0o770)
    with pytest.raises(ClusterError, match=r"run `chmod go-w .*` if you know"):
        read_state(tmp_path)


@of_root
@pytest.mark.parametrize("given", ["", "cluster.json"])
def test_a_state_of_another_user_is_not_read(tmp_path: Path, given: str) -> None:
    write_state(tmp_path, state_of(1, 2.5))
    os.chown(tmp_path / given, OTHER_ID, OTHER_ID)
    message = f"{tmp_path / given} belongs to {user_name(OTHER_ID)}, and commands of root trust"
    with pytest.raises(ClusterError, match=re.escape(message)):
        read_state(tmp_path)


@of_root
def test_no_cluster_runs_in_a_directory_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, OTHER_ID, OTHER_ID)
    with pytest.raises(ClusterError, match=f"cannot use .*: it belongs to {user_name(OTHER_ID)}"):
        DirectoryLock(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match=r"cannot use .*/file/x: Not a directory"):
        DirectoryLock(tmp_path / "file" / "x")
