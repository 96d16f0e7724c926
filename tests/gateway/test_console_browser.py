"""The console in Chromium: accessibility, the policy, keyboard, live updates, lost streams."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ViewportSize, expect

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRecord, PreviewedRow
from drover_gateway.console.config_draft import Draft
from drover_gateway.console.config_result_page import preview_html
from drover_gateway.console.connector_page import TABS
from drover_gateway.console.frame import THEMES, Visit
from drover_gateway.console.sessions import Sessions
from drover_gateway.console.static_files import PREFIX, STATIC_FILES
from tests.support.addresses import free_address
from tests.support.browsers import WatchedPage, running_browser
from tests.support.fake_engine import SOURCE
from tests.support.gateways import running_gateway
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
BROKEN = {
    **CONFIG,
    "fail.start": "OSError: no route to the host",
    "restart.policy": "never",
    "errors.deadletterqueue.topic.name": "b-dead",
}
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 320, "height": 640}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a worker with connectors of which one has failed."""
    async with WorkerCluster(tmp_path_factory.mktemp("browser")) as cluster:
        await cluster.settled_workers(1)
        address = cluster.workers[0].address
        record = {"key": b"k", "value": b'{"a": [1, 2]}', "headers": [("trace", b"x")]}
        store_records(cluster.store(), "b-topic", [record, {"key": b"gone"}])
        about = {"stage": b"TASK_PUT", "exception.class.name": b"DataError"}
        headers = [(f"__connect.errors.{name}", each) for name, each in about.items()]
        store_records(cluster.store(), "b-dead", [{**record, "headers": headers}])
        async with running_gateway([address]) as gateway:
            for name, config in (("a-1", CONFIG), ("a-2", CONFIG), ("b-1", BROKEN)):
                path = f"/connectors/{name}/config"
                assert (await gateway.ask("PUT", path, json=config)).status_code == 201

            async def has_failed() -> bool:
                status = (await gateway.ask("GET", "/connectors/b-1/status")).json()
                return any(each["state"] == "FAILED" for each in status["tasks"])

            await wait_until_async(has_failed)
        yield address


@asynccontextmanager
async def opened(browser: Browser, **options: Any) -> AsyncIterator[WatchedPage]:
    context = await browser.new_context(**{"viewport": WIDE, **options})
    try:
        yield WatchedPage(await context.new_page())
    finally:
        await context.close()


@pytest.mark.parametrize(
    ("colours", "size"),
    [
        ("light", WIDE),
        pytest.param("dark", NARROW, marks=pytest.mark.faults("console")),
        pytest.param("dark", WIDE, marks=pytest.mark.faults("console")),
        pytest.param("light", NARROW, marks=pytest.mark.faults("console")),
    ],
)
async def test_every_page_is_accessible(
    browser: Browser, worker: str, colours: Literal["light", "dark"], size: ViewportSize
) -> None:
    """In light and dark, and at a width of 320 pixels."""
    async with running_gateway([worker]) as gateway, running_gateway([free_address()]) as alone:
        places = [
            f"{gateway.url}/ui/",
            f"{gateway.url}/ui/connectors",
            f"{gateway.url}/ui/connectors?q=nothing",
            f"{gateway.url}/ui/workers",
            f"{gateway.url}/ui/rebalances",
            f"{gateway.url}/ui/plugins",
            f"{gateway.url}/ui/plugin?class={SOURCE}",
            f"{gateway.url}/ui/audit",
            f"{gateway.url}/ui/loggers",
            f"{gateway.url}/ui/topics",
            f"{gateway.url}/ui/topics?q=nothing",
            f"{gateway.url}/ui/topic?name=b-topic&where=value%3E%3D0",
            f"{gateway.url}/ui/topic?name=b-topic&partition=0&offset=0&count=1",
            f"{gateway.url}/ui/topic?name=b-topic&follow=yes",
            f"{gateway.url}/ui/topic?name=b-topic&where=%3D",
            f"{gateway.url}/ui/dead-letters",
            f"{gateway.url}/ui/dead-letters?connector=b-1",
            f"{gateway.url}/ui/dead-letters?connector=b-1&stage=TASK_PUT&cause=DataError",
            f"{gateway.url}/ui/dead-letters?connector=b-1&letter=0:0",
            f"{gateway.url}/ui/dead-letters/progress?connector=b-1&ranges=0:0-1&ends=0:1",
            *(
                f"{gateway.url}/ui/connector?name=b-1&tab={tab}"
                for tab in TABS
                if tab != "dead-letters"
            ),
            f"{gateway.url}/ui/connector?name=nothing",
            f"{gateway.url}/ui/connector/new",
            f"{gateway.url}/ui/connector/new?class={SOURCE}",
            f"{gateway.url}/ui/connector/edit?name=a-1",
            f"{gateway.url}/ui/connector/edit?name=a-1&notation=yaml",
            f"{gateway.url}/ui/sign-in?refused=yes",
            f"{gateway.url}/ui/no-such-page",
            f"{alone.url}/ui/connectors",
        ]
        async with opened(browser, color_scheme=colours, viewport=size) as watched:
            for url in places:
                await watched.page.goto(url)
                await check(watched, url)
            await watched.page.goto(f"{gateway.url}/ui/connectors")
            await watched.page.get_by_label("all 3 of this list").check()
            await watched.page.get_by_role("button", name="Delete…").click()
            await expect(watched.page.locator("h1")).to_have_text("Delete?")
            await watched.page.get_by_text("The same from the command line").click()
            await check(watched, "confirmation")
            await watched.page.goto(f"{gateway.url}/ui/dead-letters?connector=b-1")
            await watched.page.get_by_role("button", name="Replay…").click()
            await expect(watched.page.locator("main")).to_contain_text("1 would be replayed")
            await check(watched, "dry run")
            await watched.page.goto(f"{gateway.url}/ui/loggers")
            await watched.page.get_by_label("Logger", exact=True).fill("root")
            await watched.page.get_by_role("button", name="Set…").click()
            await expect(watched.page.locator("main")).to_contain_text("root")
            await check(watched, "level of a logger")
            # the responses with an error status are logged
            assert [each for each in watched.errors if "status of" not in each] == []


async def check(watched: WatchedPage, place: str) -> None:
    assert await watched.violations() == [], place
    assert not await watched.is_too_wide(), place


async def test_search_and_changes_appear_without_loading_the_page(
    browser: Browser, worker: str
) -> None:
    async with running_gateway([worker]) as gateway, opened(browser) as watched:
        page = watched.page
        await page.goto(f"{gateway.url}/ui/connectors")
        rows = page.locator("#results .row:not(.head)")
        await expect(rows).to_have_count(3)
        await page.evaluate("window.isSame = true")
        await page.get_by_label("Name contains").press_sequentially("a-")
        await expect(rows).to_have_count(2)
        assert page.url.endswith("/ui/connectors?q=a-")
        # what is selected and focused stays so while its row changes
        box = page.get_by_label("Select a-2")
        await box.check()
        await box.focus()
        await gateway.ask("PUT", "/connectors/a-2/pause")
        await expect(page.locator(".row", has_text="a-2")).to_contain_text("paused")
        await expect(box).to_be_checked()
        await expect(box).to_be_focused()
        await expect(page.locator("#selected")).to_have_text("With the 1 selected")
        # what would do nothing with the selected one is not offered
        await expect(page.get_by_role("button", name="Resume… 1")).to_be_visible()
        await expect(page.get_by_role("button", name="Pause…")).to_be_hidden()
        await gateway.ask("PUT", "/connectors/a-2/resume")
        await expect(page.locator(".row", has_text="a-2")).to_contain_text("running")
        await gateway.ask("PUT", "/connectors/a-3/config", json=CONFIG)
        await page.get_by_role("link", name="Show the list as it is now").click()
        await expect(rows).to_have_count(3)
        await expect(box).to_be_checked()
        await gateway.ask("DELETE", "/connectors/a-3")
        await expect(page.locator(".row", has_text="a-3")).to_contain_text("removed")
        assert await page.evaluate("window.isSame")
        assert watched.errors == []


async def test_a_lost_stream_is_shown_and_recovers(browser: Browser, worker: str) -> None:
    address = free_address()
    async with opened(browser) as watched:
        page = watched.page
        async with running_gateway([worker], gateway_listen=address) as gateway:
            await page.goto(f"{gateway.url}/ui/connectors")
            row = page.locator(".row", has_text="a-1")
            await expect(row).to_contain_text("running")
        text = page.locator("#stream-text")
        await expect(text).to_contain_text("The gateway does not answer.")
        await expect(text).to_contain_text("What you see is from")
        await expect(page.get_by_role("button", name="Try now")).to_be_visible()
        # the last known state stays
        await expect(row).to_contain_text("running")
        assert await watched.violations() == []
        async with running_gateway([worker]) as other:
            await other.ask("PUT", "/connectors/a-1/pause")
        async with running_gateway([worker], gateway_listen=address) as gateway:
            # not a click at its place: the page hides the button when it has connected again
            await page.locator("#stream-retry").dispatch_event("click")
            await expect(row).to_contain_text("paused")
            await expect(text).to_have_text("")
            await gateway.ask("PUT", "/connectors/a-1/resume")
            await expect(row).to_contain_text("running")


async def test_an_action_needs_only_a_keyboard(browser: Browser, worker: str) -> None:
    async with running_gateway([worker]) as gateway, opened(browser) as watched:
        page = watched.page
        await page.goto(f"{gateway.url}/ui/connectors?q=a-1")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await tab_to(watched, "Select a-1")
        await page.keyboard.press("Space")
        await expect(page.get_by_label("Select a-1")).to_be_checked()
        await tab_to(watched, "Pause… 1", "Shift+Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1")).to_have_text("Pause?")
        await tab_to(watched, "Pause: 1 of 1")
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_contain_text("1 paused, 0 failed.")
        await gateway.ask("PUT", "/connectors/a-1/resume")


async def tab_to(watched: WatchedPage, label: str, key: str = "Tab") -> None:
    """Press a key until the element with a label has the focus."""
    script = "document.activeElement.ariaLabel || document.activeElement.textContent"
    for _ in range(60):
        await watched.page.keyboard.press(key)
        if await watched.page.evaluate(script) == label:
            return
    raise AssertionError(f"{label} cannot be reached")


async def test_pages_work_without_javascript(browser: Browser, worker: str) -> None:
    async with (
        running_gateway([worker]) as gateway,
        opened(browser, java_script_enabled=False) as watched,
    ):
        page = watched.page
        await page.goto(f"{gateway.url}/ui/connectors")
        await page.locator('input[name="q"]').fill("b-")
        await page.get_by_role("button", name="Apply").click()
        await expect(page.locator("#results .row:not(.head)")).to_have_count(1)
        await expect(page.locator("noscript")).to_be_visible()
        await page.locator('input[name="name"]').check()
        await page.get_by_role("button", name="Restart failed…").click()
        await page.get_by_role("button", name="Restart failed: 1 of 1").click()
        await expect(page.locator("main")).to_contain_text("1 restarting, 0 failed.")
        await page.get_by_role("button", name="Dark").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_config_is_checked_while_it_is_typed(browser: Browser, worker: str) -> None:
    async with running_gateway([worker]) as gateway, opened(browser) as watched:
        page = watched.page
        await gateway.ask("PUT", "/connectors/form/config", json={**CONFIG, "db.login": "s3cret"})
        await page.goto(f"{gateway.url}/ui/connector/edit?name=form")
        await page.get_by_role("button", name="all").click()
        await expect(page.get_by_label("padding", exact=True)).to_be_visible()
        await page.evaluate("window.isSame = true")
        tasks = page.get_by_label("tasks.max", exact=True)
        password = page.get_by_label("db.token", exact=True)
        await password.fill("typed")
        await tasks.fill("-1")
        await expect(page.locator("#checks-list")).to_contain_text(
            "must be a number above 0", timeout=60_000
        )
        await expect(tasks).to_have_attribute("aria-invalid", "true")
        await expect(tasks).to_be_focused()
        await expect(password).to_have_value("typed")
        assert await watched.violations() == []
        await tasks.fill("2")
        await expect(page.locator("#checks-state")).to_have_text("No errors", timeout=60_000)
        assert await page.evaluate("window.isSame")
        await page.get_by_label("tasks.max", exact=True).press("Enter")
        await expect(page.get_by_text("You typed a value.")).to_be_visible()
        await page.get_by_role("button", name="Plan").click()
        await expect(page.locator("h1")).to_have_text("Plan for form")
        assert await watched.violations() == []
        await page.get_by_role("button", name="Apply this plan").click()
        await expect(page.locator("main")).to_contain_text("The config was written.")
        found = (await gateway.ask("GET", "/connectors/form/config")).json()
        assert found["tasks.max"] == "2"
        assert found["db.token"] == found["db.login"] != ""
        assert watched.errors == []
        await gateway.ask("DELETE", "/connectors/form")


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_words_in_a_preview_are_not_broken(browser: Browser, size: ViewportSize) -> None:
    """A table with many columns is scrolled; only a value that is too wide for one is broken."""
    value = {f"customer_column_{at}": f"identifier-{at}-2026-01-31T12:00:00Z" for at in range(12)}
    value |= {"text": "a text of several words", "long": "x" * 3_000}
    record = PreviewedRecord(topic="orders-of-customers", value=json.dumps(value))
    preview = Preview(steps=["read"], rows=[PreviewedRow(place="orders.csv:1", records=[record])])
    sessions = Sessions()
    visit = Visit(sessions.new("", 1_000.0), sessions, THEMES[0], "/ui/")
    content = preview_html(visit, Draft("a", {}, is_new=True), preview, "")
    async with opened(browser, viewport=size) as watched:
        page = watched.page
        await page.set_content(f"<!doctype html><main>{content}</main>")
        await page.add_style_tag(content=STATIC_FILES[f"{PREFIX}console.css"].body.decode())
        lines = await page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll("td bdi, th")].map((each) => {
              const range = document.createRange();
              range.selectNodeContents(each);
              const tops = [...range.getClientRects()].map((rect) => Math.round(rect.top));
              return [each.textContent, new Set(tops).size];
            }))"""
        )
        broken = {text for text, count in lines.items() if count > 1}
        assert {text[:10] for text in broken} == {"x" * 10}
        cell = page.locator("td", has_text="xxx").first
        assert await cell.evaluate("each => each.offsetWidth") <= 30 * 16
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_markup_in_names_runs_nowhere(browser: Browser, worker: str) -> None:
    attack = "<img src=x onerror=window.isHacked=1>"
    async with running_gateway([worker]) as gateway, opened(browser) as watched:
        await gateway.ask("POST", "/connectors", json={"name": attack, "config": CONFIG})
        page = watched.page
        await page.goto(f"{gateway.url}/ui/connectors?sort=name")
        row = page.locator(".row", has_text=attack)
        await expect(row).to_have_count(1)
        # also where the script puts a changed row, and a new list, into the page
        await row.get_by_role("checkbox").check()
        await page.get_by_role("button", name="Pause…").click()
        await page.get_by_role("button", name="Pause: 1 of 1").click()
        await expect(page.locator("main")).to_contain_text("1 paused")
        await page.get_by_role("link", name="Back to the connectors").click()
        await expect(row).to_contain_text("paused")
        await page.get_by_label("Name contains").press_sequentially("<img")
        await expect(page.locator("#found")).to_contain_text("1 of")
        assert await page.evaluate("window.isHacked") is None
        assert watched.errors == []
        await page.goto(f"{gateway.url}/ui/")
        assert await page.evaluate("window.isHacked") is None


async def test_new_records_appear_until_the_reader_pauses(browser: Browser, tmp_path: Path) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        await cluster.settled_workers(1)
        store = cluster.store()
        store_records(store, "f", [{"value": b"first"}])
        async with (
            running_gateway([cluster.workers[0].address]) as gateway,
            opened(browser) as watched,
        ):
            page = watched.page
            await page.goto(f"{gateway.url}/ui/topic?name=f&follow=yes")
            records = page.locator("#records > li")
            await expect(records).to_have_count(1)
            await expect(page.locator("#follow-text")).to_have_text("Following; 0 new records.")
            store_records(store, "f", [{"value": b"<b>second</b>"}, {"key": b"k"}])
            await expect(records).to_have_count(3)
            await expect(records.nth(1)).to_contain_text("<b>second</b>")
            await page.get_by_role("button", name="Pause").click()
            await expect(page.locator("#follow-text")).to_have_text("Paused; 2 new records.")
            store_records(store, "f", [{"value": b"third"}])
            await expect(records).to_have_count(3)
            await page.get_by_role("button", name="Continue").click()
            await expect(records).to_have_count(4)
            await expect(records.nth(3)).to_contain_text("third")
            await records.nth(3).locator("summary").first.click()
            await expect(records.nth(3).get_by_text("null: the record has no key")).to_be_visible()
            assert await watched.violations() == []
            assert watched.errors == []
