"""The simulated worker: the production herder and its shell, on simulated services.

Real: the herder and its loop, the instruction runner, the status writer, the committer and the
fetcher of offsets, the loops that follow the stores. Simulated: the clients of the services, the
engine, and the forwarding of calls between workers.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from drover.client.watch import SnapshotRead, follow
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    Reason,
    UnavailableError,
)
from drover.model.offsets import CommitResult, CommittedOffset
from drover_worker.core import events, requests
from drover_worker.core.context import HerderSettings
from drover_worker.core.herder import Herder
from drover_worker.core.rebalance.stage import Stage
from drover_worker.shell.herder_loop import HerderLoop
from drover_worker.shell.instruction_runner import InstructionRunner
from drover_worker.shell.offset_committer import OffsetCommitter
from drover_worker.shell.offset_fetcher import OffsetFetcher
from drover_worker.shell.status_writer import StatusWriter
from simulation.channels import Routing
from simulation.clients import (
    ConfigStoreClient,
    Coordinators,
    OtherWorkers,
    StatusStoreClient,
)
from simulation.data_store import DataStore
from simulation.engine import Engine, EngineLink
from simulation.network import Call, Network, ServerCall
from simulation.process import Process
from simulation.rules import Rules
from simulation.service import ProcessClock
from simulation.waits import asked
from simulation.world import BrokenRuleError

GROUP = "workers"
REBALANCE_TIMEOUT_MS = 6_000
HOP_MARGIN_MS = 100
RETRY_FIRST_MS = 100
RETRY_MAX_MS = 1_000
STOP_TIMEOUT_MS = 4_000
#: Longer than the deadline of every request to a herder.
REQUEST_MAX_MS = 8_000

TOO_LATE = DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "the worker did not finish in time")


@dataclass(frozen=True, slots=True)
class Admin:
    """A client's call."""

    request: requests.Request


@dataclass(frozen=True, slots=True)
class Forward:
    """A client's call that another worker forwards to this one."""

    request: requests.Request
    hop_count: int


@dataclass(frozen=True, slots=True)
class Signed:
    """Another worker's call with its signature, or NO_KEY."""

    call: Forward | requests.SubmitTaskConfigs
    signature: str

    @staticmethod
    def method(call: object) -> str:
        """The method name that is signed."""
        return f"/{type(call).__name__}"

    @staticmethod
    def body(call: object) -> bytes:
        """The bytes that are signed."""
        return repr(call).encode()


class Worker(Process):
    """A worker's herder process; its engine is a separate process.

    Args:
        network: Carries its calls.
        name: Its address, and so its worker id.
        rules: Sees its view, its generations and its responses.
        data: The store that its engine commits to.
        coordinators: The names of all coordinators.
        connect_protocol: The rebalance protocol that it prefers from its next start on.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        rules: Rules,
        data: DataStore,
        coordinators: Sequence[str],
        connect_protocol: str,
    ) -> None:
        super().__init__(network.world, name)
        self.network = network
        self.rules = rules
        self.group_id = GROUP
        self.connect_protocol = connect_protocol
        self._coordinators = coordinators
        self.engine = Engine(network, f"{name}/engine", self, data, rules)
        self._settings = HerderSettings(
            worker_id=name,
            group_id=GROUP,
            session_timeout_ms=network.mix.session_timeout_ms,
            heartbeat_interval_ms=network.mix.session_timeout_ms // 3,
            join_backoff_ms=150,
            rejoin_delay_ms=100,
            rejoin_delay_max_ms=1_000,
            catch_up_backoff_ms=400,
            retry_backoff_ms=100,
            retry_backoff_max_ms=3_000,
            call_backoff_max_ms=1_000,
            status_check_ms=500,
            scheduled_delay_max_ms=network.mix.rebalance_delay_ms,
            key_ttl_ms=6_000,
        )
        self.herder = self._new_herder()

    # --- the process -------------------------------------------------------------------------

    def started(self) -> None:
        """Start the engine and follow the logs."""
        self.herder = self._new_herder()
        #: The leader's config offset at assignment, by generation.
        self.assigned_offsets: dict[int, int] = {}
        self.halted = False
        self.routing = Routing(self.network, self, self._coordinators)
        coordinators: Any = Coordinators(self)
        config_store: Any = ConfigStoreClient(self)
        status_store: Any = StatusStoreClient(self)
        others: Any = OtherWorkers(self)
        link: Any = EngineLink(self.engine)
        settings: Any = SimpleNamespace(
            group_id=GROUP,
            session_timeout_ms=self._settings.session_timeout_ms,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )
        self._loop = _CheckedLoop(self)
        self._stage = self.herder.membership.stage
        self.committer = OffsetCommitter(coordinators, GROUP, self._answer_commit)
        self.fetcher = OffsetFetcher(coordinators, GROUP, self._answer_fetch)
        self.statuses = StatusWriter(status_store, writer=f"{self.name}-{self.incarnation}")
        runner = InstructionRunner(
            settings=settings,
            worker_id=self.name,
            loop=self._loop,
            coordinator=coordinators,
            config_store=config_store,
            workers=others,
            engine=link,
            statuses=self.statuses,
            status_store=status_store,
            random_bytes=self.world.random.randbytes,
        )
        self._loop.start(runner.run)
        self._loop.observe(self._look)
        self.spawn(self._mirror_configs(config_store))
        self.spawn(self._mirror_statuses(status_store))
        self.spawn(self.statuses.run())
        self.spawn(self.committer.run())
        self.spawn(self._end_when_halted())
        self.engine.start()

    def _new_herder(self) -> Herder:
        return Herder(replace(self._settings, connect_protocol=self.connect_protocol))

    def crashed(self) -> None:
        """The worker crashed; its engine ends with it."""
        if self.engine.alive:
            self.engine.crash("ends with its herder")

    def engine_lost(self) -> None:
        """The engine ended."""
        self.committer.forget(lambda call_id: False)
        self.fetcher.forget(lambda call_id: False)
        self.post(events.EngineLost("it was killed"))

    def stop(self) -> None:
        """Stop gracefully, within a time limit."""
        self.world.tell((self.name,), "{} is asked to end", self.name)
        self.after(STOP_TIMEOUT_MS, self._end)
        self.deliver(0, partial(self.post, events.StopRequested()))

    def _end(self) -> None:
        self.crash("ends")

    async def _end_when_halted(self) -> None:
        await self._loop.halted.wait()
        await self.statuses.wait_idle()
        self._end()

    async def _answer_commit(self, call_id: int, result: CommitResult) -> None:
        self.engine.deliver(1, partial(self.engine.answered, call_id, result))

    async def _answer_fetch(self, call_id: int, offsets: Sequence[CommittedOffset]) -> None:
        self.engine.deliver(1, partial(self.engine.answered, call_id, list(offsets)))

    # --- the herder --------------------------------------------------------------------------

    def post(self, event: events.HerderEvent) -> None:
        """Post an event to the herder."""
        self._loop.post(event)

    def _look(self, event: events.HerderEvent) -> None:
        """Check the herder after each event."""
        herder = self.herder
        try:
            herder.validate()
        except AssertionError as error:
            raise BrokenRuleError(
                "a machine's invariants hold", f"{type(event).__name__}: {error}", self.name
            ) from error
        if herder.membership.stage is not self._stage:
            self._stage = herder.membership.stage
            self._tell_stage()
        if herder.context.view.loaded:
            self.rules.view_moved(self, herder.context.view.offset)

    def _tell_stage(self) -> None:
        membership, context = self.herder.membership, self.herder.context
        self.world.tell(
            (self.name, GROUP),
            "{} is {} ({}), generation {}",
            self.name,
            membership.stage,
            membership.reason,
            context.generation,
        )

    async def _mirror_configs(self, store: ConfigStoreClient) -> None:
        async for read in follow(store, name="config-store"):
            if isinstance(read, SnapshotRead):
                self.post(events.ConfigsLoaded(read.snapshot))
            else:
                self.post(events.ConfigsChanged(read.events, read.end_offset))

    async def _mirror_statuses(self, store: StatusStoreClient) -> None:
        async for read in follow(store, name="status-store"):
            if isinstance(read, SnapshotRead):
                self.post(events.StatusesLoaded(read.snapshot))
            else:
                self.post(events.StatusesChanged(read.events))

    # --- requests ----------------------------------------------------------------------------

    def receive(self, call: ServerCall) -> None:
        """A call of a client or another worker."""
        match call.request:
            case Admin(request):
                self._serve(call, self._carry(call, request))
            case Signed(asked, signature):
                self._serve(call, self._serve_signed(call, asked, signature))
            case unknown:
                raise BrokenRuleError("calls are known", str(unknown), self.name)

    def _serve(self, call: ServerCall, work: Coroutine[Any, Any, object]) -> None:
        async def answer() -> None:
            try:
                call.answer(await work)
            except DroverError as error:
                call.answer(error)

        call.on_cancel = self.spawn(answer()).cancel

    async def _serve_signed(self, call: ServerCall, asked: object, signature: str) -> object:
        self._check(asked, signature)
        if isinstance(asked, Forward):
            return await self._try(call, asked.request, asked.hop_count, call.timeout_ms)
        assert isinstance(asked, requests.SubmitTaskConfigs)
        return await self._loop.request(asked, timeout_s=call.timeout_ms / 1000)

    async def _carry(self, call: ServerCall, request: requests.Request) -> object:
        """A client's call, tried until its deadline; as ``drover_worker.admin.forwarding``."""
        pause_ms = RETRY_FIRST_MS
        while True:
            left_ms = call.since_ms + call.timeout_ms - self.world.now_ms
            if left_ms <= 0:
                raise TOO_LATE
            try:
                return await self._try(call, request, 0, left_ms)
            except DroverError as error:
                if not _elsewhere(error) or self.herder.membership.ending:
                    raise
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, RETRY_MAX_MS)

    async def _try(
        self, call: ServerCall, request: requests.Request, hop_count: int, timeout_ms: int
    ) -> object:
        """The herder's answer, or the answer of the worker that it names."""
        answer = await self._loop.request(request, timeout_s=timeout_ms / 1000, hop_count=hop_count)
        if not isinstance(answer, requests.ForwardTo):
            return answer
        left_ms = call.since_ms + call.timeout_ms - self.world.now_ms - HOP_MARGIN_MS
        if left_ms <= 0:
            raise TOO_LATE
        forward = Forward(request, hop_count + 1)
        return await self.call_worker(
            answer.worker_url, forward, timeout_s=left_ms / 1000, retry=False
        )

    async def call_worker(
        self,
        address: str,
        request: Forward | requests.SubmitTaskConfigs,
        *,
        timeout_s: float,
        retry: bool,
    ) -> object:
        """Call another worker; each attempt is signed if this worker has a key at that time."""
        renew = partial(self._signed, request)
        signed = renew()
        return await asked(
            lambda heard: Call(
                self.network,
                self,
                address,
                signed,
                heard,
                timeout_ms=int(timeout_s * 1000),
                retry=retry,
                renew=renew,
            )
        )

    def _signed(self, asked: Forward | requests.SubmitTaskConfigs) -> Signed:
        return Signed(asked, self.herder.signatures.sign(Signed.method(asked), Signed.body(asked)))

    def _check(self, asked: object, signature: str) -> None:
        try:
            self.herder.signatures.check(
                Signed.method(asked), Signed.body(asked), signature, self.now_ms
            )
        except UnavailableError:
            raise
        except DroverError as error:
            raise BrokenRuleError(
                "no call of a worker is refused as if it were not one's", error.message, self.name
            ) from error

    @property
    def draining(self) -> bool:
        """Whether the worker is draining or drained."""
        return self.herder.membership.drain.requested

    @property
    def settled(self) -> bool:
        """Whether it works on an assignment."""
        return self.alive and self.herder.membership.stage is Stage.SETTLED


class _CheckedLoop(HerderLoop):
    """The herder's loop; a request that the herder does not answer in time is a broken rule."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.herder, ProcessClock(worker))
        self._worker = worker

    def deadline_error(self, what: str) -> DeadlineExceededError:
        """The herder has not answered; after a pause of its process it may be late."""
        worker = self._worker
        if worker.world.now_ms - worker.resumed_ms > REQUEST_MAX_MS:
            raise BrokenRuleError(
                "every parked request gets its answer",
                f"{what} has none though its deadline is over",
                worker.name,
            )
        return super().deadline_error(what)


def _elsewhere(error: DroverError) -> bool:
    if isinstance(error, FailedPreconditionError):
        return error.reason in (Reason.NOT_LEADER, Reason.NOT_OWNER)
    return isinstance(error, UnavailableError)
