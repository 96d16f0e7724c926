"""The console as an ASGI application: who calls, which page, and what is shown if it fails."""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes, urlencode

import structlog

from drover.client import ConnectClient
from drover.errors import DroverError, PermissionDeniedError, Reason, UnauthenticatedError
from drover.rpc.logs import current_request_id
from drover_gateway.console import connectors_page, sign_in_page
from drover_gateway.console.actions import ACTIONS, Action, effect_of, run
from drover_gateway.console.frame import (
    CONNECTORS,
    FORM_TOKEN,
    HOME,
    LIVE,
    SIGN_IN,
    SIGN_OUT,
    THEME,
    THEMES,
    Visit,
    encoded,
    notice,
    page,
    page_ends,
)
from drover_gateway.console.graph import graph_of
from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.http import (
    ClientGoneError,
    Form,
    PageError,
    Response,
    cookies_of,
    form_of,
    query_of,
    send_response,
)
from drover_gateway.console.live import LivePage, Streams, until_end, updates
from drover_gateway.console.live_pages import ConnectorsLive, OverviewLive
from drover_gateway.console.overview_page import Cluster, live_html, overview_html
from drover_gateway.console.rows import Filters, summary_of
from drover_gateway.console.sessions import TOKEN_MAX_CHARS, Session, Sessions
from drover_gateway.console.shown import ShownViews
from drover_gateway.console.static_files import PREFIX, STATIC_FILES
from drover_gateway.console.topics import Topics
from drover_gateway.identity.credentials import Caller, is_token
from drover_gateway.rest.errors import STATUSES
from drover_gateway.server import Receive, Scope, Send
from drover_gateway.views import View, Views
from drover_gateway.workers import Workers

ROOT = b"/ui"
STREAM_PATH = LIVE.encode()
_THEME_COOKIE = "drover-theme"
_YEAR_S = 365 * 24 * 3600
_SIGN_IN_TIMEOUT_S = 10.0
_CLUSTER_TIMEOUT_S = 5.0
#: A page that shows an error of the cluster is loaded again after this time.
_REFRESH_S = 5
_LOCAL = re.compile(r"/ui/[!-~]*")
_TITLES: Mapping[int, str] = {
    400: "The request cannot be carried out",
    403: "You may not see this",
    404: "There is no such thing",
    409: "Another user changed it",
    429: "Too much at a time",
    503: "The cluster does not answer",
}

_log = structlog.get_logger("drover.gateway.console")


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page.

    Attributes:
        scope: The ASGI scope.
        path: The path, decoded.
        visit: Who asks.
        caller: The caller, for the workers.
        query: The query.
        form: The submitted form; empty for GET.
        secure: Whether the connection is encrypted.
    """

    scope: Scope
    path: str
    visit: Visit
    caller: Caller
    query: Form
    form: Form
    secure: bool


Handler = Callable[[Request], Awaitable[Response]]


class ConsoleApplication:
    """Pages for operators. Each request acts with the token of its session and no other right.

    Args:
        workers: The workers.
        views: The connectors that each caller may see.
        sessions: The sessions.
        stopping: Set when the process stops: open streams end.
    """

    def __init__(
        self, workers: Workers, views: Views, sessions: Sessions, stopping: asyncio.Event
    ) -> None:
        self._workers = workers
        self._views = views
        self._sessions = sessions
        self._stopping = stopping
        self._shown = ShownViews()
        self._topics = Topics()
        self._streams = Streams()
        self._pages: Mapping[tuple[str, str], Handler] = {
            ("GET", HOME): self._home,
            ("GET", CONNECTORS): self._connectors,
            ("POST", connectors_page.CONFIRM): self._confirm,
            ("POST", connectors_page.RUN): self._run,
            ("GET", SIGN_IN): self._show_sign_in,
            ("POST", SIGN_IN): self._sign_in,
            ("POST", SIGN_OUT): self._sign_out,
            ("POST", THEME): self._set_theme,
        }
        self._paths = frozenset(path for _, path in self._pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; ``scope`` is of type http."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        is_head = scope["method"] == "HEAD"
        try:
            path = unquote_to_bytes(scope.get("raw_path") or b"").decode("utf-8")
        except ValueError:
            path = ""
        if path.startswith(PREFIX):
            await send_response(_static(path, method), send, receive, is_head=is_head)
            return
        secure = scope.get("scheme") == "https"
        visit, is_new = self._visit(scope, secure=secure)
        if path == LIVE and method == "GET" and not is_head:
            await self._live(scope, receive, send, visit)
            return
        try:
            response = await self._answer(scope, receive, path, method, visit, is_new=is_new)
        except ClientGoneError:
            return
        if is_new and not any(name == "set-cookie" for name, _ in response.headers):
            response = _with_cookies(response, self._sessions.cookies(visit.session, secure=secure))
        await send_response(response, send, receive, is_head=is_head)

    def _visit(self, scope: Scope, *, secure: bool) -> tuple[Visit, bool]:
        """Who asks, and whether a session begins."""
        cookies = cookies_of(scope["headers"])
        session = self._sessions.read(cookies, time.time(), secure=secure)
        is_new = session is None
        theme = cookies.get(_THEME_COOKIE, "")
        url = (scope.get("raw_path") or b"").decode("ascii", "replace")
        if scope["method"] == "POST":
            url = CONNECTORS
        elif scope.get("query_string"):
            url += f"?{scope['query_string'].decode('ascii', 'replace')}"
        visit = Visit(
            session=session or self._sessions.new("", time.time()),
            sessions=self._sessions,
            theme=theme if theme in THEMES else THEMES[0],
            url=url,
        )
        return visit, is_new

    async def _answer(
        self, scope: Scope, receive: Receive, path: str, method: str, visit: Visit, *, is_new: bool
    ) -> Response:
        try:
            if path == "/ui":
                return _redirect(HOME)
            handler = self._pages.get((method, path))
            if handler is None:
                raise _no_page(known=path in self._paths)
            form = Form()
            if method == "POST":
                form = await form_of(scope, receive)
                token = form.one(FORM_TOKEN)
                if is_new or not self._sessions.accepts_form(visit.session, path, token):
                    raise PageError(
                        403,
                        "The form is no longer valid",
                        "Its session has ended. Nothing was changed: load the page again, and"
                        " submit the form there.",
                    )
            request = Request(
                scope=scope,
                path=path,
                visit=visit,
                caller=_caller(scope, visit.session),
                query=query_of(scope),
                form=form,
                secure=scope.get("scheme") == "https",
            )
            return await handler(request)
        except PageError as error:
            content = notice("error", error.title, tag("p", error.message), _home_link())
            return Response(page(visit, error.title, content), error.status)
        except UnauthenticatedError:
            return self._refused(visit, method, secure=scope.get("scheme") == "https")
        except DroverError as error:
            return _failed(visit, method, error)

    def _client(self, request: Request) -> ConnectClient:
        return self._workers.client(request.caller)

    def _refused(self, visit: Visit, method: str, *, secure: bool) -> Response:
        """The workers do not accept the token: ask for another one."""
        fields = {"refused": "yes"} if visit.is_signed_in else {}
        if method == "GET":
            fields["next"] = visit.url
        cookies = self._sessions.removal(secure=secure) if visit.is_signed_in else []
        target = f"{SIGN_IN}?{urlencode(fields)}" if fields else SIGN_IN
        return _with_cookies(_redirect(target), cookies)

    # pages

    async def _home(self, request: Request) -> Response:
        view = await self._views.opened(request.caller)
        shown = self._shown.of(view)
        version = view.version
        rows = await shown.rows(view)
        client = self._client(request)
        try:
            cluster = Cluster(await client.get_cluster_info(timeout_s=_CLUSTER_TIMEOUT_S))
        except UnauthenticatedError:
            raise
        except DroverError as error:
            cluster = Cluster(fault=error.message)
        topics = await self._topics.of(view, client)
        live = live_html(rows, version, shown.records_per_second())
        content = overview_html(rows, live, cluster, graph_of(rows, topics))
        url = f"{LIVE}?{urlencode({'page': 'overview'})}"
        return Response(page(request.visit, "Overview", content, current=HOME, live=url))

    async def _connectors(self, request: Request) -> Response:
        filters = Filters.read(request.query.fields)
        view = await self._views.opened(request.caller)
        shown = self._shown.of(view)
        version = view.version
        rows = await shown.rows(view)
        results = await connectors_page.results_html(
            request.visit, filters, rows, version, shown.html
        )
        if request.query.one("part") == "results":
            return Response(encoded(results))
        content = join(connectors_page.filters_html(filters, summary_of(rows)), results)
        live = f"{LIVE}?{urlencode({'page': 'connectors'})}"
        return Response(page(request.visit, "Connectors", content, current=CONNECTORS, live=live))

    async def _confirm(self, request: Request) -> Response:
        action = _action(request.form)
        query = _filter_query(request.form)
        view = await self._views.opened(request.caller)
        shown = self._shown.of(view)
        if request.form.one("every"):
            found = Filters.read(_fields(query)).sorted(await shown.rows(view))
            names = [each.name for each in found]
        else:
            names = _names(request.form)
        effects = []
        for name in names:
            connector = view.connector(name)
            config = None if connector is None else connector.config
            effects.append(effect_of(action, name, shown.row(view, name), config))
        title = f"{action.label}?"
        content = connectors_page.confirm_html(request.visit, action, effects, query)
        return Response(page(request.visit, title, content, current=CONNECTORS))

    async def _run(self, request: Request) -> Response:
        action = _action(request.form)
        names = _names(request.form)
        if not names:
            raise PageError(400, "Nothing is selected", "Select connectors in the list first.")
        return Response(self._results(request, action, names))

    async def _results(
        self, request: Request, action: Action, names: Sequence[str]
    ) -> AsyncIterator[bytes]:
        """The page with the results, each line as soon as it is known."""
        title = f"{action.label}: {len(names):,}"
        start, end = page_ends(request.visit, title, current=CONNECTORS)
        yield encoded(start, '<ul class="lines results">')
        failures: list[str] = []
        async for result in run(self._client(request), action, names):
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
            _filter_query(request.form),
            request.visit,
        )
        yield encoded("</ul>", rest, end)

    async def _show_sign_in(self, request: Request) -> Response:
        query = request.query
        target = _local(query.one("next"))
        return Response(
            sign_in_page.sign_in(
                request.visit,
                target,
                error=sign_in_page.REFUSED if query.one("refused") else "",
                secure=request.secure,
            )
        )

    async def _sign_in(self, request: Request) -> Response:
        token = request.form.one("token").strip().removeprefix("Bearer ").strip()
        target = _local(request.form.one("next"))
        error, status = "", 200
        if not token or not is_token(token) or len(token) > TOKEN_MAX_CHARS:
            error, status = sign_in_page.NO_TOKEN, 400
        else:
            caller = Caller(token, request.caller.author, request.caller.host)
            try:
                client = self._workers.client(caller)
                await client.get_cluster_info(timeout_s=_SIGN_IN_TIMEOUT_S)
            except UnauthenticatedError:
                error, status = sign_in_page.REFUSED, 401
            except PermissionDeniedError:
                # a known caller without a role: the pages name the missing one
                pass
            except DroverError as failure:
                error, status = f"The token could not be checked: {failure.message}", 503
        if error:
            body = sign_in_page.sign_in(request.visit, target, error=error, secure=request.secure)
            return Response(body, status)
        # a new session: a value that was set before the sign-in is not kept
        session = self._sessions.new(token, time.time())
        cookies = self._sessions.cookies(session, secure=request.secure)
        return _with_cookies(_redirect(target), cookies)

    async def _sign_out(self, request: Request) -> Response:
        return _with_cookies(_redirect(SIGN_IN), self._sessions.removal(secure=request.secure))

    async def _set_theme(self, request: Request) -> Response:
        theme = request.form.one("theme")
        if theme not in THEMES:
            raise PageError(400, "Unknown colours", f"Colours are one of {', '.join(THEMES)}.")
        rules = f"Path=/ui; Max-Age={_YEAR_S}; SameSite=Lax{'; Secure' if request.secure else ''}"
        target = _local(request.form.one("next"))
        return _with_cookies(_redirect(target), [f"{_THEME_COOKIE}={theme}; {rules}"])

    # streams

    async def _live(self, scope: Scope, receive: Receive, send: Send, visit: Visit) -> None:
        caller = _caller(scope, visit.session)
        try:
            query = query_of(scope)
        except PageError as error:
            unread = Response(error.message.encode(), error.status, "text/plain; charset=utf-8")
            await send_response(unread, send, receive, is_head=False)
            return
        # a caller without a token is known by the address
        key = hashlib.sha256((caller.token or caller.host).encode()).hexdigest()
        with self._streams.place(visit.session.id, key) as replaced:
            if replaced is None:
                text = "too many pages are open: close some, or retry later"
                busy = Response(text.encode(), 503, "text/plain; charset=utf-8")
                await send_response(busy, send, receive, is_head=False)
                return

            async def open_view() -> View:
                return await self._views.opened(caller)

            events = updates(open_view, self._live_page(query), query.one("since"))
            response = Response(
                until_end(events, replaced, self._stopping, receive, visit.session),
                content_type="text/event-stream; charset=utf-8",
                headers=(("x-accel-buffering", "no"),),
            )
            await send_response(response, send, receive, is_head=False)

    def _live_page(self, query: Form) -> LivePage:
        if query.one("page") == "overview":
            return OverviewLive(self._shown)
        return ConnectorsLive(self._shown)


def _caller(scope: Scope, session: Session) -> Caller:
    client = scope.get("client")
    host = client[0] if client else ""
    return Caller(session.token, f"console:{host}", host)


def _static(path: str, method: str) -> Response:
    found = STATIC_FILES.get(path)
    if found is None or method != "GET":
        return Response(b"not found", 404, "text/plain; charset=utf-8")
    cache = f"public, max-age={_YEAR_S}, immutable"
    return Response(found.body, 200, found.content_type, cache=cache)


def _failed(visit: Visit, method: str, error: DroverError) -> Response:
    """The page for an error of the workers."""
    status = STATUSES.get(error.reason, 500)
    if error.reason is Reason.DEADLINE_EXCEEDED:
        status = 503
    if status == 403:
        content = notice("forbidden", "The role is missing", tag("p", error.message), _home_link())
        return Response(page(visit, _TITLES[403], content), 403)
    if status == 500:
        request_id = current_request_id()
        _log.error("a page failed", reason=error.reason.value, why=error.message)
        message = f"The logs have the cause under the request id {request_id}."
        content = notice("error", "The page failed", tag("p", message), _home_link())
        return Response(page(visit, "The page failed", content), 500)
    repeats = status == 503 and method == "GET"
    content = notice(
        "error",
        "Why",
        tag("p", error.message),
        tag("p", f"The page is loaded again every {_REFRESH_S} s.") if repeats else None,
        _home_link(),
    )
    body = page(visit, _TITLES.get(status, _TITLES[400]), content)
    headers = (("refresh", str(_REFRESH_S)), ("retry-after", str(_REFRESH_S))) if repeats else ()
    return Response(body, status, headers=headers)


def _no_page(*, known: bool) -> PageError:
    if known:
        return PageError(405, "Not this way", "The page has no such method.")
    return PageError(404, "There is no such page", "The address is wrong, or the page is gone.")


def _home_link() -> Html:
    return tag("p", tag("a", "To the start", href=HOME))


def _redirect(target: str) -> Response:
    return Response(status=303, headers=(("location", target),))


def _with_cookies(response: Response, cookies: Sequence[str]) -> Response:
    headers = (*response.headers, *(("set-cookie", each) for each in cookies))
    return Response(response.body, response.status, response.content_type, headers, response.cache)


def _local(target: str) -> str:
    """A page of the console to go to; the first one for every other address."""
    return target if _LOCAL.fullmatch(target) and "\\" not in target else HOME


def _action(form: Form) -> Action:
    action = ACTIONS.get(form.one("action"))
    if action is None:
        raise PageError(400, "Unknown action", f"An action is one of {', '.join(ACTIONS)}.")
    return action


def _names(form: Form) -> list[str]:
    """The connectors of a form, each once."""
    try:
        names = [unquote_to_bytes(each).decode("utf-8") for each in form.all("name")]
    except ValueError:
        raise PageError(400, "The request cannot be read", "A name is not UTF-8.") from None
    return list(dict.fromkeys(names))


def _filter_query(form: Form) -> str:
    """The filters of the list from which a form comes, as a query."""
    return urlencode(Filters.read(_fields(form.one("filter"))).fields())


def _fields(query: str) -> Sequence[tuple[str, str]]:
    return query_of({"query_string": quote(query, safe="=&%+").encode("ascii")}).fields
