"""The page of one connector."""

import asyncio
import time
from urllib.parse import urlencode

import structlog

from drover.errors import DroverError, NotFoundError, UnauthenticatedError
from drover_gateway.console import connector_page as html
from drover_gateway.console.connector_config_page import config_html
from drover_gateway.console.connector_figures_page import figures_html
from drover_gateway.console.connector_history import HistoryPages
from drover_gateway.console.connector_offsets import OffsetsPages
from drover_gateway.console.connectors import decoded_name
from drover_gateway.console.frame import CONNECTOR, CONNECTORS, LIVE, notice, page
from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.http import Form, PageError, Response
from drover_gateway.console.links import connector_url, dead_letters_url
from drover_gateway.console.pages import Context, Pages, Request, redirect
from drover_gateway.console.rights import ReadRights
from drover_gateway.views import View

#: The page is shown with what the gateway has in memory if a worker needs longer.
_STATUS_TIMEOUT_S = 5.0

_log = structlog.get_logger("drover.gateway.console")


class ConnectorPages(Pages):
    """One connector: its tabs, and the restart of a task."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._offsets = OffsetsPages(context)
        self._history = HistoryPages(context)
        self.routes = {
            **self._history.routes,
            **self._offsets.routes,
            ("GET", CONNECTOR): self._connector,
            ("POST", html.RESTART_TASK): self._confirm_restart,
            ("POST", html.RESTART_TASK_RUN): self._restart,
        }
        self.live_pages = {"connector": _live}

    async def _connector(self, request: Request) -> Response:
        name = _name(request.query)
        tab = request.query.one("tab") or "overview"
        match tab:
            case "overview":
                return await self._overview(request, name)
            case "config":
                return await self._config(request, name)
            case "offsets":
                content = await self._offsets.tab(request, name)
                return tab_response(request, name, "offsets", content)
            case "history":
                content = await self._history.tab(request, name)
                return tab_response(request, name, "history", content)
            case "topics":
                return await self._topics(request, name)
            case "dead-letters":
                return redirect(dead_letters_url(name))
        raise PageError(404, "There is no such tab", f"Tabs are {', '.join(html.TABS)}.")

    async def _overview(self, request: Request, name: str) -> Response:
        view = await self._context.views.opened(request.caller)
        version = view.version
        seen, figures = await asyncio.gather(_seen(view, name), _figures(view, name))
        if seen is None:
            return _no_connector(request, name)
        content = html.overview_html(request.visit, seen, figures, version, _now_ms())
        live = f"{LIVE}?{urlencode({'page': 'connector', 'name': name})}"
        return tab_response(request, name, "overview", content, live=live)

    async def _config(self, request: Request, name: str) -> Response:
        client = self._context.client(request)
        connector = await client.get_connector(name)
        keys, fault = [], ""
        try:
            class_name = connector.config.get("connector.class", "").strip()
            keys = list((await client.get_plugin(class_name)).config_keys)
        except UnauthenticatedError:
            raise
        except DroverError as error:
            fault = error.message
        return tab_response(request, name, "config", config_html(connector, keys, fault))

    async def _topics(self, request: Request, name: str) -> Response:
        topics = await self._context.client(request).get_connector_topics(name)
        return tab_response(request, name, "topics", html.topics_html(name, topics))

    async def _confirm_restart(self, request: Request) -> Response:
        name, task = decoded_name(request.form.one("name")), _task(request.form)
        request.visit.rights.demand("RestartTask", name)
        status = await self._context.client(request).get_connector_status(name)
        state = html.task_state(status, task)
        if state is None:
            raise PageError(
                404,
                "There is no such task",
                f"The connector has {len(status.tasks)} tasks, numbered from 0.",
            )
        content = html.restart_task_html(request.visit, name, task, state.value)
        return Response(page(request.visit, "Restart task?", content, current=CONNECTORS))

    async def _restart(self, request: Request) -> Response:
        name, task = decoded_name(request.form.one("name")), _task(request.form)
        await self._context.client(request).restart_task(name, task)
        _log.info("a task restarts", connector=name, task=task)
        content = join(
            tag("p", f"Task {task} restarts.", class_="good", role="status"),
            tag("p", tag("a", "Back to ", tag("bdi", name), href=connector_url(name))),
        )
        return Response(page(request.visit, "Restart task", content, current=CONNECTORS))


class ConnectorLive:
    """What changes on the page of a connector: only the parts that differ are sent."""

    #: Steps of tasks are in no view: they are read again after this time.
    every_s = 5.0
    _PAUSE_S = 1.0
    _FIGURES_EVERY_S = 10.0

    def __init__(self, name: str, rights: ReadRights) -> None:
        self._name = name
        self._rights = rights
        self._sent: dict[str, Html] = {}
        self._read_s = 0.0
        self._figures_read_s = 0.0

    async def start(self, view: View) -> None:
        """See ``LivePage``."""

    async def update(self, view: View, changed: list[str]) -> Html:
        """See ``LivePage``."""
        now_s = asyncio.get_running_loop().time()
        is_due = now_s - self._read_s >= self.every_s
        if not (is_due or not changed or self._name in changed):
            return Html("")
        # a connector whose counts change all the time is read once a second
        await asyncio.sleep(max(0.0, self._read_s + self._PAUSE_S - now_s))
        self._read_s = asyncio.get_running_loop().time()
        seen = await _seen(view, self._name)
        if seen is None:
            parts = html.removed_parts(self._name)
        else:
            parts = html.live_parts(seen, _now_ms())
            parts |= html.buttons_part(seen.row, await self._rights())
        if self._read_s - self._figures_read_s >= self._FIGURES_EVERY_S and seen is not None:
            self._figures_read_s = self._read_s
            parts["c-figures"] = html.figures_part(await _figures(view, self._name))
        fresh = [each for key, each in parts.items() if self._sent.get(key) != each]
        self._sent |= parts
        return join(*fresh)


def _live(query: Form, rights: ReadRights) -> ConnectorLive:
    return ConnectorLive(query.one("name"), rights)


async def _seen(view: View, name: str) -> html.Seen | None:
    """A connector as it is now; without activities if no worker answers; None if there is none."""
    try:
        status = await view.client.get_connector_status(name, timeout_s=_STATUS_TIMEOUT_S)
    except UnauthenticatedError:
        raise
    except NotFoundError:
        return None
    except DroverError as error:
        known = view.status_message(name)
        if known is None:
            raise
        return html.Seen(known, view.connector(name), error.message)
    return html.Seen(status, view.connector(name))


async def _figures(view: View, name: str) -> Html:
    """The section with the figures, or why there are none."""
    try:
        found = await view.client.get_connector_figures(name, timeout_s=_STATUS_TIMEOUT_S)
    except UnauthenticatedError:
        raise
    except DroverError as error:
        return figures_html(name, None, error.message)
    return figures_html(name, found, "")


def tab_response(
    request: Request, name: str, tab: str, content: Html, *, live: str = ""
) -> Response:
    """A tab of a connector."""
    parts = join(html.tabs_html(request.visit, name, tab), content)
    return Response(page(request.visit, name, parts, current=CONNECTORS, live=live))


def _name(query: Form) -> str:
    name = query.one("name")
    if not name:
        raise PageError(
            400, "No connector is named", "The address needs the name of one: /ui/connector?name=…"
        )
    return name


def _task(form: Form) -> int:
    text = form.one("task")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise PageError(400, "No task is named", "A task is a number from 0.")
    return int(text)


def _no_connector(request: Request, name: str) -> Response:
    content = notice(
        "empty",
        "There is no connector with this name",
        tag("p", "It was deleted, or never created. A deleted connector has a history."),
        tag("p", tag("a", "History", href=connector_url(name, "history"))),
        tag("p", tag("a", "To the connectors", href=CONNECTORS)),
    )
    return Response(page(request.visit, name, content, current=CONNECTORS), 404)


def _now_ms() -> int:
    return int(time.time() * 1000)
