"""The console over real workers: pages and their states, forms, sessions and streams."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from drover.local.cluster import REST_ADDRESS
from drover.security import renewed
from drover.security.development_ca import init_certificates
from drover.security.grants import token_sha256
from drover_gateway.console.actions import ACTIONS
from drover_gateway.console.connector_page import RESTART_TASK, RESTART_TASK_RUN
from drover_gateway.console.connectors_page import CONFIRM, RUN, element_id, form_value
from drover_gateway.console.http import FORM_MAX_BYTES
from drover_gateway.console.live import StreamBounds
from drover_gateway.console.static_files import SCRIPT_URL, STYLE_URL
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page
from tests.support.fake_engine import SOURCE
from tests.support.gateways import TOKENS, RunningGateway, grant_tokens, running_gateway
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until_async
from tests.support.web_tokens import KEY, jwks, signed
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
BROKEN = {**CONFIG, "fail.start": "OSError: no route to <b>the</b> host", "restart.policy": "never"}
SCRIPT = "<img src=x onerror=alert(1)>"
ODD_NAMES = (
    SCRIPT,
    "a/b",
    "100%",
    "..%2f",
    "\u05e9\u05dc\u05d5\u05dd (1)",
    "'\"&;",
    "n" * 249,
    "ünïcode",
)
NAVIGATE = {"Sec-Fetch-Mode": "navigate"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    """A gateway of a cluster without an access file; each test has its own connectors."""
    async with WorkerCluster(tmp_path_factory.mktemp("console")) as cluster:
        await cluster.settled_workers(1)
        async with running_gateway([cluster.workers[0].address]) as running:
            yield running


@pytest.fixture
def console(gateway: RunningGateway) -> ConsoleClient:
    return ConsoleClient(gateway)


async def create(gateway: RunningGateway, config: dict[str, str], *names: str) -> None:
    for name in names:
        path = f"/connectors/{quote(name, safe='')}/config"
        found = await gateway.ask("PUT", path, json=config)
        assert found.status_code == 201, (name, found.text)


async def remove_all(gateway: RunningGateway) -> None:
    for name in (await gateway.ask("GET", "/connectors")).json():
        await gateway.ask("DELETE", f"/connectors/{quote(name, safe='')}")


async def listed(console: ConsoleClient, query: str, expected: Sequence[str]) -> Page:
    """The list, once it has these connectors in this order."""
    found: list[Page] = []

    async def is_there() -> bool:
        found.append(await console.get(f"/ui/connectors?{query}"))
        return found[-1].names == list(expected)

    await wait_until_async(is_there)
    return found[-1]


def named(*names: str) -> list[tuple[str, str]]:
    return [("name", form_value(each)) for each in names]


async def test_a_browser_is_sent_to_the_console_and_a_script_is_not(
    gateway: RunningGateway,
) -> None:
    sent = await gateway.ask("GET", "/", headers=NAVIGATE, allow_redirects=False)
    assert (sent.status_code, sent.headers["location"]) == (303, "/ui/")
    assert (await gateway.ask("GET", "/")).json()["version"] == "4.4.0"
    assert (await gateway.ask("GET", "/ui", allow_redirects=False)).headers["location"] == "/ui/"


async def test_an_empty_cluster_tells_what_to_do_first(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await remove_all(gateway)
    for path in ("/ui/", "/ui/connectors"):
        page = await console.get(path)
        assert page.status == 200
        assert "There are no connectors that you may see" in page.text
        assert "drover connector create -f FILE" in page.text
        assert 'href="/ui/connector/new"' in page.html
    assert "serving" in (await console.get("/ui/")).text


async def test_what_has_failed_is_first_and_the_url_has_the_filters(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await remove_all(gateway)
    await create(gateway, CONFIG, "f-a", "f-c")
    await create(gateway, BROKEN, "f-b")
    await listed(console, "state=failed", ["f-b"])
    page = await listed(console, "", ["f-b", "f-a", "f-c"])
    assert "OSError: no route to <b>the</b> host" in page.text
    assert "3 connectors" in page.text
    page = await listed(console, "q=F-&sort=name", ["f-a", "f-b", "f-c"])
    assert 'value="F-"' in page.html
    part = await console.get("/ui/connectors?q=f-a&part=results")
    assert part.html.startswith('<div id="results"')
    assert part.names == ["f-a"]
    nothing = await console.get("/ui/connectors?q=no-such-name")
    assert "No connector matches" in nothing.text
    overview = await console.get("/ui/")
    assert "Failed, the latest first f-b" in overview.text
    assert "f-a : no topics yet" in overview.text


async def test_names_and_errors_with_markup_stay_text(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await remove_all(gateway)
    await create(gateway, CONFIG, *ODD_NAMES)
    config = {**BROKEN, "fail.start": f"{SCRIPT}</script><script>alert(2)</script>"}
    await create(gateway, config, f"broken{SCRIPT}")
    await listed(console, "state=failed", [f"broken{SCRIPT}"])
    expected = [f"broken{SCRIPT}", *sorted(ODD_NAMES)]
    page = await listed(console, "", expected)
    asked = await console.submit(page, CONFIRM, *named(*expected), ("action", "pause"))
    done = await console.submit(asked, RUN)
    found = await console.get(f"/ui/connectors?q={quote(SCRIPT)}&class={quote(SCRIPT)}")
    pages = (page, asked, done, found, await console.get("/ui/"))
    for each in pages:
        assert each.status == 200
        assert_strict(each)
    assert f"{len(expected):,} paused, 0 failed." in done.text
    # every one of them can be selected, also one that a path or a form would change
    asked = await console.submit(page, CONFIRM, *named(*expected), ("action", "delete"))
    done = await console.submit(asked, RUN)
    assert f"{len(expected):,} deleted, 0 failed." in done.text
    await listed(console, "", [])


def assert_strict(page: Page) -> None:
    """The page needs no inline script or style, and contains none."""
    policy = page.headers["content-security-policy"]
    for directive in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
        assert directive in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert "style" not in {*page.tags, *page.attributes}
    assert not [each for each in page.attributes if each.startswith("on")]


async def test_an_action_is_confirmed_and_a_partial_failure_stays_visible(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await remove_all(gateway)
    await create(gateway, CONFIG, "p-a", "p-b", "p-c")
    # by name: states still change, and with them the order by state
    page = await listed(console, "q=p-&sort=name", ["p-a", "p-b", "p-c"])
    asked = await console.submit(page, CONFIRM, ("every", "yes"), ("action", "pause"))
    assert asked.text.count("will pause") == 3
    assert "drover connector pause p-a p-b p-c" in asked.text
    assert "drover.api.connect.v1.ConnectService/PauseConnector" in asked.text
    # nothing happens before the confirmation
    status = (await gateway.ask("GET", "/connectors/p-a/status")).json()
    assert status["connector"]["state"] != "PAUSED"
    # before the confirmation another user deletes one of them
    await gateway.ask("DELETE", "/connectors/p-b")
    done = await console.submit(asked, RUN)
    assert "p-a paused" in done.text
    assert "p-b not paused:" in done.text
    assert "2 paused, 1 failed." in done.text
    assert done.form(RUN.replace("run", "confirm")).fields[-1] == ("name", "p-b")
    assert 'href="/ui/connectors?q=p-&amp;sort=name"' in done.html
    page = await listed(console, "state=paused&q=p-", ["p-a", "p-c"])
    assert shown_counts(page) == {"restart": "2", "resume": "2", "stop": "2", "delete": "2"}
    # a request by hand for what is not offered
    again = await console.submit(page, CONFIRM, *named("p-a", "gone"), ("action", "pause"))
    assert "nothing: it is paused already" in again.text
    assert "nothing: there is no connector with this name" in again.text
    assert "There is nothing to do." in again.text
    for action, text in (("resume", "2 resumed"), ("stop", "2 stopped"), ("delete", "2 deleted")):
        page = await console.get("/ui/connectors?q=p-")
        asked = await console.submit(page, CONFIRM, *named("p-a", "p-c"), ("action", action))
        done = await console.submit(asked, RUN, *named("p-a", "p-c"))
        assert text in done.text
    await listed(console, "q=p-", [])


def shown_counts(page: Page) -> dict[str, str]:
    """The visible actions of a list, with the number of connectors that each would change."""
    found = re.findall(
        r'<button name="action" value="([a-z-]+)"([^>]*)>[^<]*<span class="count">([\d,]+)</span>',
        page.html,
    )
    assert len(found) == len(ACTIONS)
    return {key: count for key, rest, count in found if " hidden" not in rest}


async def test_what_has_failed_is_restarted(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await create(gateway, BROKEN, "r-a")
    page = await listed(console, "state=failed&q=r-", ["r-a"])
    assert shown_counts(page)["restart-failed"] == "1"
    asked = await console.submit(page, CONFIRM, *named("r-a"), ("action", "restart-failed"))
    assert "task 0 will restart" in asked.text
    assert "--include-tasks --only-failed" in asked.text
    done = await console.submit(asked, RUN)
    assert "1 restarting, 0 failed." in done.text


async def test_a_form_of_another_page_or_session_is_refused(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await create(gateway, CONFIG, "c-a")
    page = await listed(console, "q=c-a", ["c-a"])
    asked = await console.submit(page, CONFIRM, *named("c-a"), ("action", "delete"))
    token = asked.form(RUN).fields[0]
    fields = [("action", "delete"), *named("c-a")]
    foreign = ConsoleClient(gateway)
    refused = [
        await console.post(RUN, fields),
        await console.post(RUN, [*fields, ("form_token", "")]),
        await console.post(RUN, [*fields, page.form(CONFIRM).fields[0]]),
        # another session, with and without cookies
        await foreign.post(RUN, [*fields, token]),
        await foreign.get("/ui/connectors") and await foreign.post(RUN, [*fields, token]),
        *[
            await console.post(RUN, [*fields, token], headers=headers)
            for headers in (
                {"Origin": "https://evil.example"},
                {"Origin": "null"},
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
            )
        ],
    ]
    assert [each.status for each in refused] == [403] * len(refused)
    assert (await console.get("/ui/", headers={"Host": "rebound.example"})).status == 421
    assert (await gateway.ask("GET", "/connectors/c-a")).status_code == 200
    # the page's own origin is accepted
    done = await console.post(RUN, [*fields, token], headers={"Origin": gateway.url})
    assert "1 deleted" in done.text


async def test_requests_that_cannot_be_read_are_refused_with_a_page(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    page = await console.get("/ui/sign-in")
    token = page.form("/ui/theme").fields
    theme = [*token, ("theme", "dark")]
    cases = [
        (await console.post("/ui/theme", [*token, ("theme", "pink")]), 400),
        (await console.post("/ui/theme", [("form_token", "%ff")]), 403),
        (await console.post(CONFIRM, [("action", "explode")]), 403),
        (await console.get("/ui/nothing"), 404),
        (await console.get("/ui/%ff"), 404),
        (await console.get("/ui/..%2f"), 404),
        (await console.get(RUN), 405),
        (await console.post("/ui/connectors", theme), 405),
        (await console.get("/ui/connectors?q=%ff"), 400),
        (await console.get("/ui/live?page=%ff"), 400),
        (await console.get("/ui/static/../application.py"), 404),
        (await console._send("POST", "/ui/theme", json={"theme": "dark"}), 415),
        (await console._send("POST", "/ui/theme", data=b"x" * (FORM_MAX_BYTES + 1)), 415),
        (await console.post("/ui/theme", [("x", "y" * FORM_MAX_BYTES)]), 413),
        (await console.post("/ui/theme", [("x", "")] * 25_001), 413),
    ]
    assert "It may have 25,000 fields" in cases[-1][0].text
    for found, status in cases:
        assert found.status == status, (found.url, found.text)
        assert "Traceback" not in found.html
    head = await console._send("HEAD", "/ui/connectors")
    assert (head.status, head.html) == (200, "")
    assert_strict(await console.get("/ui/nothing"))


async def test_colours_are_kept_and_no_form_leads_elsewhere(console: ConsoleClient) -> None:
    page = await console.get("/ui/connectors?q=x")
    dark = await console.submit(page, "/ui/theme", ("theme", "dark"))
    assert dark.url.endswith("/ui/connectors?q=x")
    assert 'data-theme="dark"' in dark.html
    fields = [each for each in page.form("/ui/theme").fields if each[0] != "next"]
    for target in (
        "https://evil.example/",
        "//evil.example",
        "/ui/\\evil.example",
        "/ui/\r\nSet-Cookie: a=b",
        "/connectors",
        "",
    ):
        found = await console.post(
            "/ui/theme", [*fields, ("theme", "light"), ("next", target)], allow_redirects=False
        )
        assert found.headers["location"] == "/ui/", target
    assert "a" not in console.session.cookies


async def test_files_have_the_hash_of_their_content_in_their_url(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    page = await console.get("/ui/connectors")
    for url in (STYLE_URL, SCRIPT_URL):
        assert url in page.html
        found = await gateway.ask("GET", url)
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
        # nothing is loaded from another host
        assert "://" not in found.text


@asynccontextmanager
async def stream(console: ConsoleClient, gateway: RunningGateway, query: str) -> AsyncIterator[Any]:
    """The events of a stream: each has its name, its id and its data."""
    cookies = {each.name: each.value or "" for each in console.session.cookies}
    url = f"{gateway.url}/ui/live?{query}"
    async with (
        httpx.AsyncClient(cookies=cookies, timeout=60, verify=False) as client,
        client.stream("GET", url) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncIterator[dict[str, str]]:
            event: dict[str, str] = {}
            async for line in response.aiter_lines():
                if line:
                    key, _, value = line.partition(": ")
                    event[key] = f"{event[key]}\n{value}" if key in event else value
                elif event:
                    yield event
                    event = {}

        yield events()


def version_of(page: Page) -> str:
    found = re.search(r'data-version="([^"]+)"', page.html)
    assert found
    return found.group(1)


async def test_changes_are_pushed_and_none_is_missed_after_a_lost_stream(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await remove_all(gateway)
    await create(gateway, CONFIG, "s-a")
    page = await listed(console, "q=s-", ["s-a"])
    async with stream(console, gateway, f"page=connectors&since={version_of(page)}") as events:
        first = await anext(events)
        assert first["event"] == "live"
        await create(gateway, CONFIG, "s-b")
        last = await until(events, element_id("s-b"), "1 new")
    # while there is no stream, one is removed and one changes
    await gateway.ask("DELETE", "/connectors/s-a")
    await gateway.ask("PUT", "/connectors/s-b/pause")
    async with stream(console, gateway, f"page=connectors&since={last['id']}") as events:
        assert (await anext(events))["event"] == "live"
        await until(events, element_id("s-a"), "removed")
    async with stream(console, gateway, f"page=connectors&since={last['id']}") as events:
        await until(events, element_id("s-b"), "is-paused")
    for unknown in ("", "x", "00000000.5", "x.y.z"):
        async with stream(console, gateway, f"page=overview&since={unknown}") as events:
            assert (await anext(events))["event"] == "reload"
    async with stream(console, gateway, f"page=overview&since={last['id']}") as events:
        await until(events, 'id="overview"', "paused")


async def until(events: AsyncIterator[dict[str, str]], *texts: str) -> dict[str, str]:
    """The first event that has these texts."""
    async with asyncio.timeout(60):
        async for event in events:
            if all(each in event.get("data", "") for each in texts):
                return event
    raise AssertionError(f"the stream ended before {texts}")


async def test_a_fifth_stream_of_a_session_ends_the_first(
    gateway: RunningGateway, console: ConsoleClient
) -> None:
    await console.get("/ui/connectors")
    bounds = StreamBounds()
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(bounds.per_session + 1):
            events = await stack.enter_async_context(stream(console, gateway, "page=overview"))
            assert (await anext(events))["event"] == "reload"
            opened.append(events)
        async with asyncio.timeout(60):
            assert [each["event"] async for each in opened[0]][-1] == "replaced"


async def test_without_workers_a_page_tells_why_and_asks_again() -> None:
    async with running_gateway([free_address()]) as alone:
        console = ConsoleClient(alone)
        for path in ("/ui/", "/ui/connectors?q=x"):
            page = await console.get(path)
            assert page.status == 503
            assert page.headers["refresh"] == "5"
            assert "The cluster does not answer" in page.text
            assert_strict(page)
        tried = await console.sign_in("viewer")
        assert tried.status == 503
        assert "The token could not be checked" in tried.text
        async with stream(console, alone, "page=overview") as events:
            event = await anext(events)
            assert event["event"] == "failed"
            assert json.loads(event["data"])["message"]


async def test_the_readme_has_the_address_of_the_console(console: ConsoleClient) -> None:
    section = (REPOSITORY / "README.md").read_text().split("## Look at it")[1].split("\n## ")[0]
    up, look = re.findall(r"^\$ (.*)$", section, re.MULTILINE)
    assert up == "drover up"
    url = look.split()[-1]
    assert url.startswith(f"http://{REST_ADDRESS}/ui/")
    page = await console.get(url.removeprefix(f"http://{REST_ADDRESS}"))
    assert (page.status, page.text.startswith("Overview · Drover")) == (200, True)


async def test_the_console_can_be_off(gateway: RunningGateway) -> None:
    async with running_gateway([free_address()], gateway_console="off") as alone:
        assert (await alone.ask("GET", "/ui/")).status_code == 404


async def test_each_session_acts_with_its_own_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    certs = tmp_path / "certs"
    init_certificates(certs)
    of_a = {"token_sha256": token_sha256("of-a"), "name": "a", "role": "operator"}
    grant_tokens(certs, {**of_a, "connectors": ["a-*"]})
    keys = tmp_path / "keys.json"
    keys.write_text(jwks(one=KEY))
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        await cluster.settled_workers(1, jwks=str(keys), jwt_audience="drover")
        async with running_gateway(
            [cluster.workers[0].address], certificates=certs, gateway_session_keys="k" * 32
        ) as gateway:
            for name in ("a-1", "b-1"):
                path = f"/connectors/{name}/config"
                assert (await gateway.ask("PUT", path, role="admin", json=CONFIG)).ok
            await check_sign_in(gateway)
            await check_roles(gateway)
            await check_connector_page(gateway)
            await check_revocation(gateway, certs)


async def check_sign_in(gateway: RunningGateway) -> None:
    console = ConsoleClient(gateway)
    page = await console.get("/ui/connectors?q=a")
    assert page.url.endswith("/ui/sign-in?next=%2Fui%2Fconnectors%3Fq%3Da")
    for wrong, status in (("no-such-token", 401), ("", 400), ("ü", 400), ("x" * 9_000, 400)):
        refused = await console.submit(page, "/ui/sign-in", ("token", wrong))
        assert refused.status == status, wrong[:20]
        assert "Sign out" not in refused.text
    before = dict(console.session.cookies.get_dict())
    signed_in = await console.submit(page, "/ui/sign-in", ("token", f" {TOKENS['viewer']} "))
    assert signed_in.url.endswith("/ui/connectors?q=a")
    assert "Sign out" in signed_in.text
    (cookie,) = [each for each in console.session.cookies if each.name == "__Host-drover"]
    assert cookie.secure
    assert cookie.has_nonstandard_attr("HttpOnly")
    # a session that existed before the sign-in is not continued
    assert cookie.value != before["__Host-drover"]
    assert TOKENS["viewer"] not in (cookie.value or "")
    # the API and the tools read no cookie
    assert (await console.get("/connectors")).status == 401
    # an open page of the session gets no updates after the sign-out
    async with stream(console, gateway, "page=overview") as events:
        assert (await anext(events))["event"] == "reload"
        out = await console.submit(signed_in, "/ui/sign-out")
        async with asyncio.timeout(60):
            assert "replaced" not in [each["event"] async for each in events]
    assert out.url.endswith("/ui/sign-in")
    assert "/ui/sign-in" in (await console.get("/ui/")).url
    # a caller whose token is valid, but who has no grant
    stranger = ConsoleClient(gateway)
    page = await stranger.get("/ui/sign-in")
    await stranger.submit(page, "/ui/sign-in", ("token", signed(sub="nobody", groups=None)))
    forbidden = await stranger.get("/ui/connectors")
    assert forbidden.status == 403
    assert "The role is missing" in forbidden.text
    assert "nobody" in forbidden.text


async def check_roles(gateway: RunningGateway) -> None:
    limited = ConsoleClient(gateway)
    page = await limited.get("/ui/sign-in")
    await limited.submit(page, "/ui/sign-in", ("token", "of-a"))
    page = await listed(limited, "", ["a-1"])
    both = named("a-1", "b-1")
    asked = await limited.submit(page, CONFIRM, *both, ("action", "pause"))
    assert "nothing: there is no connector with this name" in asked.text
    # and the workers refuse what the page does not offer
    done = await limited.submit(asked, RUN, *both)
    assert "1 paused, 1 failed." in done.text
    # an operator of some connectors is offered what the role allows, for these alone
    assert {value for _, value in page.form(CONFIRM).buttons} == {
        *("restart-failed", "restart", "pause", "resume", "stop"),
    }
    own = await limited.get("/ui/connector?name=a-1")
    assert "Edit" not in own.text
    assert "Audit" not in own.text
    buttons = own.form(CONFIRM).buttons
    assert (("action", "stop") in buttons, ("action", "delete") in buttons) == (True, False)
    assert "Reload" not in (await limited.get("/ui/plugins")).text
    viewer = ConsoleClient(gateway)
    await viewer.sign_in("viewer")
    page = await listed(viewer, "sort=name", ["a-1", "b-1"])
    assert CONFIRM not in [each.action for each in page.forms]
    for path in (CONFIRM, RUN):
        refused = await viewer.post_by_hand(path, *named("b-1"), ("action", "delete"))
        assert refused.status == 403
        assert "DeleteConnector needs the role admin" in refused.text
    assert (await gateway.ask("GET", "/connectors", role="admin")).json() == ["a-1", "b-1"]


async def check_connector_page(gateway: RunningGateway) -> None:
    limited = ConsoleClient(gateway)
    page = await limited.get("/ui/sign-in")
    await limited.submit(page, "/ui/sign-in", ("token", "of-a"))
    for tab in ("overview", "config", "offsets", "history", "topics"):
        assert (await limited.get(f"/ui/connector?name=a-1&tab={tab}")).status == 200, tab
        forbidden = await limited.get(f"/ui/connector?name=b-1&tab={tab}")
        assert (forbidden.status, "The role is missing" in forbidden.text) == (403, True), tab
    viewer = ConsoleClient(gateway)
    await viewer.sign_in("viewer")
    found: list[Page] = []

    async def has_task() -> bool:
        found.append(await viewer.get("/ui/connector?name=b-1"))
        return "Does now" in found[-1].text

    await wait_until_async(has_task)
    assert "Restart task" not in found[-1].text
    fields = (("name", "b-1"), ("task", "0"))
    for path in (RESTART_TASK, RESTART_TASK_RUN):
        refused = await viewer.post_by_hand(path, *fields)
        assert (refused.status, "needs the role operator" in refused.text) == (403, True)


async def check_revocation(gateway: RunningGateway, certs: Path) -> None:
    console = ConsoleClient(gateway)
    await console.sign_in("operator")
    async with stream(console, gateway, "page=overview") as events:
        assert (await anext(events))["event"] == "reload"
        grant_tokens(certs, roles=False)
        async with asyncio.timeout(60):
            assert [each["event"] async for each in events][-1] == "refused"
    page = await console.get("/ui/connectors")
    assert "The workers do not accept this token" in page.text
    assert "Sign out" not in page.text
