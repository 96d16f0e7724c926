"""Whether rows that are to be upserted may be taken for new ones at first."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

_FIRST_S, _LONGEST_S = 1.0, 3_600.0
_TABLES_MAX = 1_000


class NewRows:
    """Remembers the tables that had rows already.

    PostgreSQL inserts rows in half the time where it need not look for those that are there. If one
    is, it was for nothing, and the server logs an error: so the next attempt is put off for twice
    as long each time.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        #: By table: the time of the next attempt, and for how long it was put off.
        self._put_off: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def may_be(self, table: Hashable) -> bool:
        """Whether it should be tried."""
        next_s, _ = self._put_off.get(table, (0.0, 0.0))
        return self._now_s() >= next_s

    def were_there(self, table: Hashable) -> None:
        """It was tried, and rows were there."""
        _, before_s = self._put_off.pop(table, (0.0, _FIRST_S / 2))
        wait_s = min(before_s * 2, _LONGEST_S)
        self._put_off[table] = (self._now_s() + wait_s, wait_s)
        if len(self._put_off) > _TABLES_MAX:
            self._put_off.popitem(last=False)


#: Of this process, which writes many batches.
NEW_ROWS = NewRows()
