"""The steps of `make run`: copies real rows through a cluster and kills two workers.

FilesSource reads flights from a growing csv file, transforms change them, a topic stores them as
JSON with a schema, and FilesSink writes them as Parquet by month. Malformed lines in the input
become dead letters.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from drover.client import ConnectClient, channel
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.reading import RangeReader
from drover.errors import DroverError
from drover.local.cluster import ClusterOptions, cluster_stages
from drover.local.process import (
    ProcessPhase,
    ProcessRestartPolicy,
    SupervisedProcess,
    descendants,
    wait_until_gone,
)
from drover.local.supervisor import Supervisor
from examples.flights.dataset import Dataset
from examples.flights.flow import (
    BAD_LINES,
    SCHEMA,
    Feeder,
    OutputMeter,
    RateMeter,
    Totals,
    checksum,
    difference,
    totals_of_input,
    totals_of_output,
    unmasked_count,
    with_bad_lines,
)
from examples.flights.follower import StatusFollower, TaskChange
from examples.flights.view import DemoView, Progress

T = TypeVar("T")

SOURCE, SINK = "flights-source", "flights-sink"
TOPIC = "flights"
DEAD_LETTERS = "flights-dead-letters"
_POLL_S = 0.05
_LETTERS_BYTES = 1024 * 1024
_READY_TIMEOUT_S = 480.0
_TREE_GONE_TIMEOUT_S = 20.0
_FAILED_GRACE_S = 20.0
#: A rebalance in progress changes the statuses within this time.
_SETTLED_S = 1.0
#: The fed fraction before the first kill, and the fractions at which the feeder slows down until
#: each kill has happened, so both kills happen while rows flow.
_FIRST_KILL_SHARE = 0.2
_HOLD_BEFORE_FIRST = 0.4
_HOLD_BEFORE_SECOND = 0.7


class DemoFailedError(Exception):
    """The run violated an expectation; the message names it."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of a run.

    Attributes:
        directory: The directory of the cluster and of the files.
        dataset: The input.
        feed_s: Duration of the feed.
        stuck_s: Time without a new row after which the run fails.
        worker_count: How many workers.
    """

    directory: Path
    dataset: Dataset
    feed_s: float = 22.0
    stuck_s: float = 90.0
    worker_count: int = 2


@dataclass(frozen=True, slots=True)
class Handover:
    """The restart of a task on another worker after a kill; times are since the kill.

    Attributes:
        task: Such as "flights-sink-0".
        killed: The killed worker.
        new_worker: The worker that runs the task now.
        tree_gone_s: When all child processes of the killed worker had ended.
        running_s: When the task was RUNNING.
        flowing_s: When the first new row arrived.
    """

    task: str
    killed: str
    new_worker: str
    tree_gone_s: float
    running_s: float
    flowing_s: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A malformed line of the input.

    Attributes:
        place: The input file and the line number.
        error: The message of the exception.
        line: The line.
    """

    place: str
    error: str
    line: str


@dataclass(slots=True)
class DemoResult:
    """The result of a successful run."""

    rows_in: int = 0
    rows_out: int = 0
    file_count: int = 0
    seconds: float = 0.0
    #: Totals by month of the input and of the output, and the SHA-256 of both.
    wanted: Totals = field(default_factory=dict)
    found: Totals = field(default_factory=dict)
    sha256: str = ""
    dead_letters: Sequence[DeadLetter] = ()
    handovers: list[Handover] = field(default_factory=list)


class DemoRun:
    """One run, from an empty directory to the comparison of output and input."""

    def __init__(self, options: DemoOptions, view: DemoView) -> None:
        self._options = options
        self._view = view
        self._input = options.directory.absolute() / "flights-in" / "flights.csv"
        self._output = options.directory.absolute() / "flights-out"
        self._fed = with_bad_lines(options.dataset, options.directory / "fed.csv")
        self._wanted = totals_of_input(options.dataset)
        self._wanted_count = sum(each.flights for each in self._wanted.values())
        self._input.parent.mkdir()
        self._feeder = Feeder(self._fed, self._input, duration_s=options.feed_s)
        self._meter = OutputMeter(self._output)
        self._rate_in, self._rate_out = RateMeter(), RateMeter()
        self._seen: dict[int, psutil.Process] = {}
        self._kills = 0
        cluster = ClusterOptions(
            options.directory,
            worker_count=options.worker_count,
            env={"DROVER_INITIAL_REBALANCE_DELAY_MS": "500"},
        )
        self._data_directory = cluster.data_directory
        self._supervisor = Supervisor(
            options.directory,
            cluster_stages(cluster),
            policy=ProcessRestartPolicy(serving_timeout_s=_READY_TIMEOUT_S),
            on_event=lambda name, text: view.say(f"{name} {text}"),
        )
        self._workers = self._supervisor.addresses("worker")
        self._follower = StatusFollower(self._workers)

    async def run(self) -> DemoResult:
        """Run the demo.

        Raises:
            DemoFailedError: Rows were lost, duplicated or changed, no rows arrived for ``stuck_s``,
                or processes were left over.
            ClusterError: The cluster did not start.
            DroverError: A worker refused a call.
        """
        self._view.say(
            f"rows: {self._options.dataset.row_count:,}, {self._options.dataset.description}; "
            f"{len(BAD_LINES)} malformed lines are added"
        )
        self._view.say("starting the processes and their Spark engines")
        await self._supervisor.start()
        try:
            result = await self._with_cluster()
        finally:
            self._note_processes()
            await self._supervisor.stop()
        result.dead_letters = self._dead_letters()
        left = await wait_until_gone(list(self._seen.values()), _TREE_GONE_TIMEOUT_S)
        if left:
            names = ", ".join(f"{p.pid} {p.name()}" for p in left)
            raise DemoFailedError(f"processes were left over: {names}")
        return result

    async def _with_cluster(self) -> DemoResult:
        for address in self._workers:
            await self._wait_until_member(self._supervisor.process_at(address))
        self._view.say("every worker is a member of the group and its Spark engine is ready")
        await self._create_connectors()
        started_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._follower.run()),
                tasks.create_task(self._feeder.run(self._must_hold_back)),
                tasks.create_task(self._show()),
            ]
            result = await self._flow()
            for task in background:
                task.cancel()
        result.seconds = time.monotonic() - started_s
        return result

    async def _create_connectors(self) -> None:
        sink = {
            "connector.class": "FilesSink",
            "topics": TOPIC,
            "path": str(self._output),
            "format": "parquet",
            "partition.by": "month(time_hour)",
        }
        source = {
            "connector.class": "FilesSource",
            "topic": TOPIC,
            "path": str(self._input.parent),
            "format": "csv",
            "csv.header": "false",
            "csv.null": "NA",
            "schema": SCHEMA,
            "transforms": "departed,mask,time,cast",
            "transforms.departed.type": "Filter",
            "transforms.departed.predicate": "hasDeparted",
            "transforms.departed.negate": "true",
            "predicates": "hasDeparted",
            "predicates.hasDeparted.type": "FieldMatches",
            "predicates.hasDeparted.field": "dep_time",
            "predicates.hasDeparted.min": "0",
            "transforms.mask.type": "MaskField$Value",
            "transforms.mask.fields": "tailnum",
            "transforms.time.type": "TimestampConverter$Value",
            "transforms.time.field": "time_hour",
            "transforms.time.target.type": "Timestamp",
            "transforms.time.format": "yyyy-MM-dd'T'HH:mm:ss'Z'",
            "transforms.cast.type": "Cast$Value",
            "transforms.cast.spec": "distance:int64,air_time:float64",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": DEAD_LETTERS,
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        async with channel(self._workers[0]) as connection:
            client = ConnectClient(connection)
            await client.create_connector(SOURCE, source)
            await client.create_connector(SINK, sink)
        self._view.say(f"created {SOURCE} and {SINK}")

    async def _flow(self) -> DemoResult:
        await self._wait_until_both_run()
        await self._wait(
            lambda: self._feeder.share >= _FIRST_KILL_SHARE and self._meter.rows_out > 0,
            "the first rows to arrive",
        )
        killed = self._process_of(SINK)
        starts = killed.start_count
        handovers = [await self._kill(SINK, killed)]
        await self._supervisor.wait_until_serving(
            killed.spec.name, start_count=starts + 1, timeout_s=_READY_TIMEOUT_S
        )
        await self._wait_until_member(killed)
        self._view.say(f"{killed.spec.name} has rejoined the group and its engine is ready")
        await self._wait_until_both_run()
        handovers.append(await self._kill(SOURCE, self._process_of(SOURCE)))
        await self._wait(self._all_arrived, "all rows to arrive")
        found = self._compare()
        return DemoResult(
            rows_in=self._fed.row_count,
            rows_out=self._meter.rows_out,
            file_count=self._meter.file_count,
            wanted=self._wanted,
            found=found,
            sha256=checksum(found),
            handovers=handovers,
        )

    async def _wait_until_both_run(self) -> None:
        """Wait until both tasks run and their statuses have not changed for ``_SETTLED_S``."""
        settled_s = time.monotonic()
        before: tuple[TaskChange | None, TaskChange | None] = (None, None)

        def settled() -> bool:
            nonlocal settled_s, before
            now = (self._runs(SOURCE), self._runs(SINK))
            if None in now or now != before:
                settled_s, before = time.monotonic(), now
            return time.monotonic() - settled_s > _SETTLED_S

        await self._wait(settled, f"{SOURCE}-0 and {SINK}-0 to run")

    async def _kill(self, connector: str, process: SupervisedProcess) -> Handover:
        """Kill a task's worker and wait until the task runs on another one."""
        assert process.pid is not None
        self._note_processes()
        address = process.spec.address
        tree = descendants(process.pid)
        rows_in = self._feeder.rows_in
        killed_s = time.monotonic()
        process.kill()
        self._kills += 1
        self._view.say(
            f"kill -9 {process.spec.name} (pid {process.pid}), which runs {connector}-0; "
            f"{len(tree)} processes below it"
        )
        left = await wait_until_gone(tree, _TREE_GONE_TIMEOUT_S)
        if left:
            names = ", ".join(f"{p.pid} {p.name()}" for p in left)
            raise DemoFailedError(f"{process.spec.name} was killed, its engine still runs: {names}")
        tree_gone_s = time.monotonic() - killed_s
        change = await self._wait(
            lambda: self._follower.running_since(connector, killed_s, lost_worker_id=address),
            f"{connector}-0 to run again",
        )
        # the sink must write a new row; the source one that was fed after the kill
        beyond = self._meter.rows_out if connector == SINK else rows_in
        await self._wait(
            lambda: self._meter.rows_out > beyond or self._all_arrived(), "rows to flow again"
        )
        flowing_s = max(time.monotonic(), change.at_s) - killed_s
        new = self._supervisor.process_at(change.worker_id).spec.name
        handover = Handover(
            task=f"{connector}-0",
            killed=process.spec.name,
            new_worker=new,
            tree_gone_s=tree_gone_s,
            running_s=change.at_s - killed_s,
            flowing_s=flowing_s,
        )
        self._view.say(
            f"{connector}-0 runs on {new} {handover.running_s:.1f} s after the kill, "
            f"rows flow after {flowing_s:.1f} s"
        )
        return handover

    async def _wait(self, condition: Callable[[], T | None], what: str) -> T:
        """Poll until ``condition`` is true; fail after ``stuck_s`` without new rows."""
        started_s = time.monotonic()
        while not (found := condition()):
            self._check_tasks()
            quiet_s = time.monotonic() - max(started_s, self._meter.last_growth_s)
            if quiet_s > self._options.stuck_s:
                raise DemoFailedError(
                    f"stuck: waited for {what}, and no row arrived for {quiet_s:.0f} s; "
                    f"{self._meter.rows_out:,} of {self._wanted_count:,} rows "
                    f"arrived; {self._tasks_text()}"
                )
            await asyncio.sleep(_POLL_S)
        return found

    async def _wait_until_member(self, process: SupervisedProcess) -> None:
        """Wait until a worker is a member of the group and reports its Spark version."""
        address = process.spec.address
        end_s = time.monotonic() + _READY_TIMEOUT_S
        async with channel(address) as connection:
            client = ConnectClient(connection)
            while time.monotonic() < end_s:
                with contextlib.suppress(DroverError):
                    info = await client.get_cluster_info(timeout_s=5.0)
                    members = {worker.worker_id for worker in info.workers}
                    if address in members and info.spark_version:
                        return
                await asyncio.sleep(_POLL_S * 4)
        raise DemoFailedError(
            f"{process.spec.name} did not join the group in {_READY_TIMEOUT_S:.0f} s"
        )

    def _runs(self, connector: str) -> TaskChange | None:
        change = self._follower.task(connector)
        if change is None or change.state != "RUNNING":
            return None
        return change if change.worker_id in self._workers else None

    def _process_of(self, connector: str) -> SupervisedProcess:
        change = self._follower.task(connector)
        assert change is not None
        return self._supervisor.process_at(change.worker_id)

    def _check_tasks(self) -> None:
        for connector in (SOURCE, SINK):
            change = self._follower.task(connector)
            if (
                change is not None
                and change.state == "FAILED"
                and time.monotonic() - change.at_s > _FAILED_GRACE_S
            ):
                raise DemoFailedError(f"{connector}-0 failed: {change.cause or 'no trace'}")

    def _tasks_text(self) -> str:
        statuses = {name: self._follower.task(name) for name in (SOURCE, SINK)}
        return ", ".join(
            f"{name}-0 is {change.state} on {change.worker_id or 'no worker'}"
            if change
            else f"{name}-0 has no status"
            for name, change in statuses.items()
        )

    def _must_hold_back(self) -> bool:
        holds = (_HOLD_BEFORE_FIRST, _HOLD_BEFORE_SECOND)
        return self._kills < len(holds) and self._feeder.share >= holds[self._kills]

    def _all_arrived(self) -> bool:
        return self._feeder.share >= 1.0 and self._meter.rows_out >= self._wanted_count

    async def _show(self) -> None:
        while True:
            self._meter.update()
            rows_in, rows_out = self._feeder.rows_in, self._meter.rows_out
            self._view.progress = Progress(
                rows_total=self._fed.row_count,
                rows_in=rows_in,
                rows_out=rows_out,
                rate_in=self._rate_in.rate(rows_in),
                rate_out=self._rate_out.rate(rows_out),
                workers={
                    name: self._worker_text(process)
                    for name, process in self._supervisor.processes.items()
                    if process.spec.address in self._workers
                },
            )
            self._view.tick()
            await asyncio.sleep(_POLL_S)

    def _worker_text(self, process: SupervisedProcess) -> str:
        if process.phase is not ProcessPhase.SERVING:
            return process.phase.value
        tasks = self._follower.tasks_of(process.spec.address, process.started_s)
        return ", ".join(f"{task} {state}" for task, state in tasks) or "idle"

    def _note_processes(self) -> None:
        for process in self._supervisor.processes.values():
            if process.pid is None:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                own = psutil.Process(process.pid)
                self._seen |= {p.pid: p for p in (own, *descendants(own.pid))}

    def _compare(self) -> Totals:
        found = totals_of_output(self._output)
        reason = difference(self._wanted, found)
        if reason is not None:
            raise DemoFailedError(reason)
        unmasked = unmasked_count(self._output)
        if unmasked:
            raise DemoFailedError(f"{unmasked:,} rows have a tail number that should be masked")
        return found

    def _dead_letters(self) -> list[DeadLetter]:
        """The records of the dead letter queue, read from the files of the stopped cluster."""
        plane = EmbeddedPlane.open(self._options.directory / "data")
        try:
            plan = plane.plan_read(
                {(DEAD_LETTERS, 0): 0}, max_records=100, max_bytes=_LETTERS_BYTES
            )
            rows = [
                row
                for batch in RangeReader(plane.store.path, (tuple(plan.ranges),))(0)
                for row in batch.to_pylist()
            ]
        finally:
            plane.store.close()
        letters = []
        for row in rows:
            headers = {
                each["key"].rpartition("errors.")[2]: each["value"] for each in row["headers"]
            }
            letters.append(
                DeadLetter(
                    place=Path(headers["origin"].decode()).name,
                    error=headers["exception.message"].decode(),
                    line=row["value"].decode().rstrip("\n"),
                )
            )
        # a batch that is retried after a kill must not duplicate its dead letters
        if len(letters) != len(BAD_LINES):
            raise DemoFailedError(
                f"{len(letters)} dead letters, expected {len(BAD_LINES)} for the malformed lines"
            )
        return letters
