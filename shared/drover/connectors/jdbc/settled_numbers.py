"""Up to which number no row can come any more, though numbers are given before rows are committed.

A transaction takes a number, writes its row, and commits a while later: rows with higher numbers
may be seen before. When every transaction has ended that was writing at the time when a number was
seen, all lower numbers are settled: their rows are there, or will never be.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

#: So many highest numbers wait at the same time; more come when some of them are settled.
_WAITING_MAX = 16
# Whoever writes rows holds this lock from before it takes a number to its end; prepared
# transactions too.
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
    """A number that was the highest one, and who wrote then."""

    highest: int
    writers: frozenset[str]
    seen_s: float


class SettledNumbers:
    """Finds out up to which number rows are settled.

    Args:
        writers: Who writes now, by names that are not used again soon.
        delay_ms: What is waited for besides, for writers that cannot be seen.
        now_s: A clock that never goes back.
    """

    def __init__(
        self, writers: Writers, delay_ms: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._writers = writers
        self._delay_s = delay_ms / 1000
        self._now_s = now_s
        self._waiting: list[_Waiting] = []

    def look(self, connection: "sa.Connection", highest: int) -> int | None:
        """The highest number that is known to be settled; None for none.

        Args:
            connection: A session that sees what is committed.
            highest: The highest number of all rows, seen before this call.
        """
        writers, now_s = self._writers(connection), self._now_s()
        waiting = self._waiting
        if len(waiting) < _WAITING_MAX and (not waiting or highest > waiting[-1].highest):
            waiting.append(_Waiting(highest, writers, now_s))
        settled = None
        # whoever holds up one holds up those behind it
        while waiting and self._is_settled(waiting[0], writers, now_s):
            settled = waiting.pop(0).highest
        return settled

    def _is_settled(self, each: _Waiting, writers: frozenset[str], now_s: float) -> bool:
        return not each.writers & writers and now_s - each.seen_s >= self._delay_s


@dataclass(frozen=True, slots=True)
class PostgresWriters:
    """The transactions that write a table, its partitions and heirs; of any table for a query.

    ``table`` is its name as SQL has it, None for a query.
    """

    table: str | None

    def __call__(self, connection: "sa.Connection") -> frozenset[str]:
        """Who writes now."""
        return frozenset(connection.exec_driver_sql(_WRITERS, {"table": self.table}).scalars())


def writers_are_seen(connection: "sa.Connection") -> bool:
    """Whether a database tells who writes: PostgreSQL, but not a standby of it."""
    if connection.dialect.name != "postgresql":
        return False
    return not connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one()


def nobody(connection: "sa.Connection") -> frozenset[str]:
    """Where writers cannot be seen."""
    return frozenset()
