"""Sessions whose token comes from an issuer: what a cookie keeps of it, and its renewal."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from drover_gateway.console.sessions import TOKEN_MAX_CHARS, Session
from drover_gateway.identity.oidc_values import Refusal, SignInError, Tokens

if TYPE_CHECKING:  # it loads cryptography, which a gateway without an issuer does not need
    from drover_gateway.identity.oidc import Oidc

#: How long a result is used for requests with the refresh token of before: pages load several
#: files at a time, and an issuer may accept a refresh token only once.
_KEEP_S = 60.0
#: The pause after a failure that may pass.
RETRY_S = 10.0
_RESULTS_MAX = 1_000

_log = structlog.get_logger("drover.gateway.console")


def with_tokens(session: Session, tokens: Tokens, *, workers_get_id_token: bool) -> Session:
    """A session with new tokens, as far as they fit in cookies.

    Raises:
        SignInError: TOO_LARGE.
    """
    hint = "" if workers_get_id_token else tokens.id_token or session.id_token
    room = TOKEN_MAX_CHARS - len(tokens.token)
    if room < 0:
        raise SignInError(Refusal.TOO_LARGE, f"the token has more than {TOKEN_MAX_CHARS} chars")
    refresh_token = tokens.refresh_token
    if len(refresh_token) > room:
        _log.warning(
            "a refresh token is not kept: with the token it is too large for cookies, so the"
            " session ends with the token",
            chars_max=TOKEN_MAX_CHARS,
        )
        refresh_token = ""
    if len(hint) > room - len(refresh_token):
        hint = ""
    return replace(
        session,
        token=tokens.token,
        subject=tokens.subject or session.subject,
        refresh_token=refresh_token,
        id_token=hint,
        renew_s=tokens.renew_s,
        end_s=tokens.end_s,
    )


@dataclass(frozen=True, slots=True)
class _Renewal:
    """A renewal in progress, or its result."""

    task: "asyncio.Task[Tokens | SignInError]"
    begin_s: float

    def counts(self, now_s: float) -> bool:
        """Whether requests with the same refresh token get its result."""
        if not self.task.done():
            return True
        if self.task.cancelled() or self.task.exception() is not None:
            return False
        result = self.task.result()
        passes = isinstance(result, SignInError) and result.refusal is not Refusal.ENDED
        return now_s - self.begin_s < (RETRY_S if passes else _KEEP_S)


class Renewals:
    """Renews tokens before they end, once for all requests that need it.

    Args:
        oidc: Asks the issuer.
    """

    def __init__(self, oidc: "Oidc") -> None:
        self._oidc = oidc
        self._results: OrderedDict[str, _Renewal] = OrderedDict()

    async def present(self, session: Session, now_s: float) -> Session:
        """The session, with a new token if the present one is about to end.

        Until the present token ends, a failure to renew it changes nothing.

        Raises:
            SignInError: The token has ended, and there is no new one.
        """
        if not session.end_s:
            return session
        error = SignInError(Refusal.ENDED, "the token has ended, and there is no refresh token")
        if session.refresh_token and now_s >= session.renew_s:
            try:
                return await self._renewed(session)
            except SignInError as failure:
                error = failure
        if now_s < session.end_s:
            return session
        raise error

    def next_s(self, session: Session, now_s: float) -> float:
        """When ``present`` should be called again, in seconds since 1970."""
        if not session.end_s:
            return float("inf")
        due_s = session.renew_s if session.refresh_token else session.end_s
        return max(due_s, now_s + RETRY_S)

    async def close(self) -> None:
        """End the renewals in progress."""
        tasks = [each.task for each in self._results.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renewed(self, session: Session) -> Session:
        result = await self._result(session)
        if isinstance(result, SignInError):
            raise result
        return with_tokens(session, result, workers_get_id_token=self._oidc.client.token == "id")

    async def _result(self, session: Session) -> Tokens | SignInError:
        key = hashlib.sha256(session.refresh_token.encode()).hexdigest()
        now_s = time.monotonic()
        found = self._results.get(key)
        if found is None or not found.counts(now_s):
            while self._results and not next(iter(self._results.values())).counts(now_s):
                self._results.popitem(last=False)
            if len(self._results) >= _RESULTS_MAX:
                return SignInError(Refusal.UNAVAILABLE, "too many tokens are renewed at a time")
            task = asyncio.create_task(self._renew(session), name="renewal")
            found = self._results[key] = _Renewal(task, now_s)
            self._results.move_to_end(key)
        return await asyncio.shield(found.task)

    async def _renew(self, session: Session) -> Tokens | SignInError:
        try:
            return await self._oidc.renewed(session.refresh_token, session.subject, time.time())
        except SignInError as error:
            _log.warning("a token is not renewed", subject=session.subject, why=str(error))
            return error
