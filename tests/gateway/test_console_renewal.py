"""Sessions whose token comes from an issuer: renewal, end, size, and open streams."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import cast

import pytest
import pytest_asyncio

from drover_gateway.console import renewals
from drover_gateway.console.sessions import SESSION_S, TOKEN_MAX_CHARS, Session, Sessions
from drover_gateway.identity.oidc import Oidc
from drover_gateway.identity.oidc_values import OidcClient, SignInError, Tokens
from tests.support.http_api import Reply
from tests.support.issuer_sign_in import SessionCookies, events, sign_in, signing_in
from tests.support.oidc_issuer import ScriptedIssuer, payload_of, scripted_issuer
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

KEYS = "k" * 32
COOKIES = SessionCookies(KEYS)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a worker that accepts every token."""
    async with WorkerCluster(tmp_path_factory.mktemp("renewal")) as cluster:
        await cluster.settled_workers(1)
        yield cluster.workers[0].address


@pytest.fixture
def issuer() -> Iterator[ScriptedIssuer]:
    with scripted_issuer() as running:
        yield running


async def test_a_token_is_renewed_before_it_ends(worker: str, issuer: ScriptedIssuer) -> None:
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        page = await sign_in(console)
        first = COOKIES.session(console)
        assert first.end_s - 61 <= first.renew_s <= first.end_s - 59
        await console.get("/ui/connectors")
        assert COOKIES.session(console) == first
        COOKIES.age(console, renew_s=0)
        # requests at the same time, with a refresh token that counts once
        pages = await asyncio.gather(*(console.get("/ui/connectors") for _ in range(5)))
        assert all("Sign out" in each.text for each in pages)
        assert [each["grant_type"] for each in issuer.forms()].count("refresh_token") == 1
        second = COOKIES.session(console)
        assert second.token != first.token
        assert second.refresh_token == issuer.refresh_tokens[0]
        # the session is the same one: forms stay valid, and it ends when it would have ended
        assert (second.id, second.begin_s, second.subject) == (first.id, first.begin_s, "ann")
        done = await console.submit(page, "/ui/theme", ("theme", "dark"))
        assert done.status == 200
        # a late request with the cookie of before, such as of another tab
        COOKIES.age(console, renew_s=0)
        assert "Sign out" in (await console.get("/ui/")).text


async def test_the_workers_can_get_the_access_token(worker: str, issuer: ScriptedIssuer) -> None:
    given = {"gateway_session_keys": KEYS, "gateway_oidc_token": "access"}
    async with signing_in(worker, issuer, **given) as console:
        await sign_in(console)
        first = COOKIES.session(console)
        assert payload_of(first.token)["aud"] == "drover-api"
        # a renewal may come without an ID token, and without another refresh token
        issuer.response = {"id_token": None, "refresh_token": None, "expires_in": "900"}
        COOKIES.age(console, renew_s=0)
        page = await console.get("/ui/connectors")
        second = COOKIES.session(console)
        assert second.token != first.token
        assert (second.subject, second.id_token) == ("ann", first.id_token)
        assert second.refresh_token == first.refresh_token
        assert second.end_s > first.end_s + 200
        out = await console.submit(page, "/ui/sign-out")
        assert f"id_token_hint={first.id_token}" in out.headers["refresh"]


@pytest.mark.parametrize("lifetime", [None, "soon", -5, 0, True, 1.5, 10**12])
async def test_a_lifetime_that_is_not_told_is_five_minutes(
    worker: str, issuer: ScriptedIssuer, lifetime: object
) -> None:
    given = {"gateway_session_keys": KEYS, "gateway_oidc_token": "access"}
    issuer.response = {"expires_in": lifetime}
    async with signing_in(worker, issuer, **given) as console:
        begin_s = int(time.time())
        await sign_in(console)
        found = COOKIES.session(console)
        assert begin_s + 300 <= found.end_s <= int(time.time()) + 300
        assert found.renew_s >= begin_s + 10


@pytest.mark.parametrize(
    ("reply", "text", "is_over"),
    [
        (Reply({"error": "invalid_grant"}, 400), "the issuer no longer renews it", True),
        (Reply({"error": "invalid_client"}, 401), "did not complete the sign-in", True),
        (Reply(status=503), "The issuer does not answer", False),
        (Reply(status=0), "The issuer does not answer", False),
    ],
    ids=["ended", "another secret", "503", "closed"],
)
async def test_a_session_that_is_not_renewed_lasts_as_long_as_its_token(
    worker: str, issuer: ScriptedIssuer, reply: Reply, text: str, is_over: bool
) -> None:
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        await sign_in(console)
        issuer.replies["/token"] = lambda request: reply
        COOKIES.age(console, renew_s=0)
        assert "Sign out" in (await console.get("/ui/connectors")).text
        COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
        page = await console.get("/ui/connectors?q=a")
        assert text in page.text
        assert "next=%2Fui%2Fconnectors%3Fq%3Da" in page.url
        assert ("Sign out" not in page.text) == is_over
        # not at each request
        assert len(issuer.asked("/token")) == 2


async def test_a_renewed_token_that_is_too_large_counts_when_the_present_one_ends(
    worker: str, issuer: ScriptedIssuer
) -> None:
    given = {"gateway_session_keys": KEYS, "gateway_oidc_token": "access"}
    async with signing_in(worker, issuer, **given) as console:
        await sign_in(console)
        issuer.response = {"access_token": "x" * (TOKEN_MAX_CHARS + 1)}
        COOKIES.age(console, renew_s=0)
        assert "Sign out" in (await console.get("/ui/connectors")).text
        COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
        assert "token is too large" in (await console.get("/ui/connectors")).text


class DefectiveOidc:
    """Renews no token the first time, by a defect."""

    def __init__(self) -> None:
        self.calls = 0
        self.client = OidcClient("console")

    async def renewed(self, refresh_token: str, subject: str, now_s: float) -> Tokens:
        """See ``Oidc``."""
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("no thread can be started")
        return Tokens("new", subject, "", refresh_token, int(now_s) + 60, int(now_s) + 120)


async def test_a_defect_of_one_renewal_does_not_end_the_others() -> None:
    found = renewals.Renewals(cast("Oidc", DefectiveOidc()))
    begin_s = int(time.time())
    first = Session("a", "old", begin_s, "ann", refresh_token="r1", end_s=begin_s + 60)
    with pytest.raises(RuntimeError):
        await found.present(first, begin_s)
    for session in (replace(first, refresh_token="r2"), first):
        assert (await found.present(session, begin_s)).token == "new"


async def test_a_session_continues_when_the_issuer_answers_again(
    worker: str, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "RETRY_S", 0.0)
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        await sign_in(console)
        issuer.replies["/token"] = lambda request: Reply(status=503)
        COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
        assert "The issuer does not answer" in (await console.get("/ui/connectors")).text
        del issuer.replies["/token"]
        assert (await console.get("/ui/connectors")).url.endswith("/ui/connectors")


@pytest.mark.parametrize(
    "response",
    [{"id_token": None}, {"sub": "ben"}, {"aud": "another"}],
    ids=["none", "another user", "another client"],
)
async def test_a_renewed_id_token_is_checked(
    worker: str, issuer: ScriptedIssuer, response: dict[str, str | None]
) -> None:
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        await sign_in(console)
        first = COOKIES.session(console)
        if "id_token" in response:
            issuer.response = response
        else:
            issuer.claims = dict(response)
        COOKIES.age(console, renew_s=0)
        assert "Sign out" in (await console.get("/ui/connectors")).text
        assert COOKIES.session(console).token == first.token
        COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
        assert "Sign out" not in (await console.get("/ui/connectors")).text


async def test_a_token_without_a_refresh_token_ends_the_session(
    worker: str, issuer: ScriptedIssuer
) -> None:
    issuer.response = {"refresh_token": None}
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        await sign_in(console)
        COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
        page = await console.get("/ui/connectors")
        assert "Your session has ended" in page.text
        assert "Sign out" not in page.text


async def test_renewals_do_not_make_a_session_longer(worker: str, issuer: ScriptedIssuer) -> None:
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        await sign_in(console)
        COOKIES.age(console, renew_s=0, begin_s=int(time.time()) - SESSION_S)
        page = await console.get("/ui/connectors")
        assert len(issuer.asked("/token")) == 1
        assert "Sign out" not in page.text


async def test_keys_rotate(
    worker: str, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        await sign_in(console)
        new = ec.generate_private_key(ec.SECP256R1())
        issuer.key, issuer.published = (new, "two"), {**issuer.published, "two": new}
        # within ten seconds the keys are not fetched again
        assert "answer was not accepted" in (await sign_in(console)).text
        assert len(issuer.asked("/keys")) == 1
        monkeypatch.setattr("drover.security.tokens.KEYS_MIN_AGE_S", 0.0)
        assert "Sign out" in (await sign_in(console)).text
        assert len(issuer.asked("/keys")) == 2


async def test_a_large_token_is_cut_into_cookies(worker: str, issuer: ScriptedIssuer) -> None:
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        issuer.claims = {"groups": ["g" * 100] * 40}
        assert "Sign out" in (await sign_in(console)).text
        found = COOKIES.session(console)
        assert len(found.token) > 5_000
        assert found.refresh_token
        names = [each.name for each in console.session.cookies]
        assert {"drover-session", "drover-session-1", "drover-session-2"} <= set(names)
        # a smaller one leaves no part of it
        issuer.claims = {}
        await sign_in(console)
        assert "drover-session-2" not in [each.name for each in console.session.cookies]
        assert "Sign out" in (await console.get("/ui/")).text
        # without room the refresh token is left out
        issuer.response = {"refresh_token": "r" * 7_900}
        assert "Sign out" in (await sign_in(console)).text
        assert COOKIES.session(console).refresh_token == ""
        issuer.claims = {"groups": ["g" * 100] * 80}
        page = await sign_in(console)
        assert "too large for cookies" in page.text


async def test_what_does_not_fit_into_cookies_is_left_out() -> None:
    empty = Sessions([KEYS]).new("", 0)
    tokens = Tokens("t" * 4_000, "ann", "i" * 3_000, "r" * 3_000, 5, 9)
    kept = renewals.with_tokens(empty, tokens, workers_get_id_token=False)
    assert (kept.refresh_token, kept.id_token) == (tokens.refresh_token, "")
    smaller = replace(tokens, refresh_token="r" * 1_000)
    kept = renewals.with_tokens(empty, smaller, workers_get_id_token=False)
    assert kept.id_token == tokens.id_token
    large = replace(tokens, token="t" * (TOKEN_MAX_CHARS + 1))
    with pytest.raises(SignInError):
        renewals.with_tokens(empty, large, workers_get_id_token=True)


async def test_an_open_stream_asks_the_page_to_renew_the_token(
    worker: str, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "RETRY_S", 0.2)
    async with signing_in(worker, issuer, gateway_session_keys=KEYS) as console:
        await sign_in(console)
        issuer.replies["/token"] = lambda request: Reply(status=503)
        first = COOKIES.age(console, renew_s=0)
        assert (await events(console))[-1] == "renew"
        assert COOKIES.session(console) == first
        del issuer.replies["/token"]
        monkeypatch.setattr(renewals, "RETRY_S", 0.0)

        async def is_renewed() -> bool:
            await events(console, first_only=True)
            return COOKIES.session(console).token != first.token

        # the response of the new stream has the cookie
        await wait_until_async(is_renewed)
        # and a session that is over ends the page
        COOKIES.age(console, renew_s=0, end_s=1, refresh_token="")
        assert await events(console) == ["refused"]


async def test_a_form_of_before_the_renewal_stays_valid() -> None:
    sessions = Sessions([KEYS])
    session = sessions.new("t", time.time())
    renewed = replace(session, token="u", renew_s=5)
    assert sessions.accepts_form(renewed, "/ui/x", sessions.form_token(session, "/ui/x"))
    # sessions of a gateway without an issuer are read
    old = json.dumps({"id": "a", "token": "t", "begin_s": 5}).encode()
    cookies = {"drover-session": sessions.sealed(old, "drover-session")}
    assert sessions.read(cookies, 6, secure=False) == Session("a", "t", 5)
