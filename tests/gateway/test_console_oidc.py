"""Sign-in to the console by OpenID Connect, at a real issuer and at a hostile one."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import requests
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from drover.security.development_ca import init_certificates
from drover_gateway.identity import issuer as issuer_module
from drover_gateway.identity import issuer_http
from tests.support.console_client import ConsoleClient
from tests.support.gateways import grant_tokens, running_gateway
from tests.support.http_api import Reply
from tests.support.issuer_sign_in import (
    BEGIN,
    CALLBACK,
    answered,
    arrived,
    begin,
    sign_in,
    signing_in,
)
from tests.support.oidc_issuer import (
    CLIENT_ID,
    ScriptedIssuer,
    mock_issuer,
    query_of,
    scripted_issuer,
)
from tests.support.worker_cluster import WorkerCluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a worker that accepts every token."""
    async with WorkerCluster(tmp_path_factory.mktemp("oidc")) as cluster:
        await cluster.settled_workers(1)
        yield cluster.workers[0].address


@pytest.fixture
def issuer() -> Iterator[ScriptedIssuer]:
    with scripted_issuer() as running:
        yield running


async def test_a_user_signs_in_and_out_at_the_issuer(tmp_path: Path) -> None:
    """At a real issuer, whose ID tokens the workers verify."""
    certs = tmp_path / "certs"
    init_certificates(certs)
    grant_tokens(certs, {"subject": "ann", "role": "viewer"})
    secret = tmp_path / "secret"
    secret.write_text("of-the-console\n")
    with mock_issuer() as url:
        async with WorkerCluster(tmp_path, certificates=certs) as cluster:
            verified = {"jwks": f"{url}/jwks", "jwt_audience": CLIENT_ID, "jwt_issuer": url}
            await cluster.settled_workers(1, **verified)
            given = {
                "gateway_oidc_issuer": url,
                "gateway_oidc_client_id": CLIENT_ID,
                "gateway_oidc_client_secret_file": str(secret),
            }
            address = cluster.workers[0].address
            async with running_gateway([address], certificates=certs, **given) as gateway:
                await check_a_session(ConsoleClient(gateway), url)
                await check_a_denial(ConsoleClient(gateway))


async def check_a_session(console: ConsoleClient, url: str) -> None:
    page = await console.get("/ui/connectors?q=a")
    assert f"Sign in with {urlsplit(url).netloc}" in page.text
    (link,) = [each for each in page.html.split('"') if each.startswith(BEGIN)]
    sent = await console.get(link, allow_redirects=False)
    form = await asyncio.to_thread(
        requests.post, sent.headers["location"], {"sub": "ann"}, allow_redirects=False, timeout=30
    )
    location = urlsplit(form.headers["location"])
    page = await arrived(console, f"{location.path}?{location.query}")
    assert page.url.endswith("/ui/connectors?q=a")
    assert "Sign out" in page.text
    assert "There are no connectors that you may see" in page.text
    # the callback again, as from the history: the session stays
    again = await console.get(f"{location.path}?{location.query}")
    assert again.url.endswith("/ui/")
    out = await console.submit(page, "/ui/sign-out")
    target = out.headers["refresh"].removeprefix("0; url=")
    assert target.startswith(f"{url}/oauth2/end_session?")
    query = query_of(target)
    assert query["post_logout_redirect_uri"].endswith("/ui/sign-in")
    assert query["id_token_hint"].count(".") == 2
    shown = await asyncio.to_thread(requests.get, target, timeout=30)
    assert shown.status_code == 200
    assert "/ui/sign-in" in (await console.get("/ui/")).url


async def check_a_denial(console: ConsoleClient) -> None:
    url = await begin(console)
    form = await asyncio.to_thread(
        requests.post, url, {"action": "deny"}, allow_redirects=False, timeout=30
    )
    assert "error=access_denied" in form.headers["location"]
    # this issuer sends no state with the denial
    state = query_of(url)["state"]
    page = await arrived(console, f"{CALLBACK}?error=access_denied&state={state}")
    assert "The issuer did not let you in" in page.text
    assert "Sign out" not in page.text


async def test_a_sign_in_proves_who_began_it(worker: str, issuer: ScriptedIssuer) -> None:
    async with signing_in(worker, issuer, gateway_oidc_scopes="openid  groups") as console:
        query = query_of(await begin(console))
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["scope"] == "openid groups"
        assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
        page = await sign_in(console, "/ui/connectors?q=b")
        assert page.url.endswith("/ui/connectors?q=b")
        (form,) = issuer.forms()
        assert form["client_id"] == CLIENT_ID
        assert "client_secret" not in form
        cookies = {each.name: each for each in console.session.cookies}
        # two: the sign-in that was not finished is still possible
        kept = [each for name, each in cookies.items() if name.startswith("drover-sign-in-")]
        assert len(kept) == 1
        assert kept[0].get_nonstandard_attr("SameSite") == "Lax"
        assert cookies["drover-session"].get_nonstandard_attr("SameSite") == "Strict"
        assert query["state"] not in (kept[0].value or "") + kept[0].name


async def test_tabs_sign_in_at_the_same_time(worker: str, issuer: ScriptedIssuer) -> None:
    async with signing_in(worker, issuer) as console:
        urls = [await begin(console, f"/ui/connectors?q={number}") for number in range(3)]
        for number in (2, 0, 1):
            page = await arrived(console, await asyncio.to_thread(answered, urls[number]))
            assert page.url.endswith(f"/ui/connectors?q={number}")
        # more than that are not kept, so that a request's head stays small
        urls = [await begin(console) for _ in range(6)]
        names = [each.name for each in console.session.cookies]
        assert sum("sign-in" in each for each in names) == 3
        last = await arrived(console, await asyncio.to_thread(answered, urls[-1]))
        assert "Sign out" in last.text


async def test_a_callback_counts_once_in_the_browser_that_began_it(
    worker: str, issuer: ScriptedIssuer
) -> None:
    async with signing_in(worker, issuer) as console:
        back = await asyncio.to_thread(answered, await begin(console))
        foreign = ConsoleClient(console.gateway)
        page = await arrived(foreign, back)
        assert "This sign-in was not started in this browser" in page.text
        assert not issuer.forms()
        # a state of one browser with the cookie of another, and unknown states
        mine = query_of(await begin(foreign))["state"]
        for state in ("", "x" * 5_000, "é", mine[:-1], mine + "x"):
            page = await foreign.get(CALLBACK, params={"code": "c", "state": state})
            assert page.headers["refresh"].endswith("?reason=unknown-state")
        assert "Sign out" in (await arrived(console, back)).text
        console.session.cookies.clear()
        assert "was completed before" in (await arrived(console, back)).text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"iss": "https://other.example"}, "did not complete the sign-in"),
        ({"iss": None}, "did not complete the sign-in"),
        ({"code": None}, "did not complete the sign-in"),
        ({"code": "x" * 5_000}, "did not complete the sign-in"),
        ({"code": "of-another-user"}, "did not complete the sign-in"),
        ({"code": None, "error": "access_denied"}, "The issuer did not let you in"),
        ({"error": "<script>alert(1)</script>"}, "did not complete the sign-in"),
        ({"code": None, "error": "server_error"}, "did not complete the sign-in"),
    ],
    ids=str,
)
async def test_an_answer_that_is_not_the_issuers_is_refused(
    worker: str, issuer: ScriptedIssuer, answer: dict[str, str | None], text: str
) -> None:
    issuer.changed = {"authorization_response_iss_parameter_supported": True}
    issuer.answer = {"iss": issuer.name, "error_description": "<b>call 555-0100</b>", **answer}
    async with signing_in(worker, issuer) as console:
        page = await sign_in(console)
        assert text in page.text
        assert "Sign out" not in page.text
        assert "555-0100" not in page.html
        assert "<script>alert" not in page.html
        # and the same sign-in cannot be tried again
        assert not [each for each in console.session.cookies if "sign-in" in each.name]


async def test_a_repeated_parameter_is_refused(worker: str, issuer: ScriptedIssuer) -> None:
    async with signing_in(worker, issuer) as console:
        back = await asyncio.to_thread(answered, await begin(console))
        assert "did not complete" in (await arrived(console, f"{back}&code=second")).text


RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another-client"},
        {"aud": [CLIENT_ID, "another-client"]},
        {"aud": [CLIENT_ID, "another-client"], "azp": "another-client"},
        {"azp": "another-client"},
        {"iss": "https://other.example"},
        {"nonce": None},
        {"nonce": "another"},
        {"nonce": "\ud800"},
        {"nonce": ["a"]},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": 10**12},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "s" * 256},
    ],
    ids=str,
)
async def test_an_id_token_with_wrong_claims_is_refused(
    worker: str, issuer: ScriptedIssuer, claims: dict[str, Any]
) -> None:
    issuer.claims = claims
    async with signing_in(worker, issuer) as console:
        page = await sign_in(console)
        assert "answer was not accepted" in page.text
        assert "Sign out" not in page.text


async def test_an_id_token_of_another_key_or_algorithm_is_refused(
    worker: str, issuer: ScriptedIssuer
) -> None:
    import jwt

    public = json.loads(_keys(issuer))["keys"][0]
    claims = {"iss": issuer.name, "aud": CLIENT_ID, "sub": "ann", "exp": int(time.time()) + 60}
    other = ec.generate_private_key(ec.SECP256R1())
    tokens = {
        "none": jwt.encode(claims, "", algorithm="none", headers={"kid": "one"}),
        "secret": jwt.encode(
            claims, json.dumps(public) + "x" * 64, algorithm="HS256", headers={"kid": "one"}
        ),
        "key": jwt.encode(claims, other, algorithm="ES256", headers={"kid": "one"}),
        "unknown": jwt.encode(claims, other, algorithm="ES256", headers={"kid": "two"}),
        "text": "no-token",
        "own key": jwt.encode(
            claims, other, algorithm="ES256", headers={"jwk": {**public}, "kid": "three"}
        ),
    }
    async with signing_in(worker, issuer) as console:
        for what, token in tokens.items():
            issuer.response = {"id_token": token}
            page = await sign_in(console)
            assert "answer was not accepted" in page.text, what
            assert "Sign out" not in page.text


def _keys(issuer: ScriptedIssuer) -> str:
    return requests.get(f"{issuer.name}/keys", timeout=30).text


@pytest.mark.parametrize(
    "response",
    [
        {"id_token": None},
        {"id_token": 7},
        {"id_token": "a\nb"},
        {"id_token": "ü.ü.ü"},
    ],
    ids=str,
)
async def test_a_response_without_a_usable_token_is_refused(
    worker: str, issuer: ScriptedIssuer, response: dict[str, Any]
) -> None:
    issuer.response = response
    async with signing_in(worker, issuer) as console:
        page = await sign_in(console)
        assert "did not complete the sign-in" in page.text


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>busy</html>", 502),
        Reply(b"[" * 100_000),
        Reply(b"x" * (issuer_http.RESPONSE_MAX_BYTES + 1)),
        Reply(b"{}", 302, {"location": "https://other.example/token"}),
        Reply(b"{}", 307, {"location": "/realms/main/token2"}),
        Reply(b"{}", 200, {"content-encoding": "gzip"}),
        Reply(status=0),
        Reply(b"\xff\xfe"),
    ],
    ids=["502", "nested", "large", "redirect", "same host", "compressed", "closed", "no text"],
)
async def test_a_token_endpoint_without_an_answer_is_an_unavailable_issuer(
    worker: str, issuer: ScriptedIssuer, reply: Reply
) -> None:
    issuer.replies["/token"] = lambda request: reply
    async with signing_in(worker, issuer) as console:
        page = await sign_in(console, "/ui/connectors")
        assert "The issuer does not answer, or cannot be used" in page.text
        assert "next=%2Fui%2Fconnectors" in page.url
        assert "Token" in page.text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"issuer": "https://other.example"}, "both must be equal"),
        ({"issuer": None}, "both must be equal"),
        ({"token_endpoint": None}, "has no token_endpoint"),
        ({"token_endpoint": 7}, "has no token_endpoint"),
        ({"token_endpoint": "http://id.example.com/token"}, "must be an https URL"),
        ({"jwks_uri": "file:///etc/passwd"}, "must be a URL"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "must be a URL"),
        ({"authorization_endpoint": "https://a.example\\@b.example/"}, "must be a URL"),
        ({"end_session_endpoint": "data:text/html,x"}, "must be a URL"),
    ],
    ids=str,
)
async def test_a_metadata_document_that_leads_elsewhere_is_refused(
    issuer: ScriptedIssuer, changed: dict[str, Any], why: str
) -> None:
    issuer.changed = changed
    with pytest.raises(ValueError, match=why):
        issuer_module.metadata_of(issuer.metadata(), issuer.name)


async def test_endpoints_obey_the_host_policy(
    worker: str, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata service of a cloud, and hosts that the operator has not listed."""
    for proxy in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    issuer.changed = {"token_endpoint": "https://169.254.169.254/token"}
    async with signing_in(worker, issuer) as console:
        assert "cannot be used" in (await sign_in(console)).text
    issuer.changed = {}
    monkeypatch.setenv("DROVER_ALLOWED_HOSTS", "id.example.com")
    async with signing_in(worker, issuer) as console:
        page = await console.get(BEGIN)
        assert "cannot be used" in page.text
    monkeypatch.setenv("DROVER_ALLOWED_HOSTS", "127.0.0.1")
    async with signing_in(worker, issuer) as console:
        assert "Sign out" in (await sign_in(console)).text


async def test_an_unavailable_issuer_leaves_the_sign_in_by_token(
    worker: str, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_module, "MIN_INTERVAL_S", 0.0)
    monkeypatch.setattr(issuer_module, "ANSWERED_WITHIN_S", 0.0)
    document = "/.well-known/openid-configuration"
    issuer.replies[document] = lambda request: Reply(status=0)
    async with signing_in(worker, issuer) as console:
        page = await console.get(BEGIN, params={"next": "/ui/connectors"})
        assert "The issuer does not answer" in page.text
        signed_in = await console.submit(page, "/ui/sign-in", ("token", "any-token"))
        assert signed_in.url.endswith("/ui/connectors")
        assert "Sign out" in signed_in.text
        # a token's session does not lead to the issuer
        assert (await console.submit(signed_in, "/ui/sign-out")).url.endswith("/ui/sign-in")
        del issuer.replies[document]
        assert "Sign out" in (await sign_in(console)).text
        issuer.replies[document] = lambda request: Reply(status=503)
        assert "The issuer does not answer" in (await console.get(BEGIN)).text
        page = await console.get("/ui/connectors")
        assert "Sign out" in page.text
        # the browser is not sent to a page that does not open
        out = await console.submit(page, "/ui/sign-out")
        assert "You are signed out here" in out.text
        assert "Sign out" not in (await console.get("/ui/connectors")).text


async def test_requests_of_many_browsers_fetch_the_document_once(
    worker: str, issuer: ScriptedIssuer
) -> None:
    document = "/.well-known/openid-configuration"
    issuer.replies[document] = lambda request: Reply(status=503)
    async with signing_in(worker, issuer) as console:
        browsers = [ConsoleClient(console.gateway) for _ in range(10)]
        pages = await asyncio.gather(*(each.get(BEGIN) for each in browsers))
        assert all("The issuer does not answer" in each.text for each in pages)
        assert len(issuer.asked(document)) == 1


async def test_no_sign_in_leads_to_another_site(worker: str, issuer: ScriptedIssuer) -> None:
    targets = (
        "https://other.example/",
        "//other.example/",
        "/\\other.example",
        "/ui/../connectors\r\nset-cookie: a=b",
        "javascript:alert(1)",
        "/ui/" + "x" * 2_000,
    )
    async with signing_in(worker, issuer) as console:
        for target in targets:
            page = await sign_in(console, target)
            assert urlsplit(page.url).path == "/ui/", target


async def test_a_client_shows_its_secret_as_the_issuer_asks(
    worker: str, issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("s: %é\n")
    given = {"gateway_oidc_client_secret_file": str(file)}
    async with signing_in(worker, issuer, **given) as console:
        await sign_in(console)
        basic = issuer.asked("/token")[-1].headers["authorization"]
        # RFC 6749, 2.3.1: encoded as in a form
        assert requests.auth._basic_auth_str(CLIENT_ID, "s%3A+%25%C3%A9") == basic
        assert "client_secret" not in issuer.forms()[-1]
    issuer.changed = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with signing_in(worker, issuer, **given) as console:
        await sign_in(console)
        assert issuer.forms()[-1]["client_secret"] == "s: %é"
        assert "authorization" not in issuer.asked("/token")[-1].headers
