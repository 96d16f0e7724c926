"""``python -m tests.support.group_crowd``: many members of one group at once, from one process.

Its arguments are the coordinator's address, the group, how many, and what to do: ``join`` (print
what all were answered, as JSON), ``join-and-park`` or ``sync-and-park`` (print "parked" once all of
them wait, and wait to be killed).
"""

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import channel
from drover.rpc.status import from_rpc_error
from tests.support.waiting import pause

CHANNELS = 8
CALL_S = 120.0


def _request(group_id: str, number: int) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=group_id,
        client_id=f"member-{number}",
        session_timeout=Duration(seconds=60),
        rebalance_timeout=Duration(seconds=60),
        protocol_type="connect",
        protocols=[pb.GroupProtocol(name="default", metadata=b"x" * 32)],
    )


async def _join(stub: Any, request: pb.JoinGroupRequest) -> tuple[str, pb.JoinGroupResponse]:
    """The outcome of both steps of a join, in one word."""
    try:
        answer = await stub.JoinGroup(request, timeout=CALL_S)
        request.member_id = answer.member_id_required.member_id
        answer = await stub.JoinGroup(request, timeout=CALL_S)
    except grpc.aio.AioRpcError as error:
        refused = from_rpc_error(error)
        return f"{refused.code} {refused.reason}", pb.JoinGroupResponse()
    return str(answer.WhichOneof("outcome")), answer


async def _watch(stub: Any, request: pb.JoinGroupRequest) -> Any:
    watching = stub.WatchGroup(
        pb.WatchGroupRequest(group_id=request.group_id, member_id=request.member_id)
    )
    await watching.read()
    return watching


async def _join_all(stubs: list[Any], group_id: str, count: int) -> None:
    requests = [_request(group_id, number) for number in range(count)]
    outcomes = await asyncio.gather(
        *(_join(stubs[number % CHANNELS], each) for number, each in enumerate(requests))
    )
    _tell(json.dumps(Counter(outcome for outcome, _ in outcomes)))


async def _park(stubs: list[Any], group_id: str, count: int, *, sync: bool) -> None:
    requests = [_request(group_id, number) for number in range(count)]

    async def park(number: int, request: pb.JoinGroupRequest) -> Any:
        stub = stubs[number % CHANNELS]
        answer = await stub.JoinGroup(request, timeout=CALL_S)
        request.member_id = answer.member_id_required.member_id
        joining = asyncio.ensure_future(stub.JoinGroup(request, timeout=CALL_S))
        while True:  # a member can be watched once its join is stored
            try:
                watching = await _watch(stub, request)
            except grpc.aio.AioRpcError:
                await pause(0.05)
            else:
                break
        if not sync:
            return joining, watching
        joined = (await joining).joined
        if joined.members:
            return None, watching  # the leader never syncs
        syncing = stub.SyncGroup(
            pb.SyncGroupRequest(
                group_id=group_id, member_id=request.member_id, generation=joined.generation
            ),
            timeout=CALL_S,
        )
        return asyncio.ensure_future(syncing), watching

    parked = await asyncio.gather(*(park(*each) for each in enumerate(requests)))
    _tell("parked")
    await asyncio.Event().wait()
    del parked


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _main(address: str, group_id: str, count: str, what: str) -> None:
    async with AsyncExitStack() as stack:
        stubs = [
            pb_grpc.CoordinatorServiceStub(await stack.enter_async_context(channel(address)))
            for _ in range(CHANNELS)
        ]
        if what == "join":
            await _join_all(stubs, group_id, int(count))
        else:
            await _park(stubs, group_id, int(count), sync=what == "sync-and-park")


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
