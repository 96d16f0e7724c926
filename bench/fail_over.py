"""The time without a coordinator for a group after kill -9 of its coordinator."""

import asyncio
import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import grpc.aio

from bench.figure import Figure
from bench.members import Gathering
from bench.processes import Stub, connected, running
from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.local.ports import free_ports
from tests.support.waiting import pause

ROUNDS = 3
MEMBER_COUNT = 10
#: Enough groups for each coordinator to own at least one, whatever their hashes.
GROUPS = [f"bench-{number}" for number in range(32)]
WAIT_MAX_S = 60.0
CALL_TIMEOUT_S = 5.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class _Coordinator:
    address: str
    process: "subprocess.Popen[str]"
    stub: Stub


@contextlib.asynccontextmanager
async def _pair() -> AsyncIterator[list[_Coordinator]]:
    """Two coordinators that share a directory."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2)]
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="drover-bench-"))
        pair = []
        for address in addresses:
            env = {
                "DROVER_STORAGE_URL": f"sqlite://{folder}",
                "DROVER_COORDINATOR_LISTEN": address,
                "DROVER_COORDINATORS": ",".join(addresses),
                "DROVER_INITIAL_REBALANCE_DELAY_MS": "0",
            }
            process = await stack.enter_async_context(running("drover_coordinator", env))
            stub = await stack.enter_async_context(connected(address))
            pair.append(_Coordinator(address, process, stub))
        yield pair


async def _owners(pair: list[_Coordinator]) -> dict[str, str]:
    """The coordinator of each group, once both coordinators own groups and agree on the owners."""
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                views = [await _view(each.stub) for each in pair]
                if views[0] == views[1] and len(set(views[0].values())) == len(pair):
                    return views[0]
            await pause(_POLL_S)


async def _view(stub: Stub) -> dict[str, str]:
    found = {}
    for group_id in GROUPS:
        request = pb.FindCoordinatorRequest(group_id=group_id)
        found[group_id] = (await stub.FindCoordinator(request, timeout=CALL_TIMEOUT_S)).address
    return found


async def _until_served(stub: Stub, beat: pb.HeartbeatRequest) -> None:
    """Wait until a coordinator that has loaded the group's log answers the heartbeat."""
    describe = pb.DescribeGroupRequest(group_id=beat.group_id)
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await stub.Heartbeat(beat, timeout=CALL_TIMEOUT_S)
                group = await stub.DescribeGroup(describe, timeout=CALL_TIMEOUT_S)
                if group.generation != beat.generation:
                    raise AssertionError(f"a rebalance for nothing: {beat} became {group}")
                return
            await pause(_POLL_S)


async def _round() -> float:
    async with _pair() as pair:
        owners = await _owners(pair)
        lost, other = pair
        group_id = next(each for each, owner in owners.items() if owner == lost.address)
        beats = await Gathering(lost.stub, group_id, MEMBER_COUNT).run()
        started_s = time.perf_counter()
        lost.process.kill()
        await _until_served(other.stub, beats[0])
        return time.perf_counter() - started_s


async def measure(rounds: int = ROUNDS) -> Figure:
    """Measure; each round starts two new coordinators."""
    seconds = [await _round() for _ in range(rounds)]
    return Figure(
        "coordinator_fail_over",
        statistics.median(seconds),
        "s (kill -9 until the other answers a member's heartbeat)",
        limit="<= 3 s",
        samples=seconds,
    )


def figures() -> Iterator[Figure]:
    """From kill -9 of a group's coordinator until the other one serves the group."""
    yield asyncio.run(measure())
