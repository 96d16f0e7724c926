"""The latest request of each writer, to recognise duplicates. Pure."""

from collections.abc import Sequence

from drover_status_store.core.events import WriteOutcome

WRITER_COUNT_MAX = 10_000


class Writers:
    """The number and outcomes of each writer's last request.

    Beyond ``max_count`` the writer that has been silent longest is removed. After a restart the
    numbers are restored from the log, the outcomes are not: a duplicate is then decided again.
    """

    def __init__(self, max_count: int = WRITER_COUNT_MAX) -> None:
        self._max_count = max_count
        self._last: dict[str, tuple[int, Sequence[WriteOutcome] | None]] = {}

    def is_stale(self, writer: str, number: int) -> bool:
        """Whether a later request of the same writer was seen."""
        return number < self._number(writer)

    def outcomes(self, writer: str, number: int) -> Sequence[WriteOutcome] | None:
        """The outcomes of the last request, if this is a duplicate of it."""
        last_number, outcomes = self._last.get(writer, (0, None))
        return outcomes if last_number == number else None

    def remember_outcomes(self, writer: str, number: int, outcomes: Sequence[WriteOutcome]) -> None:
        """Keep the outcomes of the writer's last request."""
        self._put(writer, number, outcomes)

    def forget_outcomes(self, writer: str, number: int) -> None:
        """Let a duplicate of this request be decided again: its append may have failed."""
        if self._number(writer) == number:
            self._put(writer, number, None)

    def record_seen(self, writer: str, number: int) -> None:
        """Note that the log has a record of this request."""
        if number > self._number(writer):
            self._put(writer, number, None)

    def _number(self, writer: str) -> int:
        return self._last.get(writer, (0, None))[0]

    def _put(self, writer: str, number: int, outcomes: Sequence[WriteOutcome] | None) -> None:
        self._last.pop(writer, None)
        self._last[writer] = (number, outcomes)
        if len(self._last) > self._max_count:
            del self._last[next(iter(self._last))]
