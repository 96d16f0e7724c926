"""What files say, read again when they change."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import structlog

from drover.errors import InvalidArgumentError

#: How often files are looked at, at most.
CHECK_EVERY_S = 1.0

T = TypeVar("T")
_log = structlog.get_logger("drover.security")


class Renewed(Generic[T]):
    """What ``read`` makes of files that may change at any time; threads share it.

    A change that cannot be used is warned of, and what was read before stays.

    Args:
        what: What the files hold, for the log.
        paths: The files.
        read: Reads them; raises InvalidArgumentError when they cannot be used.

    Raises:
        InvalidArgumentError: The first reading failed.
    """

    def __init__(self, what: str, paths: Sequence[str], read: Callable[[], T]) -> None:
        self._what = what
        self._paths = tuple(paths)
        self._read = read
        self._lock = threading.Lock()
        self._stamps = _stamps(self._paths)
        self._present = read()
        self._next_check_s = time.monotonic() + CHECK_EVERY_S

    def present(self) -> T:
        """What the files said last that could be used."""
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
                f"the changed {self._what} cannot be used: the one before stays", why=error.message
            )
        else:
            _log.info(f"the {self._what} was read again", files=list(self._paths))


def _stamps(paths: Sequence[str]) -> list[tuple[int, int, int] | None]:
    """What tells that a file is another one; None of one that is not there."""
    stamps: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            found = os.stat(path)  # noqa: PTH116 - follows links, as mounted secrets are
        except OSError:
            stamps.append(None)
        else:
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return stamps
