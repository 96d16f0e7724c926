"""What a service tells of the volume that holds its embedded storage."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drover.metrics import table
from drover.metrics.metric import Sample


def volume_samples(directory: Path) -> Iterator[Sample]:
    """Its size and what is free of it; nothing when the system does not say."""
    with suppress(OSError):
        usage = shutil.disk_usage(directory)
        yield table.STORAGE_FREE.at(usage.free)
        yield table.STORAGE_SIZE.at(usage.total)
