"""What the gRPC shell of the coordinator does by itself."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.runtime.watchers import Watcher, Watchers
from drover.testing import ManualClock
from services.coordinator.core.events import CallAbandoned, MemberStreamBroken
from services.coordinator.server import CoordinatorServicer, _host


class LateRuntime:
    """A runtime whose machine answers at the moment at which the caller is cancelled."""

    def __init__(self) -> None:
        self.posted: list[object] = []
        self._watchers = Watchers(max_watchers=1)

    def watch(self, channel: str, max_queue: int) -> Watcher:
        return self._watchers.add(channel, max_queue)

    async def submit(self, event: object, *, call_id: str, on_cancel: object | None) -> object:
        assert on_cancel is None, "it would not be posted for a call that is answered"
        raise asyncio.CancelledError

    def post_nowait(self, event: object) -> None:
        self.posted.append(event)


async def test_a_watch_that_is_cancelled_as_it_opens_counts_as_broken() -> None:
    runtime = LateRuntime()
    shards = SimpleNamespace(runtime=lambda group_id: runtime)
    servicer = CoordinatorServicer(cast("Any", shards), cast("Any", None), ManualClock())
    request = pb.WatchGroupRequest(group_id="g", member_id="m")
    with pytest.raises(asyncio.CancelledError):
        await anext(aiter(servicer.WatchGroup(request, cast("Any", None))))
    assert runtime.posted == [MemberStreamBroken("g", "m", "1")]


class ParkingRuntime:
    """A runtime that keeps every call waiting, until its caller is cancelled."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Any, object]] = []

    async def submit(self, event: object, *, call_id: str, on_cancel: object | None) -> object:
        self.submitted.append((event, on_cancel))
        raise asyncio.CancelledError


@pytest.mark.parametrize("member_id", ["", "place-1"])
async def test_a_static_members_join_that_is_given_up_is_that_of_the_id_it_was_to_get(
    member_id: str,
) -> None:
    runtime = ParkingRuntime()
    shards = SimpleNamespace(runtime=lambda group_id: runtime)
    servicer = CoordinatorServicer(cast("Any", shards), cast("Any", None), ManualClock())
    context = SimpleNamespace(time_remaining=lambda: 10.0, peer=lambda: "ipv4:10.0.0.1:4711")
    request = pb.JoinGroupRequest(group_id="g", member_id=member_id, instance_id="place")
    with pytest.raises(asyncio.CancelledError):
        await servicer.JoinGroup(request, cast("Any", context))
    ((event, on_cancel),) = runtime.submitted
    assert event.instance_id == "place"
    assert event.new_member_id.startswith("place-")
    assert on_cancel == CallAbandoned("g", member_id or event.new_member_id, event.call_id)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:[fe80::1%eth0]:4711", "fe80::1%eth0"),
        ("unix:/run/drover.sock", "unix:/run/drover.sock"),
    ],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert _host(peer) == host
