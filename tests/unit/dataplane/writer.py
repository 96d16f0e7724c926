"""A task that stages and publishes values, for tests of the store."""

import itertools
from collections.abc import Iterable, Sequence

import pyarrow as pa

from drover.dataplane.reading import read_range
from drover.dataplane.staging import Stager, staged_blobs
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import PublishResult, StagedBlob
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset

_requests = itertools.count()


class Clock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Writer:
    def __init__(
        self,
        store: EmbeddedStore,
        task: TaskId,
        generation: int = 1,
        task_config_generation: int = -1,
    ) -> None:
        self.store = store
        self.task = task
        self.claim = claim(store, task, generation, task_config_generation)

    def stage(self, values: Sequence[bytes], topic: str = "topic") -> list[StagedBlob]:
        stager = Stager(self.store.path, self.task, self.claim, topic=topic)
        batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
        return staged(stager, [batch])

    def publish(
        self,
        values: Sequence[bytes],
        topic: str = "topic",
        offsets: Sequence[CommittedOffset] = (),
    ) -> PublishResult:
        blobs = self.stage(values, topic)
        return self.store.publish(self.task, self.claim, blobs, offsets)


def claim(
    store: EmbeddedStore, task: TaskId, generation: int = 1, task_config_generation: int = -1
) -> Term:
    return store.claim_task(
        task,
        generation=generation,
        owner="worker",
        request_id=f"request-{next(_requests)}",
        task_config_generation=task_config_generation,
    )


def staged(stager: Stager, batches: Iterable[pa.RecordBatch]) -> list[StagedBlob]:
    return staged_blobs(row for batch in stager(batches) for row in batch.to_pylist())


def values(store: EmbeddedStore, topic: str = "topic", partition: int = 0) -> list[bytes]:
    """Every value of a topic partition."""
    plan = store.plan_read({(topic, partition): 0}, max_records=10_000_000, max_bytes=1_000_000_000)
    return [
        value
        for each in plan.ranges
        for batch in read_range(store, each)
        for value in batch.column("value").to_pylist()
    ]


def blob_count(store: EmbeddedStore) -> int:
    with store._database.read() as connection:
        return int(connection.execute("SELECT count(*) FROM blobs").fetchone()[0])
