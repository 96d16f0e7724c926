"""Rows as HTML, which open pages and callers share."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_gateway.console.live_pages import ConnectorsLive
from drover_gateway.console.shown import ShownViews
from drover_gateway.views import View


class Worker:
    """The streams of a worker, fed by the test."""

    def __init__(self) -> None:
        self.statuses: asyncio.Queue[pb.WatchStatusesResponse] = asyncio.Queue()
        self.connectors: asyncio.Queue[pb.WatchConnectorsResponse] = asyncio.Queue()

    async def watch_statuses(self) -> AsyncGenerator[pb.WatchStatusesResponse, None]:
        """See ``ConnectClient``."""
        while True:
            yield await self.statuses.get()
            self.statuses.task_done()

    async def watch_connectors(self) -> AsyncGenerator[pb.WatchConnectorsResponse, None]:
        """See ``ConnectClient``."""
        while True:
            yield await self.connectors.get()
            self.connectors.task_done()

    def show(self, name: str, trace: str = "", *, read_count: int = 0) -> None:
        """Send a connector, failed if it has a trace, and its status."""
        state = pb.RUN_STATE_FAILED if trace else pb.RUN_STATE_RUNNING
        status = pb.ConnectorStatus(name=name)
        status.connector.CopyFrom(pb.ConnectorState(state=state, worker_id="w1:1", trace=trace))
        status.counts.read_count = read_count
        self.statuses.put_nowait(pb.WatchStatusesResponse(status=status, synced=True))
        connector = pb.Connector(name=name, config={"connector.class": "acme.Source"})
        self.connectors.put_nowait(pb.WatchConnectorsResponse(connector=connector, synced=True))


def followed(worker: Worker) -> tuple[View, asyncio.Task[None]]:
    client: Any = worker
    view = View(client, lambda _: b"", lambda _: b"")
    return view, asyncio.create_task(view.follow())


async def settled(worker: Worker) -> None:
    await worker.statuses.join()
    await worker.connectors.join()


async def test_pages_in_step_share_their_rows_and_later_ones_see_what_changed() -> None:
    worker = Worker()
    worker.show("a")
    worker.show("b")
    view, task = followed(worker)
    await settled(worker)
    views = ShownViews()
    pages = [ConnectorsLive(views) for _ in range(2)]
    for page in pages:
        await page.start(view)
    before = view.version
    worker.show("a", "boom", read_count=7)
    await settled(worker)
    first, second = [await page.update(view, view.changed_since(before) or []) for page in pages]
    assert first == second
    assert "boom" in first
    assert "1 newly failed" in first
    assert ">b<" not in first
    shown = views.of(view)
    assert shown.changes(view, ["a"]) is shown.changes(view, ["a"])
    assert shown.changes(view, ["b"]) is not shown.changes(view, ["a"])
    between = view.version
    worker.show("a", read_count=8)
    await settled(worker)
    later = await pages[0].update(view, view.changed_since(between) or [])
    assert "boom" not in later
    assert "newly failed" not in later
    task.cancel()


async def test_callers_see_their_own_rows() -> None:
    traces = ["the trace of one caller", "the trace of another caller"]
    views = ShownViews()
    opened = []
    for trace in traces:
        worker = Worker()
        worker.show("a", trace)
        view, task = followed(worker)
        await settled(worker)
        opened.append(view)
        task.cancel()
    for view, own, other in zip(opened * 2, traces * 2, reversed(traces * 2), strict=True):
        (row,) = await views.of(view).rows(view)
        html = views.of(view).html(row)
        assert own in html
        assert other not in html
