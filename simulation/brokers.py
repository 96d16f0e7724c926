"""Simulated brokers for source tasks that publish through their own transactional producers.

A transactional id has an epoch and at most one open transaction with records and offsets. The
network can delay or lose a request and its response; a delayed request also arrives when its sender
is paused or has crashed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from drover.dataplane.plane import ProducerFencedError
from drover.errors import DroverError, FailedPreconditionError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from simulation.events import What
from simulation.network import Heard, Network
from simulation.process import Process
from simulation.rules import Rules

if TYPE_CHECKING:
    from simulation.data_store import DataStore

REQUEST_TIMEOUT_MS = 1_500
NO_ANSWER = UnavailableError(Reason.STORAGE_UNAVAILABLE, "the brokers did not answer")

#: Per source partition: the first record of a batch, and the record after its last.
Batch = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch that can be published: its records, and the records that become dead letters."""

    records: Batch
    letters: Batch

    @property
    def record_count(self) -> int:
        """The number of both."""
        ranges = (*self.records.values(), *self.letters.values())
        return sum(end - start for start, end in ranges)


@dataclass(slots=True)
class _Producer:
    """The state of a task's transactional id; ``claim`` is the claim of the current producer."""

    epoch: int = -1
    claim: Term | None = None
    batches: Sequence[Staged] = ()
    offsets: Sequence[CommittedOffset] = ()


class Brokers:
    """Topics and transactions; they survive every crash.

    Args:
        network: Decides which requests are late or lost.
        rules: Sees every commit.
        data: Stores the source offsets; offsets of a transaction become visible at its commit.
    """

    def __init__(self, network: Network, rules: Rules, data: "DataStore") -> None:
        self._network = network
        self._rules = rules
        self._data = data
        self._producers: dict[TaskId, _Producer] = {}

    def request(self, process: Process, work: Callable[[], object], heard: Heard) -> None:
        """Send a request; call ``heard`` with its result or its error."""
        world, mix = self._network.world, self._network.mix
        incarnation = process.incarnation
        waiting = [heard]

        def tell(result: object) -> None:
            if waiting:
                waiting.pop()(result)

        def arrive() -> None:
            result: object
            try:
                result = work()
            except (DroverError, ProducerFencedError) as error:
                result = error
            if not world.chance(mix.loss):
                answer = partial(process.wake, incarnation, partial(tell, result))
                world.after(self._delay_ms(), answer)

        if not world.chance(mix.loss + mix.write_failure):
            world.after(self._delay_ms(), arrive)
        process.after(REQUEST_TIMEOUT_MS, partial(tell, NO_ANSWER))

    def _delay_ms(self) -> int:
        world, mix = self._network.world, self._network.mix
        late = world.chance(mix.late_probability)
        return world.between(1, mix.late_max_ms if late else mix.delay_max_ms)

    # --- requests ----------------------------------------------------------------------------

    def init(self, task: TaskId, claim: Term | None) -> int:
        """Initialize the task's producer: abort its open transaction and return the new epoch."""
        producer = self._producers.setdefault(task, _Producer())
        producer.epoch += 1
        producer.claim, producer.batches, producer.offsets = claim, (), ()
        self._network.world.tell(
            (task,), "{}: producer initialized under {}", task, claim or "no claim"
        )
        if claim is not None:
            self._rules.did(What.CLAIMED, task, claim)
        return producer.epoch

    def fence(self, task: TaskId) -> None:
        """Fence the task's producer: raise the epoch without a new owner."""
        self.init(task, None)

    def has_producer(self, task: TaskId) -> bool:
        """Whether the task ever had a producer."""
        return task in self._producers

    def tasks_of(self, connector: str) -> list[TaskId]:
        """The tasks of a connector that ever had a producer."""
        return sorted(task for task in self._producers if task.connector == connector)

    def produce(self, task: TaskId, epoch: int, batches: Sequence[Staged]) -> None:
        """Open a transaction with records."""
        self._of(task, epoch).batches = batches

    def add_offsets(self, task: TaskId, epoch: int, offsets: Sequence[CommittedOffset]) -> None:
        """Add source offsets to the open transaction."""
        self._of(task, epoch).offsets = offsets

    def commit(self, task: TaskId, epoch: int) -> None:
        """Make records and offsets visible together."""
        producer = self._of(task, epoch)
        claim = producer.claim
        assert claim is not None
        self._data.append(task, claim, producer.batches)
        if producer.offsets:
            self._data.write(task, claim, producer.offsets)
        producer.batches, producer.offsets = (), ()

    def _of(self, task: TaskId, epoch: int) -> _Producer:
        producer = self._producers[task]
        if producer.epoch != epoch:
            text = "another producer was initialized"
            raise ProducerFencedError(
                text, FailedPreconditionError(Reason.STALE_WRITER_EPOCH, text)
            )
        return producer
