"""A client that routes calls to a group's owner, against coordinators with scripted responses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import CoordinatorsClient, owner_routing
from drover.errors import DroverError, FailedPreconditionError, Reason, UnavailableError
from drover.rpc.server import RpcServer
from drover.testing import raises_reason
from tests.support.refusals import refusal
from tests.support.waiting import wait_until_async

SERVICE = "drover.api.coordinator.v1.CoordinatorService"


class Scripted(pb_grpc.CoordinatorServiceServicer):
    """A coordinator whose test sets the owner that it returns and its heartbeat response."""

    def __init__(self) -> None:
        self.address = ""
        self.owner: str | DroverError = ""
        self.answer: Callable[[], Any] = lambda: False
        self.beats = 0
        self.found = 0
        self.watches = 0
        self.frozen = asyncio.Event()
        self.frozen.set()
        self.server = RpcServer(listen="127.0.0.1:0", internal=True)

    async def start(self) -> None:
        self.server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, self, SERVICE)
        self.address = await self.server.start()

    async def FindCoordinator(self, request: Any, context: Any) -> pb.FindCoordinatorResponse:
        self.found += 1
        await self.frozen.wait()
        if isinstance(self.owner, DroverError):
            raise self.owner
        return pb.FindCoordinatorResponse(address=self.owner)

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:
        self.beats += 1
        await self.frozen.wait()
        answer = self.answer()
        if isinstance(answer, DroverError):
            raise answer
        return pb.HeartbeatResponse(rebalance_in_progress=answer)

    async def WatchGroup(self, request: Any, context: Any) -> AsyncIterator[pb.WatchGroupResponse]:
        self.watches += 1
        yield pb.WatchGroupResponse(created=True)
        await asyncio.Event().wait()


@pytest.fixture
async def three() -> AsyncIterator[list[Scripted]]:
    async with AsyncExitStack() as stack:
        made = [Scripted() for _ in range(3)]  # type: ignore[abstract]
        for each in made:
            await each.start()
            stack.push_async_callback(each.server.drain, 0)
        for each in made:
            each.owner = made[0].address
            stack.callback(each.frozen.set)
        yield made


def not_coordinator(owner: Scripted | None = None) -> DroverError:
    metadata = {"coordinator": owner.address} if owner else {}
    return FailedPreconditionError(Reason.NOT_COORDINATOR, "not here", metadata=metadata)


async def beat(client: CoordinatorsClient, timeout_s: float = 10.0) -> bool:
    return await client.heartbeat(group_id="g", member_id="m", generation=1, timeout_s=timeout_s)


async def test_calls_go_to_the_owner_without_asking_each_time(
    three: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("FIND_TIMEOUT_S", "PROBE_EVERY_S"):
        monkeypatch.setattr(owner_routing, patience, 60.0)
    async with CoordinatorsClient([each.address for each in three]) as client:
        for _ in range(3):
            assert await beat(client) is False
    assert [each.beats for each in three] == [3, 0, 0]
    assert sum(each.found for each in three) <= 3, "the owner was looked for once, at all"


async def test_one_that_is_alone_is_never_asked_who_the_owner_is(three: list[Scripted]) -> None:
    async with CoordinatorsClient([three[1].address]) as client:
        assert await beat(client) is False
    assert (three[1].beats, three[1].found) == (1, 0)


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
async def test_a_moved_group_is_followed_whether_or_not_the_new_owner_is_named(
    three: list[Scripted], named: bool
) -> None:
    first, second, third = three
    first.answer = lambda: not_coordinator(third if named else None)
    async with CoordinatorsClient([first.address]) as client:
        first.owner = third.address
        assert await beat(client) is False
        assert third.beats == 1, "the client follows an address that is not in its list"
        third.answer = lambda: not_coordinator(second)
        assert await beat(client) is False
    assert second.beats == 1


async def test_two_that_name_each_other_end_with_the_deadline_and_the_call_may_be_repeated(
    three: list[Scripted],
) -> None:
    first, second, _ = three
    first.answer = lambda: not_coordinator(second)
    second.answer = lambda: not_coordinator(first)
    async with CoordinatorsClient([first.address]) as client:

        async def ask() -> None:
            first.beats = second.beats = 0
            await beat(client, timeout_s=0.5)

        await refusal(Reason.COORDINATOR_NOT_AVAILABLE, ask)
    assert first.beats + second.beats < 12, "with pauses that grow"


async def test_an_owner_that_is_gone_is_looked_for_until_somebody_knows_another(
    three: list[Scripted],
) -> None:
    first, second, third = three
    async with CoordinatorsClient([each.address for each in three]) as client:
        assert await beat(client) is False
        await first.server.drain(0)
        nobody = UnavailableError(Reason.COORDINATOR_NOT_AVAILABLE, "nobody yet")
        second.owner = third.owner = nobody
        beating = asyncio.create_task(beat(client))
        await wait_until_async(lambda: second.found > 2)
        assert not beating.done()
        second.owner = third.owner = second.address
        assert await beating is False
    assert second.beats == 1


async def test_a_call_at_a_frozen_owner_goes_on_at_the_next_one(
    three: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_routing, "PROBE_EVERY_S", 0.05)
    first, second, third = three
    async with CoordinatorsClient([each.address for each in three]) as client:
        assert await beat(client) is False
        watch = client.watch_group(group_id="g", member_id="m")
        assert (await anext(watch)).created
        first.frozen.clear()
        beating = asyncio.create_task(beat(client))
        await wait_until_async(lambda: second.found > 2)
        assert not beating.done(), "the others still name the frozen one"
        second.owner = third.owner = second.address
        assert await beating is False
        with raises_reason(Reason.SERVICE_UNREACHABLE, "has moved away"):
            await anext(watch)
        again = client.watch_group(group_id="g", member_id="m")
        assert (await anext(again)).created
        await again.aclose()
    assert (second.beats, second.watches) == (1, 1)


async def test_when_nobody_knows_the_owner_that_is_the_answer(three: list[Scripted]) -> None:
    for each in three:
        each.owner = UnavailableError(Reason.COORDINATOR_NOT_AVAILABLE, "nobody yet")
    async with CoordinatorsClient([each.address for each in three]) as client:
        await refusal(Reason.COORDINATOR_NOT_AVAILABLE, lambda: beat(client, timeout_s=0.3))
    assert sum(each.beats for each in three) == 0


async def test_a_call_outlasts_a_search_that_nobody_answered_in_time(
    three: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_routing, "FIND_TIMEOUT_S", 0.1)
    for each in three:
        each.frozen.clear()
    async with CoordinatorsClient([each.address for each in three]) as client:
        beating = asyncio.create_task(beat(client, timeout_s=60))
        await wait_until_async(lambda: three[0].found > 2)
        assert not beating.done()
        for each in three:
            each.frozen.set()
        assert await beating is False
    assert [each.beats for each in three] == [1, 0, 0]


async def test_of_too_many_connections_the_one_goes_that_was_not_used_for_longest(
    three: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_routing, "CHANNELS_MAX", 2)
    first, second, third = (each.address for each in three)
    async with CoordinatorsClient([first]) as client:
        used, unused = client.direct(first), client.direct(second)
        assert client.direct(first) is used
        client.direct(third)
        assert client.direct(first) is used
        assert client.direct(second) is not unused
