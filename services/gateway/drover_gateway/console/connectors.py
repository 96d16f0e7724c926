"""The list of connectors, and actions on many of them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from urllib.parse import quote, unquote_to_bytes, urlencode

import structlog

from drover_gateway.console import connectors_page
from drover_gateway.console.actions import ACTIONS, DELETE, Action, effect_of, run, without_role
from drover_gateway.console.frame import CONNECTORS, LIVE, encoded, page, page_ends
from drover_gateway.console.html import join
from drover_gateway.console.http import Form, PageError, Response, query_of
from drover_gateway.console.last_state import last_state_html
from drover_gateway.console.live_pages import ConnectorsLive
from drover_gateway.console.pages import Context, Pages, Request
from drover_gateway.console.rights import ReadRights
from drover_gateway.console.rows import Filters

_log = structlog.get_logger("drover.gateway.console")


class ConnectorsPages(Pages):
    """The list, the effects of an action before it, and its results."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {
            ("GET", CONNECTORS): self._connectors,
            ("POST", connectors_page.CONFIRM): self._confirm,
            ("POST", connectors_page.RUN): self._run,
        }
        self.live_pages = {"connectors": self._live}

    async def _connectors(self, request: Request) -> Response:
        filters = Filters.read(request.query.fields)
        view, last = await self._context.views.opened_or_last(request.caller)
        shown = self._context.shown.of(view)
        version = view.version
        rows = await shown.rows(view)
        results = await connectors_page.results_html(
            request.visit, filters, rows, version, shown.html
        )
        if request.query.one("part") == "results":
            return Response(encoded(results))
        content = join(
            last_state_html(last, request.visit.url),
            connectors_page.filters_html(request.visit, filters, shown.summary()),
            results,
        )
        live = f"{LIVE}?{urlencode({'page': 'connectors'})}"
        return Response(page(request.visit, "Connectors", content, current=CONNECTORS, live=live))

    async def _confirm(self, request: Request) -> Response:
        action = _action(request.form)
        rights = request.visit.rights
        rights.demand_for_some(action.rpc)
        query = _filter_query(request.form)
        view = await self._context.views.opened(request.caller)
        shown = self._context.shown.of(view)
        # otherwise each name is searched in all connectors
        await shown.refresh(view)
        if request.form.one("every"):
            found = Filters.read(_fields(query)).sorted(await shown.rows(view))
            names = [each.name for each in found]
        else:
            names = _names(request.form)
        effects = []
        for name in names:
            connector = view.connector(name)
            config = None if connector is None else connector.config
            row = shown.row(view, name)
            effect = effect_of(action, name, row, config)
            if row is not None and not rights.may(action.rpc, name):
                effect = without_role(action, effect)
            effects.append(effect)
        title = f"{action.label}?"
        origin = _origin(request.form)
        content = connectors_page.confirm_html(request.visit, action, effects, origin)
        return Response(page(request.visit, title, content, current=CONNECTORS))

    async def _run(self, request: Request) -> Response:
        action = _action(request.form)
        names = _names(request.form)
        if not names:
            raise PageError(400, "Nothing is selected", "Select connectors in the list first.")
        rights = request.visit.rights
        if not any(rights.may(action.rpc, each) for each in names):
            rights.demand(action.rpc, names[0])
        return Response(self._results(request, action, names))

    async def _results(
        self, request: Request, action: Action, names: Sequence[str]
    ) -> AsyncIterator[bytes]:
        """The page with the results, each line as soon as it is known."""
        title = f"{action.label}: {len(names):,}"
        start, end = page_ends(request.visit, title, current=CONNECTORS)
        yield encoded(start, '<ul class="lines results">')
        origin = _origin(request.form)
        failures: list[str] = []
        async for result in run(self._context.client(request), action, names):
            if result.error:
                failures.append(result.name)
            yield encoded(connectors_page.result_line(action, result))
        _log.info(
            "an action on connectors is complete",
            action=action.key,
            connectors=len(names),
            failed=len(failures),
        )
        rest = connectors_page.results_end(
            len(names) - len(failures),
            failures,
            action,
            # the page of a deleted connector has nothing but its history
            replace(origin, connector="") if action.key == DELETE.key else origin,
            request.visit,
        )
        yield encoded("</ul>", rest, end)

    def _live(self, query: Form, rights: ReadRights) -> ConnectorsLive:
        return ConnectorsLive(self._context.shown)


def _origin(form: Form) -> connectors_page.Origin:
    of = decoded_name(form.one("of"))
    return connectors_page.Origin(_filter_query(form), of, form.one("tab") == "offsets")


def _action(form: Form) -> Action:
    action = ACTIONS.get(form.one("action"))
    if action is None:
        raise PageError(400, "Unknown action", f"An action is one of {', '.join(ACTIONS)}.")
    return action


def _names(form: Form) -> list[str]:
    """The connectors of a form, each once."""
    return list(dict.fromkeys(decoded_name(each) for each in form.all("name")))


def decoded_name(value: str) -> str:
    """The name of a connector in a field of a form."""
    try:
        return unquote_to_bytes(value).decode("utf-8")
    except ValueError:
        raise PageError(400, "The request cannot be read", "A name is not UTF-8.") from None


def _filter_query(form: Form) -> str:
    """The filters of the list from which a form comes, as a query."""
    return urlencode(Filters.read(_fields(form.one("filter"))).fields())


def _fields(query: str) -> Sequence[tuple[str, str]]:
    return query_of({"query_string": quote(query, safe="=&%+").encode("ascii")}).fields
