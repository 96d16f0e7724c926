"""The state that the parts of the herder share, and the instructions of the present event."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drover.machine import CancelTimer, SetTimer
from drover.model.failures import FailureHistory
from drover.model.status import RecordCounts, RunState, Status, StatusKey, StatusWrite
from drover_worker.core.causes import Cause
from drover_worker.core.config.view import ConfigView
from drover_worker.core.engine_resources import OWN_ENGINES_MAX
from drover_worker.core.engine_slots import SHARED, EngineSlots
from drover_worker.core.events import HerderEvent
from drover_worker.core.instructions import HerderInstruction, WriteStatus


@dataclass(frozen=True, slots=True)
class HerderSettings:
    """The herder's settings, which never change.

    Attributes:
        worker_id: The host:port of this worker for clients.
        group_id: The workers' group.
        internal_url: The host:port of this worker for other workers; empty if it is the worker id.
        session_timeout_ms: How long heartbeats may fail before this worker stops its work.
        heartbeat_interval_ms: The time between two heartbeats.
        join_backoff_ms: The back-off before the next join after a failed call to the coordinator.
        rejoin_delay_ms: How long connectors and tasks must stay unchanged before their changes lead
            to a rebalance.
        rejoin_delay_first_ms: The same for the first rebalances of a series, in a group whose work
            continues during a rebalance.
        rejoin_delay_max_ms: The upper bound of either delay while changes continue or work starts.
        catch_up_backoff_ms: The back-off before the next join after the config log could not be
            read to its end.
        retry_backoff_ms: The back-off before the first retry of a call; doubles with each retry.
        retry_backoff_max_ms: The longest back-off for plugins that fail repeatedly.
        status_check_ms: How long the status store may contradict this worker's report before the
            worker reports again.
        counts_interval_ms: The shortest time between two writes of tasks' record counts, unless a
            state changes.
        call_backoff_max_ms: The longest back-off for calls to other services.
        request_count_max: The number of requests that may wait at a time.
        connect_protocol: The preferred rebalance protocol: "eager", "compatible" or "sessioned".
        scheduled_delay_max_ms: Cooperative only: how long the work of a departed worker waits for
            its return.
        key_algorithm: The algorithm of session keys; a leader replaces a key of another one.
        key_size_bytes: The size of session keys.
        key_ttl_ms: The age of a session key at which the leader writes the next one.
        signature_algorithm: The algorithm of this worker's signatures on calls to other workers.
        verification_algorithms: The accepted algorithms of other workers' signatures.
        own_engines: A connector without the setting ``engine`` has its own engine.
        own_engines_max: How many own engines may run at the same time.
        time_text: The text of a time in ms since the epoch, for statuses.
    """

    worker_id: str
    group_id: str
    internal_url: str = ""
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    join_backoff_ms: int = 500
    rejoin_delay_ms: int = 100
    rejoin_delay_first_ms: int = 10
    rejoin_delay_max_ms: int = 3_000
    catch_up_backoff_ms: int = 2_000
    retry_backoff_ms: int = 250
    retry_backoff_max_ms: int = 60_000
    call_backoff_max_ms: int = 5_000
    status_check_ms: int = 1_000
    counts_interval_ms: int = 5_000
    request_count_max: int = 2_000
    connect_protocol: str = "compatible"
    scheduled_delay_max_ms: int = 0
    key_algorithm: str = "HmacSHA256"
    key_size_bytes: int = 32
    key_ttl_ms: int = 3_600_000
    signature_algorithm: str = "HmacSHA256"
    verification_algorithms: Sequence[str] = ("HmacSHA256",)
    own_engines: bool = False
    own_engines_max: int = OWN_ENGINES_MAX
    time_text: Callable[[int], str] = str


class Context:
    """The time of the event, the instructions that it causes, and the views of both stores.

    ``member_id`` and ``generation`` belong to the current membership ("" and -1 without one).
    ``status_generation`` is the last generation of this worker, for its statuses.
    ``claim_generation`` is the last settled generation, for claims of tasks.
    """

    def __init__(self, settings: HerderSettings) -> None:
        self.settings = settings
        self.now_ms = 0
        #: When this worker started.
        self.started_ms = 0
        self.out: list[HerderInstruction] = []
        self.view = ConfigView()
        self.statuses: dict[StatusKey, Status] = {}
        self.engines = EngineSlots(self.view, own_by_default=settings.own_engines)
        self.member_id = ""
        self.generation = -1
        self.status_generation = -1
        self.claim_generation = -1
        self._last_id = 0

    @property
    def engine_up(self) -> bool:
        """Whether the shared engine is up."""
        return SHARED in self.engines.up

    def emit(self, instruction: HerderInstruction) -> None:
        """Append an instruction."""
        self.out.append(instruction)

    def next_id(self) -> int:
        """A new unique number."""
        self._last_id += 1
        return self._last_id

    def next_cause(self, cause: Cause) -> str:
        """A new cause id; the outcome of the call has it, to find the part that made the call."""
        return cause.new_id(self.next_id())

    def set_timer(self, key: str, delay_ms: int, event: HerderEvent) -> None:
        """Deliver ``event`` after ``delay_ms``; replaces an earlier timer ``key``."""
        self.emit(SetTimer(key, self.now_ms + delay_ms, event))

    def cancel_timer(self, key: str) -> None:
        """Cancel a timer, if there is one."""
        self.emit(CancelTimer(key))

    def report(
        self,
        key: StatusKey,
        state: RunState,
        *,
        trace: str = "",
        counts: RecordCounts | None = None,
        figures: Mapping[str, int] | None = None,
        failures: FailureHistory | None = None,
        safe: bool = False,
    ) -> None:
        """Write a status of this worker; ``safe`` for reports that must not replace later ones."""
        status = Status(
            key,
            state,
            self.settings.worker_id,
            self.status_generation,
            trace,
            counts=counts,
            failures=failures,
            figures=figures or {},
        )
        self.emit(WriteStatus(StatusWrite(status, safe=safe)))

    def backoff_ms(self, attempt: int) -> int:
        """The delay before retry ``attempt`` (from 0)."""
        doublings = min(attempt, 30)
        wait_ms = self.settings.retry_backoff_ms << doublings
        return min(wait_ms, self.settings.retry_backoff_max_ms)

    def call_backoff_ms(self, attempt: int) -> int:
        """The delay before retry ``attempt`` (from 0) of a call to another service."""
        return min(self.backoff_ms(attempt), self.settings.call_backoff_max_ms)
