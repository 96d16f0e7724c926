"""Signing in and out, and the choice of colours."""

import time
from dataclasses import replace

from drover.errors import DroverError, PermissionDeniedError, UnauthenticatedError
from drover_gateway.console import sign_in_page
from drover_gateway.console.frame import SIGN_IN, SIGN_OUT, THEME, THEME_COOKIE, THEMES
from drover_gateway.console.http import YEAR_S, PageError, Response
from drover_gateway.console.issuer_sign_in import IssuerSignIn
from drover_gateway.console.pages import Context, Pages, Request, redirect, with_cookies
from drover_gateway.console.sessions import TOKEN_MAX_CHARS, Sessions
from drover_gateway.identity.credentials import Caller, is_token

_SIGN_IN_TIMEOUT_S = 10.0


class SignInPages(Pages):
    """A session has a token that the workers have accepted.

    Args:
        context: As for all pages.
        sessions: The sessions.
        issuer: Signs users in as well; None for tokens alone.
    """

    def __init__(
        self, context: Context, sessions: Sessions, issuer: IssuerSignIn | None = None
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._issuer = issuer
        self.routes = {
            ("GET", SIGN_IN): self._show_sign_in,
            ("POST", SIGN_IN): self._sign_in,
            ("POST", SIGN_OUT): self._sign_out,
            ("POST", THEME): self._set_theme,
        }

    async def _show_sign_in(self, request: Request) -> Response:
        query = request.query
        error = sign_in_page.REASONS.get(query.one("reason"), "")
        if query.one("refused"):
            error = sign_in_page.REFUSED
        return self._page(request, sign_in_page.local(query.one("next")), error, 200)

    async def _sign_in(self, request: Request) -> Response:
        token = request.form.one("token").strip().removeprefix("Bearer ").strip()
        target = sign_in_page.local(request.form.one("next"))
        error, status = "", 200
        if not token or not is_token(token) or len(token) > TOKEN_MAX_CHARS:
            error, status = sign_in_page.NO_TOKEN, 400
        else:
            caller = Caller(token, request.caller.author, request.caller.host)
            try:
                client = self._context.workers.client(caller)
                await client.get_cluster_info(timeout_s=_SIGN_IN_TIMEOUT_S)
            except UnauthenticatedError:
                error, status = sign_in_page.REFUSED, 401
            except PermissionDeniedError:
                # a known caller without a role: the pages name the missing one
                pass
            except DroverError as failure:
                error, status = f"The token could not be checked: {failure.message}", 503
        if error:
            return self._page(request, target, error, status)
        # a new session: a value that was set before the sign-in is not kept
        session = self._sessions.new(token, time.time())
        cookies = self._sessions.cookies(session, secure=request.secure)
        return with_cookies(redirect(target), cookies)

    def _page(self, request: Request, target: str, error: str, status: int) -> Response:
        body = sign_in_page.sign_in(
            request.visit,
            target,
            error=error,
            secure=request.secure,
            issuer=self._issuer.name if self._issuer is not None else "",
        )
        return Response(body, status)

    async def _sign_out(self, request: Request) -> Response:
        removal = self._sessions.removal(secure=request.secure)
        if self._issuer is None or not request.visit.session.end_s:
            return with_cookies(redirect(SIGN_IN), removal)
        url = await self._issuer.sign_out_url(request)
        if not url:
            return with_cookies(redirect(f"{SIGN_IN}?reason={sign_in_page.SIGNED_OUT}"), removal)
        visit = replace(request.visit, session=self._sessions.new("", time.time()))
        page = sign_in_page.onward(visit, "You are signed out", url)
        return with_cookies(page, removal)

    async def _set_theme(self, request: Request) -> Response:
        theme = request.form.one("theme")
        if theme not in THEMES:
            raise PageError(400, "Unknown colours", f"Colours are one of {', '.join(THEMES)}.")
        rules = f"Path=/ui; Max-Age={YEAR_S}; SameSite=Lax{'; Secure' if request.secure else ''}"
        target = sign_in_page.local(request.form.one("next"))
        return with_cookies(redirect(target), [f"{THEME_COOKIE}={theme}; {rules}"])
