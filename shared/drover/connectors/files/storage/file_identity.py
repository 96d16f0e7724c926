"""Recognising a file that was read before, and opening it again.

A file is identified by its inode: a renamed file is the same file, a new file of the same name is
another. The checksum of its first bytes distinguishes it from a file that was truncated and grew
again, and from one that got the inode of a removed file. Standard library only.
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from drover.connectors.paths import check_opened

#: How many of a file's first bytes its checksum covers.
HEAD_BYTES = 1024


class FileError(OSError):
    """A file that cannot be tailed; the message says which and why."""


class FileVanishedError(FileError):
    """A file that was read before is gone, and no file of its directory is it."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Inode and checksum of the first bytes; file systems reuse inodes, so both count."""

    inode: int
    head_bytes: int = 0
    head_crc32: int = 0

    @classmethod
    def of(cls, descriptor: int, head_bytes: int) -> "FileIdentity":
        """The identity of an open file, with the checksum of its first ``head_bytes``."""
        inode = os.fstat(descriptor).st_ino
        return cls(inode, head_bytes, _checksum(descriptor, head_bytes))

    def matches(self, descriptor: int) -> bool:
        """Whether the open file is this one."""
        if os.fstat(descriptor).st_ino != self.inode:
            return False
        return _checksum(descriptor, self.head_bytes) == self.head_crc32


def open_file(path: str, identity: FileIdentity) -> int:
    """Open the file of this identity: at its path, or renamed in its directory.

    Raises:
        FileError: there is no such file, or it cannot be read; the message says why.
    """
    descriptor = open_if_same(path, identity)
    if descriptor is None:
        renamed = find_renamed(path, identity)
        descriptor = open_if_same(renamed, identity) if renamed is not None else None
    if descriptor is None:
        raise FileVanishedError(f"{path} was removed or replaced while it was read")
    return descriptor


def find_renamed(path: str, identity: FileIdentity) -> str | None:
    """Where in the directory of ``path`` the file of this identity is now, or None."""
    try:
        with os.scandir(Path(path).parent) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    continue
                # not entry.inode(): overlay file systems give another number there
                if entry.stat(follow_symlinks=False).st_ino != identity.inode:
                    continue
                descriptor = open_if_same(entry.path, identity)
                if descriptor is not None:
                    os.close(descriptor)
                    return entry.path
    except OSError:
        return None
    return None


def open_if_same(path: str, identity: FileIdentity) -> int | None:
    """A descriptor of the file at ``path`` if it has this identity; the caller closes it."""
    descriptor = -1
    matches = False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        check_opened(descriptor, path)
        matches = identity.matches(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    finally:
        if descriptor >= 0 and not matches:
            os.close(descriptor)
    return descriptor if matches else None


def _checksum(descriptor: int, length: int) -> int:
    return zlib.crc32(os.pread(descriptor, length, 0)) if length else 0
