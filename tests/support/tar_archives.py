"""Unpacks tar archives."""

import tarfile
from pathlib import Path
from typing import Any


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive that a test trusts.

    Python 3.11 has filters from 3.11.4 on, and warns without one from 3.12 on.
    """
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    archive.extractall(folder, **options)
