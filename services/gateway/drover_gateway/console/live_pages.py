"""What is live on each page."""

from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.overview_page import live_html
from drover_gateway.console.rows import State
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
        await shown.refresh(view)
        return live_html(shown, version)


class ConnectorsLive:
    """The list of connectors: rows that changed, the numbers by state, and what is new.

    Rows keep their place while an operator reads the list.
    """

    __slots__ = ("_failed", "_names", "_new", "_newly_failed", "_removed", "_shown")

    def __init__(self, shown: ShownViews) -> None:
        self._shown = shown
        self._names: frozenset[str] = frozenset()
        self._failed: frozenset[str] = frozenset()
        #: The connectors that differ from what the page showed at first.
        self._newly_failed: set[str] = set()
        self._new: set[str] = set()
        self._removed: set[str] = set()

    async def start(self, view: View) -> None:
        """The page shows the view as it is now."""
        shown = self._shown.of(view)
        await shown.refresh(view)
        self._names, self._failed = shown.names(view), shown.failed_names()
        for each in (self._newly_failed, self._new, self._removed):
            each.clear()

    async def update(self, view: View, changed: list[str]) -> Html:
        """See ``LivePage``."""
        shown = self._shown.of(view)
        await shown.refresh(view)
        changes = shown.changes(view, changed)
        for name, row in changes.rows.items():
            has_failed = row is not None and row.state is State.FAILED
            _keep(self._newly_failed, name, has_failed and name not in self._failed)
            _keep(self._new, name, row is not None and name not in self._names)
            _keep(self._removed, name, row is None and name in self._names)
        news = {
            "newly failed": len(self._newly_failed),
            "new": len(self._new),
            "removed": len(self._removed),
        }
        text = ", ".join(f"{count:,} {what}" for what, count in news.items() if count)
        link = tag("a", "Show the list as it is now", href="", data_reload=True)
        line = tag("p", *((f"{text}. ", link) if text else ()), id="news", role="status")
        return join([changes.html, line])


def _keep(names: set[str], name: str, is_member: bool) -> None:
    if is_member:
        names.add(name)
    else:
        names.discard(name)
