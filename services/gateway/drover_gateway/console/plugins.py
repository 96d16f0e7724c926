"""The plugins: which there are on which workers, and their settings."""

from collections.abc import AsyncIterator, Sequence

import structlog

from drover.errors import DroverError
from drover_gateway.console import plugin_page, plugins_page
from drover_gateway.console.frame import PLUGIN, PLUGINS, encoded, page, page_ends
from drover_gateway.console.http import PageError, Response
from drover_gateway.console.pages import Context, Pages, Request

_TIMEOUT_S = 20.0
#: Covers the start of a new engine and the restart of all connectors and tasks of a worker.
_RELOAD_TIMEOUT_S = 600.0

_log = structlog.get_logger("drover.gateway.console")


class PluginsPages(Pages):
    """The list of plugins, one plugin, and reloading them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {
            ("GET", PLUGINS): self._list,
            ("GET", PLUGIN): self._plugin,
            ("POST", plugins_page.CONFIRM): self._confirm,
            ("POST", plugins_page.RUN): self._run,
        }

    async def _list(self, request: Request) -> Response:
        found = await self._context.client(request).list_plugins(timeout_s=_TIMEOUT_S)
        text = request.query.one("q").strip()
        content = plugins_page.plugins_html(request.visit, found, text)
        return Response(page(request.visit, "Plugins", content, current=PLUGINS))

    async def _plugin(self, request: Request) -> Response:
        class_name = request.query.one("class").strip()
        if not class_name:
            raise PageError(400, "Which plugin?", "The address needs class=CLASS.")
        client = self._context.client(request)
        found = await client.get_plugin(class_name, timeout_s=_TIMEOUT_S)
        listing = await client.list_plugins(timeout_s=_TIMEOUT_S)
        content = plugin_page.plugin_html(request.visit, found, listing)
        title = plugin_page.title_of(found) or class_name
        return Response(page(request.visit, title, content, current=PLUGINS))

    async def _confirm(self, request: Request) -> Response:
        request.visit.rights.demand("ReloadPlugins")
        found = await self._context.client(request).list_plugins(timeout_s=_TIMEOUT_S)
        worker_id = request.form.one("worker")
        if worker_id and worker_id not in found.worker_ids:
            raise PageError(
                404, "The worker does not answer", f"{worker_id} lists no plugins at present."
            )
        content = plugins_page.confirm_html(request.visit, found, worker_id)
        return Response(page(request.visit, "Reload the plugins?", content, current=PLUGINS))

    async def _run(self, request: Request) -> Response:
        worker_ids = request.form.all("worker")
        request.visit.rights.demand("ReloadPlugins")
        if not worker_ids:
            raise PageError(400, "No worker is selected", "Select a worker in the list first.")
        everything = request.form.one("all") == "yes"
        return Response(self._results(request, worker_ids, everything=everything))

    async def _results(
        self, request: Request, worker_ids: Sequence[str], *, everything: bool
    ) -> AsyncIterator[bytes]:
        """The page with the results, each line as soon as the worker has reloaded."""
        start, end = page_ends(request.visit, "Reload of the plugins", current=PLUGINS)
        yield encoded(start, '<ul class="lines results">')
        client = self._context.client(request)
        failed_count = 0
        for worker_id in worker_ids:
            try:
                done = await client.reload_plugins(
                    worker_id, everything=everything, timeout_s=_RELOAD_TIMEOUT_S
                )
            except DroverError as error:
                failed_count += 1
                yield encoded(plugins_page.failed_line(worker_id, error))
            else:
                yield encoded(plugins_page.result_line(done))
        _log.info("plugins were reloaded", workers=len(worker_ids), failed=failed_count)
        rest = plugins_page.results_end(len(worker_ids) - failed_count, failed_count)
        yield encoded("</ul>", rest, end)
