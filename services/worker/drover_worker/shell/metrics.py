"""Metrics of a worker: membership, engine, connectors and tasks.

Updated after each event of the herder and from the engine's reports. Values of a connector or task
live as long as its lifecycle object.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from drover.api.engine.v1 import engine_pb2 as pb
from drover.api.worker.v1 import worker_service_pb2 as worker_pb
from drover.clock import Clock, SystemClock
from drover.codec.common import encode_counts, encode_task_id
from drover.metrics import table
from drover.metrics.figures import Tally
from drover.metrics.metric import Sample
from drover.model.failures import Failure, FailureCause
from drover.model.ids import TaskId
from drover.model.status import LAG_FIGURE, RunState
from drover_worker.core import events
from drover_worker.core.engine_slots import EngineSlot
from drover_worker.core.herder import Herder
from drover_worker.core.lifecycle.lifecycle import Lifecycle
from drover_worker.core.lifecycle.task import TaskLifecycle
from drover_worker.core.rebalance.stage import Stage
from drover_worker.shell.connector_figures import Amounts, ConnectorFigures, Row
from drover_worker.shell.task_rates import RecordRate
from drover_worker.shell.worker_processes import WorkerProcesses

#: Stages of a rebalance.
_REBALANCING = frozenset(
    {Stage.STOPPING_WORK, Stage.JOINING, Stage.SYNCING, Stage.CATCHING_UP, Stage.BACKING_OFF}
)
#: Events that may start or fail one connector or task.
_OF_ONE = (
    events.ConnectorStarted,
    events.ConnectorFailed,
    events.TaskStarted,
    events.TaskFailed,
    events.TaskNotPrepared,
)
_NO_ENTRY = pb.TaskProgress.Entry()
_TIMES = (
    ("batch_times", table.TASK_BATCHES),
    ("poll_times", table.TASK_POLLS),
    ("write_times", table.TASK_WRITES),
    ("commit_times", table.TASK_COMMITS),
)
_COUNTS = (
    ("read_count", table.TASK_READ),
    ("written_count", table.TASK_WRITTEN),
    ("filtered_count", table.TASK_FILTERED),
    ("dead_lettered_count", table.TASK_DEAD_LETTERED),
    ("skipped_count", table.TASK_SKIPPED),
)
_ENGINE_FIGURES = (
    ("abandoned_thread_count", table.ABANDONED_THREADS),
    ("job_count", table.SPARK_JOBS),
    ("active_job_count", table.SPARK_ACTIVE_JOBS),
    ("heap_used_bytes", table.HEAP_USED),
    ("heap_max_bytes", table.HEAP_MAX),
)
_COUNT_NAMES = frozenset(name for name, _ in _COUNTS)


@dataclass(slots=True)
class _Progress:
    """Progress of a task's runs on this worker: the current run, and the sum of earlier runs."""

    run_id: int = 0
    entry: pb.TaskProgress.Entry = field(default_factory=pb.TaskProgress.Entry)
    #: Sums of earlier runs.
    counts: Counter[str] = field(default_factory=Counter)
    times: dict[str, Tally] = field(default_factory=dict)
    last_batch_ms: int = 0
    rate: RecordRate = field(default_factory=RecordRate)

    def take(self, entry: pb.TaskProgress.Entry, now_ms: int) -> None:
        if entry.run_id != self.run_id:
            self._end_run()
            self.run_id = entry.run_id
        if entry.batch_count != self.entry.batch_count:
            self.last_batch_ms = now_ms
        self.entry = entry
        self.rate.add(now_ms, self.count("read_count"))

    def count(self, name: str) -> int:
        source = self.entry.counts if name in _COUNT_NAMES else self.entry
        return int(self.counts[name] + getattr(source, name))

    def tally(self, name: str) -> Tally:
        return self.times.get(name, Tally()) + _tally(self.entry, name)

    def amounts(self) -> Amounts:
        """What its runs on this worker have done so far."""
        times: list[int] = []
        for name in ("batch_times", "poll_times", "write_times", "commit_times"):
            tally = self.tally(name)
            times += (tally.count, round(tally.total * 1_000_000))
        counts = ("read_count", "written_count", "dead_lettered_count")
        return Amounts(tuple(map(self.count, counts)), tuple(times))  # type: ignore[arg-type]

    def lag(self) -> int | None:
        """The lag of its last report; None if it has none."""
        values = (each.value for each in self.entry.figures if each.name == LAG_FIGURE)
        return next(values, None)

    def _end_run(self) -> None:
        names = (*_COUNT_NAMES, "retry_count", "size_bytes")
        self.counts = Counter({name: self.count(name) for name in names})
        self.times = {name: self.tally(name) for name, _ in _TIMES}
        self.entry = _NO_ENTRY


@dataclass(slots=True)
class _Life:
    """Starts and failures of a connector or task on this worker."""

    start_count: int = 0
    started_run: int = 0
    last_failure: Failure | None = None
    failures: Counter[FailureCause] = field(default_factory=Counter)


class WorkerMetrics:
    """The samples of one worker; only observes the herder."""

    def __init__(self, herder: Herder, clock: Clock | None = None) -> None:
        self._herder = herder
        self._clock = clock or SystemClock()
        self.processes = WorkerProcesses()
        self._figures = ConnectorFigures()
        self._lives: WeakKeyDictionary[Lifecycle, _Life] = WeakKeyDictionary()
        self._progress: WeakKeyDictionary[Lifecycle, _Progress] = WeakKeyDictionary()
        self._rebalances = Tally()
        self._rebalance_began_ms: int | None = None
        self._last_rebalance_ms = 0
        self._engine_starts = 0
        self._engine_exits = 0
        #: The last figures of each engine that runs.
        self._engines: dict[EngineSlot, pb.EngineFigures] = {}

    # Updates

    def observe(self, event: events.HerderEvent) -> None:
        """Handle an event that the herder has processed."""
        if isinstance(event, _OF_ONE):
            key = event.name if hasattr(event, "name") else event.task
            item = self._herder.work.find(key)
            if item is not None and item.run_id == event.run_id:
                self._observe_lifecycle(item)
        elif isinstance(event, events.EngineReady):
            self._engine_starts += 1
        elif isinstance(event, events.EngineLost):
            self._engine_exits += 1
            self._engines.pop(event.engine, None)
            for item in self._herder.work.all():
                self._observe_lifecycle(item)
        self._observe_membership()

    def progressed(self, engine: EngineSlot, progress: pb.TaskProgress) -> None:
        """Handle a progress report of an engine."""
        if progress.HasField("engine"):
            self._engines[engine] = progress.engine
        for entry in progress.entries:
            task = TaskId(entry.task.connector, entry.task.task)
            item = self._herder.work.tasks.get(task)
            if item is not None and item.run_id == entry.run_id:
                known = self._progress.setdefault(item, _Progress())
                before = known.amounts()
                known.take(entry, self._herder.context.now_ms)
                self._figures.add(
                    self._clock.now_ms(),
                    task.connector,
                    task.task,
                    before,
                    known.amounts(),
                    known.lag(),
                )
        at_work = {each.connector for each in self._herder.work.tasks}
        connectors = self._herder.context.view.connectors
        self._figures.forget(self._clock.now_ms(), connectors, at_work)

    def _observe_lifecycle(self, item: Lifecycle) -> None:
        life = self._lives.setdefault(item, _Life())
        if item.running and item.run_id != life.started_run:
            life.started_run = item.run_id
            life.start_count += 1
        last = item.failures.last if item.failures is not None else None
        if last is not None and last is not life.last_failure and item.failure is not None:
            life.last_failure = last
            life.failures[last.cause] += 1

    def _observe_membership(self) -> None:
        now_ms, stage = self._herder.context.now_ms, self._herder.membership.stage
        if stage in _REBALANCING:
            if self._rebalance_began_ms is None:
                self._rebalance_began_ms = now_ms
        elif self._rebalance_began_ms is not None:
            if stage is Stage.SETTLED:
                self._rebalances.add((now_ms - self._rebalance_began_ms) / 1_000)
                self._last_rebalance_ms = now_ms
            self._rebalance_began_ms = None

    # What tasks do at present

    def present_tasks(self, connectors: Collection[str]) -> Iterator[worker_pb.PresentTask]:
        """The tasks of these connectors that run on this worker, or all its tasks if none is
        given.
        """
        # not the time of the last event, which may be seconds ago
        now_ms = self._clock.now_ms()
        for task, item in self._herder.work.tasks.items():
            progress = self._progress.get(item)
            is_wanted = not connectors or task.connector in connectors
            if not is_wanted or not item.running or progress is None:
                continue
            if progress.run_id != item.run_id:
                continue
            present = worker_pb.PresentTask(
                task=encode_task_id(task),
                activity=progress.entry.activity,
                records_per_second=progress.rate.per_s(now_ms),
                figures=progress.entry.figures,
            )
            counts = item.progress.counts
            if counts is not None:
                present.counts.CopyFrom(encode_counts(counts))
            yield present

    def figure_rows(self, connector: str) -> list[Row]:
        """What a connector's tasks on this worker did in the last hour."""
        work = self._herder.work.tasks
        tasks = [each.task for each in work if each.connector == connector]
        return self._figures.rows(self._clock.now_ms(), connector, tasks)

    # Samples

    def samples(self) -> Iterator[Sample]:
        """The current samples, for ``Metrics.add``."""
        yield from self._of_the_worker()
        yield from self._of_the_engine()
        work = self._herder.work
        for name, connector in work.connectors.items():
            yield from self._of_a_connector(name, connector)
        tasks = Counter((task.connector, item.state) for task, item in work.tasks.items())
        for (name, state), count in tasks.items():
            yield table.CONNECTOR_TASKS.at(count, name, state)
        for task, item in work.tasks.items():
            yield from self._of_a_task(task, item)

    def _of_the_worker(self) -> Iterator[Sample]:
        herder = self._herder
        membership, context = herder.membership, herder.context
        yield table.STAGE.at(1, membership.stage.name)
        yield table.LEADER.at(membership.leads)
        yield table.GENERATION.at(context.generation)
        yield table.REBALANCING.at(membership.stage in _REBALANCING)
        yield table.REBALANCES.at(self._rebalances)
        yield table.LAST_REBALANCE.at(self._last_rebalance_ms / 1_000)
        yield table.ASSIGNED_CONNECTORS.at(len(herder.work.connectors))
        yield table.ASSIGNED_TASKS.at(len(herder.work.tasks))
        yield table.CONFIG_OFFSET.at(context.view.offset)

    def _of_the_engine(self) -> Iterator[Sample]:
        up = self._herder.context.engines.up
        self._engines = {slot: each for slot, each in self._engines.items() if slot in up}
        yield table.ENGINE_UP.at(self._herder.context.engine_up)
        yield table.ENGINES.at(len(up))
        yield table.ENGINE_STARTS.at(self._engine_starts)
        yield table.ENGINE_EXITS.at(self._engine_exits)
        for name in self._herder.work.isolation.quarantined:
            yield table.CONNECTOR_QUARANTINED.at(1, name)
        for name, metric in _ENGINE_FIGURES:
            yield metric.at(sum(getattr(each, name) for each in self._engines.values()))
        memory = self.processes.usage().engine_memory
        yield table.ENGINE_MEMORY.at(memory.engine_bytes, "engine")
        yield table.ENGINE_MEMORY.at(memory.jvm_bytes, "jvm")
        yield table.ENGINE_MEMORY.at(memory.python_workers_bytes, "python_workers")

    def _of_a_connector(self, name: str, item: Lifecycle) -> Iterator[Sample]:
        config = self._herder.context.view.config(name) or {}
        yield table.CONNECTOR_INFO.at(1, name, config.get("connector.class", ""))
        yield table.CONNECTOR_STATE.at(1, name, item.state)
        life = self._lives.get(item) or _Life()
        yield table.CONNECTOR_STARTS.at(life.start_count, name)
        for cause in FailureCause:
            yield table.CONNECTOR_FAILURES.at(life.failures[cause], name, cause)

    def _of_a_task(self, task: TaskId, item: TaskLifecycle) -> Iterator[Sample]:
        labels = task.connector, str(task.task)
        yield table.TASK_STATE.at(1, *labels, item.state)
        life = self._lives.get(item) or _Life()
        yield table.TASK_STARTS.at(life.start_count, *labels)
        yield table.TASK_RESTARTS.at(max(life.start_count - 1, 0), *labels)
        for cause in FailureCause:
            yield table.TASK_FAILURES.at(life.failures[cause], *labels, cause)
        last = item.failures.last if item.failures is not None else None
        if last is not None:
            yield table.TASK_LAST_FAILURE.at(last.failed_ms / 1_000, *labels)
        progress = self._progress.get(item) or _Progress()
        for name, metric in _COUNTS:
            yield metric.at(progress.count(name), *labels)
        yield table.TASK_BYTES.at(progress.count("size_bytes"), *labels)
        yield table.TASK_RETRIES.at(progress.count("retry_count"), *labels)
        for name, metric in _TIMES:
            yield metric.at(progress.tally(name), *labels)
        yield table.TASK_LAST_BATCH.at(progress.last_batch_ms / 1_000, *labels)
        if item.state in (RunState.RUNNING, RunState.PAUSED):
            for figure in progress.entry.figures:
                if figure.name == LAG_FIGURE:
                    yield table.TASK_LAG.at(figure.value, *labels)
                elif item.state is RunState.RUNNING:
                    yield table.TASK_FIGURE.at(figure.value, *labels, figure.name)


def _tally(entry: pb.TaskProgress.Entry, name: str) -> Tally:
    times: pb.TaskProgress.Times = getattr(entry, name)
    return Tally(times.count, times.total_us / 1_000_000)
