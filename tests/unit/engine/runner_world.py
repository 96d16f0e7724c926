"""Source and sink tasks on a real store, run by run and without Spark.

Fake frames run the executors' functions in this process.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.coordinator import COMMIT_OUTCOMES, decode_task_offsets, encode_offset
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
from drover.connector.settings import task_config
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.store import EmbeddedStore
from drover.errors import Reason, UnavailableError
from drover.model.ids import TaskId
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.instructions import SendCommit, TaskInstruction
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks.sink_runner import SinkRunner
from drover_worker.engine.tasks.source_runner import SourceRunner
from drover_worker.engine.tasks.task_runner import TaskRunner, TaskSpec, TaskTools

Fault = Callable[[], None]


def unavailable() -> None:
    raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "data.db stayed locked for 30 s")


class Frame:
    """A fake DataFrame whose batches come from a function."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        self.batches = batches

    def mapInArrow(self, function: Callable[[Any], Any], _schema: str) -> "Frame":
        return Frame(lambda: function(self.batches()))

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches() for row in batch.to_pylist()]


def values(*rows: str) -> Frame:
    return Frame(lambda: iter([pa.RecordBatch.from_pydict({"value": list(rows)})]))


class Accumulator:
    """The part of a Spark accumulator that reports use."""

    aid = -1

    def __init__(self) -> None:
        self.value: dict[int, Any] = {}

    def add(self, term: dict[int, Any]) -> None:
        self.value = {**self.value, **term}


class Numbers:
    """The part of an RDD that passes use; each number is a Spark partition."""

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers
        self.function: Callable[[Iterator[int]], Iterator[bytes]]

    def mapPartitions(self, function: Callable[[Iterator[int]], Iterator[bytes]]) -> "Numbers":
        mapped = Numbers(self.numbers)
        mapped.function = function
        return mapped

    def collect(self) -> list[bytes]:
        return [each for number in self.numbers for each in self.function(iter([number]))]


class Context:
    """The part of a Spark context that runners use."""

    defaultParallelism = 2  # noqa: N815 (Spark's name)

    def setJobGroup(self, group: str, description: str) -> None: ...

    def setLocalProperty(self, name: str, value: str | None) -> None: ...

    def cancelJobGroup(self, group: str) -> None: ...

    def accumulator(self, _value: object, _param: object) -> Accumulator:
        return Accumulator()

    def parallelize(self, numbers: range, _partitions: int) -> Numbers:
        return Numbers(numbers)


class Spark:
    """The part of a Spark session that runners use."""

    def __init__(self) -> None:
        self.sparkContext = Context()


class Lines(SourceTask):
    """One line per batch; each batch raises the next of ``faults``, if there is one."""

    made: "list[Lines]" = []  # noqa: RUF012 (each test has its own)
    faults: list[Fault] = []  # noqa: RUF012

    def start(self, context: SourceTaskContext) -> None:
        self.made.append(self)
        self.context = context
        self.stopped = False
        self.next = int((context.offset({"lines": 0}) or {"next": 0})["next"])

    def poll(self) -> SourceBatch | None:
        if self.next >= 3:
            return None
        frame = values(f"line {self.next}")
        self.next += 1
        if self.faults:
            fault = self.faults.pop(0)

            rows = frame

            def fail() -> Iterator[Any]:
                fault()
                yield from rows.batches()

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


class Spreader(SourceTask):
    """Records with a topic each; each poll returns the next of ``batches``, a list of topics."""

    batches: list[list[str]] = []  # noqa: RUF012 (each test has its own)

    def start(self, context: SourceTaskContext) -> None: ...

    def poll(self) -> SourceBatch | None:
        if not self.batches:
            return None
        topics = self.batches.pop(0)
        rows = {"topic": topics, "value": ["row"] * len(topics)}
        frame = Frame(lambda: iter([pa.RecordBatch.from_pydict(rows)]))
        return SourceBatch(cast("Any", frame), [({"rows": 0}, {"left": len(self.batches)})])


class SpreaderSource(LinesSource):
    task_class = Spreader  # type: ignore[assignment]


class Writer(SinkTask):
    """Keeps the records that it writes."""

    written: list[tuple[str, int, bytes]] = []  # noqa: RUF012
    faults: list[Fault] = []  # noqa: RUF012
    metadata: Any = "note"

    def start(self, context: SinkTaskContext) -> None:
        self.committed = context.committed

    def write(self, batch: SinkBatch) -> str:
        rows = batch.run_in_arrow(iter)
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


class StartedSink(SinkRunner):
    """A sink whose commits before the first write are answered at once, and not reported."""

    world: "World"
    commits_starts = False

    def run_once(self) -> float | None:
        self.commits_starts = False
        pause_s = super().run_once()
        return super().run_once() if self.commits_starts else pause_s

    def _execute(self, instruction: TaskInstruction) -> TaskEvent | None:
        if not isinstance(instruction, SendCommit) or not instruction.are_starts:
            return super()._execute(instruction)
        self.commits_starts = self.world.commits_at_once = True
        try:
            return super()._execute(instruction)
        finally:
            self.world.commits_at_once = False


class Scheduler:
    """Runs no job: the test runs the tasks."""

    def __init__(self) -> None:
        self.removed: list[TaskRunner] = []
        self.given_up: list[TaskRunner] = []
        self.woken = 0
        #: Set once the current run of a removed task has ended.
        self.ended = threading.Event()
        self.ended.set()

    def add(self, _job: TaskRunner) -> None:
        raise AssertionError("the test runs the tasks")

    def wake(self, _job: TaskRunner) -> None:
        self.woken += 1

    def remove(self, job: TaskRunner) -> threading.Event:
        self.removed.append(job)
        return self.ended

    def give_up(self, job: TaskRunner) -> None:
        self.given_up.append(job)


class World:
    """A store, and the task runners that use it."""

    def __init__(self, path: Path) -> None:
        self.store = EmbeddedStore(path)
        self.reports: list[engine_pb2.EngineReport] = []
        self.scheduler = Scheduler()
        self.woken_readers = 0
        self.is_spark_running = True
        self.coordinator_is_there = True
        self.commits_at_once = False
        self.watched: list[tuple[dict[tuple[str, int], int], dict[str, int]]] = []
        self.tools = TaskTools(
            spark=cast("Any", Spark()),
            plane=EmbeddedPlane(self.store),
            scheduler=cast("Any", self.scheduler),
            threads=PluginThreads(abandoned_max=8, on_exhausted=lambda _: None),
            watcher=cast("Any", self),
            limits=EngineLimits(),
            send=self._take,
            is_spark_running=lambda: self.is_spark_running,
            commits={},
        )

    def _take(self, report: engine_pb2.EngineReport) -> None:
        """Answer claim checks and offset fetches at once; keep every other report."""
        if report.HasField("fetch_offsets"):
            if self.coordinator_is_there:
                found = self.store.fetch_offsets(report.fetch_offsets.connector)
                fetched = engine_pb2.FetchedOffsets(offsets=[encode_offset(each) for each in found])
                self.tools.commits.pop(report.call_id)(fetched)
            return
        keeps = report.commit_offsets.offsets and not self.commits_at_once
        if not report.HasField("commit_offsets") or keeps:
            self.reports.append(report)
            return
        (result,) = self.store.commit_offsets([decode_task_offsets(report.commit_offsets)])
        answer = engine_pb2.CommitResult(
            outcome=COMMIT_OUTCOMES.encode(result.outcome), message=result.message
        )
        self.tools.commits.pop(report.call_id)(answer)

    # methods of the topic watcher

    def published(self) -> None:
        self.woken_readers += 1

    def wait(
        self,
        _wake: object,
        starts: Mapping[tuple[str, int], int],
        counts: Mapping[str, int],
        _topic_ids: Mapping[str, str],
    ) -> None:
        self.watched.append((dict(starts), dict(counts)))

    def forget(self, _wake: object) -> None: ...

    def runner(
        self,
        kind: type[TaskRunner],
        connector: type[Any],
        config: Mapping[str, str] | None = None,
        *,
        paused: bool = False,
        **more: str,
    ) -> Any:
        task = TaskId(connector.__name__, 0)
        claim = self.store.claim_task(task, generation=1, owner="tests", request_id="")
        common = {"name": task.connector, "connector.class": connector.__name__}
        common |= {**(config or {}), **more}
        spec = TaskSpec(
            task=task,
            run_id=1,
            claim=claim,
            connector_class=connector,
            connector_config=common,
            own_config={},
            committed=self.store.fetch_offsets(task.connector, with_marks=True),
        )
        runner = kind(spec, self.tools, paused=paused)
        if isinstance(runner, StartedSink):
            runner.world = self
        runner.prepare()
        return runner

    def source(self, **config: str) -> SourceRunner:
        return cast("SourceRunner", self.runner(SourceRunner, LinesSource, config))

    def parsed(self, **config: str) -> Mapping[str, Any]:
        raw = {"name": "c", "connector.class": "LinesSource", **config}
        return task_config(LinesSource, raw, {})

    def spreader(self, *batches: Iterable[str]) -> SourceRunner:
        """A source with these batches, each a list of its records' topics."""
        Spreader.batches = [list(topics) for topics in batches]
        return cast("SourceRunner", self.runner(SourceRunner, SpreaderSource))

    def sink(self, topics: str = "t", **config: str) -> SinkRunner:
        config |= {"topics": topics}
        return cast("SinkRunner", self.runner(StartedSink, WriterSink, config))

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

    def commit(self) -> None:
        """Commit the last requested offsets, as the coordinator does."""
        report = next(each for each in reversed(self.reports) if each.HasField("commit_offsets"))
        self.store.commit_offsets([decode_task_offsets(report.commit_offsets)])
        self.answer_commit()

    def fill(self) -> None:
        """Publish three lines to topic t."""
        source = self.source()
        for _ in range(3):
            source.run_once()

    @property
    def sent_offsets(self) -> list[str]:
        """The offsets of all commit requests, in order, as JSON."""
        return [
            offset.offset_json
            for each in self.reports
            if each.HasField("commit_offsets")
            for offset in each.commit_offsets.offsets
        ]

    @property
    def kinds(self) -> list[str | None]:
        return [each.WhichOneof("report") for each in self.reports]

    @property
    def record_count(self) -> int:
        return sum(self.store.end_offsets("t").values())
