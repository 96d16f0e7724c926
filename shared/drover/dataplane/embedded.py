"""The embedded store as the data plane of tasks."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drover.dataplane.arrow_rows import ArrowRows
from drover.dataplane.frames import stage_frame, topic_rows, warm_up
from drover.dataplane.plane import (
    BATCH_TOPICS_MAX,
    Destination,
    PartitionKey,
    require_reached,
)
from drover.dataplane.reading import RangeReader
from drover.dataplane.staging import Stager
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import ReadPlan, StagedBlob
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA_FILE = "data.db"


@dataclass(frozen=True, slots=True)
class StagedBlobs:
    """A batch on disk that readers do not see yet."""

    store: EmbeddedStore
    destination: Destination
    blobs: Sequence[StagedBlob]

    @property
    def topics(self) -> Collection[str]:
        """See StagedBatch."""
        names = dict.fromkeys(blob.topic for blob in self.blobs)
        return tuple(itertools.islice(names, BATCH_TOPICS_MAX))

    def publish(self, offsets: Sequence[CommittedOffset]) -> int:
        """See StagedBatch: one transaction for the records, their offsets and the claim."""
        task, claim = self.destination.task, self.destination.claim
        return self.store.publish(task, claim, self.blobs, offsets).record_count


class EmbeddedPlane:
    """See DataPlane."""

    commits_with_records = True

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store

    @classmethod
    def open(cls, directory: Path) -> "EmbeddedPlane":
        """The store of a storage directory.

        Raises:
            DroverError: It cannot be opened.
        """
        return cls(EmbeddedStore(directory / DATA_FILE))

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """See DataPlane."""
        bounds = self.store.bounds()
        counts = {}
        for topic in topics:
            counts[topic] = next(n for n in itertools.count() if (topic, n) not in bounds)
        return {topic: count for topic, count in counts.items() if count}

    def end_offsets(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
        """See DataPlane."""
        bounds = self.store.bounds()
        return {key: bounds[key][1] for key in partitions if key in bounds}

    def plan_read(
        self, starts: Mapping[PartitionKey, int], *, max_records: int, max_bytes: int
    ) -> ReadPlan:
        """See DataPlane."""
        require_reached(starts, self.end_offsets(starts))
        return self.store.plan_read(starts, max_records=max_records, max_bytes=max_bytes)

    def rows(self, spark: "SparkSession", plan: ReadPlan) -> ArrowRows:
        """See DataPlane."""
        return topic_rows(spark, self.store.path, plan)

    def stage(
        self, spark: "SparkSession", frame: "DataFrame | ArrowRows", destination: Destination
    ) -> StagedBlobs:
        """See DataPlane."""
        del spark
        stager = Stager(
            self.store.path,
            destination.task,
            destination.claim,
            topic=destination.topic,
            partition_count=destination.partition_count,
            spread_keyless=destination.spread_keyless,
        )
        return StagedBlobs(self.store, destination, stage_frame(frame, stager))

    def current_claim(self, task: TaskId) -> Term | None:
        """See DataPlane."""
        return self.store.current_claim(task)

    def fetch_offsets(self, connector: str) -> Sequence[CommittedOffset]:
        """See DataPlane."""
        return self.store.fetch_offsets(connector)

    def warm_up(self, spark: "SparkSession") -> None:
        """See DataPlane."""
        cores = spark.sparkContext.defaultParallelism
        warm_up(spark, RangeReader(self.store.path, ((),) * cores))
