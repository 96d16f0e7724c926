"""The rebalances of the group."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_gateway.console import rebalances_page
from drover_gateway.console.frame import REBALANCES, page
from drover_gateway.console.http import Response
from drover_gateway.console.pages import Context, Pages, Request
from drover_gateway.console.rebalances_page import ROWS

_TIMEOUT_S = 10.0
_PAGE_SIZE = 200


class RebalancesPages(Pages):
    """The last rebalances on a timeline, with causes and moves."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {("GET", REBALANCES): self._list}

    async def _list(self, request: Request) -> Response:
        found = await self._all(request)
        given = request.query.one("page")
        number = int(given) if given.isascii() and given.isdecimal() and len(given) < 4 else 1
        pages = max(1, -(-len(found.rebalances) // ROWS))
        content = rebalances_page.rebalances_html(found, min(max(number, 1), pages))
        return Response(page(request.visit, "Rebalances", content, current=REBALANCES))

    async def _all(self, request: Request) -> pb.ListRebalancesResponse:
        """All that the workers keep: a bounded number, in a few pages at most."""
        client = self._context.client(request)
        found = await client.list_rebalances(page_size=_PAGE_SIZE, timeout_s=_TIMEOUT_S)
        while found.next_page_token:
            rest = await client.list_rebalances(
                page_size=_PAGE_SIZE, page_token=found.next_page_token, timeout_s=_TIMEOUT_S
            )
            found.rebalances.extend(rest.rebalances)
            found.next_page_token = rest.next_page_token
        return found
