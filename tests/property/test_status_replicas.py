"""Replicas of a status store on a log with several partitions converge to the same state."""

import itertools
import zlib
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drover.log.log import LogRecord
from drover.machine import Outcome
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusEvent, StatusKey, StatusWrite
from drover_status_store.core.events import PutStatuses, PutTopicStatuses
from drover_status_store.core.machine import REWRITE_AFTER_MS
from drover_status_store.core.records import AnyRecord, StatusRecord, decode, with_mark
from tests.support.status_store import StatusDriver

PARTITION_COUNT = 3
REPLICA_COUNT = 2
ROUNDS_MAX = 20
KEYS: st.SearchStrategy[StatusKey] = st.sampled_from(["a", "a-0", TaskId("a", 0), TaskId("a-0", 0)])
TASK_STATES = [state for state in RunState if state is not RunState.STOPPED]
REPLICAS = st.integers(0, REPLICA_COUNT - 1)
PARTITIONS = st.integers(0, PARTITION_COUNT - 1)


@st.composite
def writes(draw: st.DrawFn) -> StatusWrite:
    key = draw(KEYS)
    state = draw(st.sampled_from(TASK_STATES if isinstance(key, TaskId) else list(RunState)))
    worker = draw(st.sampled_from(["w:1", "w:2"]))
    status = Status(key, state, worker, draw(st.integers(0, 3)))
    return StatusWrite(status, safe=draw(st.booleans()))


BATCHES = st.lists(writes(), min_size=1, max_size=3)
WRITERS = st.sampled_from(["w-1", "w-2", ""])
LATENESS = st.integers(0, 2)


def what_counts(history: list[LogRecord], connector: str) -> Status | None:
    """A second formulation of the rules for a connector's status."""
    held: StatusRecord | None = None
    for written in history:
        record = with_mark(decode(written.key, written.value), written.request_id)
        if not isinstance(record, StatusRecord) or record.key != connector:
            continue
        assert record.mark is not None
        if held is not None and held.status is not None and held.mark is not None:
            same_writer = record.mark.writer != "" and record.mark.writer == held.mark.writer
            if same_writer and record.mark.number < held.mark.number:
                continue
            newer_elsewhere = (
                record.status is not None
                and held.status.worker_id != record.status.worker_id
                and held.status.generation > record.status.generation
            )
            if record.mark.safe and newer_elsewhere and not same_writer:
                continue
        held = None if record.status is None else record
    return held.status if held is not None else None


class Topic:
    """Partitions of records, with gaps after compaction; ``history`` has every record ever
    written.
    """

    def __init__(self) -> None:
        self.history: list[LogRecord] = []
        self.partitions: list[dict[int, LogRecord]] = [{} for _ in range(PARTITION_COUNT)]
        self.ends = [0] * PARTITION_COUNT

    def append(self, record: LogRecord) -> None:
        """Append to the partition of the record's key."""
        self.history.append(record)
        partition = zlib.crc32(record.key) % PARTITION_COUNT
        self.partitions[partition][self.ends[partition]] = record
        self.ends[partition] += 1

    def compact(self, partition: int, below: int) -> None:
        """Compact as brokers do, below an offset that every replica has read."""
        records = self.partitions[partition]
        last = {record.key: offset for offset, record in records.items() if offset < below}
        self.partitions[partition] = {
            offset: record
            for offset, record in records.items()
            if offset >= below or last[record.key] == offset
        }


@dataclass
class Replica:
    """A store process; its driver's log holds the records that it has read."""

    topic: Topic
    driver: StatusDriver = field(default_factory=StatusDriver)
    positions: list[int] = field(default_factory=lambda: [0] * PARTITION_COUNT)
    in_flight: Outcome[AnyRecord] | None = None
    #: whether it has read every record ever written
    saw_all: bool = True

    def read(self, partition: int, count: int) -> None:
        """Read the next records of a partition."""
        offsets = sorted(self.topic.partitions[partition])
        wanted = [each for each in offsets if each >= self.positions[partition]][:count]
        for offset in wanted:
            self.driver.log.append(self.topic.partitions[partition][offset])
            self.positions[partition] = offset + 1
        self.driver.read()

    def read_all(self, order: list[int]) -> None:
        """Read everything, one partition after another."""
        for partition in order:
            self.read(partition, 1_000_000)
            self.positions[partition] = self.topic.ends[partition]

    def write(self, outcome: Outcome[AnyRecord]) -> None:
        """Append the decided records, and read them back."""
        before = len(self.driver.log)
        self.driver.append(outcome)
        records = self.driver.log[before:]
        del self.driver.log[before:]
        for record in records:
            self.topic.append(replace(record, timestamp_ms=self.driver.now_ms))
        self.read_all(list(range(PARTITION_COUNT)))


class StatusReplicas(RuleBasedStateMachine):
    """Two replicas that write and read in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.topic = Topic()
        self.replicas = [Replica(self.topic) for _ in range(REPLICA_COUNT)]
        self.calls = itertools.count()
        self.numbers = {"w-1": 1, "w-2": 1}
        self.now_ms = 0
        self.mirrors: list[dict[StatusKey, Status]] = [{} for _ in self.replicas]
        self.seen = [0] * REPLICA_COUNT

    @rule(which=REPLICAS, batch=BATCHES, writer=WRITERS, lateness=LATENESS)
    def decide(self, which: int, batch: list[StatusWrite], writer: str, lateness: int) -> None:
        replica = self.replicas[which]
        if replica.in_flight is not None:
            return
        number = 0
        if writer:
            number = max(1, self.numbers[writer] - lateness)
            self.numbers[writer] += 1
        replica.in_flight = replica.driver.decide(
            PutStatuses(call_id=self._call_id(), writes=batch, writer=writer, number=number)
        )

    @rule(which=REPLICAS)
    def write(self, which: int) -> None:
        replica = self.replicas[which]
        if replica.in_flight is not None:
            outcome, replica.in_flight = replica.in_flight, None
            replica.write(outcome)

    @rule(batches=st.tuples(BATCHES, BATCHES), writers=st.tuples(WRITERS, WRITERS), late=LATENESS)
    def decide_side_by_side(
        self,
        batches: tuple[list[StatusWrite], list[StatusWrite]],
        writers: tuple[str, str],
        late: int,
    ) -> None:
        for which, (batch, writer) in enumerate(zip(batches, writers, strict=True)):
            self.decide(which, batch, writer, late)
        for which in reversed(range(REPLICA_COUNT)):
            self.write(which)

    @rule(which=REPLICAS, written=st.integers(0, 3))
    def lose_an_answer(self, which: int, written: int) -> None:
        replica = self.replicas[which]
        if replica.in_flight is not None:
            outcome, replica.in_flight = replica.in_flight, None
            replica.write(replace(outcome, records=outcome.records[:written]))
            replica.driver.lose(outcome)

    @rule(which=REPLICAS, connector=st.sampled_from(["a", "a-0"]))
    def use_a_topic(self, which: int, connector: str) -> None:
        replica = self.replicas[which]
        if replica.in_flight is None:
            event = PutTopicStatuses(
                call_id=self._call_id(), connector=connector, topics=["t"], task=0
            )
            replica.write(replica.driver.decide(event))

    @rule(which=REPLICAS, partition=PARTITIONS, count=st.integers(1, 3))
    def read(self, which: int, partition: int, count: int) -> None:
        self.replicas[which].read(partition, count)

    @rule(duration_ms=st.sampled_from([1, REWRITE_AFTER_MS]))
    def time_goes_by(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        for replica in self.replicas:
            if replica.in_flight is None:
                self._pass_time(replica)

    @rule(which=REPLICAS, order=st.permutations(range(PARTITION_COUNT)))
    def crash(self, which: int, order: list[int]) -> None:
        self.replicas[which] = self._fresh(order)
        self.mirrors[which] = self.replicas[which].driver.statuses
        self.seen[which] = len(self.replicas[which].driver.log)

    @rule(partition=PARTITIONS)
    def compact(self, partition: int) -> None:
        self.topic.compact(partition, min(each.positions[partition] for each in self.replicas))

    @precondition(lambda self: any(self.topic.ends))
    @rule(order=st.permutations(range(PARTITION_COUNT)), compacted=st.booleans())
    def in_the_end_all_are_the_same(self, order: list[int], compacted: bool) -> None:
        for which, replica in enumerate(self.replicas):
            self.write(which)
            replica.read_all(order)
        if compacted:
            for partition in range(PARTITION_COUNT):
                self.compact(partition)
        everybody = [*self.replicas, self._fresh(order)]
        for _ in range(ROUNDS_MAX):
            ends = list(self.topic.ends)
            self.now_ms += REWRITE_AFTER_MS
            for replica in everybody:
                self._pass_time(replica)
                replica.read_all(order)
            if ends == self.topic.ends and not any(
                replica.driver.decide_repeats() for replica in everybody
            ):
                break
        else:
            raise AssertionError("they say the same again and again")
        first = everybody[0].driver
        for replica in everybody[1:]:
            assert replica.driver.statuses == first.statuses
            assert replica.driver.machine.snapshot().topics == first.machine.snapshot().topics
        for replica in self.replicas:
            if replica.saw_all:
                for connector in ("a", "a-0"):
                    expected = what_counts(self.topic.history, connector)
                    assert replica.driver.statuses.get(connector) == expected

    @invariant()
    def a_watcher_knows_what_its_replica_knows(self) -> None:
        for which, replica in enumerate(self.replicas):
            mirror = self.mirrors[which]
            for event in replica.driver.machine.history.read(self.seen[which]):
                if not isinstance(event, StatusEvent):
                    continue
                if event.status is None:
                    mirror.pop(event.key)
                else:
                    mirror[event.key] = event.status
            self.seen[which] = len(replica.driver.log)
            assert mirror == replica.driver.statuses

    def _fresh(self, order: list[int]) -> Replica:
        replica = Replica(self.topic, saw_all=False)
        replica.driver.now_ms = self.now_ms
        replica.read_all(order)
        replica.driver.restart()
        return replica

    def _pass_time(self, replica: Replica) -> None:
        replica.driver.now_ms = self.now_ms
        for outcome in replica.driver.due():
            replica.write(outcome)
            replica.driver.release(outcome)

    def _call_id(self) -> str:
        return f"call-{next(self.calls)}"


TestStatusReplicas = StatusReplicas.TestCase
TestStatusReplicas.settings = settings(max_examples=100, stateful_step_count=40)
