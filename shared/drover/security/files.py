"""Writes files atomically, with restricted permissions."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Replace a file atomically; it has the permissions ``mode`` before data is written.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    temporary.replace(path)
