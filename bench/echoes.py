"""Empty calls, the peer of every figure of a service: many callers, each one call at a time."""

import asyncio
import time

from bench.processes import Stub
from drover.api.coordinator.v1 import coordinator_service_pb2 as pb

CALL_TIMEOUT_S = 120.0


async def heartbeats_s(stub: Stub, beats: list[pb.HeartbeatRequest], calls_each: int) -> float:
    """Seconds until every caller has sent its heartbeat ``calls_each`` times."""

    async def caller(beat: pb.HeartbeatRequest) -> None:
        for _ in range(calls_each):
            await stub.Heartbeat(beat, timeout=CALL_TIMEOUT_S)

    started_s = time.perf_counter()
    await asyncio.gather(*(caller(beat) for beat in beats))
    return time.perf_counter() - started_s
