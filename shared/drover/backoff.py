"""Increasing back-off between attempts, for loops that do more than repeat one call."""

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random_exponential
from tenacity.wait import wait_base


class Backoff:
    """Counts the pauses since the last success, and computes the next one.

    Args:
        first_s: The first pause.
        max_s: The longest pause.
        growth: The factor by which each pause is longer than the previous one.
        jitter: Whether each pause is random between half its length and its full length, so that
            callers that failed together do not retry together.
    """

    def __init__(
        self, first_s: float, max_s: float, *, growth: float = 2, jitter: bool = False
    ) -> None:
        self._wait: wait_base = wait_exponential(first_s, max_s, growth)
        if jitter:
            fixed = wait_exponential(first_s / 2, max_s / 2, growth)
            self._wait = fixed + wait_random_exponential(first_s / 2, max_s / 2, growth)
        self._state = RetryCallState(Retrying(), None, (), {})

    @property
    def pauses(self) -> int:
        """The number of pauses since the last reset."""
        return self._state.attempt_number - 1

    def next_pause_s(self) -> float:
        """The current pause in seconds; the next one is longer."""
        pause_s = self._wait(self._state)
        self._state.attempt_number += 1
        return pause_s

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self._state.attempt_number = 1
