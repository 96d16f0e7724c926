"""Source tasks that publish on a separate thread, as on Kafka, run by run."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest

from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import (
    OutgoingBatch,
    ProducerFencedError,
    Receipt,
    StageAgainError,
    TransactionalWriter,
    WriterStarts,
)
from drover.dataplane.spark_jobs import run_pass
from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover_worker.engine.core import batch_size
from drover_worker.engine.core.publishing import FENCES_MAX
from drover_worker.engine.tasks import source_runner
from drover_worker.engine.tasks.source_runner import SourceRunner
from tests.support.waiting import wait_until
from tests.unit.engine.runner_world import Lines, LinesSource, World, unavailable


@dataclass
class Staged:
    values: list[str]

    @property
    def record_count(self) -> int:
        return len(self.values)


def collect(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"value": batch.column("value").cast(pa.string())})


@dataclass
class ApartWriter:
    """Publishes into a list while ``gate`` is open; a step raises the next of its errors."""

    world: World
    claim_is_current: Callable[[], None]
    commits_with_records: bool = True
    gate: threading.Event = field(default_factory=threading.Event)
    raises: dict[str, list[Exception]] = field(default_factory=dict)
    transactions: list[list[str]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    staged_count: int = 0
    opened_count: int = 0
    discarded: list[str] = field(default_factory=list)
    closed: bool = False
    open_values: list[str] = field(default_factory=list)
    open_offsets: Sequence[CommittedOffset] = ()

    def fail(self, step: str, *errors: Exception) -> None:
        """Let the next calls of a step raise these errors."""
        self.raises.setdefault(step, []).extend(errors)

    def init(self) -> None:
        self._step("init")

    def check_claim(self) -> None:
        self._step("check_claim")
        self.claim_is_current()

    def starts(self, committed: Sequence[CommittedOffset]) -> WriterStarts:
        self.opened_count += 1
        return WriterStarts(committed)

    def stage(self, batch: OutgoingBatch) -> Staged:
        staged = Staged([row["value"] for row in run_pass(batch, collect)])
        self.staged_count += 1
        return staged

    def produce(self, staged: Sequence[Staged]) -> None:
        assert self.gate.wait(60)
        self._step("produce")
        self.open_values = [value for each in staged for value in each.values]

    def add_offsets(self, offsets: Sequence[CommittedOffset]) -> None:
        self._step("add_offsets")
        self.open_offsets = offsets

    def commit(self) -> None:
        self._step("commit")
        self.transactions.append(self.open_values)
        task = TaskId("AheadSource", 0)
        claim = self.world.store.current_claim(task)
        assert claim is not None
        self.world.store.publish(task, claim, [], self.open_offsets)

    def published(self, staged: Sequence[Staged]) -> Receipt:
        return Receipt(record_count=sum(each.record_count for each in staged), topics=("t",))

    def discard(self, staged: Sequence[Staged]) -> None:
        self.discarded += [value for each in staged for value in each.values]

    def close(self) -> None:
        self.closed = True

    def _step(self, name: str) -> None:
        self.steps.append(name)
        errors = self.raises.get(name)
        if errors:
            raise errors.pop(0)


class ApartPlane(EmbeddedPlane):
    """A plane as on Kafka: only the coordinator has claims and offsets."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self.world = world
        self.made: list[ApartWriter] = []

    def writer(
        self,
        task: TaskId,
        claim: Term,
        *,
        abandoned: Callable[[], bool],
        check_claim: Callable[[], None] = lambda: None,
        offsets_topic: str = "",
    ) -> Any:
        del task, claim, abandoned, offsets_topic
        writer = ApartWriter(self.world, check_claim)
        checked: TransactionalWriter[Staged] = writer
        self.made.append(writer)
        return checked

    def current_claim(self, task: TaskId) -> None:
        return None

    def fetch_offsets(self, connector: str) -> Any:
        return None


class Ahead(Lines):
    reads_ahead = True
    acknowledged: ClassVar[list[int]] = []
    acknowledging: ClassVar[Callable[[], None]] = lambda: None

    def committed(self, offsets: Sequence[Any]) -> None:
        Ahead.acknowledging()
        self.acknowledged.append(offsets[0][1]["next"])


class AheadSource(LinesSource):
    task_class = Ahead


@dataclass
class Task:
    world: World
    runner: SourceRunner
    writer: ApartWriter

    def settle(self) -> float | None:
        """Wait for the publish in progress, then run the task once."""
        transactions = self.runner._core.transactions
        self.writer.gate.set()
        assert self.runner._wait_until(lambda: not transactions.is_in_progress, 60)
        self.writer.gate.clear()
        return self.runner.run_once()


@pytest.fixture
def start(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Task]:
    Lines.made, Lines.faults = [], []
    monkeypatch.setattr(Ahead, "acknowledged", [])

    def started(*, ahead: bool = True, paused: bool = False, **config: str) -> Task:
        monkeypatch.setattr(Ahead, "reads_ahead", ahead)
        plane = ApartPlane(world)
        world.tools = replace(world.tools, plane=plane)
        runner = world.runner(SourceRunner, AheadSource, config, paused=paused)
        return Task(world, cast("SourceRunner", runner), plane.made[-1])

    return started


def test_the_next_batch_is_made_only_when_the_one_before_is_published(
    start: Callable[..., Task],
) -> None:
    task = start(ahead=False)
    assert task.runner.run_once() is None
    assert task.runner.run_once() is None
    assert task.writer.staged_count == 1
    assert task.settle() is None
    assert task.writer.transactions == [["line 0"]]
    assert task.writer.staged_count == 2
    assert task.world.scheduler.woken == 1


def test_a_task_that_reads_ahead_makes_one_batch_while_another_is_published(
    start: Callable[..., Task],
) -> None:
    task = start()
    assert task.runner.run_once() == 0
    assert task.runner.run_once() is None, "the task is woken once there is room"
    assert task.runner.run_once() is None
    assert task.writer.staged_count == 2
    task.settle()
    assert task.writer.transactions == [["line 0"]]
    assert task.writer.staged_count == 3
    task.settle()
    task.settle()
    assert task.writer.transactions == [["line 0"], ["line 1"], ["line 2"]]


def test_the_task_is_told_how_large_its_next_batch_should_be(
    start: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "TARGET_S", 1e9)
    monkeypatch.setattr(batch_size, "FIRST_BYTES", 1024)
    task = start()
    (source,) = Lines.made
    task.runner.run_once()
    assert source.context.config["batch.max.bytes"] == 1024
    task.runner.run_once()
    task.settle()
    task.settle()
    task.runner.run_once()
    assert source.context.config["batch.max.bytes"] == batch_size.LEAST_BYTES


def test_a_rate_is_kept_by_not_reading_ahead(start: Callable[..., Task]) -> None:
    task = start(**{"rate.max.records": "1000000"})
    assert task.runner.run_once() is None
    assert task.runner.run_once() is None
    assert task.writer.staged_count == 1


def test_a_batch_that_is_not_published_is_published_again_before_the_next(
    start: Callable[..., Task],
) -> None:
    task = start()
    task.runner.run_once()
    task.runner.run_once()
    task.writer.fail("produce", UnavailableError(Reason.STORAGE_UNAVAILABLE, "away"))
    assert task.settle() == 0.1
    assert len(Lines.made) == 1, "the task is not started again"
    task.runner.run_once()
    task.settle()
    assert task.writer.transactions == [["line 0", "line 1"]]


def test_after_an_unknown_outcome_the_offsets_tell_where_to_go_on(
    start: Callable[..., Task],
) -> None:
    task = start()
    task.runner.run_once()
    task.runner.run_once()
    task.writer.fail("commit", UnavailableError(Reason.STORAGE_UNAVAILABLE, "no answer"))
    assert task.settle() == 0.1
    task.runner.run_once()
    assert len(Lines.made) == 2
    assert task.writer.opened_count == 2
    assert task.writer.discarded == ["line 1"], "the batch that was staged after it"
    task.settle()
    assert task.writer.transactions == [["line 0"]]


def test_a_stale_claim_ends_the_task(start: Callable[..., Task]) -> None:
    task = start()
    task.runner.run_once()
    task.writer.fail("produce", FailedPreconditionError(Reason.STALE_CLAIM, "stale"))
    assert task.settle() is None
    assert task.world.kinds == ["task_fenced"]
    assert task.writer.closed


def test_a_transactional_id_that_somebody_else_has_fails_the_task_with_who(
    start: Callable[..., Task],
) -> None:
    task = start()
    task.runner.run_once()
    why = "another producer keeps using the transactional id g-c-0"
    meaning = FailedPreconditionError(Reason.STALE_WRITER_EPOCH, why)
    fences = [ProducerFencedError("fenced", meaning) for _ in range(FENCES_MAX + 1)]
    task.writer.fail("produce", *fences)
    assert task.settle() is None
    assert task.world.kinds == ["task_failed"]
    assert why in task.world.reports[-1].task_failed.trace
    assert task.writer.closed


def test_a_fenced_producer_begins_again_and_publishes_the_same_batch(
    start: Callable[..., Task],
) -> None:
    task = start()
    task.runner.run_once()
    meaning = FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "another producer")
    task.writer.fail("add_offsets", ProducerFencedError("fenced", meaning))
    task.writer.steps.clear()
    task.settle()
    begin, publish = ["init", "check_claim"], ["produce", "add_offsets", "commit"]
    assert task.writer.steps == ["produce", "add_offsets", *begin, *publish]
    assert task.writer.transactions == [["line 0"]]
    assert task.writer.staged_count == 2


def test_a_batch_that_has_to_be_staged_again_is_polled_again(start: Callable[..., Task]) -> None:
    task = start()
    task.runner.run_once()
    task.writer.fail("produce", StageAgainError(Reason.STORAGE_UNAVAILABLE, "another topic"))
    assert task.settle() == 0.1
    task.runner.run_once()
    task.settle()
    assert task.writer.transactions == [["line 0"]]
    assert len(Lines.made) == 2


def test_a_transaction_of_an_abandoned_task_is_not_committed(start: Callable[..., Task]) -> None:
    task = start()
    task.runner.run_once()
    task.runner.stop(0.01)
    task.writer.gate.set()
    wait_until(lambda: task.writer.closed)
    assert task.writer.steps[-1] == "produce"
    assert task.writer.transactions == []


def test_a_batch_that_cannot_be_made_waits_for_the_one_that_is_published(
    start: Callable[..., Task],
) -> None:
    task = start()
    task.runner.run_once()
    Lines.faults.append(lambda: (_ for _ in ()).throw(ValueError("a bad line")))
    task.writer.gate.set()
    task.runner.run_once()
    assert task.writer.transactions == [["line 0"]]
    assert task.world.kinds == ["task_failed"]
    assert task.writer.closed


@pytest.mark.parametrize("is_published", [True, False])
def test_a_batch_that_could_not_be_made_is_made_again(
    start: Callable[..., Task], is_published: bool
) -> None:
    task = start()
    task.runner.run_once()
    Lines.faults.append(unavailable)
    if not is_published:
        task.writer.fail("produce", UnavailableError(Reason.STORAGE_UNAVAILABLE, "away"))
    task.writer.gate.set()
    assert task.runner.run_once() == 0.1
    for _ in range(4):
        task.runner.run_once()
        task.settle()
    assert task.writer.transactions == [["line 0"], ["line 1"], ["line 2"]]
    assert len(Lines.made) == 2


def test_a_transaction_gathers_the_batches_of_an_interval(start: Callable[..., Task]) -> None:
    hour = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "3600000"}
    task = start(**hour)
    assert [task.runner.run_once() for _ in range(3)] == [0, 0, 0]
    idle_s = task.runner.run_once()
    assert idle_s is not None
    assert idle_s > 0
    assert task.writer.transactions == []
    task.runner.set_paused(True)
    assert task.runner.run_once() is None
    task.settle()
    assert task.writer.transactions == [["line 0", "line 1", "line 2"]]
    assert task.world.store.fetch_offsets("AheadSource")[0].offset_json == '{"next":3}'


def test_a_clean_stop_publishes_what_was_gathered(start: Callable[..., Task]) -> None:
    task = start(**{"transaction.boundary": "interval"})
    task.runner.run_once()
    task.runner.run_once()
    task.writer.gate.set()
    task.runner.stop(60)
    assert task.writer.transactions == [["line 0", "line 1"]]
    assert task.writer.closed
    assert Lines.made[0].stopped
    assert Ahead.acknowledged == [1, 2]


def test_an_acknowledgement_that_fails_does_not_hold_up_a_stop(
    start: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ahead, "acknowledging", unavailable)
    task = start()
    task.runner.run_once()
    task.writer.gate.set()
    task.runner.stop(60)
    assert task.writer.transactions == [["line 0"]]
    assert task.writer.closed
    assert Lines.made[0].stopped
    assert task.world.kinds == []


def test_a_start_waits_for_a_coordinator_that_is_away(
    start: Callable[..., Task], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_runner, "CLAIM_CHECK_S", 0.01)
    world.coordinator_is_there = False
    task = start()
    assert Lines.made == []
    assert task.runner.run_once() == 0.1
    world.coordinator_is_there = True
    assert task.runner.run_once() == 0
    assert len(Lines.made) == 1


def test_a_task_starts_from_what_is_committed_once_its_writer_is_the_only_one(
    start: Callable[..., Task], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = CommittedOffset('{"lines":0}', '{"next":2}')

    def late_commit(writer: ApartWriter) -> None:
        task = TaskId("AheadSource", 0)
        claim = world.store.current_claim(task)
        assert claim is not None
        world.store.publish(task, claim, [], [offset])

    monkeypatch.setattr(ApartWriter, "init", late_commit)
    task = start()
    task.runner.run_once()
    task.settle()
    wait_until(lambda: task.writer.transactions == [["line 2"]])
