"""Decides whether to try a plain INSERT before an upsert."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

_FIRST_S, _LONGEST_S = 1.0, 3_600.0
_TABLES_MAX = 1_000


class NewRows:
    """Remembers tables in which rows already existed.

    PostgreSQL inserts rows in half the time if it need not check for existing ones. If one exists,
    the attempt is lost and the server logs an error, so the next attempt is delayed, twice as long
    each time.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        #: By table: the time of the next attempt, and the delay.
        self._put_off: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def may_be(self, table: Hashable) -> bool:
        """Whether to try a plain INSERT."""
        next_s, _ = self._put_off.get(table, (0.0, 0.0))
        return self._now_s() >= next_s

    def were_there(self, table: Hashable) -> None:
        """Record that an attempt found existing rows."""
        _, before_s = self._put_off.pop(table, (0.0, _FIRST_S / 2))
        wait_s = min(before_s * 2, _LONGEST_S)
        self._put_off[table] = (self._now_s() + wait_s, wait_s)
        if len(self._put_off) > _TABLES_MAX:
            self._put_off.popitem(last=False)


#: Shared by all batches of this process.
NEW_ROWS = NewRows()
