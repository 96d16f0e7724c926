"""The guard's clean-up; tests/e2e covers its effect on real processes."""

import fcntl
import os
import signal
from pathlib import Path

import pytest

from drover_worker.engine.guard import remove_leftovers, shell_exit_code


def _old_directory(parent: Path, name: str) -> Path:
    directory = parent / name
    (directory / "spark").mkdir(parents=True)
    os.utime(directory, (1, 1))
    return directory


def test_only_old_directories_that_nobody_holds_are_removed(tmp_path: Path) -> None:
    leftover = _old_directory(tmp_path, "drover-engine-1")
    held = _old_directory(tmp_path, "drover-engine-2")
    foreign = _old_directory(tmp_path, "something-else")
    young = tmp_path / "drover-engine-3"
    young.mkdir()
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    remove_leftovers(tmp_path)
    os.close(descriptor)
    assert not leftover.exists()
    assert all(each.exists() for each in (held, foreign, young))


@pytest.mark.parametrize(
    ("status", "code"), [(0, 0), (82 << 8, 82), (signal.SIGKILL, 137), (signal.SIGTERM, 143)]
)
def test_an_exit_code_is_as_a_shell_shows_it(status: int, code: int) -> None:
    assert shell_exit_code(status) == code
