"""A job that every tool of the field can do: read JSON lines, drop some, mask a field, write files.

A plain Python loop does it beside Drover in the same run, round by round.
"""

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.running import wait_for
from drover.client import ConnectClient
from tests.support.cluster import embedded_cluster

ROW_COUNT = 1_000_000
ROUNDS = 5
TIMEOUT_S = 300.0

_CITIES = ("oslo", "bergen", "trondheim", "stavanger", "tromso", "bodo", "molde", "hamar")


def write_rows(path: Path, row_count: int) -> int:
    """Write rows of about 91 bytes; returns the number of rows that the job keeps."""
    pick = random.Random(11)
    kept = 0
    with path.open("w") as file:
        for number in range(row_count):
            city = pick.choice(_CITIES)
            kept += city != "oslo"
            row = {
                "id": number,
                "city": city,
                "email": f"user{number % 50_000}@example.com",
                "amount": round(pick.uniform(1, 999), 2),
                "ok": True,
            }
            file.write(json.dumps(row) + "\n")
    return kept


def python_loop(source: Path, target: Path) -> None:
    """The whole job as the simplest Python loop."""
    with source.open() as lines, target.open("w") as file:
        for line in lines:
            row = json.loads(line)
            if row["city"] == "oslo":
                continue
            row["email"] = ""
            file.write(json.dumps(row) + "\n")


def source_config(topic: str, source: Path) -> dict[str, str]:
    """Reads, drops and masks."""
    return {
        "connector.class": "FilesSource",
        "topic": topic,
        "path": str(source),
        "transforms": "drop,mask",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "oslo",
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "email",
        "predicates": "oslo",
        "predicates.oslo.type": "FieldMatches",
        "predicates.oslo.field": "city",
        "predicates.oslo.equals": "oslo",
    }


def sink_config(topic: str, target: Path) -> dict[str, str]:
    """Writes the remaining rows."""
    return {
        "connector.class": "FilesSink",
        "topics": topic,
        "path": str(target),
        "format": "json",
    }


def rows_in(target: Path) -> int:
    """The number of rows in the sink's files, by the offsets in their names."""
    ends = (int(path.name.split("-")[-2]) for path in target.rglob("*.json"))
    return max(ends, default=0)


async def _round(
    client: ConnectClient, number: int, source: Path, folder: Path, kept: int
) -> float:
    topic, target = f"rows-{number}", folder / f"rows-{number}"
    started_s = time.monotonic()
    await client.create_connector(f"{topic}-sink", sink_config(topic, target))
    await client.create_connector(f"{topic}-source", source_config(topic, source))
    arrived_s = await wait_for(
        lambda: rows_in(target) >= kept, timeout_s=TIMEOUT_S, what=f"round {number} of the rows"
    )
    for kind in ("source", "sink"):
        await client.delete_connector(f"{topic}-{kind}")
    return arrived_s - started_s


def _python_seconds(source: Path, target: Path) -> float:
    started_s = time.monotonic()
    python_loop(source, target)
    return time.monotonic() - started_s


def _check(ours: Path, plain: Path) -> None:
    """Fail unless both wrote the same rows."""
    parts = sorted(ours.rglob("*.json"), key=lambda path: int(path.name.split("-")[-3]))
    lines = (line for part in parts for line in part.read_text().splitlines())
    with plain.open() as expected:
        for found, wanted in zip(lines, expected, strict=True):
            assert json.loads(found) == json.loads(wanted), f"{found} is not {wanted}"


async def _measure(folder: Path) -> Figure:
    source = folder / "rows.json"
    kept = write_rows(source, ROW_COUNT)
    ours, plain = [], []
    async with embedded_cluster(folder / "cluster") as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            for number in range(ROUNDS + 1):
                seconds = await _round(client, number, source, folder, kept)
                loop = await asyncio.to_thread(_python_seconds, source, folder / "plain.json")
                if not number:
                    _check(folder / "rows-0", folder / "plain.json")
                    continue
                ours.append(seconds)
                plain.append(loop)
    return Figure(
        "rows_filtered_and_masked",
        statistics.median(ours),
        f"s ({ROW_COUNT} JSON lines, file -> topic -> file)",
        peer="a plain Python loop over the file",
        peer_value=statistics.median(plain),
        limit="ratio <= 2",
        samples=ours,
    )


def figures() -> Iterator[Figure]:
    """JSON lines filtered and masked from file to file, beside a plain Python loop."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        yield asyncio.run(_measure(Path(folder)))
