"""The loggers of all workers, and the change of a level."""

import structlog

from drover_gateway.console import loggers_page
from drover_gateway.console.frame import LOGGERS, page
from drover_gateway.console.http import Form, PageError, Response
from drover_gateway.console.pages import Context, Pages, Request, redirect

_TIMEOUT_S = 10.0

_log = structlog.get_logger("drover.gateway.console")


class LoggersPages(Pages):
    """The levels on each worker, and the change of a level on all of them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {
            ("GET", LOGGERS): self._list,
            ("POST", loggers_page.CONFIRM): self._confirm,
            ("POST", loggers_page.RUN): self._run,
        }

    async def _list(self, request: Request) -> Response:
        found = await self._context.client(request).list_cluster_loggers(timeout_s=_TIMEOUT_S)
        query = request.query
        content = loggers_page.loggers_html(
            request.visit, found, query.one("q").strip(), query.one("logger"), query.one("level")
        )
        return Response(page(request.visit, "Loggers", content, current=LOGGERS))

    async def _confirm(self, request: Request) -> Response:
        request.visit.rights.demand("SetLoggerLevel")
        name, level = _change(request.form)
        found = await self._context.client(request).list_cluster_loggers(timeout_s=_TIMEOUT_S)
        content = loggers_page.confirm_html(request.visit, found, name, level)
        return Response(page(request.visit, "Set the level?", content, current=LOGGERS))

    async def _run(self, request: Request) -> Response:
        request.visit.rights.demand("SetLoggerLevel")
        name, level = _change(request.form)
        await self._context.client(request).set_logger_level(name, level, cluster_scope=True)
        _log.info("a logger's level was set", logger_name=name, logger_level=level)
        return redirect(loggers_page.changed_url(name, level))


def _change(form: Form) -> tuple[str, str]:
    name, level = form.one("logger").strip(), form.one("level").upper()
    if not name:
        raise PageError(400, "No logger is named", "Enter its name, or root.")
    if level not in loggers_page.LEVELS:
        raise PageError(
            400, "Unknown level", f"A level is one of {', '.join(loggers_page.LEVELS)}."
        )
    return name, level
