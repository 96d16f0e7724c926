"""What is live on each page."""

from drover_gateway.console.connectors_page import removed_row_html
from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.overview_page import live_html
from drover_gateway.console.rows import State, summary_of
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
        self._names: set[str] | None = None
        self._failed: set[str] = set()

    async def start(self, view: View) -> None:
        """The page shows the view as it is now."""
        rows = await self._shown.of(view).rows(view)
        self._names = {each.name for each in rows}
        self._failed = {each.name for each in rows if each.state is State.FAILED}

    async def update(self, view: View, changed: list[str]) -> Html:
        """See ``LivePage``."""
        shown = self._shown.of(view)
        rows = await shown.rows(view)
        by_name = {each.name: each for each in rows}
        parts = [
            shown.html(by_name[each]) if each in by_name else removed_row_html(each)
            for each in changed
        ]
        counts = summary_of(rows).states
        parts += [tag("b", f"{count:,}", id=f"n-{state}") for state, count in counts.items()]
        names = self._names or set()
        failed = {each.name for each in rows if each.state is State.FAILED}
        news = {
            "newly failed": len(failed - self._failed),
            "new": len(by_name.keys() - names),
            "removed": len(names - by_name.keys()),
        }
        text = ", ".join(f"{count:,} {what}" for what, count in news.items() if count)
        link = tag("a", "Show the list as it is now", href="", data_reload=True)
        parts.append(tag("p", *((f"{text}. ", link) if text else ()), id="news", role="status"))
        return join(parts)
