"""What the parts of the herder share while they handle one event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.machine import CancelTimer, SetTimer
from drover.model.failures import FailureHistory
from drover.model.status import RecordCounts, RunState, Status, StatusKey, StatusWrite
from drover_worker.core.causes import Cause
from drover_worker.core.config.view import ConfigView
from drover_worker.core.events import HerderEvent
from drover_worker.core.instructions import HerderInstruction, WriteStatus


@dataclass(frozen=True, slots=True)
class HerderSettings:
    """The herder's settings, fixed for its life.

    Attributes:
        worker_id: The host:port under which clients reach this worker.
        group_id: The workers' group.
        internal_url: The host:port where other workers call this one; empty for its id.
        session_timeout_ms: How long heartbeats may fail before this worker stops its work.
        heartbeat_interval_ms: Between two heartbeats.
        join_backoff_ms: Before the next join, after a call to the coordinator failed.
        rejoin_delay_ms: How long connectors and tasks must stay unchanged before their changes lead
            to a rebalance.
        rejoin_delay_first_ms: The same for the first few rebalances in a row, in a group that goes
            on with its work meanwhile.
        rejoin_delay_max_ms: The longest such delay, while they keep changing or work is starting.
        catch_up_backoff_ms: Out of the group, after the config log could not be read to its end.
        retry_backoff_ms: Before the first retry of a call; doubles with each.
        retry_backoff_max_ms: The longest back-off for plugins that fail repeatedly.
        status_check_ms: How long the status store may contradict this worker's report before the
            worker reports again.
        counts_interval_ms: Between two writes of what became of tasks' records, while only that
            changes.
        call_backoff_max_ms: The longest back-off for calls to other services.
        request_count_max: The number of requests that may wait at a time.
        connect_protocol: The preferred rebalance protocol: "eager", "compatible" or "sessioned".
        scheduled_delay_max_ms: Cooperative only: how long the work of a worker that is gone waits
            for its return.
        key_algorithm: What session keys are made for; a leader replaces a key of another one.
        key_size_bytes: How long they are.
        key_ttl_ms: How old a session key gets before the leader writes the next one.
        signature_algorithm: What calls of other workers are signed by.
        verification_algorithms: The algorithms of signatures that are let in.
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


class Context:
    """The event's time, the instructions that it causes, and the views of both stores.

    ``member_id`` and ``generation`` are those of the current membership ("" and -1 without one);
    ``status_generation`` is the last generation of this worker, which goes into its statuses, and
    ``claim_generation`` the last one that has settled, under which tasks are claimed.
    """

    def __init__(self, settings: HerderSettings) -> None:
        self.settings = settings
        self.now_ms = 0
        #: When this worker began.
        self.started_ms = 0
        self.out: list[HerderInstruction] = []
        self.view = ConfigView()
        self.statuses: dict[StatusKey, Status] = {}
        self.engine_up = False
        self.member_id = ""
        self.generation = -1
        self.status_generation = -1
        self.claim_generation = -1
        self._last_id = 0

    def emit(self, instruction: HerderInstruction) -> None:
        """Append an instruction."""
        self.out.append(instruction)

    def next_id(self) -> int:
        """A number that was never returned before."""
        self._last_id += 1
        return self._last_id

    def next_cause(self, cause: Cause) -> str:
        """A new cause id; the completion of the call carries it back to the part that called."""
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
