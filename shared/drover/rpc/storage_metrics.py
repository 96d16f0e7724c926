"""Metrics of the volume with the embedded storage."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drover.metrics import table
from drover.metrics.metric import Sample


def volume_samples(directory: Path) -> Iterator[Sample]:
    """The volume's size and free space; no samples if the system does not report them."""
    with suppress(OSError):
        usage = shutil.disk_usage(directory)
        yield table.STORAGE_FREE.at(usage.free)
        yield table.STORAGE_SIZE.at(usage.total)
