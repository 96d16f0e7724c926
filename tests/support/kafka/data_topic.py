"""A topic as the tasks' data plane uses it, without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.dataplane.kafka.plane import KafkaPlane
from drover.dataplane.kafka.producing import RecordProducer
from drover.dataplane.kafka.reading import KafkaRangeReader
from drover.dataplane.topic_creation import TopicCreation, TopicRule
from drover.dataplane.values import ReadPlan, ReadRange
from drover.log.storage import KafkaStorage

MANY = 10**9


@dataclass(frozen=True)
class Topic:
    """A topic of the test, read and written as executors do."""

    name: str
    storage: KafkaStorage
    plane: KafkaPlane

    @classmethod
    def at(
        cls, bootstrap: str, name: str, client_config: Mapping[str, str] | None = None
    ) -> "Topic":
        """A handle for a topic, which need not exist."""
        storage = KafkaStorage(
            bootstrap_servers=bootstrap, group_id="data-plane", client_config=client_config or {}
        )
        return cls(name, storage, KafkaPlane(storage))

    def write(self, columns: Mapping[str, Any], *, partition_count: int = 1, **options: Any) -> int:
        """Produce a batch; a missing topic is created with that many partitions.

        Returns:
            The number of records.
        """
        creation = TopicCreation(TopicRule(partition_count))
        producer = RecordProducer(self.storage, topic=self.name, creation=creation, **options)
        (answer,) = producer(iter([pa.RecordBatch.from_pydict(dict(columns))]))
        return int(answer.column("record_count")[0].as_py())

    def plan(
        self, starts: Mapping[int, int], *, max_records: int = MANY, max_bytes: int = MANY
    ) -> ReadPlan:
        """A sink's next read plan."""
        return self.plane.plan_read(
            {(self.name, partition): start for partition, start in starts.items()},
            max_records=max_records,
            max_bytes=max_bytes,
        )

    def read(self, ranges: Sequence[ReadRange]) -> list[dict[str, Any]]:
        """The rows of some ranges."""
        reader = KafkaRangeReader(self.storage, (tuple(ranges),))
        return [row for batch in reader(0) for row in batch.to_pylist()]

    def rows(self, *partitions: int) -> list[dict[str, Any]]:
        """All rows of some partitions, by default of the first."""
        return self.read(self.plan(dict.fromkeys(partitions or (0,), 0)).ranges)

    def values(self, *partitions: int) -> list[bytes]:
        """The values of all rows of some partitions."""
        return [row["value"] for row in self.rows(*partitions)]
