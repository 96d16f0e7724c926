"""The console as an ASGI application: who calls, which page, and what is shown if it fails."""

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlencode

import structlog

from drover.errors import DroverError, Reason, UnauthenticatedError, UnavailableError
from drover.rpc.logs import current_request_id
from drover_gateway.console.audit import AuditPages
from drover_gateway.console.config_form import ConfigFormPages
from drover_gateway.console.connector import ConnectorPages
from drover_gateway.console.connectors import ConnectorsPages
from drover_gateway.console.dead_letters import DeadLettersPages
from drover_gateway.console.frame import (
    CALLBACK,
    CONNECTORS,
    FORM_TOKEN,
    HOME,
    ISSUER,
    LIVE,
    SIGN_IN,
    SIGN_OUT,
    THEME,
    THEME_COOKIE,
    THEMES,
    Visit,
    notice,
    page,
)
from drover_gateway.console.html import Html, tag
from drover_gateway.console.http import (
    CONFIG_MAX_BYTES,
    FORM_MAX_BYTES,
    YEAR_S,
    ClientGoneError,
    Form,
    PageError,
    Response,
    cookies_of,
    form_of,
    query_of,
    send_response,
)
from drover_gateway.console.issuer_sign_in import IssuerSignIn
from drover_gateway.console.live import Streams, one_event, until_end, updates
from drover_gateway.console.loggers import LoggersPages
from drover_gateway.console.overview import OverviewPages
from drover_gateway.console.pages import (
    Context,
    EventPages,
    Handler,
    LivePages,
    Pages,
    Request,
    Routes,
    redirect,
    with_cookies,
)
from drover_gateway.console.plugins import PluginsPages
from drover_gateway.console.rebalances import RebalancesPages
from drover_gateway.console.renewals import Renewals
from drover_gateway.console.rights import RightsOfCallers
from drover_gateway.console.sessions import Session, Sessions
from drover_gateway.console.shown import ShownViews
from drover_gateway.console.sign_in import SignInPages
from drover_gateway.console.static_files import PREFIX, STATIC_FILES
from drover_gateway.console.topics import Topics
from drover_gateway.console.topics_pages import TopicsPages
from drover_gateway.console.workers import WorkersPages
from drover_gateway.identity.credentials import Caller
from drover_gateway.identity.oidc_values import Refusal, SignInError
from drover_gateway.rest.errors import STATUSES
from drover_gateway.server import Receive, Scope, Send
from drover_gateway.views import View, Views
from drover_gateway.workers import Workers

if TYPE_CHECKING:  # it loads cryptography, which a gateway without an issuer does not need
    from drover_gateway.identity.oidc import Oidc

ROOT = b"/ui"
STREAM_PATH = LIVE.encode()
#: Paths that act without a token, so that none is renewed for them.
_WITHOUT_TOKEN = frozenset({SIGN_IN, SIGN_OUT, ISSUER, CALLBACK, THEME})
#: A page that shows an error of the cluster is loaded again after this time.
_REFRESH_S = 5
#: A page that fails within this time is asked for again.
_AT_ONCE_S = 1.0
_TITLES: Mapping[int, str] = {
    400: "The request cannot be carried out",
    403: "You may not see this",
    404: "There is no such thing",
    409: "Another user changed it",
    429: "Too much at a time",
    503: "The cluster does not answer",
}

#: For the reasons that the REST API does not have.
_STATUSES_OF_CODES: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}

_log = structlog.get_logger("drover.gateway.console")


class ConsoleApplication:
    """Pages for operators. Each request acts with the token of its session and no other right.

    Args:
        workers: The workers.
        views: The connectors that each caller may see.
        sessions: The sessions.
        stopping: Set when the process stops: open streams end.
        oidc: Signs users in at an issuer as well; None for tokens alone.
    """

    def __init__(
        self,
        workers: Workers,
        views: Views,
        sessions: Sessions,
        stopping: asyncio.Event,
        oidc: "Oidc | None" = None,
    ) -> None:
        self._views = views
        self._sessions = sessions
        self._streams = Streams(stopping)
        self._rights = RightsOfCallers(workers)
        context = Context(workers, views, ShownViews(), Topics())
        issuer = None if oidc is None else IssuerSignIn(context, sessions, oidc)
        self._renewals = None if oidc is None else Renewals(oidc)
        config_form = ConfigFormPages(context, sessions)
        self._refused_forms = config_form.refused
        pages: Sequence[Pages] = (
            OverviewPages(context),
            ConnectorsPages(context),
            ConnectorPages(context),
            config_form,
            TopicsPages(context),
            DeadLettersPages(context),
            WorkersPages(context),
            RebalancesPages(context),
            PluginsPages(context),
            LoggersPages(context),
            AuditPages(context),
            SignInPages(context, sessions, issuer),
            *([] if issuer is None else [issuer]),
        )
        self._pages: Routes = {key: each for own in pages for key, each in own.routes.items()}
        self._live_pages: LivePages = {
            key: each for own in pages for key, each in own.live_pages.items()
        }
        self._event_pages: EventPages = {
            key: each for own in pages for key, each in own.event_pages.items()
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
        before, refusal = visit.session, ""
        if path not in _WITHOUT_TOKEN:
            visit, refusal = await self._renewed(visit)
        is_renewed = visit.session is not before
        if path == LIVE and method == "GET" and not is_head:
            await self._live(scope, receive, send, visit, refusal, is_renewed=is_renewed)
            return
        try:
            is_kept = method == "POST" and path in self._refused_forms
            if refusal and not is_kept:
                response = self._refused(visit, method, refusal, secure=secure)
            else:
                is_valid = not is_new and not refusal
                response = await self._answer(
                    scope, receive, path, method, visit, is_valid=is_valid
                )
        except ClientGoneError:
            return
        # another site sends browsers to the callback, so that it may lack the cookie of a session
        sets_cookie = is_renewed or (is_new and path != CALLBACK)
        if sets_cookie and not any(name == "set-cookie" for name, _ in response.headers):
            response = with_cookies(response, self._sessions.cookies(visit.session, secure=secure))
        await send_response(response, send, receive, is_head=is_head)

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        """The methods and paths of its pages."""
        return frozenset(self._pages)

    async def close(self) -> None:
        """End what is in progress without a request."""
        if self._renewals is not None:
            await self._renewals.close()

    def _visit(self, scope: Scope, *, secure: bool) -> tuple[Visit, bool]:
        """Who asks, and whether a session begins."""
        cookies = cookies_of(scope["headers"])
        session = self._sessions.read(cookies, time.time(), secure=secure)
        is_new = session is None
        theme = cookies.get(THEME_COOKIE, "")
        url = (scope.get("raw_path") or b"").decode("ascii", "replace")
        if scope["method"] == "POST":
            url = CONNECTORS
        elif scope.get("query_string"):
            url += f"?{scope['query_string'].decode('ascii', 'replace')}"
        session = session or self._sessions.new("", time.time())
        visit = Visit(
            session=session,
            sessions=self._sessions,
            theme=theme if theme in THEMES else THEMES[0],
            url=url,
            rights=self._rights.last_known(_caller(scope, session)),
        )
        return visit, is_new

    async def _renewed(self, visit: Visit) -> tuple[Visit, str]:
        """The visit with a token that has not ended, or the reason why there is none."""
        if self._renewals is None:
            return visit, ""
        try:
            session = await self._renewals.present(visit.session, time.time())
        except SignInError as error:
            return visit, error.refusal.value
        return (visit if session is visit.session else replace(visit, session=session)), ""

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        path: str,
        method: str,
        visit: Visit,
        *,
        is_valid: bool,
    ) -> Response:
        try:
            if path == "/ui":
                return redirect(HOME)
            handler = self._pages.get((method, path))
            if handler is None:
                raise _no_page(known=path in self._paths)
            form = Form()
            if method == "POST":
                keeps_input = path in self._refused_forms
                form = await form_of(
                    scope, receive, CONFIG_MAX_BYTES if keeps_input else FORM_MAX_BYTES
                )
                token = form.one(FORM_TOKEN)
                if not is_valid or not self._sessions.accepts_form(visit.session, path, token):
                    if not keeps_input:
                        raise PageError(
                            403,
                            "The form is no longer valid",
                            "Its session has ended. Nothing was changed: load the page again, and"
                            " submit the form there.",
                        )
                    handler = self._refused_forms[path]
            caller = _caller(scope, visit.session)
            if path not in _WITHOUT_TOKEN:
                visit = replace(visit, rights=await self._rights.of(caller))
            request = Request(
                scope=scope,
                path=path,
                visit=visit,
                caller=caller,
                query=query_of(scope),
                form=form,
                secure=scope.get("scheme") == "https",
            )
            response = await _handled(handler, request, method)
            if path == SIGN_OUT:
                self._streams.end_session(visit.session.id)
            return response
        except PageError as error:
            links = (tag("p", tag("a", text, href=url)) for text, url in error.links)
            content = notice("error", error.title, tag("p", error.message), *links, _home_link())
            return Response(page(visit, error.title, content), error.status)
        except UnauthenticatedError:
            return self._refused(visit, method, "", secure=scope.get("scheme") == "https")
        except DroverError as error:
            return _failed(visit, method, error)

    def _refused(self, visit: Visit, method: str, reason: str, *, secure: bool) -> Response:
        """To the sign-in page.

        Args:
            visit: Who asked.
            method: The method of the request.
            reason: Why there is no valid token; empty if the workers do not accept it.
            secure: Whether the connection is encrypted.
        """
        fields = {}
        if reason or visit.session.end_s:
            fields["reason"] = reason or Refusal.WORKERS_REFUSED.value
        elif visit.is_signed_in:
            fields["refused"] = "yes"
        if method == "GET":
            fields["next"] = visit.url
        # a session whose issuer does not answer continues when it does
        ends = visit.is_signed_in and reason != Refusal.UNAVAILABLE
        cookies = self._sessions.removal(secure=secure) if ends else []
        target = f"{SIGN_IN}?{urlencode(fields)}" if fields else SIGN_IN
        return with_cookies(redirect(target), cookies)

    # streams

    async def _live(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        visit: Visit,
        refusal: str,
        *,
        is_renewed: bool,
    ) -> None:
        caller = _caller(scope, visit.session)
        try:
            query = query_of(scope)
            events = self._events(caller, query)
        except PageError as error:
            unread = Response(error.message.encode(), error.status, "text/plain; charset=utf-8")
            await send_response(unread, send, receive, is_head=False)
            return
        # a caller without a token is known by the address
        key = hashlib.sha256((caller.token or caller.host).encode()).hexdigest()
        with self._streams.place(visit.session.id, key) as place:
            if place is None:
                text = "too many pages are open: close some, or retry later"
                busy = Response(text.encode(), 503, "text/plain; charset=utf-8")
                await send_response(busy, send, receive, is_head=False)
                return

            if events is None:
                unknown = Response(b"no such page", 404, "text/plain; charset=utf-8")
                await send_response(unknown, send, receive, is_head=False)
                return
            renew_s = math.inf
            if refusal:
                events = one_event("refused", refusal)
            elif self._renewals is not None:
                renew_s = self._renewals.next_s(visit.session, time.time())
            response = Response(
                until_end(events, place, receive, visit.session, renew_s),
                content_type="text/event-stream; charset=utf-8",
                headers=(("x-accel-buffering", "no"),),
            )
            if is_renewed:
                secure = scope.get("scheme") == "https"
                cookies = self._sessions.cookies(visit.session, secure=secure)
                response = with_cookies(response, cookies)
            await send_response(response, send, receive, is_head=False)

    def _events(self, caller: Caller, query: Form) -> AsyncGenerator[bytes, None] | None:
        """The events of a page; None if there is no such page."""
        name = query.one("page")
        live_page, event_page = self._live_pages.get(name), self._event_pages.get(name)
        if event_page is not None:
            return event_page(caller, query)
        if live_page is None:
            return None

        async def open_view() -> View:
            return await self._views.opened(caller)

        return updates(
            open_view, live_page(query, partial(self._rights.of, caller)), query.one("since")
        )


async def _handled(handler: Handler, request: Request, method: str) -> Response:
    """The response; a page is asked for twice if a worker refuses the call at once.

    The second call goes to another worker: one that has ended is no reason for an error.
    """
    began_s = time.monotonic()
    try:
        return await handler(request)
    except UnavailableError:
        if method != "GET" or time.monotonic() - began_s > _AT_ONCE_S:
            raise
    return await handler(request)


def _caller(scope: Scope, session: Session) -> Caller:
    client = scope.get("client")
    host = client[0] if client else ""
    return Caller(session.token, f"console:{host}", host)


def _static(path: str, method: str) -> Response:
    found = STATIC_FILES.get(path)
    if found is None or method != "GET":
        return Response(b"not found", 404, "text/plain; charset=utf-8")
    cache = f"public, max-age={YEAR_S}, immutable"
    return Response(found.body, 200, found.content_type, cache=cache)


def _failed(visit: Visit, method: str, error: DroverError) -> Response:
    """The page for an error of the workers."""
    status = STATUSES.get(error.reason) or _STATUSES_OF_CODES.get(error.code, 500)
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
