"""The console and hostile or unlucky browsers: frames, old sessions, many streams and rows."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from html import escape
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, Frame, expect

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.errors import Reason, UnavailableError
from drover.rpc.settings import split_address
from drover_gateway import views
from drover_gateway.bounds import HttpBounds
from drover_gateway.console import live
from drover_gateway.console.connectors_page import CONFIRM, RUN
from drover_gateway.console.live import StreamBounds
from drover_gateway.console.rows import PAGE_ROWS
from drover_gateway.console.sessions import SESSION_S
from tests.gateway.test_console_browser import opened
from tests.support.addresses import free_address
from tests.support.browsers import running_browser
from tests.support.console_client import ConsoleClient, Page
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_engine import SOURCE
from tests.support.gateways import RunningGateway, running_gateway
from tests.support.issuer_sign_in import SessionCookies
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
KEYS = "k" * 32
COOKIES = SessionCookies(KEYS)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with WorkerCluster(tmp_path_factory.mktemp("attacks")) as cluster:
        (running,) = await cluster.settled_workers(1)
        async with running_gateway([running.address]) as gateway:
            for name in ("a-1", "a-2"):
                found = await gateway.ask("PUT", f"/connectors/{name}/config", json=CONFIG)
                assert found.status_code == 201
            await cluster.running("a-1", 1, running)
        yield running.address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as running:
        yield running


# sessions


async def test_a_session_that_has_expired_is_a_new_one_and_its_streams_end(
    worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway([worker], gateway_session_keys=KEYS) as gateway:
        console = ConsoleClient(gateway)
        console.session.trust_env = False
        page = await console.get("/ui/connectors")
        # a stream that is open when the session ends
        monkeypatch.setattr(live, "SESSION_S", 0)
        cookies = {each.name: each.value or "" for each in console.session.cookies}
        async with (
            httpx.AsyncClient(cookies=cookies, timeout=60, trust_env=False) as client,
            client.stream("GET", f"{gateway.url}/ui/live?page=overview") as response,
        ):
            assert response.status_code == 200
            async with asyncio.timeout(60):
                assert [each async for each in response.aiter_bytes()]
        # a form of the session is refused
        begin_s = COOKIES.session(console).begin_s
        COOKIES.age(console, begin_s=begin_s - SESSION_S)
        action = (("name", "a-1"), ("action", "pause"))
        refused = await console.submit(page, CONFIRM, *action)
        assert (refused.status, "The form is no longer valid" in refused.text) == (403, True)
        found = await console.get("/ui/connectors")
        assert found.status == 200
        assert (await console.submit(found, CONFIRM, *action)).status == 200


async def test_a_session_outlives_a_restart_only_with_keys_of_the_settings(worker: str) -> None:
    for keys in (KEYS, ""):
        address = free_address()
        settings: dict[str, Any] = {"gateway_session_keys": keys, "gateway_listen": address}
        async with running_gateway([worker], **settings) as gateway:
            console = ConsoleClient(gateway)
            page = await console.get("/ui/connectors")
        action = (("name", "a-1"), ("action", "pause"))
        async with running_gateway([worker], **settings):
            found = await console.submit(page, CONFIRM, *action)
            assert found.status == (200 if keys else 403), found.text
            if not keys:
                assert "Nothing was changed" in found.text
                page = await console.get("/ui/connectors")
                assert (await console.submit(page, CONFIRM, *action)).status == 200


# other sites


@pytest.mark.parametrize("frame", ['<iframe src="{}"></iframe>', '<object data="{}"></object>'])
async def test_no_page_is_shown_in_a_frame_of_another_site(
    browser: Browser, worker: str, frame: str
) -> None:
    """A page under a transparent frame would lead clicks to its buttons."""
    async with running_gateway([worker]) as gateway:
        shown = frame.format(escape(f"{gateway.url}/ui/connectors"))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            body = f"<!doctype html><title>t</title>{shown}".encode()
            head = (
                f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, opened(browser) as watched:
            for host in ("localhost", "127.0.0.1"):
                watched.errors.clear()
                await watched.page.goto(f"http://{host}:{port}/")

                def is_refused(errors: list[str] = watched.errors) -> bool:
                    return any("frame-ancestors" in each for each in errors)

                await wait_until_async(is_refused, describe=lambda: watched.errors)
                assert "Connectors" not in await text_of(watched.page.frames[1:])


async def text_of(frames: Sequence[Frame]) -> str:
    """What the frames show; a frame without a document shows nothing."""
    shown = ""
    for frame in frames:
        with suppress(Error):
            shown += await frame.content()
    return shown


async def test_a_form_of_another_site_does_nothing(browser: Browser, worker: str) -> None:
    async with running_gateway([worker]) as gateway, opened(browser) as watched:
        page = watched.page
        # the browser has a session
        await page.goto(f"{gateway.url}/ui/connectors")
        form = (
            f'<form method="post" action="{gateway.url}{RUN}"><input name="name" value="a-2">'
            '<input name="action" value="delete"><button>Win</button></form>'
        )
        await page.goto(f"data:text/html,<!doctype html><title>t</title>{form}")
        async with page.expect_navigation() as navigation:
            await page.get_by_role("button", name="Win").click()
        response = await navigation.value
        assert response is not None
        assert response.status == 403
        assert (await gateway.ask("GET", "/connectors/a-2")).status_code == 200


# browsers that sleep


async def test_a_page_that_was_in_the_background_catches_up(browser: Browser, worker: str) -> None:
    hide = """(isHidden) => {
      Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    async with running_gateway([worker]) as gateway, opened(browser) as watched:
        page = watched.page
        await page.goto(f"{gateway.url}/ui/connectors")
        row = page.locator(".row", has_text="a-1")
        await expect(row).to_contain_text("running")
        await page.evaluate("window.isSame = true")
        await page.evaluate(hide, True)
        await wait_until_async(lambda: page.evaluate("stream.source === null"))
        await gateway.ask("PUT", "/connectors/a-1/pause")
        await page.evaluate(hide, False)
        await expect(row).to_contain_text("paused")
        await gateway.ask("PUT", "/connectors/a-1/resume")
        await expect(row).to_contain_text("running")
        assert await page.evaluate("window.isSame")
        assert watched.errors == []


async def test_a_page_of_a_computer_that_slept_shows_that_it_is_old_and_catches_up(
    browser: Browser, worker: str
) -> None:
    """Its connection was lost without a message, and its clock is hours later."""
    async with running_gateway([worker]) as gateway, opened(browser) as watched:
        page = watched.page
        await page.clock.install()
        await page.goto(f"{gateway.url}/ui/connectors")
        row, text = page.locator(".row", has_text="a-1"), page.locator("#stream-text")
        await expect(row).to_contain_text("running")
        await page.context.set_offline(True)
        await page.clock.fast_forward("02:00:00")
        await expect(text).to_contain_text("What you see is from")
        assert await watched.violations() == []
        await gateway.ask("PUT", "/connectors/a-1/pause")
        await page.context.set_offline(False)
        await page.clock.run_for(60_000)
        await expect(row).to_contain_text("paused")
        await expect(text).to_have_text("")
        await gateway.ask("PUT", "/connectors/a-1/resume")
        await expect(row).to_contain_text("running")


# thousands of streams


@pytest.mark.faults("console")
async def test_a_thousand_streams_with_one_token_have_64_places(worker: str) -> None:
    bounds = StreamBounds()
    async with running_gateway([worker], gateway_session_keys=KEYS) as gateway:
        console = ConsoleClient(gateway)
        await console.get("/ui/")
        host, port = split_address(gateway.address)
        async with AsyncExitStack() as stack:
            places = 0
            for number in range(1_000):
                # each address has as many connections as it may have
                source = f"127.0.1.{1 + number // HttpBounds().per_host}"
                # another session with the same token, so that no session has more than its four
                COOKIES.age(console, id=f"session-{number // 4}", token="of-one-caller")
                cookies = "; ".join(f"{e.name}={e.value}" for e in console.session.cookies)
                reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
                stack.callback(writer.close)
                head = (
                    f"GET /ui/live?page=overview HTTP/1.1\r\nhost: {gateway.address}\r\n"
                    f"cookie: {cookies}\r\n\r\n"
                )
                writer.write(head.encode())
                status = (await reader.readline()).split()[1]
                assert status in (b"200", b"503"), status
                places += status == b"200"
            assert places == bounds.per_caller
            other = ConsoleClient(gateway)
            assert (await other.get("/ui/connectors")).status == 200

        async def has_a_place() -> bool:
            found = await gateway.ask("GET", "/ui/live?page=nothing")
            return bool(found.status_code == 404)

        await wait_until_async(has_a_place)


# thousands of connectors


@dataclass
class Messages:
    """A stream that stays open after its messages."""

    messages: list[Any]
    is_over: threading.Event

    def __iter__(self) -> Iterator[Any]:
        yield from self.messages
        self.is_over.wait()


@asynccontextmanager
async def crowd(count: int) -> AsyncIterator[RunningGateway]:
    """A gateway of a worker with many connectors."""
    is_over = threading.Event()
    fake = FakeCluster()  # type: ignore[abstract]  # its RPCs come from __getattribute__
    statuses, connectors = [], []
    for number in range(count):
        name = f"connector-with-a-long-name-{number:05}"
        state = pb.RUN_STATE_FAILED if number % 1_000 == 0 else pb.RUN_STATE_RUNNING
        task = pb.TaskState(task=0, state=state, worker_id="w:1", trace="OSError: no route")
        own = pb.ConnectorState(state=pb.RUN_STATE_RUNNING, worker_id="w:1")
        status = pb.ConnectorStatus(
            name=name, type=pb.CONNECTOR_TYPE_SOURCE, connector=own, tasks=[task]
        )
        statuses.append(pb.WatchStatusesResponse(status=status))
        config = {"connector.class": f"acme.C{number % 500}", "tasks.max": "1"}
        connector = pb.Connector(name=name, config=config, target_state=pb.TARGET_STATE_STARTED)
        connectors.append(pb.WatchConnectorsResponse(connector=connector))
    statuses.append(pb.WatchStatusesResponse(synced=True))
    connectors.append(pb.WatchConnectorsResponse(synced=True))
    fake.answers["WatchStatuses"] = Messages(statuses, is_over)
    fake.answers["WatchConnectors"] = Messages(connectors, is_over)
    fake.answers["GetClusterInfo"] = lambda: pb.GetClusterInfoResponse(worker_id="w:1")
    fake.answers["ListConnectorTopics"] = lambda: pb.ListConnectorTopicsResponse()
    fake.answers["PauseConnector"] = lambda: pb.PauseConnectorResponse()
    fake.answers["GetCaller"] = lambda: UnavailableError(Reason.DRAINING, "not now")
    server = grpc.server(ThreadPoolExecutor(32))
    pb_grpc.add_ConnectServiceServicer_to_server(fake, server)
    address = free_address()
    server.add_insecure_port(address)
    server.start()
    try:
        async with running_gateway([address]) as gateway:
            yield gateway
    finally:
        is_over.set()
        server.stop(0).wait()


@pytest.mark.faults("console")
async def test_20000_connectors_are_listed_searched_and_selected() -> None:
    count = views.CONNECTORS_MAX
    async with crowd(count) as gateway:
        console = ConsoleClient(gateway)
        pages: list[Page] = []

        async def is_listed() -> bool:
            # a page that waited too long for the workers is loaded again
            pages.append(await console.get("/ui/connectors"))
            return pages[-1].status == 200

        await wait_until_async(is_listed)
        page = pages[-1]
        assert f"{count:,} connectors" in page.text
        assert len(page.names) == PAGE_ROWS
        assert all(int(each[-5:]) % 1_000 == 0 for each in page.names[: count // 1_000])
        last = await console.get(f"/ui/connectors?page={count // PAGE_ROWS}&sort=name")
        assert last.names[-1] == f"connector-with-a-long-name-{count - 1:05}"
        found = await console.get("/ui/connectors?q=name-00007&part=results")
        assert len(found.names) == 1
        overview = await console.get("/ui/")
        assert overview.status == 200
        # grouped, and cut: the page does not grow with the cluster
        assert len(overview.html) < 1_000_000
        found = await console.get("/ui/connectors?state=failed")
        every = (("every", "yes"), ("action", "pause"))
        asked = await console.submit(found, CONFIRM, *every)
        assert f"Pause: {count // 1_000} of {count // 1_000}" in asked.text
        asked = await console.submit(page, CONFIRM, *every)
        assert f"Pause: {count:,} of {count:,}" in asked.text
        done = await console.submit(asked, RUN)
        assert done.status in (200, 413), done.text[:500]
        assert "form is too large" in done.text or f"{count:,} paused" in done.text


async def test_more_connectors_than_the_console_lists_are_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "CONNECTORS_MAX", 5)
    async with crowd(6) as gateway:
        console = ConsoleClient(gateway)
        for path in ("/ui/", "/ui/connectors"):
            page = await console.get(path)
            assert page.status == 429, page.text
            assert "use `drover connector list`" in page.text
