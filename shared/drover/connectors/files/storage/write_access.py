"""Checks whether this process may create files, without creating any. Standard library only."""

import os
import stat
from pathlib import Path

#: The limit of the usual file systems for one name.
NAME_MAX_BYTES = 255


def directory_write_fault(path: str) -> str | None:
    """Why files cannot be created in a directory, which may not exist yet; None if they can."""
    for each in Path(path).parts:
        fault = name_fault(each)
        if fault is not None:
            return fault
    found = Path(os.path.realpath(path))
    while True:
        try:
            mode = found.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            found = found.parent
        except PermissionError:
            return f"cannot be written: {_user()} may not open {found.parent}: grant the right"
        else:
            break
    if not stat.S_ISDIR(mode):
        return f"cannot be written: {found} is a file, not a directory"
    if os.access(found, os.W_OK | os.X_OK):
        return None
    return (
        f"cannot be written: {_user()} may not create files in {found}: grant the right, or mount "
        "the file system writable"
    )


def read_fault(path: str) -> str | None:
    """Why an existing file or directory cannot be read; None if it can, or is absent."""
    found = Path(path)
    try:
        mode = found.stat().st_mode
    except PermissionError:
        return f"cannot be read: {_user()} may not open {found.parent}: grant the right"
    except OSError:
        return None
    wanted = os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK
    if os.access(found, wanted):
        return None
    return f"cannot be read: {_user()} has no right to read {found}: grant it"


def file_write_fault(path: str) -> str | None:
    """Why a file, which may not exist yet, cannot be written; None if it can."""
    found = Path(path)
    try:
        mode = found.stat().st_mode
    except OSError:
        return name_fault(found.name) or directory_write_fault(str(found.parent))
    if stat.S_ISDIR(mode):
        return f"cannot be written: {found} is a directory, not a file"
    if os.access(found, os.W_OK):
        return None
    return f"cannot be written: {_user()} has no right to write {found}: grant it"


def name_fault(name: str) -> str | None:
    """Why no file or directory can have a name; None if one can."""
    if len(os.fsencode(name)) > NAME_MAX_BYTES:
        return f"has a name of more than {NAME_MAX_BYTES} bytes: {name[:40]!r}…"
    return None


def component_fault(name: str) -> str | None:
    """Why a text cannot be one part of a path, as the end of a sentence; None if it can."""
    if name in ("", ".", ".."):
        return "is empty" if not name else f"is {name!r}, which is another directory"
    bad = next((each for each in name if each == "/" or not each.isprintable()), None)
    return name_fault(name) if bad is None else f"has {bad!r}"


def _user() -> str:
    return f"the worker's user (number {os.geteuid()})"
