"""Token logins (OAUTHBEARER): the issuer, and the keys with which a broker verifies its tokens."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.http_api import Reply, Request, running_api
from tests.support.web_tokens import ISSUER, KEY, jwks, signed

_AUDIENCE = "drover"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_SECONDS = 600


@dataclass(frozen=True, slots=True)
class TokenKeys:
    """The public keys of an issuer, as a file."""

    path: Path

    @classmethod
    def written(cls, directory: Path) -> Self:
        """Write the keys to a file in the folder."""
        path = directory / "jwks.json"
        path.write_text(jwks(one=KEY))
        return cls(path)

    @property
    def allowed(self) -> str:
        """A JVM property of the broker: without it, the broker reads keys from no URL."""
        return f"org.apache.kafka.sasl.oauthbearer.allowed.urls={self.path.as_uri()}"

    def broker_settings(self) -> dict[str, object]:
        """Settings of a broker with a SASL listener."""
        mine = "listener.name.sasl.oauthbearer"
        return {
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            f"{mine}.sasl.jaas.config": f"{_PACKAGE}.OAuthBearerLoginModule required;",
            f"{mine}.sasl.server.callback.handler.class": (
                f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.jwks.endpoint.url": self.path.as_uri(),
            "sasl.oauthbearer.expected.audience": _AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }


@dataclass(slots=True)
class Issuer:
    """A token endpoint, and the number of its issued and refused tokens."""

    url: str = ""
    given_count: int = 0
    refused_count: int = 0

    def client_settings(self, secret: str = "hidden-1") -> dict[str, str]:
        """A client's settings for librdkafka."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": "mirror",
            "sasl.oauthbearer.client.secret": secret,
        }

    def java_client_settings(self, secret: str = "hidden-1") -> dict[str, str]:
        """A client's settings for Java."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.login.callback.handler.class": f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": (
                f'{_PACKAGE}.OAuthBearerLoginModule required clientId="mirror" '
                f'clientSecret="{secret}" scope="kafka";'
            ),
        }


@contextmanager
def token_issuer(subject: str) -> Iterator[Issuer]:
    """An endpoint that issues tokens for ``subject`` to the client ``mirror`` with its secret."""
    issuer = Issuer()
    login = base64.b64encode(b"mirror:hidden-1").decode()

    def answer(request: Request) -> Reply:
        if request.headers.get("authorization") != f"Basic {login}":
            issuer.refused_count += 1
            return Reply({"error": "invalid_client"}, status=401)
        issuer.given_count += 1
        token = signed(sub=subject, aud=_AUDIENCE)
        body = {"access_token": token, "token_type": "Bearer", "expires_in": _SECONDS}
        return Reply(body, headers={"content-type": "application/json"})

    with running_api(answer) as api:
        issuer.url = f"{api.url}/token"
        yield issuer
