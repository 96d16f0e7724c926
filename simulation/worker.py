"""The simulated worker: the real herder in a simulated shell that executes its instructions.

The shell does what ``drover_worker`` does: executor, herder loop, request forwarding, the mirrors
of the stores, the status writer and the offset committer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from drover.errors import (
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.machine import CancelTimer, Complete, Fail, SetTimer
from drover.model.config import ConfigEvent, ConfigSnapshot
from drover.model.group import WatchedGroup
from drover.model.status import StatusEvent, StatusSnapshot
from drover_worker.core import events, requests
from drover_worker.core.context import HerderSettings
from drover_worker.core.herder import Herder
from drover_worker.core.instructions import Halt, HerderInstruction
from drover_worker.core.rebalance.stage import Stage
from simulation.coordinator import WatchGroup
from simulation.data_store import DataStore
from simulation.engine import Engine
from simulation.following import Following, LedStream
from simulation.instruction_runner import carry_out
from simulation.network import Call, Heard, Network, ServerCall
from simulation.process import Process, ProcessTimers
from simulation.rules import Rules
from simulation.shell import CALL_TIMEOUT_MS, Mirror, OffsetCommitter, StatusWriter
from simulation.world import BrokenRuleError

GROUP = "workers"
REBALANCE_TIMEOUT_MS = 6_000
ANSWER_MARGIN_MS = 200
HOP_MARGIN_MS = 100
RETRY_FIRST_MS = 100
RETRY_MAX_MS = 1_000
WATCH_BACKOFF_MS = (100, 300)
STOP_TIMEOUT_MS = 4_000

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
        self._watch: LedStream | None = None
        self._watched_member = ""
        self._watch_count = 0
        self._requests: dict[str, tuple[int, Heard]] = {}
        self._answered: set[str] = set()
        self._timers = ProcessTimers(self, self._on_due)
        self.offset_waiters: list[tuple[int, Heard]] = []
        self.following = Following(self.network, self, self._coordinators)
        self.statuses: StatusWriter = StatusWriter(self)
        self.committer: OffsetCommitter = OffsetCommitter(self)
        Mirror(self, "config-store", self._configs_loaded, self._configs_changed)
        Mirror(self, "status-store", self._statuses_loaded, self._statuses_changed)
        self.engine.start()

    def _new_herder(self) -> Herder:
        return Herder(replace(self._settings, connect_protocol=self.connect_protocol))

    def crashed(self) -> None:
        """The worker crashed; its engine ends with it."""
        if self.engine.alive:
            self.engine.crash("ends with its herder")

    def engine_lost(self, unanswered: list[Heard]) -> None:
        """The engine ended."""
        self.committer.forget()
        self.post(events.EngineLost("it was killed"))
        for heard in unanswered:
            heard(UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine ended"))

    def stop(self) -> None:
        """Stop gracefully, within a time limit."""
        self.world.tell((self.name,), "{} is asked to end", self.name)
        self.after(STOP_TIMEOUT_MS, self._end)
        self.post(events.StopRequested())

    def _end(self) -> None:
        self.crash("ends")

    # --- the herder --------------------------------------------------------------------------

    def post(self, event: events.HerderEvent) -> None:
        """Post an event to the herder."""
        herder = self.herder
        stage = herder.membership.stage
        instructions = herder.step(event, self.now_ms)
        try:
            herder.validate()
        except AssertionError as error:
            raise BrokenRuleError(
                "a machine's invariants hold", f"{type(event).__name__}: {error}", self.name
            ) from error
        if herder.membership.stage is not stage:
            self._tell_stage()
        if herder.context.view.loaded:
            self.rules.view_moved(self, herder.context.view.offset)
        for instruction in instructions:
            self._execute(instruction)
        if self.offset_waiters and herder.context.view.loaded:
            self._wake_offset_waiters()

    def _execute(self, instruction: HerderInstruction) -> None:
        match instruction:
            case SetTimer(key, deadline_ms, event):
                self._timers.set(key, deadline_ms, event)
            case CancelTimer(key):
                self._timers.cancel(key)
            case Complete(call_id, response):
                self._request_answered(call_id, response)
            case Fail(call_id, error):
                self._request_answered(call_id, error)
            case Halt():
                self.halted = True
                self._end_when_idle()
            case _:
                carry_out(self, instruction)

    def _on_due(self) -> None:
        while (event := self._timers.pop_due()) is not None:
            self.post(event)  # type: ignore[arg-type]
        self._timers.arm()

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

    def _end_when_idle(self) -> None:
        if self.statuses.idle:
            self._end()
        else:
            self.after(50, self._end_when_idle)

    def call(
        self,
        server: str,
        request: object,
        heard: Heard,
        *,
        timeout_ms: int = CALL_TIMEOUT_MS,
        retry: bool = True,
        renew: Callable[[], object] | None = None,
    ) -> None:
        """Call a service or another worker; see Call."""
        Call(
            self.network,
            self,
            server,
            request,
            heard,
            timeout_ms=timeout_ms,
            retry=retry,
            renew=renew,
        )

    def call_group(
        self,
        request: object,
        heard: Heard,
        *,
        timeout_ms: int = CALL_TIMEOUT_MS,
        retry: bool = True,
    ) -> None:
        """Call the coordinator that owns the workers' group."""
        self.following.call(GROUP, request, heard, timeout_ms=timeout_ms, retry=retry)

    # --- views -------------------------------------------------------------------------------

    def _configs_loaded(self, snapshot: object) -> None:
        assert isinstance(snapshot, ConfigSnapshot)
        self.post(events.ConfigsLoaded(snapshot))

    def _configs_changed(self, changes: object, end_offset: int) -> None:
        found: list[ConfigEvent] = changes  # type: ignore[assignment]
        self.post(events.ConfigsChanged(found, end_offset))

    def _statuses_loaded(self, snapshot: object) -> None:
        assert isinstance(snapshot, StatusSnapshot)
        self.post(events.StatusesLoaded(snapshot))

    def _statuses_changed(self, changes: object, end_offset: int) -> None:
        found: list[StatusEvent] = changes  # type: ignore[assignment]
        self.post(events.StatusesChanged(found))

    def _wake_offset_waiters(self) -> None:
        offset = self.herder.context.view.offset
        ready = [heard for wanted, heard in self.offset_waiters if wanted <= offset]
        if ready:
            self.offset_waiters = [each for each in self.offset_waiters if each[0] > offset]
            for heard in ready:
                heard(None)

    # --- the group's watch -------------------------------------------------------------------

    def watch_group(self, member_id: str) -> None:
        """Watch as this member; replaces an earlier watch."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._watch_count += 1
        self._watched_member = member_id
        if member_id:
            self._follow_group(self._watch_count)

    def _follow_group(self, watch: int) -> None:
        if watch != self._watch_count:
            return
        member_id = self._watched_member

        def changed(message: object) -> None:
            assert isinstance(message, WatchedGroup)
            self.rules.generation_seen(self, "watch", GROUP, message.generation)
            pushed = events.GroupPushed(member_id, message.generation, message.rejoin_needed)
            self.post(pushed)

        def ended(error: DroverError) -> None:
            if not isinstance(error, NotFoundError):
                pause_ms = self.world.between(*WATCH_BACKOFF_MS)
                self.after(pause_ms, partial(self._follow_group, watch))

        self._watch = self.following.stream(GROUP, WatchGroup(GROUP, member_id), changed, ended)

    # --- requests ----------------------------------------------------------------------------

    def receive(self, call: ServerCall) -> None:
        """A call of a client or another worker."""
        match call.request:
            case Admin(request):
                _CarriedCall(self, call, request)
            case Signed(asked, signature):
                refusal = self._refusal(asked, signature)
                if refusal is not None:
                    call.answer(refusal)
                elif isinstance(asked, Forward):
                    self._answer_here(call, asked.request, asked.hop_count, call.timeout_ms)
                else:
                    self.request(call, asked, 0, call.timeout_ms, call.answer)
            case unknown:
                raise BrokenRuleError("calls are known", str(unknown), self.name)

    def call_worker(
        self,
        address: str,
        asked: Forward | requests.SubmitTaskConfigs,
        heard: Heard,
        *,
        timeout_ms: int = CALL_TIMEOUT_MS,
        retry: bool = True,
    ) -> None:
        """Call another worker; each attempt is signed if this worker has a key at that time."""
        try:
            signed = self._signed(asked)
        except UnavailableError as error:
            heard(error)
            return
        renew = partial(self._signed, asked)
        self.call(address, signed, heard, timeout_ms=timeout_ms, retry=retry, renew=renew)

    def _signed(self, asked: Forward | requests.SubmitTaskConfigs) -> Signed:
        return Signed(asked, self.herder.signatures.sign(Signed.method(asked), Signed.body(asked)))

    def _refusal(self, asked: object, signature: str) -> DroverError | None:
        try:
            self.herder.signatures.check(
                Signed.method(asked), Signed.body(asked), signature, self.now_ms
            )
        except UnavailableError as error:
            return error
        except DroverError as error:
            raise BrokenRuleError(
                "no call of a worker is refused as if it were not one's", error.message, self.name
            ) from error
        return None

    def request(
        self,
        call: ServerCall,
        request: requests.Request,
        hop_count: int,
        timeout_ms: int,
        heard: Heard,
    ) -> None:
        """Send a request to the herder; it answers once, within the timeout plus a margin."""
        call_id = f"{call.call_id}.{self.world.next_id()}"
        deadline_ms = self.now_ms + timeout_ms
        self._requests[call_id] = self.world.now_ms, heard
        call.on_cancel = partial(self._cancel_request, call_id)
        self.after(timeout_ms + ANSWER_MARGIN_MS, partial(self._expire_request, call_id))
        self.post(events.RequestReceived(call_id, request, deadline_ms, hop_count))

    def _answer_here(
        self, call: ServerCall, request: requests.Request, hop_count: int, timeout_ms: int
    ) -> None:
        def answered(answer: object) -> None:
            self.carry_on(call, request, hop_count, timeout_ms, answer, call.answer)

        self.request(call, request, hop_count, timeout_ms, answered)

    def carry_on(
        self,
        call: ServerCall,
        request: requests.Request,
        hop_count: int,
        timeout_ms: int,
        answer: object,
        heard: Heard,
    ) -> None:
        """Return the herder's answer, or forward the call to the worker that the answer names."""
        left_ms = call.since_ms + timeout_ms - self.world.now_ms - HOP_MARGIN_MS
        if not isinstance(answer, requests.ForwardTo):
            heard(answer)
        elif left_ms <= 0:
            heard(TOO_LATE)
        else:
            forward = Forward(request, hop_count + 1)
            self.call_worker(answer.worker_url, forward, heard, timeout_ms=left_ms, retry=False)

    def _cancel_request(self, call_id: str) -> None:
        if self._requests.pop(call_id, None) is not None:
            self.post(events.RequestCancelled(call_id))

    def _expire_request(self, call_id: str) -> None:
        waiting = self._requests.pop(call_id, None)
        if waiting is None:
            return
        since_ms, heard = waiting
        if self.resumed_ms < since_ms:
            raise BrokenRuleError(
                "every parked request gets its answer",
                f"request {call_id} has none though its deadline is over",
                self.name,
            )
        self.post(events.RequestCancelled(call_id))
        heard(TOO_LATE)  # the process was paused past the deadline

    def _request_answered(self, call_id: str, response: object) -> None:
        if call_id in self._answered:
            raise BrokenRuleError("a request gets one answer", f"request {call_id}", self.name)
        self._answered.add(call_id)
        waiting = self._requests.pop(call_id, None)
        if waiting is not None:
            waiting[1](response)

    @property
    def draining(self) -> bool:
        """Whether the worker is draining or drained."""
        return self.herder.membership.drain.requested

    @property
    def settled(self) -> bool:
        """Whether it works on an assignment."""
        return self.alive and self.herder.membership.stage is Stage.SETTLED


class _CarriedCall:
    """A client's call at the worker that received it; retried until it is answered."""

    def __init__(self, worker: Worker, call: ServerCall, request: requests.Request) -> None:
        self._worker = worker
        self._call = call
        self._request = request
        self._pause_ms = RETRY_FIRST_MS
        self._try()

    def _try(self) -> None:
        worker, call = self._worker, self._call
        left_ms = call.since_ms + call.timeout_ms - worker.world.now_ms
        if left_ms <= 0:
            call.answer(TOO_LATE)
        elif call.is_open:
            worker.request(call, self._request, 0, left_ms, self._answered)

    def _answered(self, answer: object) -> None:
        self._worker.carry_on(
            self._call, self._request, 0, self._call.timeout_ms, answer, self._heard
        )

    def _heard(self, result: object) -> None:
        worker = self._worker
        if _elsewhere(result) and not worker.herder.membership.ending:
            worker.after(self._pause_ms, self._try)
            self._pause_ms = min(2 * self._pause_ms, RETRY_MAX_MS)
        else:
            self._call.answer(result)


def _elsewhere(result: object) -> bool:
    if isinstance(result, FailedPreconditionError):
        return result.reason in (Reason.NOT_LEADER, Reason.NOT_OWNER)
    return isinstance(result, UnavailableError)
