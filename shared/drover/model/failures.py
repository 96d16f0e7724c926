"""Failures of a connector or task, and the policy for automatic restarts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Self
from zlib import crc32

RESTART_POLICY = "restart.policy"
RESTART_BACKOFF_MS = "restart.backoff.ms"
RESTART_BACKOFF_MAX_MS = "restart.backoff.max.ms"
RESTART_ATTEMPTS_MAX = "restart.attempts.max"
RESTART_WINDOW_MS = "restart.window.ms"

#: Values of restart.policy.
NEVER = "never"
ON_FAILURE = "on-failure"

#: The upper limit of restart.attempts.max.
ATTEMPTS_LIMIT = 20
#: The failures that a history keeps: one for each restart, and the one after the last restart.
FAILURES_KEPT = ATTEMPTS_LIMIT + 1
MESSAGE_MAX_CHARS = 200
#: In the first line of the trace of a connector in quarantine, or of one that was stopped there.
IN_QUARANTINE = "in quarantine"
#: The jitter of a delay, so that connectors and tasks that failed together do not restart together.
_JITTER = 0.2
_DOUBLINGS_MAX = 30
#: The module of an error of Drover, at the start of a traceback's last line.
_OWN_MODULE = re.compile(r"^drover(?:_worker)?(?:\.\w+)+\.(?=[A-Z])")


class FailureCause(StrEnum):
    """The cause of a failure."""

    #: The connector's code or config, an error of the external system, or a record.
    PLUGIN = "PLUGIN"
    #: The engine or a Spark process ended.
    ENGINE = "ENGINE"
    #: A configured limit was exceeded; a restart would exceed it again.
    LIMIT = "LIMIT"
    #: An external system did not answer, or was too busy.
    OUTAGE = "OUTAGE"
    #: An external system rejected the credentials.
    CREDENTIALS = "CREDENTIALS"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, at ``failed_ms`` (since the epoch) on a worker; ``message`` is a line of its
    trace.
    """

    failed_ms: int
    cause: FailureCause
    worker_id: str
    message: str


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """The failures since a config was written or a user restarted the connector or task.

    Attributes:
        config_offset: Identifies the failed config: the config log's end offset after the record of
            the config or of the task configs. A history applies to one config only.
        failures: The last failures, oldest first, at most FAILURES_KEPT.
        count: The number of all failures.
        restart_ms: When the next automatic restart is due, since the epoch; 0 while it runs, or if
            it is not restarted automatically.
        no_restart_reason: Why it is not restarted automatically; empty otherwise.
    """

    config_offset: int
    failures: tuple[Failure, ...] = ()
    count: int = 0
    restart_ms: int = 0
    no_restart_reason: str = ""

    @property
    def last(self) -> Failure | None:
        """The last failure; None if there is none."""
        return self.failures[-1] if self.failures else None

    def with_failure(self, failure: Failure, policy: "RestartPolicy", name: str) -> Self:
        """The history after another failure of ``name``, with the next restart according to its
        policy.
        """
        failures = (*self.failures, failure)[-FAILURES_KEPT:]
        restart_ms, reason = policy.next_restart(failures, name)
        return replace(
            self,
            failures=failures,
            count=self.count + 1,
            restart_ms=restart_ms,
            no_restart_reason=reason,
        )

    def without_restart(self) -> Self:
        """The history while it runs, or is being started."""
        return replace(self, restart_ms=0, no_restart_reason="")


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a connector and its tasks restart automatically after a failure.

    Attributes:
        restarts: Whether they restart at all (``restart.policy=on-failure``).
        backoff_ms: The delay before the first restart; it doubles with each failure in the window.
        backoff_max_ms: The maximum delay.
        attempts_max: The maximum number of restarts within the window; -1 for no limit.
        window_ms: How long a failure counts.
    """

    restarts: bool = True
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    attempts_max: int = 10
    window_ms: int = 3_600_000

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Self:
        """The policy in a connector's config; an unreadable value is replaced by its default."""
        default = cls()
        return cls(
            restarts=config.get(RESTART_POLICY, ON_FAILURE).strip() != NEVER,
            backoff_ms=_number(config, RESTART_BACKOFF_MS, default.backoff_ms),
            backoff_max_ms=_number(config, RESTART_BACKOFF_MAX_MS, default.backoff_max_ms),
            attempts_max=_number(config, RESTART_ATTEMPTS_MAX, default.attempts_max, minimum=-1),
            window_ms=_number(config, RESTART_WINDOW_MS, default.window_ms),
        )

    def next_restart(self, failures: tuple[Failure, ...], name: str) -> tuple[int, str]:
        """When ``name`` restarts after the last of ``failures``, or why it does not.

        Failures that the engine caused always lead to a restart. Outages and rejected credentials
        lead to one unless the policy is ``never``. Neither counts towards ``attempts_max``. The
        back-off of an outage is reset if there was no failure for a while before it.

        Returns:
            The time since the epoch in ms, and ""; or 0 and the reason.
        """
        last = failures[-1]
        if last.cause is FailureCause.LIMIT:
            return 0, "it exceeded a limit, and would exceed it again"
        since_ms = last.failed_ms - self.window_ms
        recent = [f for f in failures if f.cause is last.cause and f.failed_ms > since_ms]
        if not self.restarts and last.cause is not FailureCause.ENGINE:
            return 0, f"{RESTART_POLICY}={NEVER}"
        if last.cause is FailureCause.PLUGIN and 0 <= self.attempts_max < len(recent):
            times = f"{len(recent)} failures" if len(recent) > 1 else "a failure"
            window = f"{self.window_ms / 1000:g} s ({RESTART_WINDOW_MS})"
            return 0, f"{times} within {window}: {RESTART_ATTEMPTS_MAX}={self.attempts_max}"
        in_a_row = self._same_outage(recent) if last.cause is FailureCause.OUTAGE else len(recent)
        doublings = min(in_a_row - 1, _DOUBLINGS_MAX)
        delay_ms = min(self.backoff_ms << doublings, self.backoff_max_ms)
        if last.cause is FailureCause.CREDENTIALS:
            delay_ms = self.backoff_max_ms
        spread = 1 + _JITTER * (2 * _fraction(f"{name}/{last.failed_ms}") - 1)
        return last.failed_ms + round(delay_ms * spread), ""

    def _same_outage(self, outages: Sequence[Failure]) -> int:
        """How many of the last outages followed each other faster than two of the longest pauses;
        a longer gap means that it ran in between.
        """
        count = 1
        for earlier, later in reversed(list(pairwise(outages))):
            if later.failed_ms - earlier.failed_ms > 2 * self.backoff_max_ms:
                break
            count += 1
        return count


def cause_in(trace: str) -> str:
    """The most informative line of a trace: the last line of a traceback, else the first line.

    Errors of Drover are shown without their modules.
    """
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    if not lines:
        return ""
    return _OWN_MODULE.sub("", lines[-1]) if lines[0].startswith("Traceback") else lines[0]


def summary_of(trace: str) -> str:
    """``cause_in``, cut to MESSAGE_MAX_CHARS."""
    line = cause_in(trace)
    return line if len(line) <= MESSAGE_MAX_CHARS else f"{line[: MESSAGE_MAX_CHARS - 1]}…"


def _number(config: Mapping[str, str], name: str, default: int, *, minimum: int = 1) -> int:
    try:
        number = int(config[name])
    except (KeyError, ValueError):
        return default
    return number if number >= minimum else default


def _fraction(text: str) -> float:
    """A pseudo-random number from 0 to 1, the same for the same text."""
    return crc32(text.encode()) / 0xFFFFFFFF
