"""The repository's own files, for tests of its rules."""

import subprocess
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_GENERATED = "shared/drover/api/"


@cache
def tracked_files() -> tuple[Path, ...]:
    """The tracked files that exist, relative to the root; without git, the files that are not
    ignored.
    """
    listed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files", "-z"], capture_output=True, check=False
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return tuple(Path(name) for name in names if (REPOSITORY / name).is_file())
    return tuple(
        sorted(
            path.relative_to(REPOSITORY)
            for path in REPOSITORY.rglob("*")
            if path.is_file() and not _ignored(path.relative_to(REPOSITORY))
        )
    )


@cache
def text_of(path: Path) -> str | None:
    """A file's text; None when it is not UTF-8 or holds NUL bytes."""
    data = (REPOSITORY / path).read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def python_files(*roots: str) -> list[Path]:
    """The tracked Python files below ``roots`` (all without), without the generated stubs."""
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py"
        and (not roots or path.parts[0] in roots)
        and not (str(path).startswith(_GENERATED) and len(path.parts) > 4)
    ]


def _ignored(path: Path) -> bool:
    hidden = any(part.startswith(".") and part != ".ci" for part in path.parts)
    return hidden or "__pycache__" in path.parts or str(path).startswith(_GENERATED)
