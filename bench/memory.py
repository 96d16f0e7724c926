"""The memory of a worker with idle connectors, and its growth under load."""

import asyncio
import itertools
import os
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil

from bench.cpu_time import kind_of
from bench.figure import Figure
from bench.kafka_latency import Pair, running_pair
from bench.kafka_sides import Side, drover_side, figures_on_broker
from drover.local.process import descendants
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import pause

#: Pairs of a source and a sink: 20 connectors.
PAIRS = 10
IDLE_S = 90.0
MINUTES = 10
#: Minutes before growth is measured: pools fill, and the JVM compiles.
WARM_UP_MINUTES = 3
LINE_EVERY_S = 1.0
#: The interval at which a pair is created, copies a line, and is deleted.
COME_AND_GO_EVERY_S = 10.0
MEBIBYTE = 1024 * 1024
#: The kinds of processes of an engine.
ENGINE_KINDS = ("Spark's JVM", "Python workers", "engine")
_NOT_OURS = ("broker", "other")


def memory_mib() -> Mapping[str, float]:
    """Memory of this process's descendants by kind, in MiB; shared pages are divided (PSS)."""
    found: dict[str, float] = defaultdict(float)
    for process in descendants(os.getpid()):
        try:
            kind = kind_of(" ".join(process.cmdline()))
            found[kind] += process.memory_full_info().pss / MEBIBYTE
        except psutil.Error:
            continue
    return {kind: mib for kind, mib in found.items() if kind not in _NOT_OURS}


@asynccontextmanager
async def all_pairs(side: Side, bootstrap: str, folder: Path) -> AsyncIterator[Sequence[Pair]]:
    """Connectors that have copied a line each."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running_pair(side, bootstrap, folder, f"steady-{n}"))
            for n in range(PAIRS)
        ]


async def idle(_: KafkaJars, bootstrap: str, folder: Path) -> Iterator[Figure]:
    """Memory with idle connectors."""
    async with (
        drover_side(bootstrap, folder / "drover") as side,
        all_pairs(side, bootstrap, folder),
    ):
        await pause(IDLE_S)
        found = memory_mib()
    return _idle_figures(found)


def _idle_figures(found: Mapping[str, float]) -> Iterator[Figure]:
    unit = f"MiB (PSS) with {2 * PAIRS} idle connectors"
    yield Figure(
        "memory_idle_engine",
        sum(found.get(kind, 0.0) for kind in ENGINE_KINDS),
        f"{unit}: engine, JVM and Python workers",
        limit="<= 700 MiB",
    )
    for kind in sorted(found, key=lambda each: -found[each]):
        yield Figure("memory_idle", found[kind], f"{unit}: {kind}")


async def growth(bootstrap: str, folder: Path, minutes: int) -> list[Mapping[str, float]]:
    """Memory by the minute while small batches flow and connectors are created and deleted."""
    async with (
        drover_side(bootstrap, folder / "drover") as side,
        all_pairs(side, bootstrap, folder) as pairs,
    ):
        work = [
            asyncio.create_task(_write(pairs)),
            asyncio.create_task(_come_and_go(side, bootstrap, folder)),
        ]
        began_s, found = time.monotonic(), []
        for minute in range(minutes + 1):
            await pause(max(0.0, began_s + minute * 60 - time.monotonic()))
            found.append(await asyncio.to_thread(memory_mib))
            for each in work:
                if each.done():
                    each.result()
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    return found


async def _write(pairs: Sequence[Pair]) -> None:
    while True:
        for pair in pairs:
            pair.append("a line to carry\n")
            await pause(LINE_EVERY_S / len(pairs))


async def _come_and_go(side: Side, bootstrap: str, folder: Path) -> None:
    for number in itertools.count():
        async with running_pair(side, bootstrap, folder, f"passing-{number}") as pair:
            pair.append("a line to carry\n")
        await pause(COME_AND_GO_EVERY_S)


def slope_mib_an_hour(by_minute: Sequence[float]) -> float:
    """The growth after the warm-up, by least squares."""
    counted = by_minute[min(WARM_UP_MINUTES, len(by_minute) - 2) :]
    return 60 * statistics.linear_regression(range(len(counted)), counted).slope


def _growth_figures(by_minute: Sequence[Mapping[str, float]]) -> Iterator[Figure]:
    kinds = sorted(by_minute[-1], key=lambda each: -by_minute[-1][each])
    for kind in [*kinds, "all"]:
        samples = [sum(each.values()) if kind == "all" else each.get(kind, 0) for each in by_minute]
        yield Figure(
            "memory_growth",
            slope_mib_an_hour(samples),
            f"MiB an hour (PSS) after {WARM_UP_MINUTES} minutes: {kind}; samples are by the minute",
            limit="<= 20 MiB an hour" if kind == "all" else "",
            samples=samples,
        )


def idle_figures() -> Iterator[Figure]:
    """The memory of a worker with 20 idle connectors on Kafka."""
    yield from figures_on_broker("memory", idle)


def growth_figures() -> Iterator[Figure]:
    """Whether memory grows in ten minutes (DROVER_BENCH_MINUTES) of small batches on Kafka."""
    minutes = int(os.environ.get("DROVER_BENCH_MINUTES") or MINUTES)

    async def measured(_: KafkaJars, bootstrap: str, folder: Path) -> Iterator[Figure]:
        return _growth_figures(await growth(bootstrap, folder, minutes))

    yield from figures_on_broker("memory-growth", measured)
