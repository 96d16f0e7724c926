"""Records that are written to topics and read from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EARLIEST = -2
"""As a start offset: the first record of the partition."""

Place = tuple[int, int]
"""Partition and offset of a written record."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Produced:
    """A record to write; without ``partition`` its key is hashed, as in the Java producer."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A committed offset of a consumer group, with its ``metadata``."""

    group_id: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record that was read. Records of other programs may have no key."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Records in the order of each partition, and the position of every partition behind them.

    A position is the next offset to fetch. At the end of a partition it is the last stable offset,
    behind transaction markers, which are not records. So a batch without records may advance a
    position.
    """

    records: Sequence[KafkaRecord]
    positions: Mapping[int, int]
