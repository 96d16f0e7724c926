"""What is known of the requests of each writer, so that copies of them are recognised. Pure."""

from collections.abc import Sequence

from drover_status_store.core.events import WriteOutcome

WRITER_COUNT_MAX = 10_000


class Writers:
    """The last request of each writer, and what it was answered; the longest silent goes first.

    The numbers are found again in the log after a restart, the answers are not: then the request
    is decided once more.
    """

    def __init__(self, max_count: int = WRITER_COUNT_MAX) -> None:
        self._max_count = max_count
        self._last: dict[str, tuple[int, Sequence[WriteOutcome] | None]] = {}

    def is_late(self, writer: str, number: int) -> bool:
        """Whether a request came after a later one of the same writer."""
        return number < self._number(writer)

    def answered(self, writer: str, number: int) -> Sequence[WriteOutcome] | None:
        """What the last request was answered, if this is a copy of it."""
        known, outcomes = self._last.get(writer, (0, None))
        return outcomes if known == number else None

    def decided(self, writer: str, number: int, outcomes: Sequence[WriteOutcome]) -> None:
        """The answer to the writer's last request."""
        self._put(writer, number, outcomes)

    def forget_answer(self, writer: str, number: int) -> None:
        """Nobody knows what became of a request: a copy of it is decided anew."""
        if self._number(writer) == number:
            self._put(writer, number, None)

    def seen(self, writer: str, number: int) -> None:
        """A record of this request stands in the log."""
        if number > self._number(writer):
            self._put(writer, number, None)

    def _number(self, writer: str) -> int:
        return self._last.get(writer, (0, None))[0]

    def _put(self, writer: str, number: int, outcomes: Sequence[WriteOutcome] | None) -> None:
        self._last.pop(writer, None)
        self._last[writer] = (number, outcomes)
        if len(self._last) > self._max_count:
            del self._last[next(iter(self._last))]
