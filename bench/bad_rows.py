"""A sink that rejects one row in a thousand, compared with the same sink on valid rows only."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import rows_job
from bench.figure import Figure
from bench.rows_job import rows_in, write_rows
from bench.running import wait_for
from drover.client import ConnectClient
from tests.support.cluster import embedded_cluster
from tests.support.kafka.connect import JSON_CONVERTER

ROW_COUNT = 1_000_000
BAD_EVERY = 1_000
ROUNDS = 5
TIMEOUT_S = 300.0


def spoil(good: Path, bad: Path) -> None:
    """Copy the rows; every BAD_EVERY-th row is truncated, the last one is valid."""
    with good.open() as lines, bad.open("w") as file:
        for number, line in enumerate(lines):
            spoilt = number % BAD_EVERY == BAD_EVERY // 2
            file.write(line[: len(line) // 2] + "\n" if spoilt else line)


def source_config(topic: str, source: Path) -> dict[str, str]:
    """Publishes lines unchanged."""
    return {"connector.class": "FileStreamSource", "topic": topic, "file": str(source)}


def sink_config(topic: str, target: Path) -> dict[str, str]:
    """Parses every row; invalid rows become dead letters."""
    return {
        **rows_job.sink_config(topic, target),
        "value.converter": JSON_CONVERTER,
        "value.converter.schemas.enable": "false",
        "transforms": "mask",
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "email",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{topic}-dead",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


async def _round(client: ConnectClient, name: str, topic: str, folder: Path) -> float:
    target = folder / name
    started_s = time.monotonic()
    await client.create_connector(name, sink_config(topic, target))
    arrived_s = await wait_for(
        lambda: rows_in(target) >= ROW_COUNT, timeout_s=TIMEOUT_S, what=f"the rows of {name}"
    )
    await client.delete_connector(name)
    return arrived_s - started_s


async def _measure(folder: Path) -> Figure:
    files = {"good": folder / "good.json", "bad": folder / "bad.json"}
    write_rows(files["good"], ROW_COUNT)
    spoil(files["good"], files["bad"])
    seconds: dict[str, list[float]] = {topic: [] for topic in files}
    async with embedded_cluster(folder / "cluster") as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            for topic, path in files.items():
                await client.create_connector(f"fill-{topic}", source_config(topic, path))
            for number in range(ROUNDS + 1):
                for topic in files:
                    took_s = await _round(client, f"{topic}-{number}", topic, folder)
                    if number:
                        seconds[topic].append(took_s)
    return Figure(
        "bad_rows",
        statistics.median(seconds["bad"]),
        f"s ({ROW_COUNT} JSON rows, topic -> files, one in {BAD_EVERY} bad)",
        peer="the same rows, all good",
        peer_value=statistics.median(seconds["good"]),
        limit="ratio <= 1.5",
        samples=seconds["bad"],
    )


def figures() -> Iterator[Figure]:
    """JSON rows of which one in a thousand is a dead letter, beside good ones."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        yield asyncio.run(_measure(Path(folder)))
