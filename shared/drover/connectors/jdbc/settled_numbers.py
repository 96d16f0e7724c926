"""Finds the number up to which all rows are visible, although numbers are assigned before commits.

A transaction takes a number, writes its row, and commits later, so rows with higher numbers may
become visible first. When all transactions that were writing when a number was seen have ended, all
lower numbers are settled: their rows are visible, or will never exist.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

#: How many highest numbers are tracked at once.
_WAITING_MAX = 16
# a writer holds this lock from before it takes a number until it ends; prepared transactions too
_WRITERS = """
WITH RECURSIVE tree AS (
    SELECT to_regclass(%(table)s)::oid AS oid
    UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid)
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (relation IN (SELECT oid FROM tree) OR %(table)s IS NULL AND relation >= 16384)
"""

Writers = Callable[["sa.Connection"], frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A number that was the highest one, and the writers at that time."""

    highest: int
    writers: frozenset[str]
    seen_s: float


class SettledNumbers:
    """Finds the number up to which rows are settled.


    Args:
        writers: Returns the current writers, by names that are not reused soon.
        delay_ms: An additional delay, for writers that cannot be seen.
        now_s: A monotonic clock.
    """

    def __init__(
        self, writers: Writers, delay_ms: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._writers = writers
        self._delay_s = delay_ms / 1000
        self._now_s = now_s
        self._waiting: list[_Waiting] = []

    def look(self, connection: "sa.Connection", highest: int) -> int | None:
        """The highest number that is settled; None if unknown.

        Args:
            connection: A session that sees committed rows.
            highest: The highest number of all rows, read before this call.
        """
        writers, now_s = self._writers(connection), self._now_s()
        waiting = self._waiting
        if len(waiting) < _WAITING_MAX and (not waiting or highest > waiting[-1].highest):
            waiting.append(_Waiting(highest, writers, now_s))
        settled = None
        # an unsettled number also holds up the later ones
        while waiting and self._is_settled(waiting[0], writers, now_s):
            settled = waiting.pop(0).highest
        return settled

    def _is_settled(self, each: _Waiting, writers: frozenset[str], now_s: float) -> bool:
        return not each.writers & writers and now_s - each.seen_s >= self._delay_s


@dataclass(frozen=True, slots=True)
class PostgresWriters:
    """The transactions that write a table, its partitions and its inheriting tables; any table for
    a query.

    ``table`` is its quoted name, None for a query.
    """

    table: str | None

    def __call__(self, connection: "sa.Connection") -> frozenset[str]:
        """The current writers."""
        return frozenset(connection.exec_driver_sql(_WRITERS, {"table": self.table}).scalars())


def writers_are_seen(connection: "sa.Connection") -> bool:
    """Whether a database shows its writers: PostgreSQL, but not a standby."""
    if connection.dialect.name != "postgresql":
        return False
    return not connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one()


def no_visible_writers(connection: "sa.Connection") -> frozenset[str]:
    """Used when writers cannot be seen."""
    return frozenset()
