"""The simulated ``data.db``: the real rules for claims and offsets on an in-memory SQLite database.

Coordinators and engines write to it; each transaction is one action in its process.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from drover.dataplane import claims, offsets
from drover.dataplane.database import SCHEMA
from drover.errors import DroverError
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommitResult, CommittedOffset, TaskOffsets
from simulation.brokers import Batch, Brokers, Staged
from simulation.disk import DISK_FULL
from simulation.events import Span, What, position
from simulation.network import Network
from simulation.process import Process
from simulation.rules import Rules

T = TypeVar("T")


class DataStore:
    """Claims and committed offsets; they survive every crash.

    Args:
        network: Decides which transactions are slow or fail.
        rules: Sees every grant and every accepted commit.
    """

    def __init__(self, network: Network, rules: Rules) -> None:
        self._network = network
        self._rules = rules
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.executescript(SCHEMA)
        #: when each process's last queued transaction ends
        self._free_ms: dict[str, int] = {}
        #: Where topics and source offsets are on Kafka.
        self.brokers: Brokers | None = None
        #: The records that readers see, by connector and partition.
        self.topics: dict[tuple[str, str], list[Span]] = {}

    def run(self, process: Process, work: Callable[[], T], heard: Callable[[object], None]) -> None:
        """Run a transaction of ``process``; a crash may precede it, follow it, or hide its
        result.
        """
        world, mix = self._network.world, self._network.mix
        # a process runs one write at a time
        free_ms = max(self._free_ms.get(process.name, 0), world.now_ms)
        self._free_ms[process.name] = free_ms + world.between(0, mix.write_ms // 4)
        delay_ms = self._free_ms[process.name] - world.now_ms

        def carry_out() -> None:
            if world.chance(mix.write_failure):
                heard(DISK_FULL)
                return
            result: object
            try:
                result = work()
            except DroverError as error:
                result = error
            if world.chance(0.2):  # durable before the caller receives the result
                process.after(world.between(0, mix.write_ms), lambda: heard(result))
            else:
                heard(result)

        process.deliver(delay_ms, carry_out)

    def enter_set(self, request: ClaimRequest) -> None:
        """Make the claims of an earlier set of task configs stale."""
        claims._enter_set(self._connection, request, self._network.world.now_ms)

    def grant(self, request: ClaimRequest) -> Term:
        """As ``EmbeddedStore.claim_task``."""
        term = claims.grant(self._connection, request, self._network.world.now_ms)
        # with its own producer, the task fences earlier owners when it begins
        fences = self.brokers is None or not self.brokers.has_producer(request.task)
        self._rules.claim_granted(
            request.task, term, request.owner, request.task_config_generation, fences=fences
        )
        return term

    def publish(self, commit: TaskOffsets, batches: Sequence[Staged]) -> CommitResult:
        """Publish batches with their offsets, as ``EmbeddedStore`` does."""
        (result,) = self.commit([commit], lambda: self.append(commit.task, commit.claim, batches))
        return result

    def append(self, task: TaskId, claim: Term, batches: Sequence[Staged]) -> None:
        """Make records and dead letters visible."""
        for batch in batches:
            records = spans_of(batch.records)
            for span in records:
                self.topics.setdefault((task.connector, span.partition), []).append(span)
            if records:
                self._rules.did(What.PUBLISHED, task, claim, records)
            if batch.letters:
                self._rules.did(What.DEAD_LETTERED, task, claim, spans_of(batch.letters))

    def deliver(self, task: TaskId, claim: Term, batches: Sequence[Staged]) -> None:
        """Make records and dead letters visible, each at least once."""
        for batch in batches:
            self._rules.did(What.DELIVERED, task, claim, spans_of(batch.letters))
            self._rules.did(What.DELIVERED, task, claim, spans_of(batch.records))

    def commit(
        self, commits: Sequence[TaskOffsets], publish: Callable[[], None] = lambda: None
    ) -> list[CommitResult]:
        """As ``EmbeddedStore.commit_offsets``; the simulation's offsets are always valid."""
        results = []
        for commit in commits:
            stale = claims.stale_message(self._connection, commit.task, commit.claim)
            if stale is not None:
                results.append(CommitResult(commit.task, CommitOutcome.STALE_CLAIM, stale))
                continue
            late = claims.comes_late(self._connection, commit.task, commit.claim, commit.number)
            if not late:
                publish()
                self._rules.commit_accepted(commit)
                self.write(commit.task, commit.claim, commit.offsets)
            results.append(CommitResult(commit.task, CommitOutcome.COMMITTED))
        return results

    def write(self, task: TaskId, claim: Term, committed: Sequence[CommittedOffset]) -> None:
        """Store the offsets of a committed transaction."""
        offsets.write(self._connection, task.connector, committed, 0)
        if committed:
            self._rules.did(What.COMMITTED, task, claim, positions_of(committed))

    def fetch(self, connector: str) -> list[CommittedOffset]:
        """As ``EmbeddedStore.fetch_offsets``."""
        return offsets.fetch(self._connection, connector)

    def current(self, task: TaskId) -> Term | None:
        """The task's current claim."""
        return claims.current(self._connection, task)

    def read_back(self, connectors: Iterable[str]) -> None:
        """Read all records and positions, at the end."""
        for connector in connectors:
            committed = self.fetch(connector)
            if committed:
                self._rules.happened(What.FETCHED, connector, positions_of(committed))
        for (connector, _), records in sorted(self.topics.items()):
            self._rules.happened(What.READ_BACK, connector, records)


def spans_of(batch: Batch) -> list[Span]:
    """The records of a batch."""
    return [Span(str(p), start, end) for p, (start, end) in batch.items() if start < end]


def positions_of(offsets: Sequence[CommittedOffset]) -> list[Span]:
    """Committed positions."""
    return [position(str(partition), at) for partition, at in map(position_of, offsets)]


def position_of(offset: CommittedOffset) -> tuple[int, int]:
    """The partition and position of a committed offset."""
    assert offset.offset_json is not None
    partition, at = json.loads(offset.partition_json), json.loads(offset.offset_json)
    if "kafka_partition" in partition:
        return partition["kafka_partition"], at["kafka_offset"]
    return partition["partition"], at["position"]
