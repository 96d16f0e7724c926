"""Signing in and out, and the choice of colours."""

import re
import time

from drover.errors import DroverError, PermissionDeniedError, UnauthenticatedError
from drover_gateway.console import sign_in_page
from drover_gateway.console.frame import HOME, SIGN_IN, SIGN_OUT, THEME, THEME_COOKIE, THEMES
from drover_gateway.console.http import YEAR_S, PageError, Response
from drover_gateway.console.pages import Context, Pages, Request, redirect, with_cookies
from drover_gateway.console.sessions import TOKEN_MAX_CHARS, Sessions
from drover_gateway.identity.credentials import Caller, is_token

_SIGN_IN_TIMEOUT_S = 10.0
_LOCAL = re.compile(r"/ui/[!-~]*")


class SignInPages(Pages):
    """A session begins with a token, which the workers have accepted."""

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions
        self.routes = {
            ("GET", SIGN_IN): self._show_sign_in,
            ("POST", SIGN_IN): self._sign_in,
            ("POST", SIGN_OUT): self._sign_out,
            ("POST", THEME): self._set_theme,
        }

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
            body = sign_in_page.sign_in(request.visit, target, error=error, secure=request.secure)
            return Response(body, status)
        # a new session: a value that was set before the sign-in is not kept
        session = self._sessions.new(token, time.time())
        cookies = self._sessions.cookies(session, secure=request.secure)
        return with_cookies(redirect(target), cookies)

    async def _sign_out(self, request: Request) -> Response:
        return with_cookies(redirect(SIGN_IN), self._sessions.removal(secure=request.secure))

    async def _set_theme(self, request: Request) -> Response:
        theme = request.form.one("theme")
        if theme not in THEMES:
            raise PageError(400, "Unknown colours", f"Colours are one of {', '.join(THEMES)}.")
        rules = f"Path=/ui; Max-Age={YEAR_S}; SameSite=Lax{'; Secure' if request.secure else ''}"
        target = _local(request.form.one("next"))
        return with_cookies(redirect(target), [f"{THEME_COOKIE}={theme}; {rules}"])


def _local(target: str) -> str:
    """A page of the console to go to; the first one for every other address."""
    return target if _LOCAL.fullmatch(target) and "\\" not in target else HOME
