"""Routes the rows of a frame's batch to topics and explicit partitions."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.dataplane import payload
from drover.dataplane.payload import FrameError
from drover.record.arrow import is_text


def rows_by_topic(batch: Any, default_topic: str | None) -> Iterator[tuple[str, Any | None]]:
    """Each topic of the batch with the indices of its rows, in order; None for all rows.

    Raises:
        FrameError: A row has no topic, or the column 'topic' is not text.
    """
    topics = payload.column(batch, "topic")
    if topics is None:
        if default_topic is None:
            raise FrameError("the frame has no column 'topic', and the batch names no topic")
        yield default_topic, None
        return
    if not is_text(topics.type):
        raise FrameError(f"column 'topic' must be a topic's name, not {topics.type}")
    topics = topics.cast(pa.string())
    if default_topic is not None:
        topics = topics.fill_null(default_topic)
    if topics.null_count:
        raise FrameError("column 'topic' is null, and the batch names no topic")
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], None
        return
    # one pass for any number of topics: a stable sort keeps the order within each
    order = pc.sort_indices(encoded.indices)
    counts = np.bincount(encoded.indices.to_numpy(), minlength=len(names))
    ends = np.cumsum(counts)
    for name, count, end in zip(names, counts.tolist(), ends.tolist(), strict=True):
        yield name, order.slice(end - count, count)


def explicit_partitions(batch: Any, rows: Any | None) -> Any | None:
    """The values of the column 'partition', as int32; None without that column.

    Raises:
        FrameError: It does not have partition numbers.
    """
    values = payload.column(batch, "partition")
    if values is None or values.null_count == len(values):
        return None
    if not (pa.types.is_integer(values.type) or pa.types.is_null(values.type)):
        raise FrameError(f"column 'partition' must be an integer, not {values.type}")
    try:
        numbers = values.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise FrameError(f"column 'partition' must be a partition's number: {error}") from error
    return numbers if rows is None else numbers.take(rows)


def check_partition(number: int, topic: str, partition_count: int) -> None:
    """Reject a partition that the topic does not have.

    Raises:
        FrameError: The partition does not exist.
    """
    if not 0 <= number < partition_count:
        raise FrameError(
            f"column 'partition' has {number}, but topic {topic!r} has partitions 0 to "
            f"{partition_count - 1}"
        )


def spread_places(row_count: int, partition_count: int) -> Any:
    """Partitions for rows without key, as int32: consecutive runs of rows, starting at a random
    partition, so that small batches do not all go to the first.
    """
    first = random.randrange(partition_count)
    return pa.array(
        [
            (first + row * partition_count // row_count) % partition_count
            for row in range(row_count)
        ],
        pa.int32(),
    )
