"""A disk under the files of a server that runs as another user."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.postgres import unprivileged_user
from tests.support.service_process import small_disk


@contextmanager
def disk_of_a_server(size: str) -> Iterator[Path]:
    """A small disk that servers of any user can reach and write."""
    folder = Path(tempfile.mkdtemp(prefix="drover-disk-"))
    folder.chmod(0o755)
    try:
        with small_disk(folder / "disk", size) as disk:
            user = unprivileged_user()
            if user is not None:
                shutil.chown(disk, user)
            yield disk
    finally:
        shutil.rmtree(folder, ignore_errors=True)
