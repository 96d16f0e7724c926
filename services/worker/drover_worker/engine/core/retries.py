"""How long failed calls and lost batches of a task are repeated. Pure."""

from collections.abc import Mapping

from drover.backoff import Backoff
from drover.connector.error_settings import ErrorSettings
from drover.model.times import DAY_MS
from drover_worker.engine.core.phases import Phase

#: What is retried after a RetriableError, by phase.
CALLS: Mapping[Phase, str] = {
    Phase.STARTING_INSTANCE: "start()",
    Phase.STOPPING_INSTANCE: "start()",
    Phase.POLLING: "poll()",
    Phase.STAGING: "reading a batch",
    Phase.STAGING_LETTERS: "reading a batch",
    Phase.WRITING: "write()",
    Phase.PUBLISHING_LETTERS: "write()",
    Phase.NOTIFYING: "committed() or idle()",
    Phase.CALLING_IDLE: "committed() or idle()",
}

_FIRST_S = 0.3
#: After this many consecutive batches during which a Spark process ended, the plugin is blamed.
_LOSSES_MAX = 5
#: Two such batches that are further apart are not consecutive.
_LOSSES_APART_MS = 3_600_000


class CallRetries:
    """The retries of calls that raise RetriableError, by the phase of the task that makes them.

    ``errors.retry.timeout`` counts from the first failure since the last success of the same call.
    The time of a pause does not count.
    """

    def __init__(self, errors: ErrorSettings) -> None:
        longest_ms = errors.retry_delay_max_ms
        longest_s = (longest_ms if longest_ms >= 0 else DAY_MS) / 1000
        self._backoff = Backoff(min(_FIRST_S, longest_s), longest_s)
        self._timeout_ms = errors.retry_timeout_ms
        #: When each call failed first.
        self._since_ms: dict[Phase, int] = {}
        self._paused_since_ms = 0

    @property
    def are_allowed(self) -> bool:
        """Whether any call may be repeated."""
        return self._timeout_ms != 0

    def begin(self, call: Phase, now_ms: int) -> None:
        """A call failed; its time begins, unless it has."""
        if call not in self._since_ms:
            self._backoff.reset()
            self._since_ms[call] = now_ms

    def pause_ms(self, call: Phase, now_ms: int) -> int | None:
        """How long to wait before the failed call is repeated; None for no further retry."""
        self.begin(call, now_ms)
        left_ms = self._timeout_ms - (now_ms - self._since_ms[call])
        if self._timeout_ms >= 0 and left_ms <= 0:
            return None
        pause_ms = ceil_ms(self._backoff.next_pause_s())
        return min(pause_ms, left_ms) if self._timeout_ms >= 0 else pause_ms

    def succeeded(self, call: Phase) -> None:
        """The call returned."""
        self._since_ms.pop(call, None)

    def clear(self) -> None:
        """All calls of a batch returned."""
        self._since_ms.clear()

    def task_paused(self, now_ms: int) -> None:
        """The task makes no calls from now on."""
        self._paused_since_ms = now_ms

    def task_resumed(self, now_ms: int) -> None:
        """The task makes calls again."""
        for call, first_ms in self._since_ms.items():
            self._since_ms[call] = first_ms + now_ms - max(first_ms, self._paused_since_ms)


class Losses:
    """Counts consecutive batches during which a Spark process ended."""

    def __init__(self) -> None:
        self.count = 0
        self._last_ms = 0

    @property
    def are_too_many(self) -> bool:
        """Whether the plugin is the likely cause."""
        return self.count >= _LOSSES_MAX

    def add(self, now_ms: int) -> None:
        """A process ended during a batch."""
        is_apart = now_ms - self._last_ms > _LOSSES_APART_MS
        self.count = 1 if is_apart else self.count + 1
        self._last_ms = now_ms

    def reset(self) -> None:
        """A batch was committed."""
        self.count = 0


def ceil_ms(seconds: float) -> int:
    """Milliseconds, rounded up: a task does not wake before its time."""
    return -int(-round(seconds * 1_000_000) // 1000)
