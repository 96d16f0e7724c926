import asyncio
import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from drover.errors import InvalidArgumentError
from drover.security import renewed, tokens
from drover.security.tokens import (
    KeysUnavailableError,
    TokenRejectedError,
    TokenRules,
    TokenUser,
    TokenVerifier,
    key_source,
)
from tests.support.http_api import Reply, running_api
from tests.support.waiting import wait_until_async
from tests.support.web_tokens import KEY, claims, jwks, unsigned
from tests.support.web_tokens import signed as token

RULES = TokenRules(audience="drover", issuer="https://id.example.com")
OTHER_KEY = rsa.generate_private_key(65537, 2048)


@pytest.fixture
def verifier(tmp_path: Path) -> TokenVerifier:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(one=KEY, two=OTHER_KEY))
    return TokenVerifier(key_source(str(path)), RULES)


async def test_a_good_token_tells_the_user_and_its_groups(verifier: TokenVerifier) -> None:
    assert await verifier.user(token()) == TokenUser("ann", ("data",))
    assert (await verifier.user(token(OTHER_KEY, "two", "RS256"))).subject == "ann"
    assert (await verifier.user(token(groups="data ops"))).groups == ("data", "ops")
    assert (await verifier.user(token(groups=None))).groups == ()


def signed_by_what_everybody_knows() -> str:
    """Signed with the public key as shared secret: a verifier that trusts ``alg`` accepts it."""
    public = KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "HS256", "kid": "one"}).encode())
    text = f"{head}.{part(json.dumps(claims()).encode())}"
    return f"{text}.{part(hmac.digest(public, text.encode(), hashlib.sha256))}"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: token(exp=int(time.time()) - 60), "it has expired"),
        (lambda: token(nbf=int(time.time()) + 600), "it is not valid yet"),
        (lambda: token(aud="other"), "it is for another audience"),
        (lambda: token(iss="https://evil.example.com"), "it is from another issuer"),
        (lambda: token(exp=None), "it lacks one of exp, aud, sub"),
        (lambda: token(sub=None), "it lacks one of exp, aud, sub"),
        (lambda: token(aud=None), "it lacks one of exp, aud, sub"),
        (lambda: token(ec.generate_private_key(ec.SECP256R1())), "its signature is invalid"),
        (lambda: token(key_id="three"), "its kid is not the id of a key in the JWKS"),
        (lambda: token(key_id=None), "its kid is not the id of a key in the JWKS"),
        (unsigned, "it is not signed with a key pair"),
        (signed_by_what_everybody_knows, "it is not signed with a key pair"),
        (lambda: token()[:-4] + "AAAA", "its signature is invalid"),
        (lambda: token().rpartition(".")[0] + ".", "its signature is invalid"),
        (lambda: "a.b.c", "it is not a JSON Web Token"),
    ],
)
async def test_any_other_is_refused_and_the_reason_tells_nothing_of_it(
    verifier: TokenVerifier, made: Any, why: str
) -> None:
    bad = made()
    with pytest.raises(TokenRejectedError) as caught:
        await verifier.user(bad)
    assert str(caught.value).startswith(why)
    assert bad not in str(caught.value)


async def test_keys_of_a_file_are_read_again(
    tmp_path: Path, verifier: TokenVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    await verifier.user(token())
    verifier = TokenVerifier(key_source(str(tmp_path / "jwks.json")), RULES)
    (tmp_path / "jwks.json").write_text(jwks(two=OTHER_KEY))
    with pytest.raises(TokenRejectedError):
        await verifier.user(token())


class Issuer(ThreadingHTTPServer):
    """Serves a JWKS and counts the requests."""

    def __init__(self) -> None:
        issuer = self
        self.text, self.code, self.asked = jwks(one=KEY), 200, 0
        self.answers = threading.Event()
        self.answers.set()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                issuer.answers.wait(20)
                self.send_response(issuer.code)
                self.end_headers()
                self.wfile.write(issuer.text.encode())

            def log_message(self, *_: Any) -> None:
                return

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/jwks"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.answers.set()
        running.shutdown()
        thread.join()


async def test_keys_of_a_url_are_asked_for_when_one_is_missing_but_not_by_every_call(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = TokenVerifier(key_source(issuer.url), RULES)
    await verifier.user(token())
    await verifier.user(token())
    assert issuer.asked == 1
    for _ in range(3):
        with pytest.raises(TokenRejectedError):
            await verifier.user(token(OTHER_KEY, "two", "RS256"))
    assert issuer.asked == 1, "tokens with unknown keys must not flood the issuer"
    monkeypatch.setattr(tokens, "KEYS_MIN_AGE_S", 0.0)
    issuer.text = jwks(one=KEY, two=OTHER_KEY)
    await verifier.user(token(OTHER_KEY, "two", "RS256"))
    assert issuer.asked == 2


async def test_an_issuer_that_is_away_leaves_the_keys_that_are_known(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "KEYS_MIN_AGE_S", 0.0)
    monkeypatch.setattr(tokens, "KEYS_MAX_AGE_S", 0.0)
    verifier = TokenVerifier(key_source(issuer.url), RULES)
    issuer.code = 500
    with pytest.raises(KeysUnavailableError):
        await verifier.user(token())
    issuer.code = 200
    await verifier.user(token())
    issuer.text = "<html>"
    await verifier.user(token())
    await wait_until_async(lambda: issuer.asked == 3)
    await verifier.user(token())


async def test_a_silent_issuer_delays_no_token_with_a_known_key(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "KEYS_MIN_AGE_S", 0.0)
    monkeypatch.setattr(tokens, "WAITING_MAX", 2)
    monkeypatch.setattr(tokens, "WAIT_MAX_S", 60.0)
    verifier = TokenVerifier(key_source(issuer.url), RULES)
    await verifier.user(token())
    issuer.answers.clear()
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "KEYS_MAX_AGE_S", 0.0)
        await verifier.user(token())  # keys that are too old are fetched in the background
    unknown = token(OTHER_KEY, "two", "RS256")
    waiting = [asyncio.ensure_future(verifier.user(unknown)) for _ in range(2)]
    await wait_until_async(lambda: issuer.asked == 2)
    await verifier.user(token())
    with pytest.raises(KeysUnavailableError):
        await verifier.user(unknown)  # enough calls wait
    assert not any(each.done() for each in waiting)
    assert issuer.asked == 2, "one fetch at a time"
    issuer.text = jwks(one=KEY, two=OTHER_KEY)
    issuer.answers.set()
    for each in waiting:
        assert (await each).subject == "ann"


async def test_a_wait_for_an_unknown_key_is_bounded(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "WAIT_MAX_S", 0.01)
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", 0.05)
    issuer.answers.clear()
    verifier = TokenVerifier(key_source(issuer.url), RULES)
    with pytest.raises(KeysUnavailableError):
        await verifier.user(token())


async def test_an_answer_that_drips_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", 0.2)
    with structlog.testing.capture_logs() as events, socket.create_server(("127.0.0.1", 0)) as own:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = own.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not ended.wait(0.01):
                    try:
                        connection.sendall(b" ")
                    except OSError:  # the client has given up
                        ended.set()

        thread = threading.Thread(target=drip)
        thread.start()
        verifier = TokenVerifier(key_source(f"http://127.0.0.1:{own.getsockname()[1]}/jwks"), RULES)
        with pytest.raises(KeysUnavailableError):
            await verifier.user(token())
        await wait_until_async(ended.is_set)
        thread.join()
    assert [each["event"] for each in events] == ["the JWKS cannot be fetched"]


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("http://id.example.com/jwks", "must be an https URL"),
        ("ftp://id.example.com/jwks", "must be an https URL"),
        ("/nowhere/jwks.json", "cannot be read: No such file"),
    ],
)
def test_a_place_that_cannot_be_trusted_or_read_is_refused(place: str, fault: str) -> None:
    with pytest.raises(InvalidArgumentError, match=fault):
        key_source(place)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "x"}]}', "3"])
def test_what_is_no_jwks_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "jwks.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match="is not a JWKS with a usable key"):
        key_source(str(tmp_path / "jwks.json"))


def test_keys_of_a_url_come_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api(lambda _: Reply()) as proxy, running_api(lambda _: Reply(b"{}")) as api:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert tokens._get(f"{api.url}/keys") == "{}"
    assert not proxy.proxied_to(api)


def test_a_redirect_that_is_not_secure_is_refused() -> None:
    with running_api(lambda _: Reply(b"{}")) as other:
        away = Reply(status=302, headers={"location": other.url})
        with running_api(lambda _: away) as api, pytest.raises(OSError, match="not https"):
            tokens._get(api.url)
    assert not other.requests


@pytest.mark.parametrize("dripped", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_issuer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch, dripped: bytes) -> None:
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", 0.5)
    ended = threading.Event()

    def drip() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(dripped)
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(OSError, match=r"complete|closed|timed out"):
                tokens._get(f"http://127.0.0.1:{server.getsockname()[1]}/keys")
        finally:
            ended.set()
            thread.join()


def test_too_many_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "KEYS_MAX_BYTES", 100)
    with (
        running_api(lambda _: Reply(b"x" * 101)) as api,
        pytest.raises(OSError, match="more than 100 bytes"),
    ):
        tokens._get(api.url)
