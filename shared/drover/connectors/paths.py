"""Which files connectors may touch, and the rule for paths in settings.

Connectors run with the worker's rights for whoever may create them, so a worker says below which
directories their files are. What counts is where a path leads: links are followed first.
"""

import glob
import os
from collections.abc import Mapping
from pathlib import Path

#: The environment variable of engine and executors that lists the directories, with commas between.
ROOTS_VARIABLE = "DROVER_FILE_ROOTS"
_SHOWN_MAX_CHARS = 200


class ForbiddenPathError(PermissionError):
    """A path that leads to where connectors may not read or write."""


def path_fault(path: str) -> str | None:
    """What is wrong with a file's path or glob, or None."""
    if path.endswith("/") and "\0" not in path and Path(path).is_absolute():
        return f"must name a file, not a directory: {path[:_SHOWN_MAX_CHARS]!r}"
    return directory_fault(path)


def directory_fault(path: str) -> str | None:
    """What is wrong with a path to a file or a directory, or a glob, or None."""
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
    """Why a file must not be touched, as the end of a sentence that begins with its path."""
    roots = environment.get(ROOTS_VARIABLE)
    if roots is None:  # outside of an engine: whoever runs this has the rights that it has
        return None
    allowed = [each.strip() for each in roots.split(",") if each.strip()]
    if not allowed:
        return (
            "must not be used: this worker gives connectors no files, as it listens on a network; "
            f"name directories for them in its {ROOTS_VARIABLE}"
        )
    real = os.path.realpath(path)
    if any(_is_below(real, os.path.realpath(root)) for root in allowed):
        return None
    must = f"must be below {', '.join(allowed)} ({ROOTS_VARIABLE} of the worker)"
    return must if real == path else f"leads to {real[:_SHOWN_MAX_CHARS]!r}, which {must}"


def check_root(path: str) -> None:
    """Refuse a path that leads out of the roots.

    Raises:
        ForbiddenPathError: it does.
    """
    fault = root_fault(path)
    if fault is not None:
        raise ForbiddenPathError(f"{path} {fault}")


def check_opened(descriptor: int, path: str) -> None:
    """Refuse a file that was opened and is outside of the roots: no link can be put in between.

    Raises:
        ForbiddenPathError: it is.
    """
    if ROOTS_VARIABLE not in os.environ:
        return
    opened = Path(f"/proc/self/fd/{descriptor}")
    fault = root_fault(str(opened.readlink()) if opened.exists() else path)
    if fault is not None:
        raise ForbiddenPathError(f"{path} {fault}")


def _fixed_part(pattern: str) -> str:
    """The directory in which a glob begins to search; a path without wildcards is itself."""
    parts = Path(pattern).parts
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return str(Path(*parts[:fixed]))


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
