"""Where a log ended when it last answered somebody: what tells that its tail is gone.

A log whose write-ahead log was lost or cut short is whole as far as SQLite can see; it only ends
too early. The mark is a small file beside it that says how far it went. It is written after each
commit, without waiting for the disk: after a crash of the process it is exact, and after one of the
machine it may be behind, which only makes it see less. A log that was closed has none.
"""

import contextlib
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

_FORMAT = struct.Struct("<4sqqI")
_MAGIC = b"DREM"


@dataclass(frozen=True, slots=True)
class End:
    """The last offset + 1, and the epoch of the last claim."""

    offset: int
    epoch: int


def mark_path(log: Path) -> Path:
    """The mark of a log's file."""
    return log.with_name(log.name + "-end")


def read_mark(log: Path) -> End | None:
    """What the mark says; None if there is none, or if the machine failed while it was written."""
    try:
        content = mark_path(log).read_bytes()
    except FileNotFoundError:
        return None
    if len(content) != _FORMAT.size:
        return None
    magic, offset, epoch, crc = _FORMAT.unpack(content)
    if magic != _MAGIC or crc != zlib.crc32(content[:-4]):
        return None
    return End(offset, epoch)


class EndMark:
    """Writes the mark of an open log.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, log: Path) -> None:
        self._path = mark_path(log)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, end: End) -> None:
        """Note an end that is durable. A mark that cannot be written stays behind, and is right."""
        content = _FORMAT.pack(_MAGIC, end.offset, end.epoch, 0)[:-4]
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, content + zlib.crc32(content).to_bytes(4, "little"), 0)

    def close(self, *, remove: bool) -> None:
        """Stop writing; ``remove`` it when everything is in the log's own file."""
        os.close(self._descriptor)
        if remove:
            with contextlib.suppress(OSError):
                self._path.unlink()
