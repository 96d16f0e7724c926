"""Sign-in to the console at Keycloak, whose tokens the workers verify."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from drover.security.development_ca import SERVICE, files_of, init_certificates
from drover.security.tokens import LEEWAY_S
from drover_gateway.console import renewals
from drover_gateway.identity import issuer
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page
from tests.support.gateways import RunningGateway, grant_tokens, running_gateway
from tests.support.issuer_sign_in import BEGIN, SessionCookies, arrived, begin, events
from tests.support.keycloak import (
    LIFETIME_S,
    SECRET,
    Keycloak,
    KeycloakBrowser,
    installed_keycloak,
    running_keycloak,
    sent_to,
)
from tests.support.maven import JarsMissingError
from tests.support.oidc_issuer import CLIENT_ID, payload_of
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

KEYS = "k" * 32
COOKIES = SessionCookies(KEYS, secure=True)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.faults("console"),
    # the first test fetches and builds Keycloak
    pytest.mark.timeout(1_500),
]


@dataclass
class Cluster:
    """A gateway whose users sign in at Keycloak, and the address of a worker."""

    keycloak: Keycloak
    gateway: RunningGateway
    worker: str
    settings: dict[str, Any]

    def console(self) -> ConsoleClient:
        """A browser's cookies at the gateway."""
        return ConsoleClient(self.gateway)

    def browser(self) -> KeycloakBrowser:
        """A browser's cookies at Keycloak."""
        return KeycloakBrowser(self.keycloak)

    async def sign_in(
        self, console: ConsoleClient, user: str, browser: KeycloakBrowser | None = None
    ) -> Page:
        """The page after the sign-in, by a browser without a session at Keycloak."""
        url = await begin(console, "/ui/connectors")
        sent = await asyncio.to_thread((browser or self.browser()).sign_in, url, user)
        return await self.arrived(console, sent)

    async def arrived(self, console: ConsoleClient, url: str) -> Page:
        """The page after Keycloak sent the browser to a URL."""
        assert url.startswith(f"{self.gateway.url}/"), url
        return await arrived(console, url.removeprefix(self.gateway.url))

    async def status_of_create(self, token: str) -> int:
        """Of a request to create a connector of an unknown class: 400 for an admin."""
        found = await self.gateway.ask(
            "PUT",
            "/connectors/a/config",
            headers={"Authorization": f"Bearer {token}"},
            json={"connector.class": "NoSuch"},
        )
        return int(found.status_code)

    async def keys_are_used(self) -> None:
        """Wait until users can sign in with Keycloak's present keys.

        The gateway and the workers fetch the keys again, each at most every ten seconds.
        """

        async def is_signed_in() -> bool:
            return "Sign out" in (await self.sign_in(self.console(), "ann")).text

        await wait_until_async(is_signed_in)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their folder, with an access file."""
    folder = tmp_path_factory.mktemp("certificates")
    init_certificates(folder)
    grant_tokens(
        folder, {"group": "admins", "role": "admin"}, {"group": "viewers", "role": "viewer"}
    )
    return folder


@pytest.fixture(scope="module")
def keycloak(certificates: Path) -> Iterator[Keycloak]:
    try:
        installed = installed_keycloak()
    except JarsMissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    files = files_of(certificates, SERVICE)
    with running_keycloak(installed, files, f"https://{free_address()}") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    keycloak: Keycloak, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("keycloak")
    secret = folder / "secret"
    secret.write_text(SECRET)
    async with WorkerCluster(folder, certificates=certificates) as workers:
        verified = {"jwks": keycloak.keys_url, "jwt_issuer": keycloak.issuer}
        await workers.settled_workers(1, jwt_audience=CLIENT_ID, **verified)
        worker = workers.workers[0].address
        settings: dict[str, Any] = {
            "certificates": certificates,
            "gateway_session_keys": KEYS,
            "gateway_listen": keycloak.gateway_url.removeprefix("https://"),
            "gateway_oidc_issuer": keycloak.issuer,
            "gateway_oidc_ca": keycloak.ca,
            "gateway_oidc_client_id": CLIENT_ID,
            "gateway_oidc_client_secret_file": str(secret),
        }
        async with running_gateway([worker], **settings) as gateway:
            yield Cluster(keycloak, gateway, worker, settings)


@pytest.mark.parametrize(
    ("user", "group", "status"), [("ann", "admins", 400), ("cat", "viewers", 403)]
)
async def test_users_sign_in_and_have_the_roles_of_their_groups(
    cluster: Cluster, user: str, group: str, status: int
) -> None:
    console = cluster.console()
    page = await cluster.sign_in(console, user)
    assert page.url.endswith("/ui/connectors")
    assert "There are no connectors that you may see" in page.text
    token = COOKIES.session(console).token
    assert payload_of(token)["groups"] == [group]
    assert await cluster.status_of_create(token) == status


async def test_a_user_without_a_role_is_told_so(cluster: Cluster) -> None:
    page = await cluster.sign_in(cluster.console(), "dan")
    assert page.status == 403
    assert "The role is missing" in page.text


async def test_a_user_with_a_session_at_the_issuer_sees_no_form(cluster: Cluster) -> None:
    first, second, browser = *(cluster.console() for _ in range(2)), cluster.browser()
    await cluster.sign_in(first, "ann", browser)
    sent = sent_to(await asyncio.to_thread(browser.get, await begin(second)))
    page = await cluster.arrived(second, sent)
    assert "Sign out" in page.text
    assert COOKIES.session(second).id != COOKIES.session(first).id
    # the callback of one browser is of no use in another one
    other = cluster.console()
    page = await cluster.arrived(other, sent)
    assert "This sign-in was not started in this browser" in page.text


async def test_a_token_is_renewed_and_each_refresh_token_counts_once(cluster: Cluster) -> None:
    console = cluster.console()
    await cluster.sign_in(console, "ann")
    first = COOKIES.age(console, renew_s=0)
    pages = await asyncio.gather(*(console.get("/ui/connectors") for _ in range(4)))
    assert all("Sign out" in each.text for each in pages)
    second = COOKIES.session(console)
    assert second.refresh_token != first.refresh_token
    assert payload_of(second.token)["jti"] != payload_of(first.token)["jti"]
    COOKIES.age(console, renew_s=0)
    assert "Sign out" in (await console.get("/ui/connectors")).text
    third = COOKIES.session(console)
    assert third.token != second.token
    assert await cluster.status_of_create(third.token) == 400


async def test_an_open_page_continues_after_the_end_of_its_first_token(cluster: Cluster) -> None:
    console = cluster.console()
    await asyncio.to_thread(cluster.keycloak.set_token_lifetime, 15)
    try:
        await cluster.sign_in(console, "ann")
        first = COOKIES.session(console)
        claims = payload_of(first.token)
        assert claims["exp"] - claims["iat"] == 15
        # the stream ends before the token does, and the page opens it again
        assert (await events(console))[-1] == "renew"
        await events(console, first_only=True)
        assert COOKIES.session(console).token != first.token
        await wait_until_async(lambda: time.time() > first.end_s + LEEWAY_S + 1)
        assert await cluster.status_of_create(first.token) == 401
        assert await events(console, first_only=True) != ["refused"]
        assert "Sign out" in (await console.get("/ui/connectors")).text
    finally:
        await asyncio.to_thread(cluster.keycloak.set_token_lifetime, LIFETIME_S)


async def test_a_sign_out_ends_the_session_at_the_issuer(cluster: Cluster) -> None:
    console, browser = cluster.console(), cluster.browser()
    page = await cluster.sign_in(console, "ann", browser)
    kept = console.session.cookies.copy()
    out = await console.submit(page, "/ui/sign-out")
    target = out.headers["refresh"].removeprefix("0; url=")
    assert target.startswith(f"{cluster.keycloak.issuer}/")
    back = sent_to(await asyncio.to_thread(browser.get, target))
    assert back == f"{cluster.gateway.url}/ui/sign-in"
    # the next sign-in is not without the password
    shown = await asyncio.to_thread(browser.get, await begin(console))
    assert "kc-form-login" in shown.text
    # a copy of the cookie is no longer renewed
    console.session.cookies.update(kept)
    COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
    page = await console.get("/ui/connectors")
    assert "the issuer no longer renews it" in page.text


async def test_sessions_that_an_administrator_ends_are_not_renewed(cluster: Cluster) -> None:
    console = cluster.console()
    await cluster.sign_in(console, "ann")
    await asyncio.to_thread(cluster.keycloak.end_sessions)
    COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
    page = await console.get("/ui/connectors")
    assert "the issuer no longer renews it" in page.text


async def test_the_workers_accept_access_tokens(cluster: Cluster) -> None:
    settings = {
        **cluster.settings,
        "gateway_oidc_token": "access",
        "gateway_listen": free_address(),
        # the client is registered for the address of the other gateway
        "gateway_url": cluster.gateway.url,
    }
    async with running_gateway([cluster.worker], **settings) as gateway:
        console = ConsoleClient(gateway)
        url = await begin(console, "/ui/connectors")
        sent = await asyncio.to_thread(cluster.browser().sign_in, url, "ann")
        page = await cluster.arrived(console, sent)
        assert "Sign out" in page.text, page.text
        found = COOKIES.session(console)
        assert payload_of(found.token)["typ"] == "Bearer"
        COOKIES.age(console, renew_s=0)
        assert "Sign out" in (await console.get("/ui/connectors")).text
        renewed = COOKIES.session(console).token
        assert renewed != found.token
        assert await cluster.status_of_create(renewed) == 400


async def test_users_sign_in_after_the_keys_rotate(cluster: Cluster) -> None:
    console = cluster.console()
    await cluster.sign_in(console, "ann")
    before = COOKIES.session(console).token
    await asyncio.to_thread(cluster.keycloak.rotate_keys)
    await cluster.keys_are_used()
    # sessions continue with tokens that the old key has signed
    assert "Sign out" in (await console.get("/ui/connectors")).text
    assert COOKIES.session(console).token == before
    COOKIES.age(console, renew_s=0)
    assert "Sign out" in (await console.get("/ui/connectors")).text
    after = COOKIES.session(console).token
    assert before.partition(".")[0] != after.partition(".")[0]  # the header names the key


async def test_sessions_outlive_an_issuer_that_is_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "RETRY_S", 0.0)
    monkeypatch.setattr(issuer, "MIN_INTERVAL_S", 0.0)
    monkeypatch.setattr(issuer, "ANSWERED_WITHIN_S", 0.0)
    console, leaving = (cluster.console() for _ in range(2))
    await cluster.sign_in(console, "ann")
    page = await cluster.sign_in(leaving, "cat")
    cluster.keycloak.process.kill()
    try:
        assert "You are signed out here" in (await leaving.submit(page, "/ui/sign-out")).text
        COOKIES.age(console, renew_s=0)
        assert "Sign out" in (await console.get("/ui/connectors")).text
        ended = COOKIES.age(console, renew_s=0, end_s=int(time.time()) - 1)
        page = await console.get("/ui/connectors")
        assert "The issuer does not answer" in page.text
        assert COOKIES.session(console) == ended
        other = cluster.console()
        page = await other.get(BEGIN)
        assert "The issuer does not answer" in page.text
        assert "Sign out" not in page.text
        page = await other.sign_in("viewer")
        assert "Sign out" in page.text
    finally:
        await asyncio.to_thread(cluster.keycloak.start)
    # it has lost its sessions, and has other keys
    page = await console.get("/ui/connectors")
    assert "the issuer no longer renews it" in page.text
    await cluster.keys_are_used()
