"""Files that rows are read from, on a disk or in an object store: what reading needs of both.

A driver finds files and plans pieces of them, executors open them again to read the pieces.
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
from drover.connectors.paths import check_opened

_TAIL_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Look:
    """A file as it is now: ``changed`` differs when it does, and is what JSON can say.

    ``modified_ns`` is when it was changed last; 0 for a file that is complete as soon as it is
    there. ``fault`` is why it cannot be read, or None.
    """

    changed: tuple[int | str, ...]
    modified_ns: int
    fault: str | None = None


class OpenFile(Protocol):
    """A file that is open for reading."""

    @property
    def size_bytes(self) -> int:
        """How many bytes it has now."""

    def pread(self, length: int, at: int) -> bytes:
        """The bytes from ``at`` on; fewer than ``length`` at its end only."""

    def stream(self) -> IO[bytes]:
        """The file for libraries that read files; it is closed with this."""

    def identity(self, head_bytes: int) -> dict[str, Any]:
        """How the file is known again while it grows, by so many of its first bytes."""

    def fingerprint(self) -> dict[str, Any]:
        """How the whole file is known again, if it does not grow."""

    def matches(self, offset: Mapping[str, Any]) -> bool:
        """Whether this is the file whose ``identity`` is in an offset."""

    def __enter__(self) -> Self:
        """Itself."""

    def __exit__(self, *exc: object) -> None:
        """Close it."""


class FileReference(Protocol):
    """A file that was planned, to be opened on an executor; may be pickled."""

    @property
    def path(self) -> str:
        """What it is called."""

    def open(self) -> OpenFile:
        """Open it.

        Raises:
            FileError: it is gone, is another, or cannot be read.
        """


class Files(Protocol):
    """The files that a source has found."""

    def find(self, *, by_time: bool) -> Sequence[str]:
        """Their paths, ordered by name, or by time of change and then by name."""

    def look(self, path: str) -> Look | None:
        """A file as it is now; None when it is gone.

        Raises:
            FileError: it cannot be looked at.
        """

    def open(self, path: str) -> OpenFile:
        """Open a file to plan pieces of it.

        Raises:
            FileError: it cannot be read.
        """

    def reference(self, path: str, identity: Mapping[str, Any]) -> FileReference:
        """The file of an ``identity`` or ``fingerprint``, for executors."""


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
    """A file on a disk, which may have been renamed since; one without ``identity`` may not."""

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
    """Files on a disk: one, those of a directory, or those of a glob."""

    pattern: str

    def find(self, *, by_time: bool) -> Sequence[str]:
        """See Files; one that is gone comes first."""
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
    """Open a file for reading, inside of the worker's roots.

    Raises:
        FileError: it cannot be; the message says why.
    """
    try:
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
    """The files that a path, directory or glob names; directories in them are left out."""
    if glob.has_magic(pattern):
        found = glob.glob(pattern, recursive=True)  # noqa: PTH207 (Path.glob takes no absolute pattern)
        return [path for path in found if not Path(path).is_dir()]
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
