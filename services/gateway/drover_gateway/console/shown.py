"""The rows of a view, each made once for each change of its connector."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from drover_gateway.console.connectors_page import row_html
from drover_gateway.console.html import Html
from drover_gateway.console.rows import Row, State, row_of
from drover_gateway.views import View

_PIECE = 200


#: A connector whose counts have not changed for this time reads nothing.
_IDLE_S = 30.0
#: Counts are compared over this time at least.
_RATE_OVER_S = 2.0


@dataclass(frozen=True, slots=True)
class _Reading:
    """The records that a connector has read at a time, and per second before it."""

    at_s: float
    read_count: int
    per_second: float | None = None


class Shown:
    """The connectors of a view, as rows."""

    def __init__(self) -> None:
        self._readings: dict[str, _Reading] = {}
        self._version = ""
        self._rows: dict[str, Row] = {}
        self._html: dict[str, Html] = {}
        self._states: Counter[State] = Counter()
        self._failing: set[str] = set()
        # made when asked for, and kept until they change: all pages of the view have the same sets
        self._failed: frozenset[str] | None = None
        self._names: frozenset[str] | None = None

    async def update(self, view: View) -> None:
        """Take over what has changed in the view."""
        version = view.version
        for at, name in enumerate(self._outdated(view)):
            self._update(view, name)
            if at % _PIECE == _PIECE - 1:
                # lets other requests run; one of them may do the same work
                await asyncio.sleep(0)
        self._version = version

    async def rows(self, view: View) -> Sequence[Row]:
        """The rows of all connectors, by name."""
        await self.update(view)
        return [self._rows[each] for each in view.names() if each in self._rows]

    def row(self, view: View, name: str) -> Row | None:
        """The row of a connector; None if there is none."""
        if name in self._outdated(view):
            self._update(view, name)
        return self._rows.get(name)

    @property
    def names(self) -> frozenset[str]:
        """The names of all connectors."""
        if self._names is None:
            self._names = frozenset(self._rows)
        return self._names

    @property
    def failed(self) -> frozenset[str]:
        """The names of the connectors that have failed."""
        if self._failed is None:
            self._failed = frozenset(self._failing)
        return self._failed

    @property
    def states(self) -> Mapping[State, int]:
        """The number of connectors in each state."""
        return {each: self._states[each] for each in State}

    def html(self, row: Row) -> Html:
        """A row as HTML."""
        if self._rows.get(row.name) is not row:
            return row_html(row)
        text = self._html.get(row.name)
        if text is None:
            text = self._html[row.name] = row_html(row)
        return text

    def records_per_second(self) -> float | None:
        """The records that all connectors read per second; None while that is unknown."""
        now_s = asyncio.get_running_loop().time()
        known = [each for each in self._readings.values() if each.per_second is not None]
        if not known:
            return None
        return sum(each.per_second or 0.0 for each in known if now_s - each.at_s < _IDLE_S)

    def _outdated(self, view: View) -> Sequence[str]:
        changed = view.changed_since(self._version)
        return view.names() if changed is None else changed

    def _update(self, view: View, name: str) -> None:
        self._html.pop(name, None)
        status = view.status_message(name)
        connector = view.connector(name)
        row = None if status is None or connector is None else row_of(status, connector)
        old = self._rows.pop(name, None)
        if old is not None:
            self._states[old.state] -= 1
        if row is None:
            self._readings.pop(name, None)
        else:
            self._rows[name] = row
            self._states[row.state] += 1
            self._note_reading(row)
        if (old is None) != (row is None):
            self._names = None
        has_failed = row is not None and row.state is State.FAILED
        if has_failed != (name in self._failing):
            self._failing ^= {name}
            self._failed = None

    def _note_reading(self, row: Row) -> None:
        if row.read_count is None:
            return
        now_s = asyncio.get_running_loop().time()
        last = self._readings.get(row.name)
        if last is None or row.read_count < last.read_count:
            self._readings[row.name] = _Reading(now_s, row.read_count)
        elif now_s - last.at_s >= _RATE_OVER_S:
            per_second = (row.read_count - last.read_count) / (now_s - last.at_s)
            self._readings[row.name] = _Reading(now_s, row.read_count, per_second)


class ShownViews:
    """What is shown of each view, until the view ends."""

    def __init__(self) -> None:
        self._shown: WeakKeyDictionary[View, Shown] = WeakKeyDictionary()

    def of(self, view: View) -> Shown:
        """What is shown of a view."""
        shown = self._shown.get(view)
        if shown is None:
            shown = self._shown[view] = Shown()
        return shown
