"""Reads ranges of topics as Arrow batches, on executors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drover.dataplane.kafka.clients import Pool
from drover.dataplane.kafka.message_reader import MessageReader
from drover.dataplane.kafka.planning import joined
from drover.dataplane.kafka.range_fetcher import RangeFetcher
from drover.dataplane.kafka.range_reader import RangeReader
from drover.dataplane.plane import ALL_COLUMNS
from drover.dataplane.values import ReadRange
from drover.log.kafka.aiokafka_client import can_reach
from drover.log.storage import KafkaStorage


def range_reader(storage: KafkaStorage) -> RangeReader:
    """The faster reader if the client settings support it."""
    return RangeFetcher(storage) if can_reach(storage) else MessageReader(storage)


_readers: Pool[RangeReader] = Pool(range_reader, lambda reader: reader.close())


@dataclass(frozen=True)
class KafkaRangeReader:
    """Reads groups of ranges by number; for ArrowRows."""

    storage: KafkaStorage
    groups: tuple[tuple[ReadRange, ...], ...]
    #: The columns to read; see DataPlane.rows.
    columns: frozenset[str] = ALL_COLUMNS

    def __call__(self, number: int) -> Iterator[Any]:
        """The records of a group; see RangeReader."""
        if not self.groups[number]:
            return
        with _readers.borrow(self.storage) as reader:
            for each in joined(self.groups[number]):
                yield from reader.read(each, self.columns)
