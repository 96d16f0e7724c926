"""The audit events of all workers."""

import time

from drover_gateway.console import audit_page
from drover_gateway.console.audit_page import AuditFilters
from drover_gateway.console.frame import AUDIT, page
from drover_gateway.console.http import Response
from drover_gateway.console.pages import Context, Pages, Request

_TIMEOUT_S = 10.0


class AuditPages(Pages):
    """Who called what, and with which outcome."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {("GET", AUDIT): self._list}

    async def _list(self, request: Request) -> Response:
        filters = AuditFilters.read(request.query)
        now_ms = int(time.time() * 1000)
        found = await self._context.client(request).list_audit_events(
            filters.request(now_ms), timeout_s=_TIMEOUT_S
        )
        content = audit_page.audit_html(filters, found)
        return Response(page(request.visit, "Audit", content, current=AUDIT))
