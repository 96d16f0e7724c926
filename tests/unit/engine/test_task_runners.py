"""Source and sink tasks, turn by turn, on a real store and without Spark: outages, restarts, ends.

Frames are stand-ins that run the executors' functions in this process.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.connector import (
    ConfigDef,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.store import EmbeddedStore
from drover.errors import DataLossError, Reason, UnavailableError
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from services.worker.engine.settings import EngineLimits
from services.worker.engine.sink_runner import SinkRunner
from services.worker.engine.source_runner import SourceRunner
from services.worker.engine.task_runner import TaskRunner, TaskSpec, TaskTools
from services.worker.engine.threads import PluginThreads

Fault = Callable[[], None]


def unavailable() -> None:
    raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "data.db stayed locked for 30 s")


class Frame:
    """Rows, or a function that yields them from numbers, as a DataFrame would."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        self._batches = batches

    def mapInArrow(self, function: Callable[[Any], Any], _schema: str) -> "Frame":
        return Frame(lambda: function(self._batches()))

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self._batches() for row in batch.to_pylist()]


def values(*rows: str) -> Frame:
    return Frame(lambda: iter([pa.RecordBatch.from_pydict({"value": list(rows)})]))


class Spark:
    """As much of a session as runners use."""

    def __init__(self) -> None:
        self.sparkContext = SimpleNamespace(
            defaultParallelism=2,
            setJobGroup=lambda *_: None,
            setLocalProperty=lambda *_: None,
            cancelJobGroup=lambda *_: None,
        )

    def range(self, start: int, end: int, _step: int, _partitions: int) -> Frame:
        numbers = pa.RecordBatch.from_pydict({"id": list(range(start, end))})
        return Frame(lambda: iter([numbers]))


class Lines(SourceTask):
    """One line a batch; ``faults`` are raised, one a poll, while there are any."""

    made: "list[Lines]" = []  # noqa: RUF012 (each test has its own)
    faults: list[Fault] = []  # noqa: RUF012

    def start(self, context: SourceTaskContext) -> None:
        self.made.append(self)
        self.stopped = False
        self.next = int((context.offset({"lines": 0}) or {"next": 0})["next"])

    def poll(self) -> SourceBatch | None:
        if self.next >= 3:
            return None
        frame = values(f"line {self.next}")
        self.next += 1
        if self.faults:
            fault = self.faults.pop(0)

            def fail() -> Iterator[Any]:
                fault()
                yield

            frame = Frame(fail)
        return SourceBatch(cast("Any", frame), [({"lines": 0}, {"next": self.next})], topic="t")

    def stop(self) -> None:
        self.stopped = True


class LinesSource(SourceConnector):
    task_class = Lines

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class Writer(SinkTask):
    """Keeps what it is given."""

    written: list[tuple[str, int, bytes]] = []  # noqa: RUF012
    faults: list[Fault] = []  # noqa: RUF012
    metadata: Any = "note"

    def start(self, context: SinkTaskContext) -> None:
        self.committed = context.committed

    def write(self, batch: SinkBatch) -> str:
        rows = batch.frame.collect()
        if self.faults:
            self.faults.pop(0)()
        self.written += [(row["topic"], row["offset"], row["value"]) for row in rows]
        return cast("str", self.metadata)


class WriterSink(SinkConnector):
    task_class = Writer

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class Scheduler:
    """Takes no turns by itself."""

    def __init__(self) -> None:
        self.removed: list[TaskRunner] = []
        self.woken = 0

    def add(self, _job: TaskRunner) -> None:
        raise AssertionError("turns are taken by the test")

    def wake(self, _job: TaskRunner) -> None:
        self.woken += 1

    def remove(self, job: TaskRunner) -> threading.Event:
        self.removed.append(job)
        ended = threading.Event()
        ended.set()
        return ended


class World:
    """A store, and runners on it."""

    def __init__(self, path: Path) -> None:
        self.store = EmbeddedStore(path)
        self.reports: list[engine_pb2.EngineReport] = []
        self.scheduler = Scheduler()
        self.woken_readers = 0
        self.watched: list[tuple[dict[tuple[str, int], int], dict[str, int]]] = []
        self.tools = TaskTools(
            spark=cast("Any", Spark()),
            plane=EmbeddedPlane(self.store),
            scheduler=cast("Any", self.scheduler),
            threads=PluginThreads(abandoned_max=8, on_exhausted=lambda _: None),
            watcher=cast("Any", self),
            limits=EngineLimits(),
            send=self.reports.append,
            commits={},
        )

    # the watcher's methods

    def published(self) -> None:
        self.woken_readers += 1

    def wait(
        self, _wake: object, starts: Mapping[tuple[str, int], int], counts: Mapping[str, int]
    ) -> None:
        self.watched.append((dict(starts), dict(counts)))

    def forget(self, _wake: object) -> None: ...

    def runner(
        self, kind: type[TaskRunner], connector: type[Any], *, paused: bool = False, **config: str
    ) -> Any:
        task = TaskId(connector.__name__, 0)
        claim = self.store.claim_task(task, generation=1, owner="tests", request_id="")
        common = {"name": task.connector, "connector.class": connector.__name__, **config}
        spec = TaskSpec(
            task=task,
            run_id=1,
            claim=claim,
            connector_class=connector,
            connector_config=common,
            own_config={},
            committed=self.store.fetch_offsets(task.connector),
        )
        runner = kind(spec, self.tools, paused=paused)
        runner.prepare()
        return runner

    def source(self) -> SourceRunner:
        return cast("SourceRunner", self.runner(SourceRunner, LinesSource))

    def sink(self, topics: str = "t") -> SinkRunner:
        return cast("SinkRunner", self.runner(SinkRunner, WriterSink, topics=topics))

    def take_over(self, connector: type[Any]) -> None:
        task = TaskId(connector.__name__, 0)
        self.store.claim_task(task, generation=2, owner="other", request_id="")

    def answer_commit(
        self,
        outcome: str = "COMMIT_OUTCOME_COMMITTED",
        message: str = "",
    ) -> None:
        report = next(each for each in reversed(self.reports) if each.HasField("commit_offsets"))
        number = coordinator_service_pb2.CommitOutcome.Value(outcome)
        result = engine_pb2.CommitResult(outcome=number, message=message)
        self.tools.commits.pop(report.call_id)(result)

    @property
    def kinds(self) -> list[str | None]:
        return [each.WhichOneof("report") for each in self.reports]

    @property
    def record_count(self) -> int:
        return sum(self.store.end_offsets("t").values())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, kind in (("made", Lines), ("faults", Lines), ("written", Writer), ("faults", Writer)):
        monkeypatch.setattr(kind, name, [])
    monkeypatch.setattr(Writer, "metadata", "note")
    return World(tmp_path / "data.db")


def test_a_source_publishes_batch_after_batch_and_then_waits_longer_and_longer(
    world: World,
) -> None:
    runner = world.source()
    assert [runner.take_turn() for _ in range(3)] == [0, 0, 0]
    assert world.record_count == 3
    assert world.woken_readers == 3
    assert [runner.take_turn() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert world.reports == []


def test_a_source_whose_staging_meets_a_busy_store_starts_again_from_the_offsets(
    world: World,
) -> None:
    runner = world.source()
    runner.take_turn()
    Lines.faults += [unavailable, unavailable]
    pauses = [runner.take_turn() for _ in range(2)]
    assert pauses == [0.1, 0.2]
    assert [runner.take_turn() for _ in range(2)] == [0, 0]
    assert world.record_count == 3
    assert [each.stopped for each in Lines.made] == [True, True, False]
    assert world.reports == []


def test_a_source_that_cannot_publish_publishes_the_same_batch_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source()
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "publish", lambda *_: unavailable())
        assert [runner.take_turn() for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert runner.take_turn() == 0
    assert (world.record_count, len(Lines.made)) == (1, 1)


def test_a_source_that_was_taken_over_is_fenced_and_its_task_stopped(world: World) -> None:
    runner = world.source()
    runner.take_turn()
    world.take_over(LinesSource)
    assert runner.take_turn() is None
    assert world.kinds == ["task_fenced"]
    assert (runner.over, world.record_count) == (True, 1)
    assert world.scheduler.removed == [runner]
    assert runner.take_turn() is None


def test_a_plugin_that_exits_fails_its_task_only(world: World) -> None:
    def leave() -> None:
        raise SystemExit(3)

    Lines.faults.append(leave)
    runner = world.source()
    assert runner.take_turn() is None
    assert world.kinds == ["task_failed"]
    assert "SystemExit: 3" in world.reports[0].task_failed.trace


def test_a_task_whose_store_is_corrupt_fails_and_does_not_fall_silent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corrupt(*_: object) -> None:
        raise DataLossError(Reason.LOG_CORRUPT, "data.db cannot be read")

    source, sink = world.source(), world.sink()
    source.take_turn()
    Lines.faults.append(corrupt)
    monkeypatch.setattr(world.store, "current_claim", corrupt)
    assert source.take_turn() is None
    assert sink.take_turn() is None
    failures = [each.task_failed for each in world.reports]
    assert [each.task.connector for each in failures] == ["LinesSource", "WriterSink"]
    assert all("data.db cannot be read" in each.trace for each in failures)


def test_a_failure_that_cannot_be_put_into_words_is_a_failure_all_the_same(world: World) -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def wordless() -> None:
        raise WordlessError

    Lines.faults.append(wordless)
    assert world.source().take_turn() is None
    assert world.kinds == ["task_failed"]
    assert "WordlessError" in world.reports[0].task_failed.trace


def test_a_poll_that_comes_back_after_it_was_given_up_publishes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source()
    poll = Lines.poll

    def late_poll(task: Lines) -> SourceBatch | None:
        assert runner.turn_deadline is not None
        runner.turn_overdue()
        return poll(task)

    monkeypatch.setattr(Lines, "poll", late_poll)
    runner.take_turn()
    assert world.record_count == 0
    assert world.kinds == ["task_failed"]
    assert "poll() of task LinesSource-0 did not return" in world.reports[0].task_failed.trace


def test_a_stopped_source_takes_no_turn(world: World) -> None:
    runner = world.source()
    runner.stop(1)
    assert runner.take_turn() is None
    assert Lines.made[0].stopped
    assert world.record_count == 0


def _fill(world: World) -> None:
    source = world.source()
    for _ in range(3):
        source.take_turn()


def test_a_sink_writes_and_waits_for_its_commit_before_it_reads_on(world: World) -> None:
    sink = world.sink()
    assert sink.take_turn() is None
    assert world.watched == [({}, {"t": 0})]
    _fill(world)
    assert sink.take_turn() is None
    assert [offset for _, offset, _ in Writer.written] == [0, 1, 2]
    (offset,) = world.reports[0].commit_offsets.offsets
    assert (offset.partition_json, offset.offset_json, offset.metadata) == (
        '{"kafka_topic":"t","kafka_partition":0}',
        '{"kafka_offset":3}',
        "note",
    )
    assert sink.take_turn() is None
    assert len(world.reports) == 1
    world.answer_commit()
    assert world.scheduler.woken == 1
    sink.take_turn()
    assert world.watched[-1] == ({("t", 0): 3}, {"t": 1})
    progress = sink.progress()
    assert progress is not None
    assert (progress.record_count, progress.batch_count) == (3, 1)
    assert sink.progress() is None


def test_a_sink_reads_on_where_the_commits_say(world: World) -> None:
    _fill(world)
    committed = CommittedOffset('{"kafka_topic":"t","kafka_partition":0}', '{"kafka_offset":2}')
    task = TaskId("WriterSink", 0)
    claim = world.store.claim_task(task, generation=1, owner="tests", request_id="")
    world.store.publish(task, claim, [], [committed])
    world.sink().take_turn()
    assert Writer.written == [("t", 2, b"line 2")]


def _remove_everything(world: World) -> None:
    while world.store.apply_retention(retention_ms=None, retention_bytes=0).batch_count:
        pass


@pytest.mark.parametrize(("committed", "removed"), [(None, 3), (2, 1)])
def test_a_sink_goes_on_at_the_log_start_when_retention_was_faster(
    world: World, committed: int | None, removed: int
) -> None:
    _fill(world)
    _remove_everything(world)
    task = TaskId("WriterSink", 0)
    if committed is not None:
        claim = world.store.claim_task(task, generation=1, owner="tests", request_id="")
        offset = CommittedOffset(
            '{"kafka_topic":"t","kafka_partition":0}', f'{{"kafka_offset":{committed}}}'
        )
        world.store.publish(task, claim, [], [offset])
    sink = world.sink()
    with capture_logs() as logs:
        sink.take_turn()  # nothing is left to read
        assert world.watched[-1] == ({("t", 0): 3}, {"t": 1})
        Writer.faults.append(unavailable)
        world.store.publish(  # the source reads its three lines once more
            TaskId("LinesSource", 0),
            world.store.claim_task(
                TaskId("LinesSource", 0), generation=1, owner="tests", request_id=""
            ),
            [],
            [CommittedOffset('{"lines":0}', None)],
        )
        _fill(world)
        assert sink.take_turn() == 0.1  # fails, and starts again from what was committed
        sink.take_turn()
        world.answer_commit()
        sink.take_turn()
    assert [offset for _, offset, _ in Writer.written] == [3, 4, 5]
    assert "task_failed" not in world.kinds
    warnings = [each for each in logs if "retention" in each["event"]]
    assert [(each["record_count"], each["log_starts"]) for each in warnings] == [
        (removed, {"t-0": 3})
    ]


def test_a_sink_whose_read_meets_a_busy_store_starts_again(world: World) -> None:
    _fill(world)
    Writer.faults.append(unavailable)
    sink = world.sink()
    assert sink.take_turn() == 0.1
    assert world.reports == []
    sink.take_turn()
    assert [offset for _, offset, _ in Writer.written] == [0, 1, 2]
    assert world.kinds == ["commit_offsets"]


def test_a_sink_that_was_taken_over_does_not_write(world: World) -> None:
    _fill(world)
    sink = world.sink()
    world.take_over(WriterSink)
    sink.take_turn()
    assert Writer.written == []
    assert world.kinds == ["task_fenced"]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("COMMIT_OUTCOME_STALE_CLAIM", "task_fenced"),
        ("COMMIT_OUTCOME_INVALID", "task_failed"),
    ],
)
def test_a_refused_commit_ends_the_sink(world: World, outcome: str, kind: str) -> None:
    _fill(world)
    sink = world.sink()
    sink.take_turn()
    world.answer_commit(outcome, "that is why")
    sink.take_turn()
    assert world.kinds == ["commit_offsets", kind]
    if kind == "task_failed":
        assert "that is why" in world.reports[-1].task_failed.trace


@pytest.mark.parametrize(
    ("metadata", "why"),
    [(None, "write() must return text, not NoneType"), ("x" * 4097, "4097 bytes of metadata")],
)
def test_metadata_that_cannot_be_committed_fails_the_sink(
    world: World, metadata: Any, why: str
) -> None:
    _fill(world)
    Writer.metadata = metadata
    world.sink().take_turn()
    assert world.kinds == ["task_failed"]
    assert why in world.reports[0].task_failed.trace


def test_a_stop_waits_for_the_commit_under_way_but_not_for_ever(world: World) -> None:
    _fill(world)
    sink = world.sink()
    sink.take_turn()
    sink.stop(0.05)
    world.answer_commit()
    assert sink.take_turn() is None
    assert world.kinds == ["commit_offsets"]


def test_a_paused_task_takes_turns_without_work(world: World) -> None:
    runner = world.runner(SourceRunner, LinesSource, paused=True)
    assert runner.take_turn() is None
    runner.set_paused(False)
    assert world.scheduler.woken == 1
    assert runner.take_turn() == 0
    assert world.record_count == 1
