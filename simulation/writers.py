"""How simulated sources publish: in a transaction of ``data.db``, through the task's own producer,
or without transactions. As in production, a writer decides nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from drover.dataplane.plane import NotPublishedError, Receipt
from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.config import ConfigMap
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from simulation.brokers import Brokers, Staged
from simulation.waits import told

if TYPE_CHECKING:
    from simulation.tasks import SimulatedTask


Batches = Sequence[Staged]
Offsets = Sequence[CommittedOffset]


def new_writer(task: "SimulatedTask", config: ConfigMap) -> "StoreWriter | ProducerWriter":
    """The writer of a source."""
    brokers = task.engine.data.brokers
    if brokers is None:
        return StoreWriter(task)
    if config["exactly.once"] == "false":
        return PlainWriter(task)
    return ProducerWriter(task, brokers)


class StoreWriter:
    """As ``DirectWriter``. One transaction checks the claim, publishes the records and commits
    their offsets.
    """

    def __init__(self, task: "SimulatedTask") -> None:
        self.task = task

    async def publish(self, staged: Batches, offsets: Offsets) -> Receipt:
        """Publish staged batches in this order."""
        task = self.task
        commit = TaskOffsets(task.task, task.claim, offsets)
        try:
            await self._transact(commit, staged)
        except UnavailableError as error:
            raise NotPublishedError(error.reason, error.message) from error
        task.acknowledged(offsets)
        return receipt_of(staged)

    async def _transact(self, commit: TaskOffsets, staged: Batches) -> None:
        engine, data = self.task.engine, self.task.engine.data
        result = await told(
            lambda heard: data.run(engine, lambda: data.publish(commit, staged), heard)
        )
        if result.outcome is CommitOutcome.STALE_CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, result.message)


class PlainWriter(StoreWriter):
    """The records become visible first; the coordinator commits their offsets later."""

    async def publish(self, staged: Batches, offsets: Offsets) -> Receipt:
        """See StoreWriter."""
        task = self.task
        engine, data = task.engine, task.engine.data
        await told(
            lambda heard: data.run(
                engine, lambda: data.deliver(task.task, task.claim, staged), heard
            )
        )
        return receipt_of(staged, uncommitted=tuple(offsets))


class ProducerWriter:
    """As ``TransactionalWriter``: records and offsets in one transaction of the task's own
    producer.
    """

    def __init__(self, task: "SimulatedTask", brokers: Brokers) -> None:
        self.task = task
        self._brokers = brokers
        self._epoch = -1

    async def init(self) -> None:
        """See TransactionalWriter."""
        self._epoch = await self._ask(partial(self._brokers.init, self.task.task, self.task.claim))

    async def check_claim(self) -> None:
        """See TransactionalWriter."""
        await self.task.check_claim(own_producer=True)

    async def produce(self, staged: Batches) -> None:
        """See TransactionalWriter."""
        await self._ask(partial(self._brokers.produce, self.task.task, self._epoch, staged))

    async def add_offsets(self, offsets: Offsets) -> None:
        """See TransactionalWriter."""
        last = list({each.partition_json: each for each in offsets}.values())
        await self._ask(partial(self._brokers.add_offsets, self.task.task, self._epoch, last))

    async def commit(self, offsets: Offsets) -> None:
        """See TransactionalWriter."""
        await self._ask(partial(self._brokers.commit, self.task.task, self._epoch))
        self.task.acknowledged(offsets)

    async def _ask(self, work: Callable[[], object]) -> Any:
        engine = self.task.engine
        return await told(lambda heard: self._brokers.request(engine, work, heard))


def receipt_of(staged: Batches, uncommitted: Offsets = ()) -> Receipt:
    """The receipt of published batches."""
    return Receipt(
        record_count=sum(each.record_count for each in staged),
        topics=("t",),
        uncommitted=uncommitted,
    )
