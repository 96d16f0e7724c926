"""The coordinator's gRPC servicer: cancelled calls, watches, peers."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.model.group import OfferedProtocol
from drover.runtime.runtime import Runtime
from drover.runtime.watchers import Watcher, Watchers
from drover.testing import ManualClock, MemoryLog
from drover_coordinator.core.groups.events import CallAbandoned, JoinGroup, MemberStreamBroken
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.record_codec import decode_record, encode_record
from drover_coordinator.server import WATCH_QUEUE_MAX, CoordinatorServicer, _host
from drover_coordinator.sharding.shards import GroupRuntime


class LateRuntime:
    """A runtime whose machine answers just when the caller is cancelled."""

    def __init__(self) -> None:
        self.posted: list[object] = []
        self._watchers = Watchers(max_watchers=1)

    def watch(self, channel: str, max_queue: int, *, also: Sequence[str]) -> Watcher:
        return self._watchers.add(channel, max_queue, also=also)

    async def submit(self, event: object, *, call_id: str, on_cancel: object | None) -> object:
        assert on_cancel is None, "the runtime posts no cancellation of an answered call"
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


async def test_thousands_that_go_at_once_cost_no_watcher_its_place() -> None:
    clock = ManualClock()
    log = MemoryLog(clock)
    runtime: GroupRuntime = Runtime(
        GroupsMachine(),
        log,
        encode=encode_record,
        decode=decode_record,
        clock=clock,
        name="groups",
    )
    await runtime.load()

    def join(name: str, session_ms: int) -> Coroutine[Any, Any, Any]:
        one = (OfferedProtocol("p", b""),)
        until_ms = clock.now_ms() + 60_000
        event = JoinGroup(
            *(name, "g", "", name, "", "", session_ms, 60_000, "connect", one, until_ms, name)
        )
        return runtime.submit(event, call_id=name)

    going = [f"m{number}" for number in range(2 * WATCH_QUEUE_MAX)]
    joins = asyncio.gather(join("stays", 60_000), *(join(name, 10_000) for name in going))
    await asyncio.sleep(0)
    await runtime.wait_until_idle()
    for _ in range(2):  # the initial delay and one more round
        clock.advance(3_000)
        await runtime.wait_until_idle()
    await joins
    shards = SimpleNamespace(runtime=lambda group_id: runtime)
    servicer = CoordinatorServicer(cast("Any", shards), cast("Any", None), clock)
    request = pb.WatchGroupRequest(group_id="g", member_id="stays")
    async with aclosing(cast("Any", servicer.WatchGroup(request, cast("Any", None)))) as watch:
        assert (await anext(watch)).created
        clock.advance(10_000)
        assert (await anext(watch)).rejoin_needed
    await runtime.close()


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
