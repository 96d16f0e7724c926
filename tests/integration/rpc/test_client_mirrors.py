"""Mirrors of a store that is newer than the client, or that sends invalid messages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from drover.api.config_store.v1 import config_store_service_pb2 as config_pb
from drover.api.status_store.v1 import status_store_service_pb2 as status_pb
from drover.client import ConfigStoreClient, StatusStoreClient, channel, watch
from drover.client.watch import EventsRead, SnapshotRead, follow
from drover.model.config import TargetState, TargetStateChanged
from drover.model.status import RunState

NO_MESSAGE = b"\xff\xff\xff\xff"
#: Field 2001, a varint. A process reports an unknown field once, so no other test uses this one.
UNKNOWN_FIELD = b"\x88\x7d\x01"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(watch, "BACKOFF_MAX_S", 0.002)


class RawStreams(grpc.GenericRpcHandler):
    """A server of raw streams: each call of a method sends that method's next list of messages."""

    def __init__(self, streams: dict[str, list[Sequence[Any]]]) -> None:
        self._streams = streams

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]
        return grpc.unary_stream_rpc_method_handler(partial(self._send, method))

    async def _send(self, method: str, _request: bytes, context: Any) -> None:
        left = self._streams[method]
        for message in left.pop(0) if left else ():
            raw = message if isinstance(message, bytes) else message.SerializeToString()
            await context.write(raw)
        if not left:
            await asyncio.Event().wait()


async def read_until(log: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(30), aclosing(follow(log, name="test")) as reads:  # type: ignore[type-var]
        async for item in reads:
            found.append(item)
            if wanted(item):
                return found
    raise AssertionError(f"the mirror ended after {found}")


@asynccontextmanager
async def serving(streams: dict[str, list[Sequence[Any]]]) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((RawStreams(streams),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with channel(f"127.0.0.1:{port}") as connection:
            yield connection
    finally:
        await server.stop(0)


async def test_a_status_mirror_outlives_states_and_keys_it_does_not_know_and_garbage() -> None:
    status = status_pb.StatusEntry(key=status_pb.StatusKey(connector="a"), worker_id="w")
    newer = status_pb.StatusEntry()
    newer.CopyFrom(status)
    newer.state = 99  # type: ignore[assignment]
    status.state = status_pb.RUN_STATE_RUNNING
    streams: dict[str, list[Sequence[Any]]] = {
        "GetSnapshot": [
            [NO_MESSAGE],
            [status_pb.GetSnapshotResponse(statuses=[newer], end_offset=5, complete=True)],
        ],
        "WatchStatuses": [
            [
                status_pb.WatchStatusesResponse(
                    events=[
                        status_pb.StatusEvent(offset=5, updated=newer),
                        status_pb.StatusEvent(offset=6),
                        status_pb.StatusEvent(offset=7, removed=status_pb.StatusKey()),
                    ],
                    end_offset=8,
                ),
                NO_MESSAGE,
            ],
            [
                status_pb.WatchStatusesResponse(
                    events=[status_pb.StatusEvent(offset=8, updated=status)], end_offset=9
                )
            ],
        ],
    }
    async with serving(streams) as connection:
        found = await read_until(
            StatusStoreClient(connection),
            lambda item: isinstance(item, EventsRead) and item.end_offset == 9,
        )
    assert isinstance(found[0], SnapshotRead)
    assert found[0].snapshot.statuses == {}
    assert [(each.offset, each.status) for each in found[1].events] == [(5, None)]
    assert [each.status.state for each in found[2].events] == [RunState.RUNNING]


async def test_a_config_mirror_outlives_states_and_events_it_does_not_know() -> None:
    changed = config_pb.ConfigEvent(offset=5)
    changed.target_state_changed.name = "a"
    changed.target_state_changed.target_state = 99  # type: ignore[assignment]
    newer = config_pb.ConfigEvent.FromString(
        config_pb.ConfigEvent(offset=6).SerializeToString() + UNKNOWN_FIELD
    )
    started = config_pb.ConfigEvent(offset=7)
    started.target_state_changed.name = "a"
    started.target_state_changed.target_state = config_pb.TARGET_STATE_STARTED
    streams: dict[str, list[Sequence[Any]]] = {
        "GetSnapshot": [[config_pb.GetSnapshotResponse(end_offset=5, complete=True)]],
        "WatchConfigs": [
            [config_pb.WatchConfigsResponse(events=[changed], end_offset=6), NO_MESSAGE],
            [config_pb.WatchConfigsResponse(events=[newer, started], end_offset=8)],
        ],
    }
    async with serving(streams) as connection:
        found = await read_until(
            ConfigStoreClient(connection),
            lambda item: isinstance(item, EventsRead) and item.end_offset == 8,
        )
    changes = [event.change for item in found[1:] for event in item.events]
    assert changes == [
        TargetStateChanged("a", TargetState.PAUSED),
        TargetStateChanged("a", TargetState.STARTED),
    ]
