"""Sign-in by OpenID Connect: the code flow with PKCE, and the renewal of tokens.

Nothing is kept here about a sign-in: what belongs to one is in an ``Attempt``, which the browser
keeps in a sealed cookie.
"""

import base64
import hmac
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote_plus, urlencode

from drover.security.tokens import KeysUnavailableError, TokenRejectedError
from drover_gateway.identity.credentials import is_token
from drover_gateway.identity.issuer import Issuer, Metadata
from drover_gateway.identity.issuer_http import IssuerUnavailableError
from drover_gateway.identity.oidc_values import Attempt, OidcClient, Refusal, SignInError, Tokens

#: The lifetime of a token whose issuer returns none.
_LIFETIME_S = 300
#: A token is renewed this long before its end, or a quarter of its lifetime.
_RENEW_BEFORE_S = 60
#: The minimum interval between two renewals, whatever the clocks show.
_RENEW_EVERY_S = 10
_CODE_MAX_CHARS = 4_096
_SUBJECT_MAX_CHARS = 255
_SECONDS = re.compile(r"[1-9][0-9]{0,8}")
#: A longer hint makes a URL that servers reject.
_HINT_MAX_CHARS = 4_000
#: Errors of RFC 6749 and OpenID Connect Core with which an issuer refuses a user.
_DENIED = frozenset(
    {
        "access_denied",
        "account_selection_required",
        "consent_required",
        "interaction_required",
        "login_required",
    }
)


class Oidc:
    """Signs users in.

    Args:
        client: The gateway as a client of the issuer.
        issuer: The issuer.
        post_form: Sends a form to the issuer; ``IssuerHttp.post_form``.
    """

    def __init__(self, client: OidcClient, issuer: Issuer, post_form: Callable[..., Any]) -> None:
        self.client = client
        self.issuer = issuer
        self._post_form = post_form

    async def authorization_url(self, attempt: Attempt, redirect_uri: str) -> str:
        """Where the user signs in.

        Raises:
            SignInError: The issuer does not answer.
        """
        try:
            metadata = await self.issuer.answering()
        except IssuerUnavailableError as error:
            raise SignInError(Refusal.UNAVAILABLE, str(error)) from None
        fields = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.client.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(metadata.authorization_endpoint, fields)

    async def tokens(
        self, attempt: Attempt, answer: Mapping[str, list[str]], redirect_uri: str, now_s: float
    ) -> Tokens:
        """The tokens of a user who returns from the issuer.

        Args:
            attempt: The sign-in with the returned state.
            answer: The values of each parameter of the URL.
            redirect_uri: As in ``authorization_url``.
            now_s: The time, in seconds since 1970.

        Raises:
            SignInError: The user is not signed in.
        """
        if any(len(values) > 1 for values in answer.values()):
            raise SignInError(Refusal.ERROR, "the issuer's redirect repeats a parameter")
        given = {name: values[0] for name, values in answer.items()}
        metadata = await self._metadata()
        # RFC 9207: a code of another issuer must not be sent to this one
        if given.get("iss", "" if metadata.sends_iss else metadata.issuer) != metadata.issuer:
            raise SignInError(Refusal.ERROR, "the redirect is not from the issuer: iss is another")
        if reported := given.get("error", ""):
            refusal = Refusal.DENIED if reported in _DENIED else Refusal.ERROR
            raise SignInError(refusal, f"the issuer returned the error {reported[:100]!r}")
        code = given.get("code", "")
        if not code or len(code) > _CODE_MAX_CHARS:
            raise SignInError(Refusal.ERROR, "the issuer's redirect has no usable code")
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        response = await self._request_tokens(metadata, fields)
        claims = await self._claims(_text(response, "id_token"))
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(
            nonce.encode("utf-8", "replace"), attempt.nonce.encode()
        ):
            raise SignInError(Refusal.BAD_TOKEN, "the ID token's nonce is another one")
        return self._tokens(response, claims, "", now_s)

    async def renewed(self, refresh_token: str, subject: str, now_s: float) -> Tokens:
        """New tokens for a user who has signed in.

        Args:
            refresh_token: The refresh token.
            subject: The user.
            now_s: The time, in seconds since 1970.

        Raises:
            SignInError: There are none.
        """
        metadata = await self._metadata()
        fields = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        response = await self._request_tokens(metadata, fields)
        claims: Mapping[str, Any] = {}
        # the response may have no ID token (OpenID Connect Core, 12.2)
        if self.client.token == "id" or response.get("id_token"):
            claims = await self._claims(_text(response, "id_token"))
            if claims["sub"] != subject:
                raise SignInError(Refusal.BAD_TOKEN, "the renewed ID token is another user's")
        return self._tokens(response, claims, refresh_token, now_s)

    async def end_session_url(self, id_token: str, redirect_uri: str) -> str:
        """Where the user signs out at the issuer (OpenID Connect RP-Initiated Logout 1.0); empty
        if the issuer has no such page, or does not answer.
        """
        try:
            metadata = await self.issuer.answering()
        except IssuerUnavailableError:
            return ""
        if not metadata.end_session_endpoint:
            return ""
        fields = {
            "client_id": self.client.client_id,
            "post_logout_redirect_uri": redirect_uri,
        }
        if id_token and len(id_token) <= _HINT_MAX_CHARS:
            fields["id_token_hint"] = id_token
        return _with_query(metadata.end_session_endpoint, fields)

    async def _metadata(self) -> Metadata:
        try:
            return await self.issuer.metadata()
        except IssuerUnavailableError as error:
            raise SignInError(Refusal.UNAVAILABLE, str(error)) from None

    async def _request_tokens(
        self, metadata: Metadata, fields: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """The response of the token endpoint."""
        headers, proof = self._proof(metadata)
        try:
            status, response = await self._post_form(
                metadata.token_endpoint, {**fields, **proof}, headers
            )
        except IssuerUnavailableError as error:
            raise SignInError(Refusal.UNAVAILABLE, str(error)) from None
        if not isinstance(response, Mapping):
            raise SignInError(Refusal.ERROR, "the response of the token endpoint is no JSON object")
        if status == HTTPStatus.OK:
            return response
        reported = str(response.get("error"))[:100]
        is_ended = reported == "invalid_grant" and fields["grant_type"] == "refresh_token"
        raise SignInError(
            Refusal.ENDED if is_ended else Refusal.ERROR,
            f"the token endpoint returned {status} with the error {reported!r}",
        )

    def _proof(self, metadata: Metadata) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The headers and the fields that show which client this is."""
        client_id, secret = self.client.client_id, self.client.secret()
        if not secret:
            return {}, {"client_id": client_id}
        methods = metadata.client_methods
        if "client_secret_post" in methods and "client_secret_basic" not in methods:
            return {}, {"client_id": client_id, "client_secret": secret}
        # RFC 6749, 2.3.1: both are encoded as in a form
        pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}

    async def _claims(self, id_token: str) -> Mapping[str, Any]:
        """The claims of a verified ID token (OpenID Connect Core, 3.1.3.7)."""
        try:
            claims = await (await self.issuer.verifier()).claims(id_token)
        except (IssuerUnavailableError, KeysUnavailableError):
            raise SignInError(
                Refusal.UNAVAILABLE, "the issuer's keys cannot be fetched now"
            ) from None
        except TokenRejectedError as error:
            raise SignInError(Refusal.BAD_TOKEN, f"the ID token is not accepted: {error}") from None
        audiences = claims["aud"]
        party = claims.get("azp")
        if isinstance(audiences, list) and len(audiences) > 1 and party is None:
            raise SignInError(
                Refusal.BAD_TOKEN, "the ID token has several audiences, and no azp among them"
            )
        if party is not None and party != self.client.client_id:
            raise SignInError(Refusal.BAD_TOKEN, "the ID token's azp is another client")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= _SUBJECT_MAX_CHARS:
            raise SignInError(Refusal.BAD_TOKEN, "the ID token's sub is not usable")
        return claims

    def _tokens(
        self,
        response: Mapping[str, Any],
        claims: Mapping[str, Any],
        refresh_token: str,
        now_s: float,
    ) -> Tokens:
        if self.client.token == "id":
            token = _text(response, "id_token")
            end_s = int(claims["exp"])
            begin_s = claims.get("iat")
            lifetime_s = end_s - begin_s if isinstance(begin_s, int) else int(end_s - now_s)
        else:
            token = _text(response, "access_token")
            kind = response.get("token_type", "Bearer")
            if not isinstance(kind, str) or kind.lower() != "bearer":
                raise SignInError(Refusal.ERROR, "the access token's token_type is not Bearer")
            lifetime_s = _seconds(response.get("expires_in"))
            end_s = int(now_s) + lifetime_s
        margin_s = max(0, min(_RENEW_BEFORE_S, lifetime_s // 4))
        return Tokens(
            token=token,
            subject=str(claims.get("sub", "")),
            id_token=_optional_text(response, "id_token"),
            # without a new one the present one stays valid (RFC 6749, 6)
            refresh_token=_optional_text(response, "refresh_token") or refresh_token,
            renew_s=max(end_s - margin_s, int(now_s) + _RENEW_EVERY_S),
            end_s=end_s,
        )


def _text(response: Mapping[str, Any], name: str) -> str:
    found = _optional_text(response, name)
    if not found:
        raise SignInError(Refusal.ERROR, f"the token endpoint returned no usable {name}")
    return found


def _optional_text(response: Mapping[str, Any], name: str) -> str:
    found = response.get(name)
    return found if isinstance(found, str) and is_token(found) else ""


def _seconds(value: Any) -> int:
    """``expires_in``, which some issuers send as a text."""
    text = str(value)
    return int(text) if _SECONDS.fullmatch(text) else _LIFETIME_S


def _with_query(url: str, fields: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"
