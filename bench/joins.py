"""How long a group takes from its first join to Stable, against as many empty calls."""

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from bench.echoes import heartbeats_s
from bench.figure import Figure
from bench.members import Gathering
from bench.processes import Servers, servers
from drover.api.coordinator.v1 import coordinator_service_pb2 as pb

SIZES = (10, 30, 100, 300, 1_000, 2_000)
ROUNDS = 5
#: Small groups have short and noisy rounds: they run this many times more rounds.
SMALL_SIZE = 100
SMALL_FACTOR = 3
#: Join for an id, join, sync.
CALLS_EACH = 3
#: The group size with a limit.
LIMITED_SIZE = 1_000
NAME = "join_to_stable"


@dataclass(frozen=True, slots=True)
class Point:
    """The rounds of one size: seconds of the group and of the empty calls."""

    member_count: int
    joined_s: Sequence[float]
    echoed_s: Sequence[float]
    rpc_count: int

    def figure(self) -> Figure:
        """The medians."""
        count = self.member_count
        return Figure(
            f"{NAME}_{count}",
            statistics.median(self.joined_s),
            f"s ({count} members, {self.rpc_count} RPCs)",
            peer=f"{CALLS_EACH * count} empty calls, as many callers",
            peer_value=statistics.median(self.echoed_s),
            limit="ratio <= 3" if count == LIMITED_SIZE else "",
            samples=self.joined_s,
        )


_group_numbers = itertools.count(1)


async def _round(running: Servers, member_count: int) -> tuple[float, float, int]:
    nobody = pb.HeartbeatRequest(group_id="nobody", member_id="nobody", generation=1)
    echoed_s = await heartbeats_s(running.echo, [nobody] * member_count, CALLS_EACH)
    gathering = Gathering(running.coordinator, f"bench-{next(_group_numbers)}", member_count)
    started_s = time.perf_counter()
    beats = await gathering.run()
    joined_s = time.perf_counter() - started_s
    await gathering.leave(beats)
    return joined_s, echoed_s, gathering.rpc_count


async def points(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> AsyncIterator[Point]:
    """Measure every size; a round runs both servers one after the other; the first is a warm-up."""
    async with servers() as running:
        for member_count in sizes:
            await _round(running, min(member_count, LIMITED_SIZE))
            factor = 1 if member_count > SMALL_SIZE else SMALL_FACTOR
            measured = [await _round(running, member_count) for _ in range(rounds * factor)]
            joined_s, echoed_s, rpc_counts = zip(*measured, strict=True)
            yield Point(member_count, joined_s, echoed_s, round(statistics.median(rpc_counts)))


def figures(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> Iterator[Figure]:
    """From the first join to Stable, groups of 10 to 2,000 members; 1,000 have a limit."""

    async def collect() -> list[Point]:
        return [point async for point in points(sizes, rounds)]

    for point in asyncio.run(collect()):
        yield point.figure()
