"""The interface of readable files, on a disk or in an object store.

The driver finds files and plans pieces; executors open the files again to read the pieces.
"""

import glob
import os
import stat
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self

from drover.connectors.files.storage.file_identity import FileError, FileIdentity, open_file
from drover.policy.files import check_opened, check_root, in_allowed_directories, root_fault

_TAIL_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Look:
    """The current state of a file: ``changed``, a JSON value, differs after each change.

    ``modified_ns`` is the time of the last change; 0 for files that are always complete. ``fault``
    is why the file cannot be read, or None.
    """

    changed: tuple[int | str, ...]
    modified_ns: int
    fault: str | None = None


class OpenFile(Protocol):
    """A file that is open for reading."""

    @property
    def size_bytes(self) -> int:
        """The current size in bytes."""

    def pread(self, length: int, at: int) -> bytes:
        """The bytes from ``at`` on; fewer than ``length`` only at the end."""

    def stream(self) -> IO[bytes]:
        """The file as a stream for libraries; closed together with this object."""

    def identity(self, head_bytes: int) -> dict[str, Any]:
        """The identity of a file that may grow, from its first ``head_bytes`` bytes."""

    def fingerprint(self) -> dict[str, Any]:
        """The identity of a file that does not grow."""

    def matches(self, offset: Mapping[str, Any]) -> bool:
        """Whether the file has the ``identity`` in an offset."""

    def __enter__(self) -> Self:
        """Return the file."""

    def __exit__(self, *exc: object) -> None:
        """Close the file."""


class FileReference(Protocol):
    """A planned file, to be opened on an executor; picklable."""

    @property
    def path(self) -> str:
        """The file's path."""

    def open(self) -> OpenFile:
        """Open the file.

        Raises:
            FileError: The file was removed or replaced, or cannot be read.
        """


class Files(Protocol):
    """The files of a source."""

    def find(self, *, by_time: bool) -> Sequence[str]:
        """Their paths, ordered by name, or by modification time and then by name."""

    def look(self, path: str) -> Look | None:
        """The current state of a file; None if it was removed.

        Raises:
            FileError: The file cannot be inspected.
        """

    def open(self, path: str) -> OpenFile:
        """Open a file to plan its pieces.

        Raises:
            FileError: The file cannot be read.
        """

    def reference(self, path: str, identity: Mapping[str, Any]) -> FileReference:
        """A reference to the file with an ``identity`` or ``fingerprint``, for executors."""


class LocalFile:
    """A file on a disk."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "rb")

    @property
    def size_bytes(self) -> int:
        """See OpenFile."""
        return os.fstat(self._file.fileno()).st_size

    def pread(self, length: int, at: int) -> bytes:
        """See OpenFile."""
        parts = []
        while length > 0:
            part = os.pread(self._file.fileno(), length, at)
            if not part:
                break
            parts.append(part)
            at, length = at + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stream(self) -> IO[bytes]:
        """See OpenFile."""
        return self._file

    def identity(self, head_bytes: int) -> dict[str, Any]:
        """See OpenFile."""
        return asdict(FileIdentity.of(self._file.fileno(), head_bytes))

    def fingerprint(self) -> dict[str, Any]:
        """See OpenFile."""
        size = self.size_bytes
        tail = self.pread(_TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return {"size": size, "tail_crc32": zlib.crc32(tail)}

    def matches(self, offset: Mapping[str, Any]) -> bool:
        """See OpenFile."""
        return "inode" in offset and _identity(offset).matches(self._file.fileno())

    def __enter__(self) -> Self:
        """See OpenFile."""
        return self

    def __exit__(self, *exc: object) -> None:
        """See OpenFile."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class LocalReference:
    """A file on a disk, possibly renamed since; without ``identity`` it must be at its path."""

    path: str
    identity: FileIdentity | None
    size_bytes: int | None = None

    def open(self) -> OpenFile:
        """See FileReference."""
        if self.identity is not None:
            return LocalFile(open_file(self.path, self.identity))
        file = open_checked(self.path)
        if file.size_bytes != self.size_bytes:
            with file:
                raise FileError("was replaced while it was read")
        return file


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Files on a disk: a single one, a directory, or a glob."""

    pattern: str

    def find(self, *, by_time: bool) -> Sequence[str]:
        """See Files; files that vanish during the search sort first."""
        paths = matching_paths(self.pattern)
        return sorted(paths, key=lambda path: (_changed_ns(path) if by_time else 0, path))

    def look(self, path: str) -> Look | None:
        """See Files."""
        try:
            status = Path(path).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"cannot be read: {error}") from error
        fault = None if stat.S_ISREG(status.st_mode) else "is not a regular file"
        return Look((status.st_size, status.st_ctime_ns), status.st_mtime_ns, fault)

    def open(self, path: str) -> OpenFile:
        """See Files."""
        return open_checked(path)

    def reference(self, path: str, identity: Mapping[str, Any]) -> FileReference:
        """See Files."""
        if "inode" in identity:
            return LocalReference(path, _identity(identity))
        return LocalReference(path, None, identity["size"])


def open_checked(path: str) -> LocalFile:
    """Open a file for reading, within the worker's roots.

    Raises:
        FileError: The file cannot be opened; the message has the reason.
    """
    try:
        check_root(path)  # before its existence shows
        file = LocalFile(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    try:
        check_opened(file.stream().fileno(), path)
    except OSError as error:
        with file:
            raise FileError(f"{path} cannot be read: {error}") from error
    return file


def matching_paths(pattern: str) -> list[str]:
    """The files of a path, directory or glob, without directories."""
    if glob.has_magic(pattern):
        found = glob.glob(pattern, recursive=True)  # noqa: PTH207 (Path.glob takes no absolute pattern)
        return [path for path in in_allowed_directories(found) if not Path(path).is_dir()]
    if root_fault(pattern) is not None:  # a link was swapped in since validation
        return []
    try:
        with os.scandir(pattern) as entries:
            return [
                entry.path
                for entry in entries
                if not entry.name.startswith((".", "_")) and not entry.is_dir()
            ]
    except NotADirectoryError:
        return [pattern]
    except FileNotFoundError:
        return []


def _changed_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def _identity(offset: Mapping[str, Any]) -> FileIdentity:
    return FileIdentity(offset["inode"], offset["head_bytes"], offset["head_crc32"])
