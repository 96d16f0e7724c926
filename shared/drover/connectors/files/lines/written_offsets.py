"""Which records a file has: the next offset of each topic partition, noted beside the file.

The committed offsets have the same numbers. The note shows which of them were lost, or belonged to
topics that were deleted since.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drover.connector import TopicPartition

_NAME = "written"


@dataclass(frozen=True, slots=True)
class WrittenOffset:
    """The output of a topic partition in a file, and the offset after its last record; None before
    its first record is in the file.

    ``is_covered`` means that its committed offset is missing, and other offsets with the file's
    length were committed since: the length covers its records.
    """

    output_id: str
    next_offset: int | None = None
    is_covered: bool = False


def read_written(directory: Path) -> dict[TopicPartition, WrittenOffset]:
    """The note in a directory; empty if there is none."""
    try:
        rows = json.loads((directory / _NAME).read_bytes())
        return {TopicPartition(row[0], row[1]): WrittenOffset(*row[2:]) for row in rows}
    except (FileNotFoundError, ValueError, TypeError, IndexError):
        return {}


def save_written(
    directory: Path, written: Mapping[TopicPartition, WrittenOffset], *, is_durable: bool
) -> None:
    """Replace the note. ``is_durable`` keeps it if the machine stops, which new topic partitions
    need; a lower offset than the file's is harmless.
    """
    rows = [
        [*key, each.output_id, each.next_offset, each.is_covered]
        for key, each in sorted(written.items())
    ]
    copy = directory / f"{_NAME}.new"
    with copy.open("w") as file:
        json.dump(rows, file)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    copy.replace(directory / _NAME)
    if is_durable:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
