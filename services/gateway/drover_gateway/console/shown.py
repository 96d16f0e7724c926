"""The rows of a view, each made once for each change of its connector."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from drover_gateway.console.connectors_page import removed_row_html, row_html
from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.rows import Row, RowCounts, State, Summary, Totals, row_of
from drover_gateway.views import CONNECTORS_MAX, View

_PIECE = 200


#: A connector whose counts have not changed for this time reads nothing.
_IDLE_S = 30.0
#: Counts are compared over this time at least.
_RATE_OVER_S = 2.0
#: The sum over all connectors is made again after this time: many pages show it.
_RATE_KEPT_S = 1.0


@dataclass(frozen=True, slots=True)
class _Reading:
    """The records that a connector has read at a time, and per second before it."""

    at_s: float
    read_count: int
    per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Connectors that changed, for all pages that show the same before.

    Attributes:
        rows: Their rows by name; None for a removed connector.
        html: The rows and the numbers by state: elements that replace elements of a page.
    """

    rows: Mapping[str, Row | None]
    html: Html


class _RowTexts:
    """Rows as HTML, for all views: most callers see the same rows."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Row, Html]] = {}

    def of(self, row: Row) -> Html:
        """A row as HTML."""
        kept = self._texts.get(row.name)
        if kept is not None and kept[0] == row:
            return kept[1]
        if len(self._texts) >= CONNECTORS_MAX:
            self._texts.clear()
        text = row_html(row)
        self._texts[row.name] = row, text
        return text


class Shown:
    """The connectors of a view, as rows."""

    def __init__(self, texts: _RowTexts) -> None:
        self._texts = texts
        self._readings: dict[str, _Reading] = {}
        self._version = ""
        self._rows: dict[str, Row] = {}
        self._counts = RowCounts()
        self._failed: dict[str, Row] = {}
        self._names: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())
        #: What the pages that begin now have in common; made again after a change.
        self._failed_names: frozenset[str] | None = None
        #: What pages were sent last, for which names and as of which version.
        self._changes: tuple[list[str], str, Changes] = ([], "", Changes({}, Html()))
        self._rate: float | None = None
        self._rate_s = -_RATE_KEPT_S

    async def rows(self, view: View) -> Sequence[Row]:
        """The rows of all connectors, by name."""
        await self.refresh(view)
        return [self._rows[each] for each in view.names() if each in self._rows]

    async def refresh(self, view: View) -> None:
        """Make the rows of connectors that have changed."""
        version = view.version
        for at, name in enumerate(self._outdated(view)):
            self._update(view, name)
            if at % _PIECE == _PIECE - 1:
                # lets other requests run; one of them may do the same work
                await asyncio.sleep(0)
        self._version = version

    def summary(self) -> Summary:
        """The numbers by state, type and class, after ``refresh``."""
        return self._counts.summary()

    def totals(self) -> Totals:
        """The sums over all connectors, after ``refresh``."""
        return self._counts.totals()

    def failed(self) -> Sequence[Row]:
        """The rows that have failed, after ``refresh``."""
        return [*self._failed.values()]

    def names(self, view: View) -> frozenset[str]:
        """The names of all connectors; the same object for all pages until one is new or gone."""
        names = view.names()
        if self._names[0] is not names:
            self._names = names, frozenset(names)
        return self._names[1]

    def failed_names(self) -> frozenset[str]:
        """The names of the rows that have failed; the same object until one of them changes."""
        if self._failed_names is None:
            self._failed_names = frozenset(self._failed)
        return self._failed_names

    def row(self, view: View, name: str) -> Row | None:
        """The row of a connector; None if there is none."""
        if name in self._outdated(view):
            self._update(view, name)
        return self._rows.get(name)

    def html(self, row: Row) -> Html:
        """A row as HTML."""
        return self._texts.of(row)

    def changes(self, view: View, names: list[str]) -> Changes:
        """The connectors of these names, after ``refresh``; made once for pages in step."""
        before_names, version, changes = self._changes
        if version != view.version or before_names != names:
            rows = {name: self.row(view, name) for name in names}
            parts = [
                removed_row_html(name) if row is None else self.html(row)
                for name, row in rows.items()
            ]
            counts = self.summary().states
            parts += [tag("b", f"{count:,}", id=f"n-{state}") for state, count in counts.items()]
            changes = Changes(rows, join(parts))
            self._changes = names, view.version, changes
        return changes

    def records_per_second(self) -> float | None:
        """The records that all connectors read per second; None while that is unknown."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._rate_s >= _RATE_KEPT_S:
            known = [each for each in self._readings.values() if each.per_second is not None]
            recent = (each.per_second or 0.0 for each in known if now_s - each.at_s < _IDLE_S)
            self._rate, self._rate_s = sum(recent) if known else None, now_s
        return self._rate

    def _outdated(self, view: View) -> Sequence[str]:
        changed = view.changed_since(self._version)
        return view.names() if changed is None else changed

    def _update(self, view: View, name: str) -> None:
        status = view.status_message(name)
        connector = view.connector(name)
        before = self._rows.pop(name, None)
        if before is not None:
            self._counts.remove(before)
        if self._failed.pop(name, None) is not None:
            self._failed_names = None
        if status is None or connector is None:
            self._readings.pop(name, None)
            return
        row = self._rows[name] = row_of(status, connector)
        self._counts.add(row)
        if row.state is State.FAILED:
            self._failed[name] = row
            self._failed_names = None
        self._note_reading(row)

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
        self._texts = _RowTexts()

    def of(self, view: View) -> Shown:
        """What is shown of a view."""
        shown = self._shown.get(view)
        if shown is None:
            shown = self._shown[view] = Shown(self._texts)
        return shown
