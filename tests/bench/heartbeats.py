"""Heartbeat RPCs/s through the coordinator, against calls to a server that does nothing."""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.cli.ports import free_ports
from tests.bench.figure import Figure

MEMBER_COUNT = 32
CALLS_PER_ROUND = 6_000
ROUNDS = 5
GROUP = "bench"


@contextlib.asynccontextmanager
async def _process(
    *arguments: str, env: dict[str, str] | None = None
) -> AsyncIterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # noqa: ASYNC220 - before any call is made
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


async def _join(stub: "pb_grpc.CoordinatorServiceAsyncStub") -> list[pb.HeartbeatRequest]:
    """Bring MEMBER_COUNT members to a stable group; returns a heartbeat for each."""

    async def enter() -> pb.JoinGroupResponse.Joined:
        request = pb.JoinGroupRequest(
            group_id=GROUP,
            client_id="bench",
            session_timeout=Duration(seconds=60),
            rebalance_timeout=Duration(seconds=60),
            protocol_type="connect",
            protocols=[pb.GroupProtocol(name="default", metadata=b"{}")],
        )
        while True:
            answer = await stub.JoinGroup(request, timeout=30)
            if answer.HasField("joined"):
                return answer.joined
            outcome = (
                answer.member_id_required
                if answer.HasField("member_id_required")
                else answer.retry_join
            )
            request.member_id = outcome.member_id

    async def settle() -> pb.HeartbeatRequest:
        while True:
            joined = await enter()
            answer = await stub.SyncGroup(
                pb.SyncGroupRequest(
                    group_id=GROUP, member_id=joined.member_id, generation=joined.generation
                ),
                timeout=30,
            )
            if answer.HasField("synced"):
                return pb.HeartbeatRequest(
                    group_id=GROUP, member_id=joined.member_id, generation=joined.generation
                )

    return list(await asyncio.gather(*(settle() for _ in range(MEMBER_COUNT))))


async def _calls_per_s(
    stub: "pb_grpc.CoordinatorServiceAsyncStub", beats: list[pb.HeartbeatRequest]
) -> float:
    async def caller(beat: pb.HeartbeatRequest) -> None:
        for _ in range(CALLS_PER_ROUND // len(beats)):
            await stub.Heartbeat(beat, timeout=10)

    started = time.perf_counter()
    await asyncio.gather(*(caller(beat) for beat in beats))
    return CALLS_PER_ROUND / (time.perf_counter() - started)


async def measure() -> Figure:
    """Alternate rounds against both servers; the ratio is of the medians."""
    (port,) = free_ports("127.0.0.1", 1)
    listen = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        async with (
            _process("tests.bench.echo_server") as echo,
            _process(
                "services.coordinator",
                env={
                    "DROVER_STORAGE_URL": f"sqlite://{Path(folder)}",
                    "DROVER_COORDINATOR_LISTEN": listen,
                    "DROVER_INITIAL_REBALANCE_DELAY_MS": "500",
                },
            ),
        ):
            assert echo.stdout is not None
            address = await asyncio.to_thread(echo.stdout.readline)
            async with (
                grpc.aio.insecure_channel(address.strip()) as echo_channel,
                grpc.aio.insecure_channel(listen) as channel,
            ):
                await asyncio.wait_for(channel.channel_ready(), 60)
                stub = pb_grpc.CoordinatorServiceStub(channel)
                echo_stub = pb_grpc.CoordinatorServiceStub(echo_channel)
                beats = await _join(stub)
                ours: list[float] = []
                theirs: list[float] = []
                await _calls_per_s(echo_stub, beats)
                await _calls_per_s(stub, beats)
                for _ in range(ROUNDS):
                    theirs.append(await _calls_per_s(echo_stub, beats))
                    ours.append(await _calls_per_s(stub, beats))
    return Figure(
        "heartbeat_rpcs",
        statistics.median(ours),
        "RPCs/s",
        peer="empty echo server, same interceptors, same client",
        peer_value=statistics.median(theirs),
        limit="ratio >= 0.7",
        samples=ours,
    )


def run() -> None:
    """Measure and print."""
    asyncio.run(measure()).print()
