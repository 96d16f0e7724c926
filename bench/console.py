"""The console with 1,000 connectors of which 20 change per second, in headless Chromium.

The changes are made by clients of the API, which pause and stop connectors that have no tasks. The
gateway is a separate process; its worker, with an engine that runs no plugin, is in this process.
"""

import asyncio
import itertools
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import requests
from playwright.async_api import Browser, Page

from bench.figure import Figure
from bench.gateway import CONNECTOR_COUNT, Side, gateway, worker_with_connectors
from drover.client import ConnectClient, channel
from drover.rpc.logs import configure_logging
from tests.support.browsers import running_browser
from tests.support.console_client import page_of
from tests.support.waiting import pause

CHANGES_PER_S = 20
ROUNDS = 5
LIVE_S = 10.0
CALLERS, PAGES, MANY_PAGES = 5, 50, 300
#: The streams of a session; a further one ends the oldest.
_SESSION_STREAMS = 4
#: How long the gateway is idle before its memory is read.
_SETTLE_S = 5.0
_FIRST_ROWS = 100
_CALL_TIMEOUT_S = 30.0
_STREAM_READ_BYTES = 65_536
_CONNECTORS = "/ui/connectors"
#: A page with the frame and a form of one field.
_EMPTY = "/ui/sign-in"
#: Notes when a number of rows has been painted: after the frame that follows the one they are in.
_WATCH_ROWS = """
(() => {
  const wanted = new Map(Object.entries({first: FIRST, all: ALL}));
  window.paintedMs = {};
  const look = () => {
    const count = document.querySelectorAll("#results input[name=name]").length;
    for (const [key, least] of wanted) {
      if (count < least) continue;
      wanted.delete(key);
      requestAnimationFrame(() => requestAnimationFrame(() => {
        window.paintedMs[key] = performance.now();
      }));
    }
  };
  new MutationObserver(look).observe(document, {childList: true, subtree: true});
})();
"""


@asynccontextmanager
async def _changes(worker: str) -> AsyncIterator[None]:
    """Connectors that change while the block runs, one after another."""
    async with channel(worker) as connection:
        client = ConnectClient(connection)

        async def change_all() -> None:
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            for number in itertools.count():
                await asyncio.sleep(max(0.0, started_s + number / CHANGES_PER_S - loop.time()))
                turn, connector = divmod(number, CONNECTOR_COUNT)
                change = client.stop_connector if turn % 2 else client.pause_connector
                await change(f"c-{connector}", timeout_s=_CALL_TIMEOUT_S)

        task = asyncio.create_task(change_all())
        try:
            yield
        finally:
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(outcome, asyncio.CancelledError):
                raise RuntimeError(f"the changes ended early: {outcome!r}")


async def _loads(browser: Browser, url: str) -> Sequence[Figure]:
    """The time until rows are painted, beside an empty page's first paint, loaded alternately."""
    empty_ms: list[float] = []
    first_ms: list[float] = []
    all_ms: list[float] = []
    for _ in range(ROUNDS + 1):  # the first round fills the browser's cache
        page = await browser.new_page()
        await page.goto(url + _EMPTY)
        empty_ms.append(await _first_paint_ms(page))
        await page.close()
        page = await browser.new_page()
        script = _WATCH_ROWS.replace("FIRST", str(_FIRST_ROWS)).replace("ALL", str(CONNECTOR_COUNT))
        await page.add_init_script(script)
        await page.goto(url + _CONNECTORS)
        painted: dict[str, float] = {}
        while len(painted) < 2:
            await pause(0.02)
            painted = await page.evaluate("window.paintedMs")
        first_ms.append(painted["first"])
        all_ms.append(painted["all"])
        await page.close()
    return [
        _load("console_first_rows", first_ms[1:], empty_ms[1:], "<= 2.5 x"),
        _load("console_all_rows", all_ms[1:], empty_ms[1:], "<= 5 x"),
    ]


async def _first_paint_ms(page: Page) -> float:
    entries: list[float] = []
    while not entries:
        await pause(0.02)
        entries = await page.evaluate(
            "performance.getEntriesByType('paint').map((each) => each.startTime)"
        )
    return entries[0]


def _load(name: str, samples: list[float], empty: list[float], limit: str) -> Figure:
    value = statistics.median(samples)
    peer_value = statistics.median(empty)
    return Figure(name, value, "ms", "an empty page", peer_value, limit, samples)


async def _live(browser: Browser, url: str) -> Figure:
    """The time that a page's main thread works while its rows change."""
    page = await browser.new_page()
    await page.goto(url + _CONNECTORS)
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    await pause(_SETTLE_S)
    before_s = await _task_s(session)
    await pause(LIVE_S)
    busy_s = await _task_s(session) - before_s
    await page.close()
    return Figure("console_live_main_thread", busy_s, f"s in {LIVE_S:.0f} s", limit="<= 1")


async def _task_s(session: Any) -> float:
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


class _Caller:
    """Several sessions with the same token, and their streams."""

    def __init__(self, side: Side, token: str) -> None:
        self._side = side
        self._token = token
        self._count = 0
        self._cookie = ""

    async def open_stream(self, stack: AsyncExitStack) -> None:
        """Open one page's stream, and read it until the stack ends."""
        if self._count % _SESSION_STREAMS == 0:
            self._cookie = await asyncio.to_thread(self._sign_in)
        if not self._count:
            await asyncio.to_thread(self._load_list)
        self._count += 1
        host, _, port = self._side.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        stack.callback(writer.close)
        writer.write(
            f"GET /ui/live?page=connectors HTTP/1.1\r\nhost: {self._side.address}\r\n"
            f"cookie: {self._cookie}\r\n\r\n".encode()
        )
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"a stream was refused: {status!r}")

        async def read_all() -> None:
            while await reader.read(_STREAM_READ_BYTES):
                pass

        stack.callback(asyncio.create_task(read_all()).cancel)

    def _load_list(self) -> None:
        """Load the page, as each browser does before its stream: the gateway keeps the rows."""
        requests.get(
            f"http://{self._side.address}{_CONNECTORS}",
            headers={"cookie": self._cookie},
            timeout=_CALL_TIMEOUT_S,
        ).raise_for_status()

    def _sign_in(self) -> str:
        url = f"http://{self._side.address}/ui/sign-in"
        with requests.Session() as session:
            shown = session.get(url, timeout=_CALL_TIMEOUT_S)
            shown.raise_for_status()
            form = page_of(shown).form("/ui/sign-in")
            fields = [*form.fields, ("token", self._token)]
            answer = session.post(url, fields, timeout=_CALL_TIMEOUT_S, allow_redirects=False)
            if answer.status_code != requests.codes.see_other:
                raise RuntimeError(f"the sign-in was answered with {answer.status_code}")
            return "; ".join(f"{each.name}={each.value}" for each in session.cookies)


async def _many_pages(side: Side) -> Sequence[Figure]:
    """The gateway's CPU with 50 open pages, and its memory for each of 250 more."""
    callers = itertools.cycle([_Caller(side, f"token-{number}") for number in range(CALLERS)])
    async with AsyncExitStack() as stack:
        for _ in range(PAGES):
            await next(callers).open_stream(stack)
        await pause(_SETTLE_S)
        cpu_s, rss_mib = side.cpu_s(), side.rss_mib
        await pause(LIVE_S)
        cpu_percent = (side.cpu_s() - cpu_s) / LIVE_S * 100
        more = MANY_PAGES - PAGES
        for _ in range(more):
            await next(callers).open_stream(stack)
        await pause(_SETTLE_S)
        page_kib = (side.rss_mib - rss_mib) / more * 1024
    return [
        Figure(f"console_{PAGES}_pages_cpu", cpu_percent, "% of a core", limit="<= 10"),
        Figure("console_page_memory", page_kib, "KiB", limit="<= 32"),
    ]


async def _measured() -> Sequence[Figure]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drover-bench-")))
        worker = await stack.enter_async_context(worker_with_connectors(folder))
        # a proxy may open more connections than another address
        started = gateway(worker, TRUSTED_PROXIES="127.0.0.1")
        side = (await stack.enter_async_context(started)).side
        await stack.enter_async_context(_changes(worker))
        browser = await stack.enter_async_context(running_browser())
        url = f"http://{side.address}"
        return [
            *await _loads(browser, url),
            await _live(browser, url),
            *await _many_pages(side),
        ]


def figures() -> Iterator[Figure]:
    """Loads, updates, and the gateway's CPU and memory for open pages."""
    configure_logging("bench", "ERROR")  # the worker is in this process
    yield from asyncio.run(_measured())
