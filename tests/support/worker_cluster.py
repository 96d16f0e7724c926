"""A whole cluster in the test's process: real services and workers, engines without Spark."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc.aio

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1.connect_service_pb2_grpc import ConnectServiceStub
from drover.client import ConnectClient
from drover.client.secure import Connect, connect_by, plaintext
from drover.clock import SystemClock
from drover.dataplane.store import EmbeddedStore
from drover.model.ids import TaskId
from drover.security.certificates import renewed_certificate
from drover_config_store.__main__ import serve as serve_config_store
from drover_config_store.settings import ConfigStoreSettings
from drover_coordinator.__main__ import serve as serve_coordinator
from drover_coordinator.settings import CoordinatorSettings
from drover_status_store.__main__ import serve as serve_status_store
from drover_status_store.settings import StatusStoreSettings
from drover_worker.adapters.signed_calls import SignedCalls
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.core.herder import Herder
from drover_worker.settings import WorkerSettings
from drover_worker.shell.herder_loop import HerderLoop
from drover_worker.worker import Worker
from tests.support.addresses import free_address, free_addresses
from tests.support.certificates import files_of, tls_settings
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import wait_until_async

if TYPE_CHECKING:
    from drover.api.connect.v1.connect_service_pb2_grpc import ConnectServiceAsyncStub


@dataclass
class Service:
    """One service, running as a task; ``stop`` ends it gracefully, ``kill`` does not."""

    make: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    def start(self) -> None:
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(self.make(self.stopping))

    async def stop(self) -> None:
        self.stopping.set()
        if self.task is not None:
            await self.task

    async def kill(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


class RunningWorker:
    """A worker with its engine and a client of its admin API."""

    def __init__(self, settings: WorkerSettings, connect: Connect = plaintext) -> None:
        self.engines: dict[EngineSlot, FakeEngine] = {}
        self._connect = connect

        def make_engine(
            s: WorkerSettings, slot: EngineSlot, on_report: Any, on_exit: Any
        ) -> FakeEngine:
            self.engines[slot] = FakeEngine(s, on_report, on_exit)
            return self.engines[slot]

        self.worker = Worker(settings, make_engine=make_engine)
        self.service = Service(self.worker.run)
        self.channel: grpc.aio.Channel | None = None

    @property
    def address(self) -> str:
        return self.worker.address

    @property
    def internal_address(self) -> str:
        return self.worker.internal_address

    @property
    def engine(self) -> FakeEngine:
        """The present shared one."""
        return self.engines[SHARED]

    @property
    def loop(self) -> HerderLoop:
        """Where its herder runs."""
        assert self.worker.loop is not None
        return self.worker.loop

    @property
    def herder(self) -> Herder:
        """What decides for it."""
        return self.loop.herder

    @property
    def stage(self) -> str:
        return self.worker.loop.herder.membership.stage.name if self.worker.loop else ""

    @property
    def leads(self) -> bool:
        return self.worker.loop is not None and self.worker.loop.herder.membership.leads

    @property
    def tasks(self) -> set[TaskId]:
        return {task for each in self.engines.values() for task in each.running_tasks}

    @property
    def stub(self) -> "ConnectServiceAsyncStub":
        assert self.channel is not None
        return ConnectServiceStub(self.channel)

    def sign(self, method: str, body: bytes) -> tuple[tuple[str, str], ...]:
        """As this worker signs its calls of others."""
        return SignedCalls(self.herder.signatures, SystemClock()).sign(method, body)

    async def status(self, name: str) -> pb.ConnectorStatus:
        """What it says of a connector."""
        request = pb.GetConnectorStatusRequest(name=name)
        return (await self.stub.GetConnectorStatus(request, timeout=20)).status

    async def internal_channel(self) -> grpc.aio.Channel:
        """To the port for the other workers; its calls are signed as this worker's."""
        await wait_until_async(lambda: self.herder.session_keys.current is not None)
        return grpc.aio.insecure_channel(self.internal_address, interceptors=[_Signing(self)])

    async def start(self) -> None:
        self.service.start()
        assert self.service.task is not None
        listening = asyncio.create_task(self.worker.listening.wait())
        await asyncio.wait({listening, self.service.task}, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            self.service.task.result()
        self.channel = self._connect(self.address)

    async def close(self) -> None:
        if self.channel is not None:
            await self.channel.close()


class _Signing(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        method = client_call_details.method
        name = method.decode() if isinstance(method, bytes) else method
        body = request if isinstance(request, bytes) else request.SerializeToString()
        signed = self._worker.sign(name, body)
        metadata = (*(client_call_details.metadata or ()), *signed)
        details = client_call_details._replace(metadata=grpc.aio.Metadata(*metadata))
        return await continuation(details, request)


class WorkerCluster:
    """Coordinator, stores and any number of workers on one directory; an async context.

    With ``start`` entering the context starts the services; otherwise ``start()`` does. With
    ``certificates`` it uses TLS with the certificates of ``init_certificates`` in that folder, and
    its channels have admin rights. ``storage`` has settings of another storage than the directory.
    """

    def __init__(
        self,
        directory: Path,
        *,
        start: bool = True,
        certificates: Path | None = None,
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        self._tls: dict[str, Any] = {}
        self.connect: Connect = plaintext
        if certificates is not None:
            self._tls = {"audit_log": str(directory / "audit.log"), **tls_settings(certificates)}
            self.connect = connect_by(renewed_certificate(files_of(certificates, "admin")))
        self._starts = start
        self._directory = directory
        self._storage: dict[str, Any] = {"storage_url": f"sqlite://{directory}", **(storage or {})}
        coordinator, config_store, status_store = free_addresses(3)
        self.config_store_address = config_store
        #: The services' addresses, under the names of a worker's settings.
        self.addresses = {
            "coordinator_address": coordinator,
            "config_store_address": config_store,
            "status_store_address": status_store,
        }
        coordinator_settings = CoordinatorSettings(
            coordinator_listen=coordinator,
            initial_rebalance_delay_ms=0,
            disconnect_grace_ms=200,
            group_min_session_timeout_ms=500,
            **self._storage,
            **self._tls,
        )
        self.coordinator = Service(lambda stop: serve_coordinator(coordinator_settings, stop))
        config_settings = ConfigStoreSettings(
            config_store_listen=config_store, **self._storage, **self._tls
        )
        self.config_store = Service(lambda stop: serve_config_store(config_settings, stop))
        status_settings = StatusStoreSettings(
            status_store_listen=status_store, **self._storage, **self._tls
        )
        self.status_store = Service(lambda stop: serve_status_store(status_settings, stop))
        self.workers: list[RunningWorker] = []
        self._stack = AsyncExitStack()

    def store(self) -> EmbeddedStore:
        """The store with its topics, if they are in the directory."""
        return EmbeddedStore(self._directory / "data.db")

    async def __aenter__(self) -> Self:
        if self._starts:
            self.start()
        return self

    def start(self) -> None:
        """Start the services."""
        for service in (self.coordinator, self.config_store, self.status_store):
            service.start()
            self._stack.push_async_callback(service.kill)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def add_worker(self, **settings: Any) -> RunningWorker:
        own: dict[str, Any] = {
            **self._storage,
            "worker_listen": free_address(),
            # the grace removes a dead worker; the long session tolerates a stalling machine
            "session_timeout_ms": 20_000,
            "heartbeat_interval_ms": 300,
            "rebalance_timeout_ms": 10_000,
            **self.addresses,
            **self._tls,
            **settings,
        }
        running = RunningWorker(WorkerSettings(**own), self.connect)
        self.workers.append(running)
        self._stack.push_async_callback(running.close)
        self._stack.push_async_callback(running.service.kill)
        await running.start()
        return running

    async def settled_workers(self, count: int, **settings: Any) -> list[RunningWorker]:
        """Add workers and wait until they are settled; the leader comes first."""
        added = [await self.add_worker(**settings) for _ in range(count)]
        await self.settled(*added)
        return sorted(added, key=lambda worker: not worker.leads)

    async def settled(self, *workers: RunningWorker) -> None:
        """Wait until these workers are settled in one generation."""

        def in_one_generation() -> bool:
            loops = [w.worker.loop for w in workers]
            generations = {loop.herder.context.generation for loop in loops if loop}
            return all(w.stage == "SETTLED" for w in workers) and len(generations) == 1

        await wait_until_async(
            in_one_generation, describe=lambda: [(w.address, w.stage) for w in workers]
        )

    async def running(self, name: str, count: int, *workers: RunningWorker) -> None:
        """Wait until all tasks of a connector run, each once, on these workers."""

        def all_run() -> bool:
            found = [task for w in workers for task in w.tasks if task.connector == name]
            return sorted(found) == [TaskId(name, index) for index in range(count)]

        await wait_until_async(all_run, describe=lambda: [(w.stage, w.tasks) for w in workers])

    async def state(
        self,
        via: RunningWorker,
        name: str,
        connector: str,
        tasks: str,
        count: int,
        *,
        workers: set[str] | None = None,
    ) -> pb.ConnectorStatus:
        """Wait until a connector and each of its tasks have these states (on these workers)."""
        last: list[pb.ConnectorStatus] = []

        async def reached() -> bool:
            status = await via.status(name)
            last[:] = [status]
            states = [pb.RunState.Name(task.state) for task in status.tasks]
            return (
                pb.RunState.Name(status.connector.state) == f"RUN_STATE_{connector}"
                and states == [f"RUN_STATE_{tasks}"] * count
                and workers in (None, {task.worker_id for task in status.tasks})
            )

        await wait_until_async(reached, describe=lambda: last)
        return last[0]


async def tasks_are_there(client: ConnectClient, name: str) -> None:
    """Wait for a connector's first tasks, which appear between two responses that list them."""

    async def has_tasks() -> bool:
        return bool((await client.get_connector(name)).task_indexes)

    await wait_until_async(has_tasks, describe=f"{name} has tasks")
