"""Recognises a file that was read before, and opens it again.

A file is identified by its inode: a renamed file is the same file, a new file with the same name is
another. A checksum of the first bytes distinguishes it from a truncated and rewritten file, and
from a new file with a reused inode. Standard library only.
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from drover.policy.files import check_opened, check_root

#: How many of a file's first bytes the checksum covers.
HEAD_BYTES = 1024


class FileError(OSError):
    """A file that cannot be read; the message has the file and the reason."""


class FileVanishedError(FileError):
    """A file that was read before no longer exists in its directory under any name."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Inode and checksum of the first bytes; both are needed, as file systems reuse inodes."""

    inode: int
    head_bytes: int = 0
    head_crc32: int = 0

    @classmethod
    def of(cls, descriptor: int, head_bytes: int) -> "FileIdentity":
        """The identity of an open file, with the checksum of its first ``head_bytes``."""
        inode = os.fstat(descriptor).st_ino
        return cls(inode, head_bytes, _checksum(descriptor, head_bytes))

    def matches(self, descriptor: int) -> bool:
        """Whether the open file has this identity."""
        if os.fstat(descriptor).st_ino != self.inode:
            return False
        return _checksum(descriptor, self.head_bytes) == self.head_crc32


def open_file(path: str, identity: FileIdentity) -> int:
    """Open the file of this identity: at its path, or renamed in its directory.

    Raises:
        FileError: No such file, or it cannot be read.
    """
    descriptor = open_if_same(path, identity)
    if descriptor is None:
        renamed = find_renamed(path, identity)
        descriptor = open_if_same(renamed, identity) if renamed is not None else None
    if descriptor is None:
        raise FileVanishedError(f"{path} was removed or replaced while it was read")
    return descriptor


def find_renamed(path: str, identity: FileIdentity) -> str | None:
    """The current path of the file with this identity in the directory of ``path``, or None."""
    try:
        with os.scandir(Path(path).parent) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    continue
                # not entry.inode(): overlay file systems return another number there
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
        check_root(path)  # before its existence shows
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
