"""Unpacks tar archives."""

import tarfile
from pathlib import Path
from typing import Any


def unpack(archive: tarfile.TarFile, folder: Path, policy: str) -> None:
    """Unpack an archive.

    Args:
        archive: The archive.
        folder: The folder for its files.
        policy: The filter of Python's tarfile, ``tar`` or ``data``; without effect before 3.11.4,
            which has none.
    """
    options: dict[str, Any] = {"filter": policy} if hasattr(tarfile, "tar_filter") else {}
    archive.extractall(folder, **options)
