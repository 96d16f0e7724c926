"""What is live on each page."""

from drover_gateway.console.connectors_page import removed_row_html
from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.overview_page import live_html
from drover_gateway.console.shown import ShownViews
from drover_gateway.views import View


class OverviewLive:
    """The numbers and the failed connectors of the first page."""

    def __init__(self, shown: ShownViews) -> None:
        self._shown = shown

    async def start(self, view: View) -> None:
        """See ``LivePage``."""

    async def update(self, view: View, changed: list[str]) -> Html:
        """See ``LivePage``."""
        shown = self._shown.of(view)
        version = view.version
        rows = await shown.rows(view)
        return live_html(rows, version, shown.records_per_second())


class ConnectorsLive:
    """The list of connectors: rows that changed, the numbers by state, and what is new.

    Rows keep their place while an operator reads the list.
    """

    def __init__(self, shown: ShownViews) -> None:
        self._shown = shown
        self._names: frozenset[str] = frozenset()
        self._failed: frozenset[str] = frozenset()

    async def start(self, view: View) -> None:
        """The page shows the view as it is now."""
        shown = self._shown.of(view)
        await shown.update(view)
        self._names, self._failed = shown.names, shown.failed

    async def update(self, view: View, changed: list[str]) -> Html:
        """See ``LivePage``."""
        shown = self._shown.of(view)
        await shown.update(view)
        parts = []
        for name in changed:
            row = shown.row(view, name)
            parts.append(removed_row_html(name) if row is None else shown.html(row))
        counts = shown.states.items()
        parts += [tag("b", f"{count:,}", id=f"n-{state}") for state, count in counts]
        news = {
            "newly failed": _added(self._failed, shown.failed),
            "new": _added(self._names, shown.names),
            "removed": _added(shown.names, self._names),
        }
        text = ", ".join(f"{count:,} {what}" for what, count in news.items() if count)
        link = tag("a", "Show the list as it is now", href="", data_reload=True)
        parts.append(tag("p", *((f"{text}. ", link) if text else ()), id="news", role="status"))
        return join(parts)


def _added(before: frozenset[str], after: frozenset[str]) -> int:
    # the same set as long as no connector was added or removed
    return 0 if before is after else len(after - before)
