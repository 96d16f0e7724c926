"""A real engine under its supervisor, with a stand-in for the herder and its coordinator.

Claims and offsets are in an embedded store; topics are in it too, or on Kafka.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.common import encode_task_id, encode_term
from drover.codec.coordinator import decode_task_offsets, encode_offset
from drover.dataplane.store import EmbeddedStore
from drover.log.storage import EmbeddedStorage, Storage
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset
from drover_worker.engine.settings import EngineLimits, EngineSettings
from drover_worker.shell.engine_child import write_to_stderr
from drover_worker.shell.engine_supervisor import EngineExit, EngineSupervisor
from tests.spark.engine import plugins
from tests.support.waiting import wait_until_async

PLUGINS = "tests.spark.engine.plugins"
CALL_TIMEOUT_S = 240.0
START_TIMEOUT_S = 900.0
#: A start may import a connector's libraries, which takes seconds on a busy machine.
LIMITS = EngineLimits(
    start_ms=10_000, stop_ms=2_000, poll_ms=2_000, task_configs_ms=2_000, progress_ms=50
)

_OUTCOMES = {
    CommitOutcome.COMMITTED: coordinator_service_pb2.COMMIT_OUTCOME_COMMITTED,
    CommitOutcome.STALE_CLAIM: coordinator_service_pb2.COMMIT_OUTCOME_STALE_CLAIM,
    CommitOutcome.INVALID: coordinator_service_pb2.COMMIT_OUTCOME_INVALID,
}


def plugin(name: str) -> str:
    """The ``connector.class`` of a test connector."""
    return f"{PLUGINS}.{name}"


class Harness:
    """The herder's part of the engine's protocol."""

    def __init__(
        self,
        directory: Path,
        *,
        limits: EngineLimits = LIMITS,
        spark_conf: Mapping[str, str] | None = None,
        storage: Storage | None = None,
        memory_bytes: int | None = None,
        cores: int | None = None,
        plugin_modules: str = PLUGINS,
        spark_master: str = "local[2]",
        exactly_once: bool = False,
        offsets_of: Callable[[str], Sequence[CommittedOffset]] | None = None,
    ) -> None:
        """``offsets_of`` has the committed offsets of a connector, which sources that deliver
        exactly once to Kafka write themselves; without it they are in the embedded store.
        """
        self.directory = directory
        self.store = EmbeddedStore(directory / "data.db")
        self._offsets_of = offsets_of or self.store.fetch_offsets
        self.reports: list[engine_pb2.EngineReport] = []
        self.exits: list[EngineExit] = []
        #: How many exits were caused by tests.
        self.ended_by_tests = 0
        self.log: list[bytes] = []
        #: False: commits stay pending, as without a coordinator.
        self.coordinator_there = True
        self._waiting_commits: list[engine_pb2.EngineReport] = []
        self._run_ids = itertools.count(1)
        self._generations = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self.supervisor = EngineSupervisor(
            EngineSettings(
                storage=storage or EmbeddedStorage(directory),
                spark_master=spark_master,
                not_exactly_once="" if exactly_once else "this engine's tests do not need it",
                spark_conf={"spark.driver.memory": "512m", **(spark_conf or {})},
                limits=limits,
                memory_bytes=memory_bytes,
                cores=cores,
                plugin_modules=plugin_modules,
                log_format="json",
            ),
            on_report=self._take_report,
            on_exit=self.exits.append,
            on_log_line=self._take_log_line,
        )

    def _take_log_line(self, line: bytes) -> None:
        self.log.append(line)
        write_to_stderr(line)

    async def start(self) -> engine_pb2.EngineReady:
        await self.supervisor.start()
        async with asyncio.timeout(START_TIMEOUT_S):
            return await self.supervisor.wait_ready()

    async def close(self) -> None:
        await self.supervisor.close()
        self.store.close()

    async def call(self, **command: object) -> engine_pb2.EngineReport:
        return await self.supervisor.call(
            engine_pb2.EngineCommand(**command),  # type: ignore[arg-type]
            timeout_s=CALL_TIMEOUT_S,
        )

    async def start_connector(self, name: str, **config: str) -> engine_pb2.EngineReport:
        command = engine_pb2.StartConnector(
            connector=name,
            config=connector_config(name, **config),
            run_id=next(self._run_ids),
        )
        return await self.call(start_connector=command)

    async def task_configs(self, name: str, max_tasks: int) -> engine_pb2.EngineReport:
        command = engine_pb2.GenerateTaskConfigs(connector=name, max_tasks=max_tasks)
        return await self.call(generate_task_configs=command)

    def claim(self, task: TaskId) -> Term:
        generation = next(self._generations)
        return self.store.claim_task(
            task, generation=generation, owner="tests", request_id=f"request-{generation}"
        )

    async def start_task(
        self,
        name: str,
        number: int = 0,
        *,
        own_config: Mapping[str, str] | None = None,
        paused: bool = False,
        **config: str,
    ) -> engine_pb2.EngineReport:
        task = TaskId(name, number)
        claim = self.claim(task)
        command = engine_pb2.StartTask(
            task=encode_task_id(task),
            connector_config=connector_config(name, **config),
            task_config=own_config or {},
            claim=encode_term(claim),
            offsets=[encode_offset(each) for each in self._offsets_of(name)],
            paused=paused,
            run_id=next(self._run_ids),
        )
        return await self.call(start_task=command)

    async def stop_task(self, name: str, number: int = 0) -> engine_pb2.EngineReport:
        task = encode_task_id(TaskId(name, number))
        return await self.call(stop_task=engine_pb2.StopTask(task=task))

    async def set_paused(
        self, name: str, paused: bool, number: int | None = 0
    ) -> engine_pb2.EngineReport:
        command = engine_pb2.SetPaused(connector=name, task=number, paused=paused)
        return await self.call(set_paused=command)

    async def end_offsets(self, *partitions: tuple[str, int]) -> dict[tuple[str, int], int]:
        """The end offsets of partitions, as the engine reports them."""
        wanted = engine_pb2.ListEndOffsets()
        for topic, partition in partitions:
            wanted.partitions.add(topic=topic, partition=partition)
        answer = await self.call(list_end_offsets=wanted)
        assert answer.WhichOneof("report") == "end_offsets", answer
        entries = answer.end_offsets.entries
        return {(e.partition.topic, e.partition.partition): e.end_offset for e in entries}

    def records(self, topic: str) -> int:
        """The number of records in a topic."""
        return sum(self.store.end_offsets(topic).values())

    async def wait_for_records(self, topic: str, count: int) -> None:
        await wait_until_async(
            lambda: self.records(topic) >= count,
            timeout_s=CALL_TIMEOUT_S,
            describe=lambda: f"{count} records in {topic}, {self.records(topic)} so far",
        )
        assert self.records(topic) == count

    async def wait_for_report(self, kind: str, connector: str) -> engine_pb2.EngineReport:
        found = await wait_until_async(
            lambda: self.reports_of(kind, connector),
            timeout_s=CALL_TIMEOUT_S,
            describe=f"{kind} of {connector}",
        )
        return found[0]

    def reports_of(self, kind: str, connector: str) -> list[engine_pb2.EngineReport]:
        found = []
        for report in self.reports:
            if report.WhichOneof("report") == kind:
                message = getattr(report, kind)
                task = getattr(message, "task", None)
                if (task.connector if task else message.connector) == connector:
                    found.append(report)
        return found

    def coordinator_returns(self) -> None:
        self.coordinator_there = True
        waiting, self._waiting_commits = self._waiting_commits, []
        for report in waiting:
            self._answer_commit(report)

    def forget_commits(self) -> None:
        """Drop pending commits: the engine that awaits their results has ended."""
        self.coordinator_there = True
        self._waiting_commits.clear()

    @property
    def waiting_commit_count(self) -> int:
        return len(self._waiting_commits)

    def _take_report(self, report: engine_pb2.EngineReport) -> None:
        kind = report.WhichOneof("report")
        if kind == "fetch_offsets":
            self._run_beside(self._answer_fetch(report))
        elif kind != "commit_offsets":
            self.reports.append(report)
        elif self.coordinator_there:
            self._answer_commit(report)
        else:
            self._waiting_commits.append(report)

    def _answer_commit(self, report: engine_pb2.EngineReport) -> None:
        (result,) = self.store.commit_offsets([decode_task_offsets(report.commit_offsets)])
        command = engine_pb2.EngineCommand(
            call_id=report.call_id,
            commit_result=engine_pb2.CommitResult(
                outcome=_OUTCOMES[result.outcome], message=result.message
            ),
        )
        self._run_beside(self.supervisor.send(command))

    async def _answer_fetch(self, report: engine_pb2.EngineReport) -> None:
        found = await asyncio.to_thread(self._offsets_of, report.fetch_offsets.connector)
        offsets = engine_pb2.FetchedOffsets(offsets=[encode_offset(each) for each in found])
        command = engine_pb2.EngineCommand(call_id=report.call_id, fetched_offsets=offsets)
        await self.supervisor.send(command)

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        running = asyncio.create_task(work)
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)


def connector_config(name: str, **config: str) -> dict[str, str]:
    """A config; ``fail_at`` becomes fail.at, and ``plugin`` becomes connector.class."""
    named = {key.replace("_", "."): value for key, value in config.items()}
    connector_class = named.pop("plugin")
    if hasattr(plugins, connector_class):
        connector_class = plugin(connector_class)
    return {"name": name, "connector.class": connector_class, **named}
