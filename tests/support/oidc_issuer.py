"""Issuers of OpenID Connect on loopback: a scripted one that can be hostile, and
`oidc-provider-mock`.
"""

import base64
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import requests

from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.http_api import Api, Reply, Request, running_api
from tests.support.web_tokens import KEY, jwks, signed

CLIENT_ID = "drover-console"


@dataclass
class ScriptedIssuer:
    """An issuer without a page: it sends a browser back at once. Tests change its attributes.

    Attributes:
        api: Its server.
        changed: What its metadata document has besides, or instead.
        claims: What its ID tokens have besides, or instead; None leaves a claim out.
        answer: What its redirects have besides, or instead.
        response: What the response of its token endpoint has besides, or instead.
        lifetime_s: Of its tokens.
        key: The key that signs, and its id.
        published: The keys of its JWKS.
        replies: Replies by path; they replace its usual ones.
    """

    api: Api
    changed: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, str | None] = field(default_factory=dict)
    response: dict[str, Any] = field(default_factory=dict)
    lifetime_s: int = 600
    key: tuple[Any, str] = (KEY, "one")
    published: dict[str, Any] = field(default_factory=lambda: {"one": KEY})
    replies: dict[str, Callable[[Request], Reply]] = field(default_factory=dict)
    #: The requests for authorization by code, and the refresh tokens that are valid.
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refresh_tokens: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def name(self) -> str:
        """The issuer."""
        return f"{self.api.url}/realms/main"

    def asked(self, path: str) -> list[Request]:
        """The requests for a path."""
        return [each for each in self.api.requests if each.path == f"/realms/main{path}"]

    def forms(self) -> list[dict[str, str]]:
        """The forms that the token endpoint received."""
        return [dict(parse_qsl(each.body.decode())) for each in self.asked("/token")]

    def reply(self, request: Request) -> Reply:
        path = request.path.removeprefix("/realms/main")
        if path in self.replies:
            return self.replies[path](request)
        match path:
            case "/.well-known/openid-configuration":
                return Reply(self.metadata())
            case "/keys":
                return Reply(jwks(**self.published).encode())
            case "/authorize":
                return self._authorized(request.query)
            case "/token":
                return self._tokens(dict(parse_qsl(request.body.decode())))
        return Reply(status=404)

    def metadata(self) -> dict[str, Any]:
        document = {
            "issuer": self.name,
            "authorization_endpoint": f"{self.name}/authorize",
            "token_endpoint": f"{self.name}/token",
            "jwks_uri": f"{self.name}/keys",
            "end_session_endpoint": f"{self.name}/logout",
            **self.changed,
        }
        return {name: value for name, value in document.items() if value is not None}

    def _authorized(self, query: dict[str, str]) -> Reply:
        self.count += 1
        code = f"code-{self.count}"
        self.codes[code] = query
        given = {"code": code, "state": query["state"], **self.answer}
        fields = {name: value for name, value in given.items() if value is not None}
        target = f"{query['redirect_uri']}?{urlencode(fields)}"
        return Reply(status=302, headers={"location": target})

    def _tokens(self, form: dict[str, str]) -> Reply:
        nonce = None
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
                return Reply({"error": "invalid_grant"}, 400)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
                return Reply({"error": "invalid_grant"}, 400)
            nonce = asked["nonce"]
        elif form["refresh_token"] in self.refresh_tokens:
            self.refresh_tokens.remove(form["refresh_token"])
        else:
            return Reply({"error": "invalid_grant"}, 400)
        self.count += 1
        refresh_token = f"refresh-{self.count}"
        self.refresh_tokens.append(refresh_token)
        given = {
            "token_type": "Bearer",
            "access_token": self.token(aud="drover-api", jti=str(self.count)),
            "id_token": self.token(**{"nonce": nonce, "jti": str(self.count), **self.claims}),
            "refresh_token": refresh_token,
            "expires_in": self.lifetime_s,
            **self.response,
        }
        return Reply({name: value for name, value in given.items() if value is not None})

    def token(self, **claims: Any) -> str:
        now_s = int(time.time())
        times = {"iat": now_s, "exp": now_s + self.lifetime_s}
        told = {"iss": self.name, "aud": CLIENT_ID, **times, **claims}
        return signed(self.key[0], self.key[1], **told)


@contextmanager
def scripted_issuer() -> Iterator[ScriptedIssuer]:
    """An issuer until the context ends."""
    with running_api(lambda request: Reply(status=503)) as api:
        issuer = ScriptedIssuer(api)
        api.answer = issuer.reply
        yield issuer


@contextmanager
def mock_issuer() -> Iterator[str]:
    """The URL of `oidc-provider-mock`, which accepts every user by name."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--host", HOST]
    url = f"http://{HOST}:{port}"

    def answers() -> bool:
        with suppress(requests.ConnectionError):
            return requests.get(f"{url}/.well-known/openid-configuration", timeout=10).ok
        return False

    with tempfile.TemporaryDirectory(prefix="drover-issuer-") as folder:
        process = ChildProcess("the issuer", command, log_path=Path(folder) / "log")
        process.start(ready=answers)
        try:
            yield url
        finally:
            process.kill()


def query_of(url: str) -> dict[str, str]:
    """The parameters of a URL."""
    return {name: values[0] for name, values in parse_qs(url.partition("?")[2]).items()}


def payload_of(token: str) -> dict[str, Any]:
    """The claims of a token, not verified."""
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found
