"""The start of an engine with and without an archive of Spark's classes, alternating in one run."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.cpu_time import CpuTimes
from bench.figure import Figure
from bench.running import wait_for
from drover_worker.engine.settings import NO_CLASS_ARCHIVES
from tests.support.cluster import embedded_cluster

ROUNDS = 5
_WRITTEN_TIMEOUT_S = 900.0
_JVM = "Spark's JVM"


async def _start(folder: Path, archives: str) -> tuple[float, float]:
    """Seconds until the worker of a new cluster is a member, and CPU seconds of its JVM."""
    env = {"DROVER_CLASS_ARCHIVES": archives, "SPARK_SUBMIT_OPTS": ""}
    times = CpuTimes()
    began_s = time.monotonic()
    async with embedded_cluster(folder, workers=1, env=env) as cluster:
        await cluster.wait_until_members()
        return time.monotonic() - began_s, times.by_kind()[_JVM]


async def _measure() -> Sequence[Figure]:
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as directory:
        folder = Path(directory)
        archives = folder / "classes"
        env = {"DROVER_CLASS_ARCHIVES": str(archives), "SPARK_SUBMIT_OPTS": ""}
        async with embedded_cluster(folder / "writer", workers=1, env=env) as cluster:
            await cluster.wait_until_members()
            await wait_for(
                lambda: any(archives.glob("*.size")),
                timeout_s=_WRITTEN_TIMEOUT_S,
                what="the archive",
            )
        with_s: list[tuple[float, float]] = []
        without_s: list[tuple[float, float]] = []
        for number in range(ROUNDS):
            without_s.append(await _start(folder / f"off-{number}", NO_CLASS_ARCHIVES))
            with_s.append(await _start(folder / f"on-{number}", str(archives)))
    return [
        Figure(
            figure,
            statistics.median(each[at] for each in with_s),
            unit,
            peer="without an archive of classes",
            peer_value=statistics.median(each[at] for each in without_s),
            limit="<= 0.65 of the peer",
            samples=[each[at] for each in with_s],
        )
        for at, figure, unit in (
            (0, "engine_start", "s until the worker of a started cluster is a member"),
            (1, "engine_start_cpu", "s of CPU of Spark's JVM until then"),
        )
    ]


def figures() -> Iterator[Figure]:
    """The start of a worker with a warm engine, with and without an archive of classes."""
    yield from asyncio.run(_measure())
