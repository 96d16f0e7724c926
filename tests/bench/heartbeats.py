"""Heartbeat RPCs/s through the coordinator, against calls to a server that does nothing."""

import statistics

from tests.bench.echoes import heartbeats_s
from tests.bench.figure import Figure
from tests.bench.members import Gathering
from tests.bench.processes import servers

MEMBER_COUNT = 32
CALLS_EACH = 200
ROUNDS = 5


async def measure(calls_each: int = CALLS_EACH, rounds: int = ROUNDS) -> Figure:
    """Alternate rounds against both servers; the ratio is of the medians."""
    call_count = calls_each * MEMBER_COUNT
    async with servers() as running:
        beats = await Gathering(running.coordinator, "bench", MEMBER_COUNT).run()
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(rounds + 1):  # the first one does not count
            theirs.append(call_count / await heartbeats_s(running.echo, beats, calls_each))
            ours.append(call_count / await heartbeats_s(running.coordinator, beats, calls_each))
    return Figure(
        "heartbeat_rpcs",
        statistics.median(ours[1:]),
        "RPCs/s",
        peer="empty echo server, same interceptors, same client",
        peer_value=statistics.median(theirs[1:]),
        limit="ratio >= 0.7",
        samples=ours[1:],
    )
