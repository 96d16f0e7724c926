"""Pauses between tries that grow, for loops that are more than one call repeated."""

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random_exponential
from tenacity.wait import wait_base


class Backoff:
    """Counts the pauses since the last success and says how long the next one takes.

    Args:
        first_s: The first pause.
        max_s: The longest pause.
        growth: By what factor each pause is longer than the one before.
        jitter: Whether each pause is drawn between half of its length and the whole, so that
            callers who failed together do not all come back together.
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
        """How many there were since the last reset."""
        return self._state.attempt_number - 1

    def next_pause_s(self) -> float:
        """How long to wait now; the one after it is longer."""
        pause_s = self._wait(self._state)
        self._state.attempt_number += 1
        return pause_s

    def reset(self) -> None:
        """Begin again with the first pause: what was tried has succeeded."""
        self._state.attempt_number = 1
