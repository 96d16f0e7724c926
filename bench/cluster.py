"""The figures of a whole cluster: copying a file, hand-over after kill -9, memory."""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.figure import Figure
from bench.running import create_copy, delete_copy, size_of, wait_for, write_lines
from drover.local.process import descendants
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.waiting import pause

LINE_COUNT = 1_000_000
COPY_ROUNDS = 3
HAND_OVERS = 3
TIMEOUT_S = 300.0
MEBIBYTE = 1024 * 1024


async def _copy_rounds(cluster: EmbeddedCluster, source: Path, folder: Path) -> list[float]:
    """Seconds from a source connector's creation until every byte is in the sink's file."""
    seconds = []
    for number in range(COPY_ROUNDS + 1):
        name = f"copy-{number}"
        target = folder / f"{name}.txt"
        async with cluster.client() as client:
            started_s = time.monotonic()
            await create_copy(client, name, source, target)
            size = source.stat().st_size
            arrived_s = await wait_for(
                lambda target=target, size=size: size_of(target) >= size,  # type: ignore[misc]
                timeout_s=TIMEOUT_S,
                what=f"round {number} of the copy",
            )
            seconds.append(arrived_s - started_s)
            await delete_copy(client, name)
    return seconds[1:]


async def _hand_overs(cluster: EmbeddedCluster, folder: Path) -> list[float]:
    """Seconds from a kill -9 until the killed worker's task is RUNNING on the other one."""
    source = folder / "hand-over-in.txt"
    source.write_text("a line\n")
    async with cluster.client() as client:
        await create_copy(client, "hand-over", source, folder / "hand-over-out.txt")
    seconds = []
    for _ in range(HAND_OVERS):
        await cluster.wait_until_members()
        running = await cluster.wait_for_task("hand-over-sink")
        lost = cluster.worker_name(running.worker_id)
        other = next(name for name in ("worker-1", "worker-2") if name != lost)
        process = cluster.process(lost)
        starts = process.start_count
        async with cluster.client(other) as client:
            started_s = time.monotonic()
            process.kill()
            while True:
                status = await client.get_connector_status("hand-over-sink", timeout_s=10)
                if any(
                    task.worker_id != running.worker_id and task.state == running.state
                    for task in status.tasks
                ):
                    break
                await pause(0.01)
            seconds.append(time.monotonic() - started_s)
        await cluster.supervisor.wait_until_serving(lost, start_count=starts + 1, timeout_s=120)
    return seconds


def _memory(cluster: EmbeddedCluster) -> list[Figure]:
    figures = []
    for name, process in cluster.supervisor.processes.items():
        if process.pid is None:
            continue
        limit = "<= 150 MiB" if name.startswith("worker") else "<= 120 MiB"
        own = psutil.Process(process.pid).memory_full_info().pss / MEBIBYTE
        figures.append(Figure(f"memory_{name}", own, "MiB (PSS, idle)", limit=limit))
        below = descendants(process.pid)
        if below:
            engine = sum(each.memory_full_info().pss for each in below) / MEBIBYTE
            figures.append(Figure(f"memory_{name}_engine", engine, "MiB (PSS, JVM and Python)"))
    return figures


def _plain_spark(source: Path, folder: Path) -> list[float]:
    output = subprocess.run(
        [
            *(sys.executable, "-m", "bench.plain_spark"),
            *(str(source), str(folder / "plain"), str(COPY_ROUNDS)),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    seconds: list[float] = json.loads(output.splitlines()[-1])
    return seconds


async def _measure(folder: Path) -> list[Figure]:
    source = folder / "lines.txt"
    write_lines(source, LINE_COUNT)
    plain = [LINE_COUNT / seconds for seconds in _plain_spark(source, folder)]
    async with embedded_cluster(folder / "cluster") as cluster:
        await cluster.wait_until_members()
        figures = _memory(cluster)
        copied = [LINE_COUNT / seconds for seconds in await _copy_rounds(cluster, source, folder)]
        handed_over = await _hand_overs(cluster, folder)
    figures.append(
        Figure(
            "file_topic_file",
            statistics.median(copied),
            "lines/s",
            peer="plain Spark copy of the same file, warm session",
            peer_value=statistics.median(plain),
            limit="ratio >= 0.2",
            samples=copied,
        )
    )
    figures.append(
        Figure(
            "hand_over_after_kill",
            statistics.median(handed_over),
            "s",
            limit="<= 3 s (Kafka Connect: 10 s + up to 300 s)",
            samples=handed_over,
        )
    )
    return figures


def figures() -> list[Figure]:
    """A file copied through a topic, hand-over after kill -9, memory: a whole cluster."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))
