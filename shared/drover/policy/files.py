"""Restricts the files that connectors may access, and validates paths in settings.

Connectors run with the worker's rights on behalf of every user who may create them, so a worker
restricts them to some directories. The check applies to the target of a path: links are resolved
first. Messages do not reveal whether a file outside of the directories exists.
"""

import glob
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: The environment variable of engine and executors with the directories, comma-separated.
ROOTS_VARIABLE = "DROVER_FILE_ROOTS"
#: The environment variable of engine and executors with the files and directories of the worker
#: that connectors must not access, as a JSON list.
DENIED_VARIABLE = "DROVER_DENIED_FILES"
#: The kernel's files, of which some show or change processes; except files in memory, and nothing.
_SYSTEM = ("/proc", "/sys", "/dev")
_PLAIN = ("/dev/shm", "/dev/null")
_SHOWN_MAX_CHARS = 200
_OF_WORKER = "must not be used: it belongs to the worker, and connectors never access its files"
#: Files of the worker that a file with several names is compared with.
_LINKS_MAX = 100_000
#: Linux's limit for a path; checks take time for each directory in it.
_PATH_MAX_BYTES = 4096


class ForbiddenPathError(PermissionError):
    """A path that connectors may not access."""


def path_fault(path: str) -> str | None:
    """The error in a file's path or glob, or None."""
    if path.endswith("/") and "\0" not in path and Path(path).is_absolute():
        return f"must name a file, not a directory: {path[:_SHOWN_MAX_CHARS]!r}"
    return directory_fault(path)


def directory_fault(path: str) -> str | None:
    """The error in a path to a file or directory, or in a glob, or None."""
    if "\0" in path:
        return "must not contain a NUL character"
    if not path:
        return None
    if len(path.encode(errors="replace")) > _PATH_MAX_BYTES:
        return f"must not be longer than {_PATH_MAX_BYTES} bytes"
    if not Path(path).is_absolute():
        return (
            f"must be an absolute path, as tasks run on any worker, not {path[:_SHOWN_MAX_CHARS]!r}"
        )
    return root_fault(_fixed_part(path))


def existing_file_fault(path: str) -> str | None:
    """The error in the path of a file that must exist, such as a certificate, or None."""
    return directory_fault(path) or (None if Path(path).is_file() else "is no file on this worker")


def local_path(location: str) -> str | None:
    """The path of a location on a disk, a ``file:`` URL or a path; None for other locations."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme in ("", "file") else None


def root_fault(path: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why a file must not be accessed, as the end of a sentence that starts with its path."""
    roots = environment.get(ROOTS_VARIABLE)
    if roots is None:  # outside of an engine no restriction applies
        return None
    allowed = [each.strip() for each in roots.split(",") if each.strip()]
    if not allowed:
        return (
            "must not be used: connectors of this worker may access no files, because it listens "
            "on a network or has an access file: its operator sets the allowed directories in "
            f"{ROOTS_VARIABLE} (drover up --file-roots)"
        )
    try:
        real = os.path.realpath(path)
    except ValueError:
        return "must not contain a NUL character"
    must = (
        f"must be below {', '.join(allowed)} ({ROOTS_VARIABLE} of the worker, or drover up "
        "--file-roots)"
    )
    if not any(_is_below(real, os.path.realpath(root)) for root in allowed):
        named = os.path.normpath(path)
        if any(_is_below(named, os.path.normpath(root)) for root in allowed):
            return f"leads out of the allowed directories: it {must}"
        return must
    if any(_is_below(real, each) for each in _SYSTEM) and not any(
        _is_below(real, each) for each in _PLAIN
    ):
        return f"must not be used: connectors never access {', '.join(_SYSTEM)}"
    denied = _denied(environment)
    if any(_is_below(real, os.path.realpath(each)) for each in denied):
        return _OF_WORKER
    with suppress(OSError):
        return _link_fault(os.stat(real), denied)  # noqa: PTH116 - Path.stat is the same
    return None


def check_root(path: str) -> None:
    """Check that connectors may access a path.

    Raises:
        ForbiddenPathError: They may not.
    """
    fault = root_fault(path)
    if fault is not None:
        raise ForbiddenPathError(f"{path} {fault}")


def check_opened(descriptor: int, path: str) -> None:
    """Check that connectors may access an opened file; no link can be swapped in after opening.

    Raises:
        ForbiddenPathError: They may not.
    """
    if ROOTS_VARIABLE not in os.environ:
        return
    opened = Path(f"/proc/self/fd/{descriptor}")
    fault = root_fault(str(opened.readlink()) if opened.exists() else path) or _link_fault(
        os.fstat(descriptor), _denied(os.environ)
    )
    if fault is not None:
        raise ForbiddenPathError(f"{path} {fault}")


def in_allowed_directories(paths: Iterable[str]) -> list[str]:
    """The paths whose directories connectors may access, as links may lead a glob elsewhere."""
    known: dict[str, bool] = {}
    found = []
    for each in paths:
        parent = os.path.dirname(each)  # noqa: PTH120 - ten times faster, for many files
        if parent not in known:
            known[parent] = root_fault(parent) is None
        if known[parent]:
            found.append(each)
    return found


def _denied(environment: Mapping[str, str]) -> list[str]:
    text = environment.get(DENIED_VARIABLE)
    return [] if text is None else [str(each) for each in json.loads(text)]


def _link_fault(status: os.stat_result, denied: Iterable[str]) -> str | None:
    """The fault of a file that is one of the worker's by another name (a hard link), or None."""
    if status.st_nlink < 2 or stat.S_ISDIR(status.st_mode):
        return None
    count = 0
    for each in denied:
        for path in chain((each,), _files_below(each)):
            count += 1
            if count > _LINKS_MAX:
                return (
                    "must not be used: it has several names (hard links), and one of them may be "
                    "a file of the worker, which has too many files to compare; copy the file"
                )
            with suppress(OSError):
                if os.path.samestat(os.lstat(path), status):
                    return _OF_WORKER
    return None


def _files_below(directory: str) -> Iterator[str]:
    for parent, _, names in os.walk(directory):
        yield from (os.path.join(parent, each) for each in names)  # noqa: PTH118 - many files


def _fixed_part(pattern: str) -> str:
    """The directory in which a glob starts to search; a path without wildcards is unchanged."""
    parts = Path(pattern).parts
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return str(Path(*parts[:fixed]))


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
