"""Restricts the files that connectors may access, and validates paths in settings.

Connectors run with the worker's rights on behalf of every user who may create them, so a worker
restricts them to some directories. The check applies to the target of a path: links are resolved
first.
"""

import glob
import os
from collections.abc import Mapping
from pathlib import Path

#: The environment variable of engine and executors with the directories, comma-separated.
ROOTS_VARIABLE = "DROVER_FILE_ROOTS"
_SHOWN_MAX_CHARS = 200


class ForbiddenPathError(PermissionError):
    """A path outside of the directories that connectors may access."""


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
    if not Path(path).is_absolute():
        return (
            f"must be an absolute path, as tasks run on any worker, not {path[:_SHOWN_MAX_CHARS]!r}"
        )
    return root_fault(_fixed_part(path))


def root_fault(path: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why a file must not be accessed, as the end of a sentence that starts with its path."""
    roots = environment.get(ROOTS_VARIABLE)
    if roots is None:  # outside of an engine no restriction applies
        return None
    allowed = [each.strip() for each in roots.split(",") if each.strip()]
    if not allowed:
        return (
            "must not be used: connectors of this worker may access no files, because it listens "
            f"on a network: set the allowed directories in its {ROOTS_VARIABLE}"
        )
    real = os.path.realpath(path)
    if any(_is_below(real, os.path.realpath(root)) for root in allowed):
        return None
    must = f"must be below {', '.join(allowed)} ({ROOTS_VARIABLE} of the worker)"
    return must if real == path else f"leads to {real[:_SHOWN_MAX_CHARS]!r}, which {must}"


def check_root(path: str) -> None:
    """Check that a path is within the roots.

    Raises:
        ForbiddenPathError: It is not.
    """
    fault = root_fault(path)
    if fault is not None:
        raise ForbiddenPathError(f"{path} {fault}")


def check_opened(descriptor: int, path: str) -> None:
    """Check that an opened file is within the roots; no link can be swapped in after opening.

    Raises:
        ForbiddenPathError: It is not.
    """
    if ROOTS_VARIABLE not in os.environ:
        return
    opened = Path(f"/proc/self/fd/{descriptor}")
    fault = root_fault(str(opened.readlink()) if opened.exists() else path)
    if fault is not None:
        raise ForbiddenPathError(f"{path} {fault}")


def _fixed_part(pattern: str) -> str:
    """The directory in which a glob starts to search; a path without wildcards is unchanged."""
    parts = Path(pattern).parts
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return str(Path(*parts[:fixed]))


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
