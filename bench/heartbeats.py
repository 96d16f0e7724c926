"""Heartbeats a second: RPCs through the coordinator, empty RPCs, and through the core alone."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench import group_core
from bench.echoes import heartbeats_s
from bench.figure import Figure
from bench.members import Gathering
from bench.processes import servers

MEMBER_COUNT = 32
CALLS_EACH = 40
CORE_CALLS = 20_000
ROUNDS = 25


async def measure(
    *, calls_each: int = CALLS_EACH, core_calls: int = CORE_CALLS, rounds: int = ROUNDS
) -> list[Figure]:
    """Alternate rounds of all three, so that a busy machine slows each; ratios are of medians."""
    call_count = calls_each * MEMBER_COUNT
    core = group_core.Core()
    ours: list[float] = []
    theirs: list[float] = []
    alone: list[float] = []
    async with servers() as running:
        beats = await Gathering(running.coordinator, "bench", MEMBER_COUNT).run()
        for _ in range(rounds + 1):  # the first round is a warm-up
            theirs.append(call_count / await heartbeats_s(running.echo, beats, calls_each))
            ours.append(call_count / await heartbeats_s(running.coordinator, beats, calls_each))
            started_s = time.perf_counter()
            core.beat(core_calls)
            alone.append(core_calls / (time.perf_counter() - started_s))
    rpcs = Figure(
        "heartbeat_rpcs",
        statistics.median(ours[1:]),
        "RPCs/s",
        peer="empty echo server, same interceptors, same client",
        peer_value=statistics.median(theirs[1:]),
        limit="ratio >= 0.7",
        samples=ours[1:],
    )
    return [
        rpcs,
        Figure(
            "group_core_heartbeats",
            statistics.median(alone[1:]),
            "heartbeats/s",
            peer="heartbeat RPCs/s",
            peer_value=rpcs.value,
            limit="ratio >= 40",
            samples=alone[1:],
        ),
    ]


def figures() -> Iterator[Figure]:
    """Heartbeat RPCs against empty ones, the core alone against the RPCs, its memory."""
    yield from asyncio.run(measure())
    yield group_core.memory_figure()
