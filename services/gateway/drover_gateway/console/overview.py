"""The first page."""

from urllib.parse import urlencode

from drover.errors import DroverError, UnauthenticatedError
from drover_gateway.console.frame import HOME, LIVE, page
from drover_gateway.console.graph import configured_topics, graph_of
from drover_gateway.console.html import join
from drover_gateway.console.http import Form, Response
from drover_gateway.console.last_state import last_state_html
from drover_gateway.console.live_pages import OverviewLive
from drover_gateway.console.overview_page import Cluster, live_html, overview_html
from drover_gateway.console.pages import Context, Pages, Request
from drover_gateway.console.rights import ReadRights

_CLUSTER_TIMEOUT_S = 5.0


class OverviewPages(Pages):
    """The cluster, the graph of connectors and topics, and what has failed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {("GET", HOME): self._home}
        self.live_pages = {"overview": self._live}

    async def _home(self, request: Request) -> Response:
        view, last = await self._context.views.opened_or_last(request.caller)
        shown = self._context.shown.of(view)
        version = view.version
        rows = await shown.rows(view)
        client = self._context.client(request)
        try:
            cluster = Cluster(await client.get_cluster_info(timeout_s=_CLUSTER_TIMEOUT_S))
        except UnauthenticatedError:
            raise
        except DroverError as error:
            cluster = Cluster(fault=error.message)
        topics = dict(await self._context.topics.of(view, client))
        for row in rows:
            connector = view.connector(row.name)
            if row.kind == "sink" and connector is not None:
                topics[row.name] = topics.get(row.name) or configured_topics(connector.config)
        live = live_html(shown, version)
        content = join(
            last_state_html(last, request.visit.url),
            overview_html(request.visit, rows, live, cluster, graph_of(rows, topics)),
        )
        url = f"{LIVE}?{urlencode({'page': 'overview'})}"
        return Response(page(request.visit, "Overview", content, current=HOME, live=url))

    def _live(self, query: Form, rights: ReadRights) -> OverviewLive:
        return OverviewLive(self._context.shown)
