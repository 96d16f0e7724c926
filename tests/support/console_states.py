"""The console's pages while something is missing, for tests and pictures."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, Route, ViewportSize, expect

from drover.security.development_ca import init_certificates
from drover.security.grants import token_sha256
from tests.support.browsers import WatchedPage
from tests.support.fake_engine import SOURCE
from tests.support.gateways import TOKENS, RunningGateway, grant_tokens, running_gateway
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

#: What each state shows.
STATES: Mapping[str, str] = {
    "loading": "2 connectors",
    "empty": "There are no connectors that you may see",
    "forbidden": "ListAuditEvents needs the role admin for the whole cluster",
    "stale": "This is the last known state",
    "error": "The page is loaded again every 5 s.",
    "lost-stream": "What you see is from",
}
_CONNECTORS, _HOME = "/ui/connectors", "/ui/"
#: A caller with a grant for connectors that do not exist yet.
_NEW_TEAM = "token-of-dan"
_CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
_FAILING = {"fail.start": "OSError: no route to the host", "restart.policy": "never"}
_TIMEOUT_MS = 60_000


async def states(
    browser: Browser, directory: Path, viewport: ViewportSize
) -> AsyncIterator[tuple[str, WatchedPage]]:
    """Each of ``STATES`` with a page in it: the cluster loses its worker, then its gateway."""
    certificates = directory / "certificates"
    init_certificates(certificates)
    team = {"token_sha256": token_sha256(_NEW_TEAM), "name": "new-team", "role": "admin"}
    grant_tokens(certificates, {**team, "connectors": ["new-*"]})
    async with (
        WorkerCluster(directory, certificates=certificates) as cluster,
        AsyncExitStack() as stack,
    ):
        worker = await cluster.add_worker(tls_client_auth="none")
        await cluster.settled(worker)
        gateway = await stack.enter_async_context(
            running_gateway([worker.address], certificates=certificates)
        )
        await _fill(gateway)

        async def opened(token: str) -> WatchedPage:
            context = await browser.new_context(viewport=viewport, ignore_https_errors=True)
            stack.push_async_callback(context.close)
            context.set_default_timeout(_TIMEOUT_MS)
            watched = WatchedPage(await context.new_page())
            await watched.page.goto(f"{gateway.url}/ui/sign-in")
            await watched.page.get_by_label("Token").fill(token)
            await watched.page.get_by_role("button", name="Sign in").click()
            await expect(watched.page.locator("h1")).to_have_text("Overview", timeout=_TIMEOUT_MS)
            return watched

        operator, viewer = await opened(TOKENS["operator"]), await opened(TOKENS["viewer"])
        held = await _loading(operator.page, gateway)
        yield "loading", operator
        held.set()
        new = await opened(_NEW_TEAM)
        await new.page.goto(gateway.url + _CONNECTORS)
        yield "empty", new
        await viewer.page.goto(f"{gateway.url}/ui/audit")
        yield "forbidden", viewer
        await operator.page.goto(gateway.url + _CONNECTORS)
        await worker.service.kill()

        async def shows_the_last_state() -> bool:
            await operator.page.goto(gateway.url + _CONNECTORS)
            return STATES["stale"] in await operator.page.locator("main").inner_text()

        await wait_until_async(shows_the_last_state)
        yield "stale", operator
        await viewer.page.goto(f"{gateway.url}/ui/topics")
        yield "error", viewer
        await operator.page.goto(gateway.url + _HOME)
        gateway.stopping.set()
        await asyncio.wait({gateway.task}, timeout=60)
        text = operator.page.locator("#stream-text")
        await expect(text).to_contain_text("The gateway does not answer", timeout=_TIMEOUT_MS)
        yield "lost-stream", operator


async def _fill(gateway: RunningGateway) -> None:
    for name, more in (("orders", {}), ("payments", _FAILING)):
        path, config = f"/connectors/{name}/config", {**_CONFIG, **more}
        assert (await gateway.ask("PUT", path, role="admin", json=config)).ok

    async def has_failed() -> bool:
        path = "/connectors/payments/status"
        found: Any = (await gateway.ask("GET", path, role="admin")).json()
        return any(each["state"] == "FAILED" for each in found["tasks"])

    await wait_until_async(has_failed)


async def _loading(page: Page, gateway: RunningGateway) -> asyncio.Event:
    """A search whose response is held back until the event is set."""
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.continue_()

    await page.goto(gateway.url + _CONNECTORS)
    await page.route("**/ui/connectors?*part=results*", hold)
    await page.get_by_label("Name contains").press_sequentially("pay")
    await expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    return released
