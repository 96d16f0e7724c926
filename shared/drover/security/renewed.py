"""Values from files, reloaded when the files change."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import structlog

from drover.errors import InvalidArgumentError

#: The minimum interval between two checks of the files.
CHECK_EVERY_S = 1.0

T = TypeVar("T")
_log = structlog.get_logger("drover.security")


class Renewed(Generic[T]):
    """A value that ``read`` creates from files and that is reloaded when they change. Thread-safe.

    If the changed files cannot be used, a warning is logged and the previous value stays.

    Args:
        name: The name of the value in log events.
        paths: The files.
        read: Reads the files; raises InvalidArgumentError if they cannot be used.

    Raises:
        InvalidArgumentError: The first read failed.
    """

    def __init__(self, name: str, paths: Sequence[str], read: Callable[[], T]) -> None:
        self._name = name
        self._paths = tuple(paths)
        self._read = read
        self._lock = threading.Lock()
        self._stamps = _stamps(self._paths)
        self._present = read()
        self._next_check_s = time.monotonic() + CHECK_EVERY_S

    def present(self) -> T:
        """The value of the last successful read, after a check of the files if it is due."""
        with self._lock:
            if time.monotonic() >= self._next_check_s:
                self._check()
                self._next_check_s = time.monotonic() + CHECK_EVERY_S
            return self._present

    def _check(self) -> None:
        stamps = _stamps(self._paths)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._present = self._read()
        except InvalidArgumentError as error:
            _log.warning(
                f"the changed {self._name} cannot be used: the previous one stays",
                why=error.message,
            )
        else:
            _log.info(f"the {self._name} was reloaded", files=list(self._paths))


def _stamps(paths: Sequence[str]) -> list[tuple[int, int, int] | None]:
    """The modification time, size and inode of each file; None for a missing file."""
    stamps: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            stat = os.stat(path)  # noqa: PTH116 - follows links, since mounted secrets are links
        except OSError:
            stamps.append(None)
        else:
            stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return stamps
