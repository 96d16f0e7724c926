"""The rule for paths in settings."""

from pathlib import Path


def path_fault(path: str) -> str | None:
    """What is wrong with a file's path, or None."""
    if "\0" in path:
        return "must not contain a NUL character"
    if path and not Path(path).is_absolute():
        return f"must be an absolute path, as tasks run on any worker, not {path[:80]!r}"
    if path.endswith("/"):
        return f"must name a file, not a directory: {path[:80]!r}"
    return None
