"""Writes a frame's records as staged blobs, on executors.

The driver runs a batch's rows through ``Stager(...)`` and publishes the resulting blobs: bulk rows
never pass through it.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.dataplane import payload, routing
from drover.dataplane.arrow_rows import current_spark_partition
from drover.dataplane.executor_store import open_store
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.topic_creation import SINGLE_PARTITION, TopicCreation
from drover.dataplane.values import StagedBlob
from drover.model.ids import TaskId, Term
from drover.model.names import BROKER_TOPICS
from drover.pipeline.layouts import no_key_fault

BLOB_BYTES = 4 * 1024 * 1024
#: Many small partitions share this much memory; when it is used up the largest is written.
BUFFERS_BYTES = 8 * BLOB_BYTES

STAGED_SCHEMA = pa.schema(
    [
        ("spark_partition", pa.int32()),
        ("sequence", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("record_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("blob_id", pa.int64()),
        ("partition_count", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Stager:
    """Stages record batches under a task's claim; a function for executors.

    ``topic`` is for frames without a topic column. ``creation`` is for topics that do not exist
    yet. With ``spread_keyless`` records without key and partition are spread evenly; otherwise they
    go to partition 0.

    Raises FrameError for columns that are not records, and FailedPreconditionError STALE_CLAIM if
    the task was claimed again.
    """

    path: Path
    task: TaskId
    claim: Term
    topic: str | None = None
    creation: TopicCreation = SINGLE_PARTITION
    spread_keyless: bool = False
    blob_bytes: int = BLOB_BYTES

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Stage everything; yields one row per blob."""
        run = _Run(self, open_store(self.path), current_spark_partition())
        for batch in batches:
            run.add(batch)
        run.flush_all()
        if run.staged:
            rows = [
                {name: getattr(blob, name) for name in STAGED_SCHEMA.names} for blob in run.staged
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=STAGED_SCHEMA)


def staged_blobs(rows: Iterable[Any]) -> list[StagedBlob]:
    """The blobs from the rows of a Stager, in publishing order."""
    blobs = [
        StagedBlob(
            spark_partition=row["spark_partition"],
            sequence=row["sequence"],
            topic=row["topic"],
            partition=row["partition"],
            record_count=row["record_count"],
            size_bytes=row["size_bytes"],
            blob_id=row["blob_id"],
            partition_count=row["partition_count"],
        )
        for row in rows
    ]
    return sorted(blobs, key=lambda each: (each.spark_partition, each.sequence))


@dataclass
class _Buffer:
    batches: list[Any] = field(default_factory=list)
    size_bytes: int = 0


class _Run:
    """The staging of one Spark partition."""

    def __init__(self, plan: Stager, store: EmbeddedStore, spark_partition: int) -> None:
        self.staged: list[StagedBlob] = []
        self._plan = plan
        self._store = store
        self._spark_partition = spark_partition
        self._partition_counts: dict[str, int] = {}
        self._compacted: set[str] = set()
        self._buffers: dict[tuple[str, int], _Buffer] = {}
        self._now_ms = time.time_ns() // 1_000_000

    def add(self, batch: Any) -> None:
        if batch.num_rows == 0:
            return
        records = payload.normalise(batch, self._now_ms)
        for topic, rows in routing.rows_by_topic(batch, self._plan.topic):
            chosen = records if rows is None else records.take(rows)
            explicit = routing.explicit_partitions(batch, rows)
            for partition, part in self._by_partition(topic, chosen, explicit):
                for piece in pieces(part, self._plan.blob_bytes):
                    self._buffer(topic, partition, piece)

    def flush_all(self) -> None:
        for key in list(self._buffers):
            self._flush(key)

    def _by_partition(
        self, topic: str, records: Any, explicit: Any | None
    ) -> Iterator[tuple[int, Any]]:
        highest = None if explicit is None else pc.max(explicit).as_py()
        count = self._partition_count(topic, at_least=0 if highest is None else highest + 1)
        keys = records.column("key")
        if keys.null_count and topic in self._compacted:
            raise payload.FrameError(no_key_fault(topic))
        keyless = keys.null_count == records.num_rows
        if explicit is None and (count == 1 or (keyless and not self._plan.spread_keyless)):
            yield 0, records
            return
        places = partitions_for_keys(keys, count)
        places = pc.coalesce(places, self._keyless_places(records.num_rows, count))
        if explicit is not None:
            places = pc.coalesce(explicit, places)
        numbers = places.unique().to_pylist()
        for number in numbers:
            routing.check_partition(number, topic, count)
            if len(numbers) == 1:
                yield number, records
            else:
                yield number, records.filter(pc.equal(places, number))

    def _keyless_places(self, row_count: int, count: int) -> Any:
        if not self._plan.spread_keyless:
            return pa.scalar(0, pa.int32())
        return routing.spread_places(row_count, count)

    def _partition_count(self, topic: str, *, at_least: int) -> int:
        creation = self._plan.creation
        least = at_least if creation.grows else 0
        count = self._partition_counts.get(topic)
        if topic in BROKER_TOPICS:
            raise payload.FrameError(
                f"the topic {topic} is internal to Kafka's brokers: connectors may not write to it"
            )
        if count is None or count < least:
            rule = creation.rule(topic)
            found = self._store.ensure_topic(
                topic, max(1, rule.partition_count), at_least=least, settings=rule.config
            )
            count = self._partition_counts[topic] = found.partition_count
            if found.compacts:
                self._compacted.add(topic)
        return count

    def _buffer(self, topic: str, partition: int, records: Any) -> None:
        key = (topic, partition)
        buffer = self._buffers.setdefault(key, _Buffer())
        if buffer.batches and buffer.size_bytes + records.nbytes > 2 * self._plan.blob_bytes:
            self._flush(key)
            buffer = self._buffers.setdefault(key, _Buffer())
        buffer.batches.append(records)
        buffer.size_bytes += records.nbytes
        if buffer.size_bytes >= self._plan.blob_bytes:
            self._flush(key)
        elif sum(each.size_bytes for each in self._buffers.values()) > BUFFERS_BYTES:
            self._flush(max(self._buffers, key=lambda each: self._buffers[each].size_bytes))

    def _flush(self, key: tuple[str, int]) -> None:
        buffer = self._buffers.pop(key)
        topic, partition = key
        blob_id = self._store.stage(
            self._plan.task, self._plan.claim, payload.encode(buffer.batches)
        )
        self.staged.append(
            StagedBlob(
                spark_partition=self._spark_partition,
                sequence=len(self.staged),
                topic=topic,
                partition=partition,
                record_count=sum(batch.num_rows for batch in buffer.batches),
                size_bytes=buffer.size_bytes,
                blob_id=blob_id,
                partition_count=self._partition_counts[topic],
            )
        )


def pieces(records: Any, blob_bytes: int) -> Iterator[Any]:
    """Halve the records until each part fits into a blob or is a single record."""
    if records.nbytes <= 2 * blob_bytes or records.num_rows <= 1:
        yield records
        return
    half = records.num_rows // 2
    yield from pieces(records.slice(0, half), blob_bytes)
    yield from pieces(records.slice(half), blob_bytes)
