"""Reads archives that may be damaged or hostile: bounded in entries, sizes and ratio.

An archive with a link, or with a path that leaves the folder into which it is unpacked, is refused.
"""

import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

_CHUNK_BYTES = 1024 * 1024
_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700
_RATIO_FROM_BYTES = 64 * 1024 * 1024
_ENCRYPTED = 0x1
_TAR_ENDS = (".tar.gz", ".tgz", ".tar")


class ArchiveError(Exception):
    """An archive cannot be used; the message is a sentence with the archive's path."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may contain.

    Attributes:
        entries: The number of files and folders.
        size_bytes: The size of all files together, when unpacked.
        ratio: How many times larger than the archive the files may be; small archives may have any
            ratio.
    """

    entries: int = 200_000
    size_bytes: int = 4 * 1024**3
    ratio: int = 100


LIMITS = ArchiveLimits()


@contextmanager
def opened_zip(path: Path, limits: ArchiveLimits = LIMITS) -> Iterator[zipfile.ZipFile]:
    """A zip archive or jar, whose claimed sizes have been checked.

    Raises:
        ArchiveError: It is no zip archive, damaged, or beyond the limits.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check_sizes(path, len(entries), sum(each.file_size for each in entries), limits)
            yield archive
    except zipfile.BadZipFile as error:
        raise ArchiveError(f"{path} is no zip archive, or it is damaged ({error})") from None
    except (zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArchiveError(f"{path} is damaged or has an unknown compression: {error}") from None
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}") from error


def unpack(path: Path, target: Path, limits: ArchiveLimits = LIMITS) -> None:
    """Unpack a zip archive or a tar archive into a new or empty folder.

    Raises:
        ArchiveError: It is no archive, damaged, beyond the limits, or has a link, a special file,
            or a path that leaves the folder. The folder may have some of its files.
        OSError: A file cannot be written.
    """
    try:
        if path.name.lower().endswith(_TAR_ENDS):
            _unpack_tar(path, target, limits)
        else:
            _unpack_zip(path, target, limits)
    except _WriteError as error:
        raise error.reason from None


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size_bytes_max: int) -> bytes:
    """The contents of an entry, at most ``size_bytes_max`` bytes and one more."""
    with archive.open(entry) as stream:
        return stream.read(size_bytes_max + 1)


def _check_sizes(path: Path, entries: int, size_bytes: int, limits: ArchiveLimits) -> None:
    if entries > limits.entries:
        raise ArchiveError(f"{path} has more than {limits.entries} entries")
    if size_bytes > limits.size_bytes:
        raise ArchiveError(
            f"{path} has more than {limits.size_bytes} bytes when it is unpacked, the limit"
        )
    if size_bytes > max(_RATIO_FROM_BYTES, limits.ratio * path.stat().st_size):
        raise ArchiveError(
            f"{path} is more than {limits.ratio} times larger when it is unpacked, like an archive"
            " made to fill a disk"
        )


def _unpack_zip(path: Path, target: Path, limits: ArchiveLimits) -> None:
    with opened_zip(path, limits) as archive:
        budget = _Budget(path, limits)
        for entry in archive.infolist():
            place = _place(path, entry.filename, target)
            mode = entry.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ArchiveError(f"{path} has a link or a special file: {entry.filename!r}")
            if entry.flag_bits & _ENCRYPTED:
                raise ArchiveError(f"{path} has an encrypted file: {entry.filename!r}")
            if entry.is_dir() or (entry.filename.endswith("\\") and not entry.file_size):
                _make_folder(place)
            else:
                _write(place, lambda at=entry: archive.open(at), budget)  # type: ignore[misc]


def _unpack_tar(path: Path, target: Path, limits: ArchiveLimits) -> None:
    budget = _Budget(path, limits)
    try:
        with tarfile.open(path, "r:*") as archive:
            for number, entry in enumerate(archive):
                place = _place(path, entry.name, target)
                if not (entry.isfile() or entry.isdir()):
                    raise ArchiveError(f"{path} has a link or a special file: {entry.name!r}")
                _check_sizes(path, number + 1, budget.used_bytes + entry.size, limits)
                if entry.isdir():
                    _make_folder(place)
                else:
                    _write(place, lambda at=entry: archive.extractfile(at), budget)  # type: ignore[misc]
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise ArchiveError(f"{path} is no tar archive, or it is damaged ({error})") from None


def _place(path: Path, name: str, target: Path) -> Path:
    """Where to write an entry."""
    parts = PurePosixPath(name.replace("\\", "/"))
    drive = len(name) > 1 and name[1] == ":"
    if parts.is_absolute() or ".." in parts.parts or drive or "\x00" in name:
        raise ArchiveError(f"{path} has a path that leaves its folder: {name!r}")
    return target / parts


class _Budget:
    """Counts the written bytes of an archive: the sizes that it claims may be wrong."""

    def __init__(self, path: Path, limits: ArchiveLimits) -> None:
        self._path, self._limits = path, limits
        self.used_bytes = 0

    def use(self, count: int) -> None:
        self.used_bytes += count
        _check_sizes(self._path, 0, self.used_bytes, self._limits)


class _WriteError(Exception):
    """A file cannot be written, whatever the archive is."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _WriteError(error) from None


def _make_folder(place: Path) -> None:
    try:
        with _writing():
            place.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    except _WriteError as error:
        if isinstance(error.reason, FileExistsError | NotADirectoryError):
            raise _two_entries(place) from None
        raise


def _two_entries(place: Path) -> ArchiveError:
    return ArchiveError(f"an archive has two entries with one path: {place.name!r}")


def _write(place: Path, open_entry: Callable[[], IO[bytes] | None], budget: _Budget) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    _make_folder(place.parent)
    try:
        with _writing():
            descriptor = os.open(place, flags, _FILE_MODE)
    except _WriteError as error:
        if isinstance(error.reason, FileExistsError | IsADirectoryError | NotADirectoryError):
            raise _two_entries(place) from None
        raise
    try:
        source = open_entry()
        assert source is not None
        with source:
            while chunk := source.read(_CHUNK_BYTES):
                budget.use(len(chunk))
                with _writing():
                    _write_all(descriptor, chunk)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def copy_folder(source: Path, target: Path, limits: ArchiveLimits = LIMITS) -> None:
    """Copy a folder without its links and special files, which are refused.

    Raises:
        ArchiveError: It has a link, a special file, or is beyond the limits.
        OSError: A file cannot be read or written.
    """
    used_bytes = count = 0
    target.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    for folder, folders, files in os.walk(source, onerror=_raise):
        at = target / Path(folder).relative_to(source)
        for name in (*folders, *files):
            path = Path(folder) / name
            status = path.lstat()
            count += 1
            if stat.S_ISDIR(status.st_mode):
                (at / name).mkdir(mode=_DIRECTORY_MODE)
                continue
            if not stat.S_ISREG(status.st_mode):
                raise ArchiveError(
                    f"{path} is a link or a special file: replace it with the file, or remove it"
                )
            used_bytes += status.st_size
            if used_bytes > limits.size_bytes or count > limits.entries:
                raise ArchiveError(
                    f"{source} has more than {limits.entries} files or {limits.size_bytes} bytes,"
                    " the limit"
                )
            copy_file(path, at / name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file to a new file for the current user only.

    Raises:
        OSError: It cannot be read or written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with source.open("rb") as reader, os.fdopen(os.open(target, flags, _FILE_MODE), "wb") as writer:
        shutil.copyfileobj(reader, writer, _CHUNK_BYTES)


def _raise(error: OSError) -> None:
    raise error
