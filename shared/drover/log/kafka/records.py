"""What is written to topics and read from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EARLIEST = -2
"""As a place to start reading: the first record that is there."""

Place = tuple[int, int]
"""Partition and offset of a record that was written."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Produced:
    """A record to write. Without a ``partition`` its key chooses one, as Java's producer does."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a consumer group goes on in a partition; ``metadata`` is kept with it."""

    group_id: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as it was read. Records that others wrote may have no key."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Records in the order of each partition, and the position of every partition after them.

    A position is the next offset that is asked for. At the end of a partition it reaches the last
    stable offset, beyond transaction markers, which are no records; so a batch may be empty and
    tell of an end alone.
    """

    records: Sequence[KafkaRecord]
    positions: Mapping[int, int]
