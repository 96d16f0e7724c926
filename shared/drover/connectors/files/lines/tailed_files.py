"""Files that grow line by line: tracks the read position and plans ranges of whole lines.

Standard library only.
"""

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drover.connectors.files.storage.file_identity import (
    HEAD_BYTES,
    FileError,
    FileIdentity,
    FileVanishedError,
    find_renamed,
    open_if_same,
)

#: A longer line fails the task instead of exhausting memory.
LINE_MAX_BYTES = 256 * 1024 * 1024
_BLOCK_BYTES = 256 * 1024
_SAMPLE_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Whole lines of a file: bytes ``start`` to ``end`` - 1."""

    path: str
    identity: FileIdentity
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """The number of bytes."""
        return self.end - self.start


class TailedFile:
    """One file and its read position."""

    def __init__(self, path: str, offset: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self._position = 0
        self._identity: FileIdentity | None = None
        if offset is not None:
            self._position = int(offset["position"])
            if "inode" in offset:
                self._identity = FileIdentity(
                    int(offset["inode"]),
                    int(offset.get("head_bytes", 0)),
                    int(offset.get("head_crc32", 0)),
                )
        #: There is no line end between the position and here.
        self._scanned = self._position
        self._seen: tuple[int, int] | None = None

    @property
    def read_to_end(self) -> bool:
        """Whether nothing was left to read at the last check."""
        return self._seen is not None and self._seen[0] <= self._position

    def offset(self) -> dict[str, Any]:
        """The read position, and the identity of the file."""
        assert self._identity is not None
        return {"position": self._position, **asdict(self._identity)}

    def plan(self, *, max_bytes: int, max_lines: int, range_bytes: int) -> list[ByteRange]:
        """The next whole lines, in ranges of about ``range_bytes``; empty when there are none.

        Advances the position past them. A single line may be longer than ``max_bytes``.

        Raises:
            FileError: The file vanished, cannot be read, or has a line that is too long.
        """
        status = _status(self.path)
        if self._identity is None:
            if status is None:
                return []
            self._identity = FileIdentity(status.st_ino)
        if status is not None and status.st_ino == self._identity.inode:
            return self._plan_from(self.path, status, max_bytes, max_lines, range_bytes)
        return self._plan_renamed(status, max_bytes, max_lines, range_bytes)

    def _plan_renamed(
        self, successor: os.stat_result | None, max_bytes: int, max_lines: int, range_bytes: int
    ) -> list[ByteRange]:
        """Plan the rest of the renamed file first, then its successor when that has data."""
        assert self._identity is not None
        renamed = find_renamed(self.path, self._identity)
        status = _status(renamed) if renamed is not None else None
        if renamed is None or status is None:
            if successor is None:
                raise FileVanishedError(
                    f"{self.path} has vanished (it was read up to byte {self._position}): put it "
                    "back, or reset the connector's offsets"
                )
            _log.warning("%s was replaced; reading the new file from its start", self.path)
            self._begin(successor.st_ino)
            return self._plan_from(self.path, successor, max_bytes, max_lines, range_bytes)
        before = self._seen
        planned = self._plan_from(renamed, status, max_bytes, max_lines, range_bytes)
        finished = before == (status.st_size, status.st_mtime_ns)
        if planned or not finished or successor is None or successor.st_size == 0:
            return planned
        if self._position < status.st_size:  # the last line will not be completed
            return self._take_tail(renamed, status.st_size)
        self._begin(successor.st_ino)
        return self._plan_from(self.path, successor, max_bytes, max_lines, range_bytes)

    def _take_tail(self, path: str, size: int) -> list[ByteRange]:
        assert self._identity is not None
        descriptor = open_if_same(path, self._identity)
        if descriptor is None:
            return []
        try:
            return self._advance(descriptor, path, size, size)
        finally:
            os.close(descriptor)

    def _plan_from(
        self,
        path: str,
        status: os.stat_result,
        max_bytes: int,
        max_lines: int,
        range_bytes: int,
    ) -> list[ByteRange]:
        seen = (status.st_size, status.st_mtime_ns)
        if seen == self._seen and status.st_size <= self._scanned:
            return []
        descriptor = open_if_same(path, FileIdentity(status.st_ino))
        if descriptor is None:
            return []  # renamed just now: the next scan finds it
        try:
            assert self._identity is not None
            size = os.fstat(descriptor).st_size
            if size < self._position or not self._identity.matches(descriptor):
                _log.warning("%s was truncated or replaced; reading it from its start", path)
                self._begin(status.st_ino)
            self._seen = seen
            if max_lines < max_bytes:
                max_bytes = min(max_bytes, self._estimate_bytes(descriptor, max_lines))
            end = self._find_end(descriptor, size, max_bytes)
            if end is None:
                return []
            if end < size:
                self._seen = None  # more lines may be available
            return self._advance(descriptor, path, end, range_bytes)
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error}") from error
        finally:
            os.close(descriptor)

    def _find_end(self, descriptor: int, size: int, max_bytes: int) -> int | None:
        """The end of the last whole line within ``max_bytes``, else of the first one after."""
        limit = min(size, self._position + max_bytes)
        end = _last_newline(descriptor, self._scanned, limit)
        if end is None and limit < size:
            # limit the search to the longest line: searching a file without line ends may take
            # minutes
            reach = min(size, self._position + max(max_bytes, LINE_MAX_BYTES) + 1)
            end = _next_newline(descriptor, max(limit, self._scanned), reach)
        if end is None:
            self._scanned = max(self._scanned, size)
        if (end or self._scanned) - self._position > max(max_bytes, LINE_MAX_BYTES):
            raise FileError(
                f"{self.path} has a line of more than {LINE_MAX_BYTES} bytes at byte "
                f"{self._position}: it cannot become a record"
            )
        return end

    def _estimate_bytes(self, descriptor: int, max_lines: int) -> int:
        sample = os.pread(descriptor, _SAMPLE_BYTES, self._position)
        lines = sample.count(b"\n")
        return max(1, len(sample) * max_lines // lines) if lines else _SAMPLE_BYTES

    def _begin(self, inode: int) -> None:
        self._identity = FileIdentity(inode)
        self._position = self._scanned = 0
        self._seen = None

    def _advance(self, descriptor: int, path: str, end: int, range_bytes: int) -> list[ByteRange]:
        assert self._identity is not None
        head_bytes = min(end, HEAD_BYTES)
        self._identity = FileIdentity.of(descriptor, head_bytes)
        ranges = []
        while self._position < end:
            cut = end
            if end - self._position > range_bytes:
                wanted = self._position + range_bytes
                cut = _next_newline(descriptor, wanted - 1, end) or end
            ranges.append(ByteRange(path, self._identity, self._position, cut))
            self._position = cut
        self._scanned = end
        return ranges


def _status(path: str) -> os.stat_result | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise FileError(f"{path} is {what}: name a file")
    return status


def _last_newline(descriptor: int, start: int, end: int) -> int | None:
    """The position after the last newline in [start, end), searched from the end."""
    while end > start:
        begin = max(start, end - _BLOCK_BYTES)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return None


def _next_newline(descriptor: int, start: int, end: int) -> int | None:
    """The position after the first newline in [start, end)."""
    while start < end:
        block = os.pread(descriptor, min(_BLOCK_BYTES, end - start), start)
        if not block:
            return None
        found = block.find(b"\n")
        if found >= 0:
            return start + found + 1
        start += len(block)
    return None
