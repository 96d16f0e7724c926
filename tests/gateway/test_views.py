"""Statuses and lists from memory, over real workers with engines that run no plugin."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import UnavailableError
from drover.model.ids import TaskId
from drover_gateway import views as module
from drover_gateway.identity.credentials import Caller
from drover_gateway.views import View, Views
from drover_gateway.workers import Workers
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

ANN, BEN = Caller("ann", "ann"), Caller("ben", "ben")
CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}


def encode_status(status: pb.ConnectorStatus) -> bytes:
    return f'"{status.name} {pb.RunState.Name(status.connector.state)}"'.encode()


def encode_connector(connector: pb.Connector) -> bytes:
    return f'"{connector.name} {len(connector.config)}"'.encode()


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[RunningWorker]:
    async with WorkerCluster(tmp_path) as cluster:
        (alone,) = await cluster.settled_workers(1)
        yield alone


@pytest.fixture
async def workers(worker: RunningWorker) -> AsyncIterator[Workers]:
    found = Workers([worker.address])
    yield found
    await found.close()


@pytest.fixture
async def views(workers: Workers) -> AsyncIterator[Views]:
    found = Views(workers, encode_status, encode_connector)
    workers.on_change = found.note_change
    running = asyncio.create_task(found.run())
    yield found
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def client(workers: Workers) -> ConnectClient:
    """Makes changes as another caller."""
    return workers.client(Caller("another", "another"))


async def opened(views: Views, caller: Caller = ANN) -> View:
    """The caller's view, once it is complete."""
    assert views.find(caller) is None
    assert views.find(caller) is None
    found: list[View] = []

    def is_open() -> bool:
        found.extend(each for each in [views.find(caller)] if each)
        return bool(found)

    await wait_until_async(is_open)
    return found[0]


def open_count(views: Views) -> float:
    (sample,) = [each for each in views.samples() if each.metric.name == "drover_gateway_views"]
    return float(sample.value)  # type: ignore[arg-type]


async def test_the_second_read_opens_a_view_which_follows_changes(
    views: Views, client: ConnectClient, worker: RunningWorker
) -> None:
    await client.create_connector("b", CONFIG)
    view = await opened(views)
    assert view.names() == ("b",)
    await wait_until_async(lambda: view.status("b") == b'"b RUN_STATE_RUNNING"')
    whole = view.expanded(with_status=True, with_info=True)
    assert whole == b'{"b":{"info":"b 3","status":"b RUN_STATE_RUNNING"}}'
    assert view.expanded(with_status=True, with_info=True) is whole
    await client.create_connector('a "quoted" \u00e9', CONFIG)
    await wait_until_async(lambda: len(view.names()) == 2)
    quoted = '"a \\"quoted\\" \u00e9":{"info":'.encode()
    assert view.expanded(with_status=False, with_info=True).startswith(b"{" + quoted)
    await wait_until_async(lambda: TaskId("b", 0) in worker.engine.running_tasks)
    await client.pause_connector("b")
    await wait_until_async(lambda: view.status("b") == b'"b RUN_STATE_PAUSED"')
    assert b"b RUN_STATE_PAUSED" in view.expanded(with_status=True, with_info=False)
    await client.delete_connector("b")
    await wait_until_async(lambda: view.names() == ('a "quoted" \u00e9',))
    assert view.info("b") is None
    assert view.expanded(with_status=False, with_info=False).endswith(b":{}}")


async def test_a_single_read_opens_none_and_callers_share_none(views: Views) -> None:
    assert views.find(ANN) is None
    assert views.find(BEN) is None
    assert open_count(views) == 0
    assert views.find(ANN) is views.find(BEN) is None
    await wait_until_async(lambda: views.find(ANN) is not None)
    await wait_until_async(lambda: views.find(BEN) is not None)
    assert views.find(ANN) is not views.find(BEN)
    assert open_count(views) == 2


async def test_a_caller_reads_what_they_wrote(
    views: Views, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the view has the change for certain, reads are calls."""
    monkeypatch.setattr(module, "AFTER_CHANGE_S", 60.0)
    await opened(views)
    await opened(views, BEN)
    await workers.client(ANN).create_connector("a", CONFIG)
    assert views.find(ANN) is None
    assert views.find(BEN) is not None
    await workers.client(BEN).get_connector("a")
    assert views.find(BEN) is not None


async def test_a_view_that_is_not_read_is_closed(views: Views) -> None:
    await opened(views)
    views.close_unread(asyncio.get_running_loop().time() + module.CLOSES_AFTER_S)
    await wait_until_async(lambda: open_count(views) == 0)
    await opened(views)


async def test_a_view_ends_with_its_worker_and_opens_again(
    views: Views, worker: RunningWorker
) -> None:
    await opened(views)
    await worker.service.stop()
    await wait_until_async(lambda: open_count(views) == 0)


async def test_too_many_views_and_connectors_are_answered_by_calls(
    views: Views, client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VIEWS_MAX", 1)
    await opened(views)
    for _ in range(3):
        assert views.find(BEN) is None
    assert open_count(views) == 1
    monkeypatch.setattr(module, "CONNECTORS_MAX", 1)
    await client.create_connector("a", CONFIG)
    await client.create_connector("b", CONFIG)
    await wait_until_async(lambda: open_count(views) == 0)
    for _ in range(3):
        assert views.find(ANN) is None
    assert open_count(views) == 0


async def test_the_last_state_is_kept_while_it_is_read_and_not_longer_than_its_limit(
    views: Views, worker: RunningWorker
) -> None:
    view = await views.opened(ANN)
    await worker.service.kill()
    await wait_until_async(lambda: view.has_ended)
    found, last = await views.opened_or_last(ANN)
    assert found is view
    assert last is not None
    assert last.end_ms > 0
    now_s = asyncio.get_running_loop().time()
    views.close_unread(now_s + module.CLOSES_AFTER_S - 10)
    assert (await views.opened_or_last(ANN))[0] is view
    for later_s in (module.CLOSES_AFTER_S, module.LAST_STATE_MAX_S):
        last.read_s = now_s + later_s - module.CLOSES_AFTER_S
        views.close_unread(now_s + later_s + 5)
    with pytest.raises(UnavailableError):
        await views.opened_or_last(ANN)
    with pytest.raises(UnavailableError):
        await views.opened_or_last(BEN)
