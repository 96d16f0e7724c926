"""Every page of the console in Chromium, with every role, and every action without JavaScript."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Response, ViewportSize, expect

from drover.security.principal import Role
from drover_gateway.console import config_form_page, connector_offsets_page, frame
from tests.support.browsers import WatchedPage, running_browser
from tests.support.console_client import ConsoleClient
from tests.support.console_walk import (
    FAILED,
    FORMS,
    FREE_FORMS,
    NEEDS,
    ROLES,
    STOPPED,
    STRANGER,
    Place,
    World,
    needed,
    places,
    principal_of,
    routes,
    token_of,
    walked_world,
)
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.faults("console"),
    pytest.mark.timeout(1_800),
]

WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 320, "height": 640}
#: The forms of a page that are sent with POST: where to, and the values of their actions.
_OFFERED = """
[...document.querySelectorAll("form[method=post]")].flatMap((form) => {
  const path = new URL(form.getAttribute("action"), location).pathname;
  const values = [...form.querySelectorAll("[name=action], button[name=do]")];
  return (values.length ? values.map((each) => each.value) : [""]).map((value) => [path, value]);
})
"""
_LINKS = """
[...document.querySelectorAll("a[href]")]
  .map((each) => new URL(each.getAttribute("href"), location))
  .filter((each) => each.origin === location.origin).map((each) => each.pathname + each.search)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with walked_world(tmp_path_factory.mktemp("matrix")) as running:
        yield running


@asynccontextmanager
async def opened(browser: Browser, **options: Any) -> AsyncIterator[WatchedPage]:
    context = await browser.new_context(
        **{"viewport": WIDE, "ignore_https_errors": True, **options}
    )
    context.set_default_timeout(60_000)
    try:
        yield WatchedPage(await context.new_page())
    finally:
        await context.close()


async def sign_in(page: Page, world: World, role: str) -> None:
    await page.goto(f"{world.gateway.url}/ui/sign-in")
    await page.get_by_label("Token").fill(token_of(role))
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_load_state()


async def visit(page: Page, world: World, place: Place) -> Response:
    found = await page.goto(f"{world.gateway.url}{world.url(place)}")
    assert found is not None
    return found


async def test_every_page_and_form_of_the_application_is_in_the_walk() -> None:
    assert {each.path for each in places() if each.status == 200} >= routes("GET")
    forms = {each.path for each in FORMS} | FREE_FORMS
    assert forms == routes("POST"), "add the forms to FORMS or FREE_FORMS of console_walk.py"


@pytest.mark.parametrize(
    ("role", "colours", "size"),
    [
        *(("admin", each, size) for each in ("light", "dark") for size in (WIDE, NARROW)),
        ("operator", "light", WIDE),
        ("viewer", "dark", NARROW),
        (STRANGER, "light", WIDE),
    ],
    ids=lambda each: str(each["width"]) if isinstance(each, dict) else str(each),
)
async def test_every_page_is_accessible_and_offers_what_the_role_may_do(
    browser: Browser,
    world: World,
    role: str,
    colours: Literal["light", "dark"],
    size: ViewportSize,
) -> None:
    """No violation of accessibility or of the policy, and no script of stored texts runs."""
    may = principal_of(role).may
    roles_of = {
        world.url(each): each.role for each in places() if each.role not in (None, Role.VIEWER)
    }
    offered: set[str] = set()
    faults: list[str] = []
    async with opened(browser, color_scheme=colours, viewport=size) as watched:
        page = watched.page
        await sign_in(page, world, role)
        for place in places():
            where = f"{role} at {world.url(place)}"
            response = await visit(page, world, place)
            if response.status != place.status_for(role):
                faults.append(f"{where}: status {response.status}")
            if response.status == 403 and place.role is not None:
                await expect(page.locator(".notice.forbidden")).to_contain_text("needs the role")
            faults += [f"{where}: {each}" for each in await watched.violations()]
            if await watched.is_too_wide():
                faults.append(f"{where}: too wide")
            if await page.evaluate("window.isHacked") is not None:
                faults.append(f"{where}: a stored script ran")
            for path, value in await page.evaluate(_OFFERED):
                offered.add(path)
                role_needed = needed(path, value)
                if role_needed is not None and not may(role_needed):
                    faults.append(f"{where}: offers {path} {value}")
            faults += [
                f"{where}: links to {each}"
                for each in await page.evaluate(_LINKS)
                if each != world.url(place) and (needs := roles_of.get(each)) and not may(needs)
            ]
        # the responses with an error status are logged
        faults += [each for each in watched.errors if "status of" not in each]
    assert faults == []
    if role == "admin":
        # the others are on the pages that these lead to, or need another state
        first = {each.path for each in FORMS if not each.path.endswith("/run")}
        first.remove(connector_offsets_page.MOVE)
        assert offered >= first | {frame.SIGN_OUT, frame.THEME}


async def test_who_has_not_signed_in_is_sent_to_the_sign_in_page(world: World) -> None:
    console = ConsoleClient(world.gateway)
    for place in places():
        page = await console.get(world.url(place))
        if place.role is None:
            assert page.status == place.status, place
        else:
            assert page.url.partition("?")[0].endswith("/ui/sign-in"), place


@pytest.mark.parametrize("role", [each for each in ROLES if each != "admin"])
async def test_an_action_that_is_sent_by_hand_is_refused_with_the_role(
    world: World, role: str
) -> None:
    console = ConsoleClient(world.gateway)
    page = await console.get("/ui/sign-in")
    await console.submit(page, "/ui/sign-in", ("token", token_of(role)))
    before = (await world.gateway.ask("GET", "/connectors?expand=status", role="admin")).json()
    may = principal_of(role).may
    refused = 0
    for each in FORMS:
        if may(each.role):
            continue
        fields = list(world.filled(each.fields).items())
        page = await console.post_by_hand(each.path, *fields)
        assert page.status == 403, (each, page.text)
        # a stranger is refused at the first call that the page makes
        needs = "needs the role" if role == STRANGER else NEEDS.format(each.role.name.lower())
        assert needs in page.text, (each, page.text)
        refused += 1
    assert refused
    after = (await world.gateway.ask("GET", "/connectors?expand=status", role="admin")).json()
    assert states(after) == states(before)


def states(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: each["status"]["connector"]["state"] for name, each in found.items()}


async def test_every_page_can_be_read_without_javascript(browser: Browser, world: World) -> None:
    async with opened(browser, java_script_enabled=False) as watched:
        page = watched.page
        await sign_in(page, world, "admin")
        for place in places():
            response = await visit(page, world, place)
            assert response.status == place.status, place
            await expect(page.locator("h1")).to_be_visible()
            text = await page.locator("main").inner_text()
            assert len(text.split()) > 5, (place, text)
            # what only a script can do is not shown
            for each in await page.locator("#stream-retry, #follow-pause").all():
                await expect(each).to_be_hidden()


async def test_every_action_works_without_javascript(browser: Browser, world: World) -> None:
    """All forms of the application are sent by clicks alone."""
    async with opened(browser, java_script_enabled=False) as watched:
        page = watched.page
        sent: set[str] = set()
        page.on("request", lambda each: sent.add(posted(each.method, each.url)))
        await sign_in(page, world, "admin")
        await create_and_change_a_config(page, world)
        await act_on_connectors(page, world)
        await change_offsets(page, world)
        await replay_and_discard(page, world)
        await act_on_the_cluster(page, world)
        await page.get_by_role("button", name="Dark").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator("h1")).to_have_text("Sign in")
        # a sink's offsets are moved to a time in the tests of one connector
        assert sent - {""} == routes("POST") - {connector_offsets_page.MOVE}


def posted(method: str, url: str) -> str:
    return re.sub(r"^https?://[^/]+|\?.*$", "", url) if method == "POST" else ""


async def go(page: Page, world: World, path: str) -> None:
    response = await page.goto(f"{world.gateway.url}{path}")
    assert response is not None
    assert response.ok, path


async def click(page: Page, *names: str | re.Pattern[str]) -> None:
    """Press buttons, each on the page that the one before led to."""
    for name in names:
        exact = isinstance(name, str)
        await page.get_by_role("button", name=name, exact=exact).first.click()


async def shows(page: Page, *texts: str | re.Pattern[str]) -> None:
    for text in texts:
        await expect(page.locator("main")).to_contain_text(text)


async def create_and_change_a_config(page: Page, world: World) -> None:
    new = config_form_page.NEW
    await go(page, world, new)
    await page.get_by_label("Name of the connector").fill("n-1")
    await page.locator(f'button[name="class"][value="{SOURCE}"]').click()
    await click(page, "Validate")
    await expect(page.locator("h1")).to_have_text("New connector")
    await click(page, "YAML", "Fields", "Plan")
    await expect(page.locator("h1")).to_have_text("Plan for n-1")
    await click(page, "Back to the form", "Create")
    await shows(page, "The connector was created.")
    await page.get_by_role("link", name="Edit its config").click()
    await click(page, "all")
    await page.get_by_label("padding", exact=True).fill("x")
    await click(page, "Plan", "Apply this plan")
    await shows(page, "The config was written.")
    await go(page, world, f"{frame.CONNECTOR}?name=n-1&tab=history")
    await page.get_by_role("link", name=re.compile("Roll back to")).first.click()
    await click(page, re.compile("Roll back to"))
    await shows(page, "was rolled back")
    await world.until_state("n-1", "RUNNING", of_task=True)


async def act_on_connectors(page: Page, world: World) -> None:
    for label, done in (
        ("Pause", "1 paused"),
        ("Resume", "1 resumed"),
        ("Restart", "1 restarting"),
        ("Stop", "1 stopped"),
    ):
        await listed(page, world, f"{frame.CONNECTORS}?q=n-1", label)
        await shows(page, f"{done}, 0 failed.")
    await listed(page, world, f"{frame.CONNECTORS}?q={FAILED}", "Restart failed")
    await shows(page, "1 restarting, 0 failed.")
    await world.until_state(FAILED, "FAILED", of_task=True)
    await go(page, world, f"{frame.CONNECTOR}?name={FAILED}")
    await page.locator('input[name="task"]').fill("0")
    await click(page, "Restart task…", "Restart task 0")
    await shows(page, "Task 0 restarts.")
    await listed(page, world, f"{frame.CONNECTORS}?q=n-1", "Delete")
    await shows(page, "1 deleted, 0 failed.")


async def listed(page: Page, world: World, path: str, label: str) -> None:
    """Do something with the single connector of a list, once its state allows it."""
    button = page.get_by_role("button", name=f"{label}: 1 of 1", exact=True)
    first = page.get_by_role("button", name=f"{label}… 1", exact=True)

    async def is_offered() -> bool:
        await go(page, world, path)
        if not await first.count():  # hidden while it would do nothing
            return False
        await page.locator('input[name="name"]').check()
        await first.click()
        return await button.count() == 1

    await wait_until_async(is_offered)
    await button.click()


async def change_offsets(page: Page, world: World) -> None:
    path = f"{frame.CONNECTOR}?name={STOPPED}&tab=offsets"
    await go(page, world, path)
    await page.locator('input[name="entered"]').first.fill('{"at":7}')
    await click(page, "Review the difference…", re.compile("^Write "))
    await shows(page, "The connector is stopped.")
    await go(page, world, path)
    await expect(page.locator('input[name="entered"]').first).to_have_value('{"at":7}')
    await click(page, "Reset…", "Remove all offsets")
    await go(page, world, path)
    await shows(page, "0 offsets")


async def replay_and_discard(page: Page, world: World) -> None:
    path = f"{frame.DEAD_LETTERS}?connector={FAILED}"
    await go(page, world, f"{path}&letter=0:0")
    await page.get_by_label("Reason to discard them").fill("wrong")
    await click(page, "Discard…", "Discard 1")
    await shows(page, "discarded")
    await go(page, world, path)
    await click(page, "Replay…", re.compile(r"^Replay \d+$"))
    await expect(page.locator("h1")).to_have_text(f"Replay of dead letters of {FAILED}")
    await go(page, world, f"{path}&letter=0:0")
    await shows(page, "discarded")


async def act_on_the_cluster(page: Page, world: World) -> None:
    address = world.worker.address
    for label in ("Drain", "Resume"):
        button = page.get_by_role("button", name=f"{label} {address}…")

        async def is_offered(button: Any = button) -> bool:
            await go(page, world, frame.WORKERS)
            return bool(await button.count() == 1)

        await wait_until_async(is_offered)
        await button.click()
        await click(page, label)
        await expect(page.locator("h1")).to_have_text("Workers")
    await world.cluster.settled(*world.cluster.workers)
    await go(page, world, frame.LOGGERS)
    await page.get_by_label("Logger", exact=True).fill("root")
    await click(page, "Set…", re.compile("^Set "))
    await expect(page.locator("h1")).to_have_text("Loggers")
    await go(page, world, frame.PLUGINS)
    await click(page, "Reload…", re.compile("^Reload "))
    await shows(page, re.compile(r"\d reloaded, 0 failed\."))
