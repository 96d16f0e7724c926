"""The end mark of a SQLite log, which reveals that acknowledged records at its end were lost.

If a log's WAL was lost or truncated, SQLite sees a valid database that ends too early. The mark is
a small file beside the log with its last acknowledged end. It is written after each commit, without
an fsync: after a crash of the process it is exact; after a crash of the machine it may lag, so that
some losses go unnoticed. A log that was closed has no mark.
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
    """The path of a log's mark."""
    return log.with_name(log.name + "-end")


def read_mark(log: Path) -> End | None:
    """Read the mark; None if it is missing, or torn by a crash of the machine."""
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
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, end: End) -> None:
        """Write a durable end. If the write fails the mark lags, which is harmless."""
        content = _FORMAT.pack(_MAGIC, end.offset, end.epoch, 0)[:-4]
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, content + zlib.crc32(content).to_bytes(4, "little"), 0)

    def close(self, *, remove: bool) -> None:
        """Close the mark; ``remove`` it if the log's own file has all records."""
        os.close(self._descriptor)
        if remove:
            with contextlib.suppress(OSError):
                self._path.unlink()
