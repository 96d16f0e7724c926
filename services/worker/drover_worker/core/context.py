"""What the parts of the herder share while they work on one event."""

from dataclasses import dataclass

from drover.machine import CancelTimer, SetTimer
from drover.model.status import RunState, Status, StatusKey, StatusWrite
from drover_worker.core.causes import Cause
from drover_worker.core.config.view import ConfigView
from drover_worker.core.events import HerderEvent
from drover_worker.core.instructions import HerderInstruction, WriteStatus


@dataclass(frozen=True, slots=True)
class HerderSettings:
    """What the herder is told once.

    Attributes:
        worker_id: The host:port under which other workers reach this one.
        group_id: The workers' group.
        session_timeout_ms: How long the coordinator may be out of reach before work is given up.
        heartbeat_interval_ms: Between two signs of life.
        join_backoff_ms: Before joining again after a failure that was not our turn to mend.
        rejoin_delay_ms: How long connectors and tasks must stay as they are before work is assigned
            anew for a change of them.
        rejoin_delay_max_ms: The longest such wait, while they go on changing or the work that was
            assigned last is still being started.
        catch_up_backoff_ms: Out of the group after the config log could not be read to its end.
        retry_backoff_ms: Before the first retry of a call; doubles with each.
        retry_backoff_max_ms: The longest such wait, for plugins that fail again and again.
        status_check_ms: How long the status store may say otherwise of this worker's work than the
            worker did, before it is told again.
        call_backoff_max_ms: The longest such wait for another service, which may be back at once.
        request_count_max: Requests that may wait at a time.
    """

    worker_id: str
    group_id: str
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    join_backoff_ms: int = 500
    rejoin_delay_ms: int = 100
    rejoin_delay_max_ms: int = 3_000
    catch_up_backoff_ms: int = 2_000
    retry_backoff_ms: int = 250
    retry_backoff_max_ms: int = 60_000
    call_backoff_max_ms: int = 5_000
    status_check_ms: int = 1_000
    request_count_max: int = 2_000


class Context:
    """The event's time, the instructions it leads to, and the views everyone decides on.

    ``member_id`` and ``generation`` are those of the present membership ("" and -1 without one);
    ``status_generation`` is the last generation this worker was in, which its statuses carry.
    """

    def __init__(self, settings: HerderSettings) -> None:
        self.settings = settings
        self.now_ms = 0
        self.out: list[HerderInstruction] = []
        self.view = ConfigView()
        self.statuses: dict[StatusKey, Status] = {}
        self.engine_up = False
        self.member_id = ""
        self.generation = -1
        self.status_generation = -1
        self._last_id = 0

    def emit(self, instruction: HerderInstruction) -> None:
        """Have ``instruction`` executed after those before it."""
        self.out.append(instruction)

    def next_id(self) -> int:
        """A number never given before."""
        self._last_id += 1
        return self._last_id

    def next_cause(self, cause: Cause) -> str:
        """A new cause id; the completion of the call carries it back to the part that called."""
        return cause.new_id(self.next_id())

    def set_timer(self, key: str, delay_ms: int, event: HerderEvent) -> None:
        """Have ``event`` come back after ``delay_ms``, in place of an earlier timer ``key``."""
        self.emit(SetTimer(key, self.now_ms + delay_ms, event))

    def cancel_timer(self, key: str) -> None:
        """Forget a timer."""
        self.emit(CancelTimer(key))

    def report(
        self, key: StatusKey, state: RunState, *, trace: str = "", safe: bool = False
    ) -> None:
        """Write a status in this worker's name; ``safe`` for reports that may come late."""
        status = Status(key, state, self.settings.worker_id, self.status_generation, trace)
        self.emit(WriteStatus(StatusWrite(status, safe=safe)))

    def backoff_ms(self, attempt: int) -> int:
        """The wait before retry ``attempt`` (from 0)."""
        doublings = min(attempt, 30)
        wait_ms = self.settings.retry_backoff_ms << doublings
        return min(wait_ms, self.settings.retry_backoff_max_ms)

    def call_backoff_ms(self, attempt: int) -> int:
        """The wait before retry ``attempt`` (from 0) of a call to another service."""
        return min(self.backoff_ms(attempt), self.settings.call_backoff_max_ms)
