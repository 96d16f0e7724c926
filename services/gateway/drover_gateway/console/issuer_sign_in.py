"""The console's side of a sign-in by OpenID Connect: to the issuer, back, and out."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import structlog

from drover.errors import DroverError, PermissionDeniedError, UnauthenticatedError
from drover_gateway.console import attempts, sign_in_page
from drover_gateway.console.frame import CALLBACK, HOME, ISSUER, SIGN_IN
from drover_gateway.console.http import PageError, Response, cookies_of
from drover_gateway.console.pages import Context, Pages, Request, redirect, with_cookies
from drover_gateway.console.renewals import with_tokens
from drover_gateway.console.sessions import Sessions
from drover_gateway.identity.credentials import Caller
from drover_gateway.identity.oidc_values import Attempt, Refusal, SignInError

if TYPE_CHECKING:  # it loads cryptography, which a gateway without an issuer does not need
    from drover_gateway.identity.oidc import Oidc

CHECK_TIMEOUT_S = 10.0
#: The parameters of the issuer's redirect that count.
_ANSWER = ("code", "state", "iss", "error")

_log = structlog.get_logger("drover.gateway.console")


class IssuerSignIn(Pages):
    """Sends users to the issuer, and begins a session when they return.

    Args:
        context: As for all pages.
        sessions: The sessions.
        oidc: Asks the issuer.
    """

    def __init__(self, context: Context, sessions: Sessions, oidc: "Oidc") -> None:
        self._context = context
        self._sessions = sessions
        self._oidc = oidc
        self.routes = {("GET", ISSUER): self._begin, ("GET", CALLBACK): self._return}

    @property
    def name(self) -> str:
        """The host of the issuer."""
        return urlsplit(self._oidc.issuer.name).netloc

    async def sign_out_url(self, request: Request) -> str:
        """Where the user of a session signs out at the issuer; empty if there is nothing to do."""
        session = request.visit.session
        if not session.end_s:
            return ""
        hint = session.token if self._oidc.client.token == "id" else session.id_token
        return await self._oidc.end_session_url(hint, self._base(request) + SIGN_IN)

    async def _begin(self, request: Request) -> Response:
        target = sign_in_page.local(request.query.one("next"))
        if len(target) > attempts.TARGET_MAX_CHARS:
            target = HOME
        attempt = Attempt.begin(target, time.time())
        try:
            url = await self._oidc.authorization_url(attempt, self._base(request) + CALLBACK)
        except SignInError as error:
            return redirect(_failed(error, target))
        cookies = attempts.started(
            self._sessions,
            attempt,
            cookies_of(request.scope["headers"]),
            secure=request.secure,
        )
        return with_cookies(redirect(url), cookies)

    async def _return(self, request: Request) -> Response:
        now_s, secure = time.time(), request.secure
        cookies = cookies_of(request.scope["headers"])
        state = request.query.one("state")
        attempt = attempts.find(self._sessions, state, cookies, now_s, secure=secure)
        if attempt is None:
            if request.visit.is_signed_in:
                # the page was loaded again, or opened from the history
                return redirect(HOME)
            error = SignInError(Refusal.UNKNOWN_STATE, "the browser has no such sign-in")
            return _onward(request, "You are not signed in", _failed(error, HOME))
        used = attempts.removal(attempt, secure=secure)
        answer = {name: values for name in _ANSWER if (values := request.query.all(name))}
        client = self._oidc.client
        try:
            tokens = await self._oidc.tokens(attempt, answer, self._base(request) + CALLBACK, now_s)
            # a new session: a value that was set before the sign-in is not kept
            session = with_tokens(
                self._sessions.new("", now_s), tokens, workers_get_id_token=client.token == "id"
            )
            await self._check(request, session.token)
        except SignInError as error:
            page = _onward(request, "You are not signed in", _failed(error, attempt.target))
            return with_cookies(page, [used])
        page = _onward(request, "You are signed in", attempt.target)
        return with_cookies(page, [used, *self._sessions.cookies(session, secure=secure)])

    async def _check(self, request: Request, token: str) -> None:
        """Check that the workers accept a token.

        Raises:
            SignInError: They do not.
        """
        caller = Caller(token, request.caller.author, request.caller.host)
        client = self._context.workers.client(caller)
        try:
            await client.get_cluster_info(timeout_s=CHECK_TIMEOUT_S)
        except UnauthenticatedError as error:
            raise SignInError(Refusal.WORKERS_REFUSED, error.message) from None
        except PermissionDeniedError:
            # a known caller without a role: the pages name the missing one
            return
        except DroverError as error:
            raise SignInError(Refusal.WORKERS_UNAVAILABLE, error.message) from None

    def _base(self, request: Request) -> str:
        """The URL under which the browser reaches the gateway."""
        if self._oidc.client.url:
            return self._oidc.client.url
        hosts = [value for name, value in request.scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise PageError(400, "The request has no Host header", "Use a browser to sign in.")
        return f"{'https' if request.secure else 'http'}://{hosts[0].decode('latin-1')}"


def _onward(request: Request, title: str, url: str) -> Response:
    """To another page, not by a redirect: without HTTPS the browser would not send the session's
    cookie with one that began at another site.
    """
    # the URL of this page has the code
    return sign_in_page.onward(replace(request.visit, url=HOME), title, url)


def _failed(error: SignInError, target: str) -> str:
    """The URL of the sign-in page with the reason, which is logged."""
    _log.warning("a user is not signed in", reason=error.refusal.value, why=str(error))
    fields = {"reason": error.refusal.value}
    if target != HOME:
        fields["next"] = target
    return f"{SIGN_IN}?{urlencode(fields)}"
