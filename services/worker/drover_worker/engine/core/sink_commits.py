"""Validates what sink tasks return about offsets, and computes the offsets to commit."""

from collections.abc import Collection, Mapping

from drover.connector import TopicPartition, Written
from drover.connector.offsets import sink_offset
from drover.dataplane.plane import PartitionKey
from drover.model.offsets import CommittedOffset
from drover.model.sink_outputs import TASK_METADATA_MAX_BYTES


def checked_written(found: object) -> Written:
    """The result of ``write``.


    Raises:
        TypeError: It is neither text nor Written.
        ValueError: Its metadata is too long.
    """
    written = Written(found) if isinstance(found, str) else found
    if not isinstance(written, Written):
        raise TypeError(f"write() must return text or Written, not {type(found).__name__}")
    checked_metadata(written.metadata, "write")
    return written


def checked_metadata(metadata: object, method: str) -> str:
    """The metadata that a method of the task returned.

    Raises:
        TypeError: It is not text.
        ValueError: It is too long.
    """
    if not isinstance(metadata, str):
        raise TypeError(f"metadata must be text, not {type(metadata).__name__}")
    size_bytes = len(metadata.encode())
    if size_bytes > TASK_METADATA_MAX_BYTES:
        raise ValueError(
            f"{method}() returned {size_bytes} bytes of metadata; the limit is "
            f"{TASK_METADATA_MAX_BYTES}"
        )
    return metadata


def checked_positions(found: object) -> Mapping[PartitionKey, int]:
    """The result of ``positions``.


    Raises:
        TypeError: It is not a mapping of topic partitions to offsets.
    """
    if not isinstance(found, Mapping):
        raise TypeError(f"positions() must return a dict, not {type(found).__name__}")
    return {_key(key): _offset(key, offset) for key, offset in found.items()}


def rewound(
    wanted: Mapping[TopicPartition, int], highest_given: Mapping[PartitionKey, int]
) -> Mapping[PartitionKey, int]:
    """The offsets of a rewind.


    Raises:
        ValueError: A partition is not the task's, or its records were never given to the task.
    """
    for key, offset in wanted.items():
        at = highest_given.get((key.topic, key.partition))
        if at is None:
            raise ValueError(f"{_name(key)} cannot be rewound: it is not assigned to this task")
        if offset > at:
            raise ValueError(
                f"{_name(key)} cannot be rewound to {offset}: it has been read only up to {at}"
            )
    return {(key.topic, key.partition): offset for key, offset in wanted.items()}


def offsets_of(
    written: Written,
    keys: Collection[PartitionKey],
    committed: Mapping[PartitionKey, int],
    given: Mapping[PartitionKey, int],
    highest_given: Mapping[PartitionKey, int],
) -> list[CommittedOffset]:
    """The offsets to commit; never below the committed ones.

    Args:
        written: The result of ``write`` or ``idle``.
        keys: The partitions of the batch; fully committed unless the task returns less.
        committed: The committed offsets.
        given: The offsets up to which the task has received records since the last rewind; nothing
            above them is committed.
        highest_given: The offsets up to which the task has ever received records.

    Raises:
        TypeError: ``up_to`` is not a mapping of topic partitions to offsets.
        ValueError: It has another task's partition, or exceeds the records received.
    """
    if written.up_to is None:
        found = {key: given[key] for key in keys if given[key] >= committed.get(key, 0)}
    else:
        up_to = {_key(key): _offset(key, at) for key, at in written.up_to.items()}
        for key, at in up_to.items():
            _check(key, at, highest_given.get(key))
        found = {key: min(at, given[key]) for key, at in up_to.items()}
        found = {key: at for key, at in found.items() if at > committed.get(key, 0)}
    return [sink_offset(*key, found[key], written.metadata) for key in sorted(found)]


def _check(key: PartitionKey, at: int, high: int | None) -> None:
    if high is None:
        raise ValueError(f"{_name(key)} cannot be committed: it is not assigned to this task")
    if at > high:
        raise ValueError(
            f"{_name(key)} cannot be committed up to {at}: the task was given its records up to "
            f"{high}"
        )


def _key(key: object) -> PartitionKey:
    if isinstance(key, tuple) and len(key) == 2:
        topic, partition = key
        if isinstance(topic, str) and isinstance(partition, int):
            return topic, partition
    raise TypeError(f"must be a TopicPartition, not {key!r}")


def _offset(key: object, offset: object) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise TypeError(f"the offset of {key!r} must be a whole number, not {offset!r}")
    return offset


def _name(key: PartitionKey) -> str:
    return f"{key[0]}-{key[1]}"
