"""`make screenshots`: the pictures of docs/console.md, of a real cluster in headless Chromium."""

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from playwright.async_api import Browser, Page, ViewportSize

from drover.local.cluster import ClusterOptions, cluster_stages
from drover.rpc.logs import configure_logging
from tests.support.browsers import running_browser
from tests.support.cluster import TEST_ENVIRONMENT, EmbeddedCluster, running_cluster
from tests.support.console_states import states
from tests.support.repository import REPOSITORY
from tests.support.waiting import pause

FOLDER = REPOSITORY / "docs" / "console"
SIZE: ViewportSize = {"width": 1100, "height": 760}
STATE_SIZE: ViewportSize = {"width": 900, "height": 420}
_SETTLE_S = 3.0
#: How long records flow before the first picture.
_FLOW_S = 30.0
ORDERS: Mapping[str, str] = {
    "connector.class": "DatagenSource",
    "quickstart": "orders",
    "max.records": "100000",
    "topic": "orders",
}
AMOUNTS = "12\n7\nseven\n140\n9.50\n33\nn/a\n"
#: Lines that are not numbers are dead letters.
TOTALS: Mapping[str, str] = {
    "connector.class": "FilesSink",
    "topics": "amounts",
    "format": "json",
    "value.converter": "StringConverter",
    "transforms": "named,number",
    "transforms.named.type": "HoistField$Value",
    "transforms.named.field": "amount",
    "transforms.number.type": "Cast$Value",
    "transforms.number.spec": "amount:float64",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "amounts-rejected",
    "errors.deadletterqueue.context.headers.enable": "true",
}
FILES: Mapping[str, str] = {
    "connector.class": "FilesSink",
    "topics": "orders",
    "format": "parquet",
    "partition.by": "city",
    "transforms": "mask",
    "transforms.mask.type": "MaskField$Value",
    "transforms.mask.fields": "email",
}


def _page(path: str, **query: str) -> str:
    return f"/ui/{path}?{urlencode(query)}" if query else f"/ui/{path}"


#: The pictures by name: the page of each.
PAGES: Mapping[str, str] = {
    "overview": _page(""),
    "connectors": _page("connectors"),
    "connector": _page("connector", name="orders"),
    "connector-config": _page("connector", name="orders-files", tab="config"),
    "connector-offsets": _page("connector", name="orders-files", tab="offsets"),
    "connector-history": _page("connector", name="orders-files", tab="history"),
    "form": _page("connector/edit", name="orders-files"),
    "topics": _page("topics"),
    "topic": _page("topic", name="orders"),
    "dead-letters": _page("dead-letters", connector="totals"),
    "dead-letter": _page("dead-letters", connector="totals", letter="0:0"),
    "workers": _page("workers"),
    "rebalances": _page("rebalances"),
    "plugins": _page("plugins"),
    "plugin": _page("plugin", **{"class": "FilesSink"}),
    "loggers": _page("loggers"),
    "audit": _page("audit"),
    "sign-in": _page("sign-in"),
}


async def _fill(cluster: EmbeddedCluster, folder: Path) -> None:
    lines = folder / "amounts.txt"
    lines.write_text(AMOUNTS)
    amounts = {"connector.class": "FileStreamSource", "file": str(lines), "topic": "amounts"}
    configs = {
        "orders": ORDERS,
        "amounts": amounts,
        "orders-files": {**FILES, "path": str(folder / "files")},
        "totals": {**TOTALS, "path": str(folder / "totals")},
    }
    async with cluster.client() as client:
        for name, config in configs.items():
            await client.create_connector(name, config)
        for name in configs:
            await cluster.wait_for_task(name)
        changed = {**FILES, "path": str(folder / "files"), "tasks.max": "2"}
        await client.put_connector_config("orders-files", changed)


async def _take(page: Page, url: str, name: str) -> None:
    response = await page.goto(url)
    await pause(_SETTLE_S)
    await page.screenshot(path=FOLDER / f"{name}.png", full_page=False)
    _note(f"{name}.png {'' if response is None else response.status}")


async def _states(browser: Browser) -> None:
    """Pages while something is missing."""
    with tempfile.TemporaryDirectory(prefix="drover-") as folder:
        async for name, watched in states(browser, Path(folder), STATE_SIZE):
            await watched.page.screenshot(path=FOLDER / f"state-{name}.png")
            _note(f"state-{name}.png")


def _note(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(only: str = "") -> None:
    """Write all pictures; ``only`` is ``states`` for pictures without Spark."""
    configure_logging("screenshots", "ERROR")
    FOLDER.mkdir(exist_ok=True)
    async with running_browser() as browser:
        await _states(browser)
        if only != "states":
            await _pages(browser)


async def _pages(browser: Browser) -> None:
    """Pages of a cluster that works."""
    with tempfile.TemporaryDirectory(prefix="drover-") as name:
        folder = Path(name)
        options = ClusterOptions(
            folder / "cluster", worker_count=2, gateway_count=1, env=TEST_ENVIRONMENT
        )
        async with running_cluster(folder / "cluster", cluster_stages(options)) as cluster:
            await cluster.wait_until_members()
            await _fill(cluster, folder)
            await pause(_FLOW_S)
            (gateway,) = cluster.supervisor.addresses("gateway")
            page = await browser.new_page(viewport=SIZE)
            for picture, path in PAGES.items():
                await _take(page, f"http://{gateway}{path}", picture)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
