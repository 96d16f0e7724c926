"""Signs in to the console at an issuer, as a browser does."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import requests

from drover_gateway.console.sessions import Session, Sessions
from tests.support.addresses import HOST
from tests.support.console_client import ConsoleClient, Page
from tests.support.gateways import running_gateway
from tests.support.oidc_issuer import CLIENT_ID, ScriptedIssuer

BEGIN = "/ui/sign-in/issuer"
CALLBACK = "/ui/sign-in/callback"


@dataclass(frozen=True)
class SessionCookies:
    """Reads and changes the cookies of sessions, with the keys of their gateway."""

    keys: str
    secure: bool = False

    def session(self, console: ConsoleClient) -> Session:
        """What the cookie of a browser has."""
        cookies = {each.name: each.value or "" for each in console.session.cookies}
        found = Sessions([self.keys]).read(cookies, time.time(), secure=self.secure)
        assert found is not None
        return found

    def age(self, console: ConsoleClient, **changed: Any) -> Session:
        """Change the times of a browser's session."""
        aged = replace(self.session(console), **changed)
        for each in Sessions([self.keys]).cookies(aged, secure=self.secure):
            name, _, value = each.partition(";")[0].partition("=")
            if value:
                console.session.cookies.set(name, value, domain=HOST, path="/", secure=self.secure)
        return aged


@asynccontextmanager
async def signing_in(
    worker: str, issuer: ScriptedIssuer, **settings: Any
) -> AsyncIterator[ConsoleClient]:
    """A browser, and a gateway whose users sign in at the issuer."""
    given = {
        "gateway_oidc_issuer": issuer.name,
        "gateway_oidc_client_id": CLIENT_ID,
        **settings,
    }
    async with running_gateway([worker], **given) as gateway:
        console = ConsoleClient(gateway)
        console.session.trust_env = False
        yield console


async def begin(console: ConsoleClient, target: str = "/ui/") -> str:
    """The issuer's URL that the browser is sent to."""
    page = await console.get(BEGIN, params={"next": target}, allow_redirects=False)
    assert page.status == 303, page.text
    return str(page.headers["location"])


def answered(url: str) -> str:
    """Where the issuer sends the browser, without the host."""
    with requests.Session() as browser:
        browser.trust_env = False
        found = browser.get(url, timeout=30, allow_redirects=False)
    parts = urlsplit(found.headers["location"])
    return f"{parts.path}?{parts.query}"


async def arrived(console: ConsoleClient, url: str) -> Page:
    """The page after the callback, which a browser opens at once."""
    page = await console.get(url, allow_redirects=False)
    if page.status == 200:
        target = page.headers["refresh"].removeprefix("0; url=")
        assert target.startswith("/ui/"), target
        return await console.get(target)
    assert page.status == 303, page.text
    return await console.get(page.headers["location"])


async def sign_in(console: ConsoleClient, target: str = "/ui/") -> Page:
    url = await begin(console, target)
    return await arrived(console, await asyncio.to_thread(answered, url))


async def events(console: ConsoleClient, *, first_only: bool = False) -> list[str]:
    """The events of a stream with the updates of a page, until its end."""
    found: list[str] = []
    gateway = console.gateway
    verify = ssl.create_default_context(cafile=gateway.ca) if gateway.ca else True
    cookies = console.session.cookies
    async with (
        httpx.AsyncClient(cookies=cookies, trust_env=False, timeout=60, verify=verify) as client,
        client.stream("GET", f"{gateway.url}/ui/live?page=overview") as response,
    ):
        for name, value in response.cookies.items():
            cookies.set(name, value, domain=HOST, path="/", secure=bool(gateway.ca))
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                found.append(line.removeprefix("event: "))
                if first_only:
                    break
    return found
