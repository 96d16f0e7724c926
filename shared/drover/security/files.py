"""Files that others must not read, or not read by halves."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file in one step, with these permissions from the first byte on.

    Raises:
        OSError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    temporary.replace(path)
