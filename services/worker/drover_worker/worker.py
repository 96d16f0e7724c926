"""A worker: wires herder, engine, clients and servers, and defines their start and stop order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc.aio
import structlog

from drover.client.config_store import ConfigStoreClient
from drover.client.coordinator import CoordinatorsClient
from drover.client.failover import FailoverChannel
from drover.client.secure import Connect, connect_by
from drover.client.status_store import StatusStoreClient
from drover.client.watch import SnapshotRead, WatchableLog, follow
from drover.clock import SystemClock
from drover.errors import InternalError, Reason, UnavailableError
from drover.metrics.endpoint import Metrics, serving_metrics
from drover.model.config import ConfigEvent, ConfigSnapshot
from drover.model.ids import TaskId
from drover.model.status import StatusChange, StatusKey, StatusSnapshot
from drover.rpc.audit_trail import AuditTrail
from drover.rpc.settings import split_addresses
from drover_worker.adapters.signed_calls import SignedCalls
from drover_worker.adapters.worker_channels import WorkerChannels
from drover_worker.admin.admin import Admin, Backends
from drover_worker.core import events
from drover_worker.core.engine_resources import engine_violations
from drover_worker.core.engine_slots import EngineSlot
from drover_worker.core.herder import Herder
from drover_worker.server import WorkerServers
from drover_worker.settings import WorkerSettings
from drover_worker.shell.class_archive_writer import ClassArchiveWriter
from drover_worker.shell.engine_group import EngineGroup
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.engine_supervisor import EngineSupervisor, ExitHandler, ReportHandler
from drover_worker.shell.engines import Engine
from drover_worker.shell.failure_log import FailureLog
from drover_worker.shell.health_reporter import HealthReporter
from drover_worker.shell.herder_loop import HerderLoop
from drover_worker.shell.instruction_runner import InstructionRunner
from drover_worker.shell.loggers import Loggers
from drover_worker.shell.metrics import WorkerMetrics
from drover_worker.shell.offset_committer import OffsetCommitter
from drover_worker.shell.offset_fetcher import OffsetFetcher
from drover_worker.shell.status_writer import StatusWriter

#: How long a worker that did not hand over its work waits until its tasks end and it has left
#: its group.
STOP_TIMEOUT_S = 15.0
FLUSH_TIMEOUT_S = 3.0
DRAIN_GRACE_S = 5.0
_MOVE_MARGIN_S = 15.0
_PROCESS_POLL_S = 0.01
_PROCESS_POLLS = 500

_log = structlog.get_logger("drover.worker")

#: Creates the engine for a slot; tests run it in this process.
MakeEngine = Callable[[WorkerSettings, EngineSlot, ReportHandler, ExitHandler], Engine]


def supervised_engine(
    settings: WorkerSettings, slot: EngineSlot, on_report: ReportHandler, on_exit: ExitHandler
) -> Engine:
    """A real engine: a child process with Spark."""
    return EngineSupervisor(settings.engine_settings(slot), on_report=on_report, on_exit=on_exit)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a running worker that its shutdown needs."""

    loop: HerderLoop
    statuses: StatusWriter
    #: Tasks that run until cancelled.
    background: Sequence["asyncio.Task[None]"]


class Worker:
    """One worker; ``run`` is its whole life."""

    def __init__(
        self, settings: WorkerSettings, *, make_engine: MakeEngine = supervised_engine
    ) -> None:
        self._settings = settings
        self._make_engine = make_engine
        self._early: list[events.HerderEvent] = []
        self._metrics = Metrics("worker")
        #: Set when the worker listens: host:port for clients, which is the worker id; host:port for
        #: other workers; the herder's loop.
        self.address = ""
        self.internal_address = ""
        self.loop: HerderLoop | None = None
        self.listening = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping`` is set, then stop gracefully.

        Raises:
            OSError: The address cannot be bound.
            InvalidArgumentError: The storage URL is not supported.
            UnavailableError: ENGINE_UNAVAILABLE, no engine can run here until an operator acts.
            InternalError: A part failed because of a defect; running without it could do harm.
        """
        settings = self._settings
        settings.storage()  # rejects a URL that no engine can use
        security = settings.open_security()
        async with AsyncExitStack() as stack:
            link = EngineLink(limits=settings.engine_settings().limits, post=self._post)
            limits = settings.engine_settings().limits
            engines = EngineGroup(
                partial(self._make_engine, settings),
                link.on_report,
                link.on_exit,
                # the batch in flight and stop(), then start(), and calls to the coordinator
                move_limit_s=(2 * limits.stop_ms + limits.start_ms) / 1000 + _MOVE_MARGIN_S,
            )
            link.attach(engines)
            stack.push_async_callback(engines.close)
            # the first engine is forked before gRPC has threads
            await engines.start()
            await _wait_for_process(engines)
            audit = AuditTrail()
            security.guard.keep_events(audit)
            servers = WorkerServers(
                listen=settings.worker_listen,
                internal_listen=settings.worker_internal_listen,
                security=security,
                client_certificates=settings.tls_client_auth == "required",
                metrics=self._metrics,
            )
            await stack.enter_async_context(serving_metrics(settings.metrics_listen, self._metrics))
            listening, internal_listening = servers.bind()
            self.address = settings.worker_advertised or listening
            self.internal_address = settings.worker_internal_advertised or internal_listening
            connect = connect_by(security.certificate)
            parts = await self._wire(servers, link, engines, stack, connect, audit)
            await servers.start()
            stack.push_async_callback(servers.drain, 0)
            self._open(parts.loop)
            await servers.open(opened=True)
            await _until_stopping(stopping, link, parts)
            await servers.open(opened=False)
            await _stop_work(parts, settings.drain_timeout_ms / 1000)
            await servers.drain(DRAIN_GRACE_S)

    async def _wire(
        self,
        servers: WorkerServers,
        link: EngineLink,
        engines: EngineGroup,
        stack: AsyncExitStack,
        connect: Connect,
        audit: AuditTrail,
    ) -> _Parts:
        """Create all parts and start the background tasks."""
        settings = self._settings
        coordinators = split_addresses(settings.coordinator_address)
        coordinator = CoordinatorsClient(coordinators, connect=connect)
        stack.push_async_callback(coordinator.close)
        config_store = ConfigStoreClient(
            await _replicas(settings.config_store_address, stack, connect)
        )
        status_store = StatusStoreClient(
            await _replicas(settings.status_store_address, stack, connect)
        )
        herder = Herder(settings.herder_settings(self.address, self.internal_address))
        signed_calls = SignedCalls(herder.signatures, SystemClock())
        workers = WorkerChannels(connect, signed_calls.sign)
        stack.push_async_callback(workers.close)
        loop = HerderLoop(herder, SystemClock(), stale_after_ms=settings.herder_stale_ms)
        stack.callback(loop.close)
        loop.attach_engine(lambda: engines.stall)

        def reloaded() -> None:
            link.plugins.engine_ended()
            loop.post(events.PluginsReloaded())

        committer = OffsetCommitter(coordinator, settings.group_id, link.answer_commit)
        link.attach_commits(committer.commit, partial(committer.forget, engines.awaits))
        fetcher = OffsetFetcher(coordinator, settings.group_id, link.answer_fetch)
        stack.push_async_callback(fetcher.close)
        link.attach_fetches(fetcher.fetch, partial(fetcher.forget, engines.awaits))
        view = herder.context.view

        def version_of(key: StatusKey) -> str:
            config = view.config(key.connector if isinstance(key, TaskId) else key) or {}
            return link.plugins.version_of(config.get("connector.class", ""))

        statuses = StatusWriter(status_store, version_of)
        runner = InstructionRunner(
            settings=settings,
            worker_id=self.address,
            loop=loop,
            coordinator=coordinator,
            config_store=config_store,
            workers=workers,
            engine=link,
            statuses=statuses,
            status_store=status_store,
        )
        stack.push_async_callback(runner.close)
        loop.start(runner.run)
        loggers = Loggers(SystemClock().now_ms, link)
        archives = ClassArchiveWriter(settings.engine_settings())
        stack.push_async_callback(archives.close)

        def engine_started() -> None:
            loggers.engine_started()
            archives.engine_started()

        link.attach_start(engine_started)
        loop.observe(loggers.observe)
        loop.observe(FailureLog(herder.work, self.address).observe)
        health = HealthReporter(loop, servers, settings)
        loop.observe(health.observe)
        figures = WorkerMetrics(herder)
        loop.observe(figures.observe)
        link.attach_progress(figures.progressed)
        link.attach_engine_faults(
            lambda config: engine_violations(
                config, settings.machine(), herder.work.other_engines(config.get("name", ""))
            )
        )
        self._metrics.add(figures.samples)
        backends = Backends(
            settings=settings,
            worker_id=self.address,
            loop=loop,
            workers=workers,
            engine=link,
            coordinator=coordinator,
            config_store=config_store,
            status_store=status_store,
            loggers=loggers,
            read_to_end=runner.read_configs_to_end,
            present_tasks=figures.present_tasks,
            figure_rows=figures.figure_rows,
            processes=figures.processes,
            audit=audit,
            replace_engine=partial(engines.replace, loop.renew, reloaded),
        )
        servers.add_services(Admin(backends), loop, SystemClock(), signed_calls.check)
        background = [
            asyncio.create_task(_mirror_configs(config_store, loop), name="config mirror"),
            asyncio.create_task(_mirror_statuses(status_store, loop), name="status mirror"),
            asyncio.create_task(statuses.run(), name="status writer"),
            asyncio.create_task(committer.run(), name="offset committer"),
            asyncio.create_task(loggers.run(), name="levels of loggers"),
            asyncio.create_task(health.run(), name="health reporter"),
        ]
        for task in background:
            stack.push_async_callback(_cancelled, task)
        return _Parts(loop, statuses, background)

    def _open(self, loop: HerderLoop) -> None:
        self.loop = loop
        early, self._early = self._early, []
        for event in early:
            loop.post(event)
        self.listening.set()

    def _post(self, event: events.HerderEvent) -> None:
        if self.loop is None:
            self._early.append(event)
        else:
            self.loop.post(event)


async def _wait_for_process(engine: EngineGroup) -> None:
    """Wait until the shared engine's process exists or failed to start."""
    for _ in range(_PROCESS_POLLS):
        if engine.process_id is not None:
            return
        await asyncio.sleep(_PROCESS_POLL_S)


async def _replicas(addresses: str, stack: AsyncExitStack, connect: Connect) -> grpc.aio.Channel:
    replicas = FailoverChannel(split_addresses(addresses), connect=connect)
    return (await stack.enter_async_context(replicas)).as_channel()


async def _until_stopping(stopping: asyncio.Event, link: EngineLink, parts: _Parts) -> None:
    """Wait for the stop signal or a fatal failure."""
    stop = asyncio.create_task(stopping.wait())
    ends: list[asyncio.Future[Any]] = [stop, link.fatal, parts.loop.defect, *parts.background]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    if link.fatal.done() and not stopping.is_set():
        raise UnavailableError(Reason.ENGINE_UNAVAILABLE, link.fatal.result())
    if parts.loop.defect.done():
        raise InternalError(f"the herder failed: {parts.loop.defect.result()}")
    for task in parts.background:
        if task.done():
            raise InternalError(f"the {task.get_name()} failed: {task.exception()!r}")


async def _stop_work(parts: _Parts, drain_timeout_s: float) -> None:
    """Hand over the work or stop it, flush the statuses, leave the group."""
    halted = parts.loop.halted
    if drain_timeout_s:
        parts.loop.post(events.StopRequested())
        if not await _wait_for(halted.wait(), drain_timeout_s):
            _log.warning(
                "the work was not handed over in time and is stopped", timeout_s=drain_timeout_s
            )
    parts.loop.post(events.StopRequested(hand_over=False))
    if not await _wait_for(halted.wait(), STOP_TIMEOUT_S):
        _log.warning("the work did not stop in time", timeout_s=STOP_TIMEOUT_S)
    if not await _wait_for(parts.statuses.wait_idle(), FLUSH_TIMEOUT_S):
        _log.warning("the last statuses were not written in time", timeout_s=FLUSH_TIMEOUT_S)


async def _wait_for(what: Awaitable[object], timeout_s: float) -> bool:
    """Whether the awaitable finishes in time."""
    try:
        async with asyncio.timeout(timeout_s):
            await what
    except TimeoutError:
        return False
    return True


async def _mirror_configs(store: ConfigStoreClient, loop: HerderLoop) -> None:
    log: WatchableLog[ConfigSnapshot, ConfigEvent] = store
    async for read in follow(log, name="config-store"):
        if isinstance(read, SnapshotRead):
            loop.post(events.ConfigsLoaded(read.snapshot))
        else:
            loop.post(events.ConfigsChanged(read.events, read.end_offset))


async def _mirror_statuses(store: StatusStoreClient, loop: HerderLoop) -> None:
    log: WatchableLog[StatusSnapshot, StatusChange] = store
    async for read in follow(log, name="status-store"):
        if isinstance(read, SnapshotRead):
            loop.post(events.StatusesLoaded(read.snapshot))
        else:
            loop.post(events.StatusesChanged(read.events))


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
