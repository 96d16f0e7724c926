"""The config store's start time with a large log, and its memory after the start.

``python -m bench.config_load FILE`` loads the log in that file, in a separate process.
"""

import asyncio
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bench.figure import Figure
from drover.clock import SystemClock
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog
from drover.model.ids import TaskId
from drover.rpc.log_service import load
from drover.rpc.logs import configure_logging
from drover.rpc.server import RpcServer
from drover_config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    TaskRecord,
    encode,
)
from drover_config_store.server import wire

CONNECTOR_COUNT = 10_000
TASKS_EACH = 10
ROUNDS = 5
_APPEND_CONNECTORS = 200


@dataclass(frozen=True, slots=True)
class Loaded:
    """Seconds from opening the file until the service is ready, and resident bytes at that time."""

    seconds: float
    resident_bytes: int


def _records(connector: int) -> Iterator[ConfigRecord]:
    name = f"connector-{connector:05}"
    config = {
        "connector.class": "FileStreamSource",
        "file": f"/data/input/{connector}.csv",
        "name": name,
        "tasks.max": str(TASKS_EACH),
        "topic": f"topic-{connector}",
    }
    yield ConnectorRecord(name, config)
    for task in range(TASKS_EACH):
        yield TaskRecord(TaskId(name, task), {**config, "task.number": str(task)})
    yield CommitRecord(name, TASKS_EACH)


async def _write(path: Path, connector_count: int) -> None:
    log = await SqliteLog.open(path, SystemClock())
    for start in range(0, connector_count, _APPEND_CONNECTORS):
        numbers = range(start, min(start + _APPEND_CONNECTORS, connector_count))
        await log.append(
            [
                LogRecord(*encode(record), request_id=f"request-{number}", author="anna@host")
                for number in numbers
                for record in _records(number)
            ]
        )
    await log.close()


async def _load(path: Path) -> Loaded:
    configure_logging("bench", "WARNING", "json")
    started_s = time.perf_counter()
    log = await SqliteLog.open(path, SystemClock())
    runtime = wire(log, SystemClock(), RpcServer(listen="127.0.0.1:0", internal=True))
    await load(runtime, asyncio.Event())
    loaded = Loaded(time.perf_counter() - started_s, psutil.Process().memory_info().rss)
    await runtime.close()
    await log.close()
    return loaded


def _loaded(path: Path) -> Loaded:
    output = subprocess.run(
        [sys.executable, "-m", "bench.config_load", str(path)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Loaded(**json.loads(output))


def _plainly_read(path: Path) -> float:
    """Seconds to read the same rows with sqlite3 alone."""
    started_s = time.perf_counter()
    connection = sqlite3.connect(path)
    for _row in connection.execute("SELECT * FROM record ORDER BY offset"):
        pass
    connection.close()
    return time.perf_counter() - started_s


def measure(
    *, connector_count: int = CONNECTOR_COUNT, rounds: int = ROUNDS
) -> tuple[Figure, Figure]:
    """Alternate both, so that a busy machine slows each; the ratio is of medians."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        path = Path(folder) / "config.db"
        asyncio.run(_write(path, connector_count))
        plain: list[float] = []
        loads: list[Loaded] = []
        for _ in range(rounds):
            plain.append(_plainly_read(path))
            loads.append(_loaded(path))
    seconds = [each.seconds for each in loads]
    return (
        Figure(
            "config_store_load",
            statistics.median(seconds),
            f"s ({connector_count} connectors of {TASKS_EACH} tasks)",
            peer="the same rows read with sqlite3",
            peer_value=statistics.median(plain),
            limit="ratio <= 3",
            samples=seconds,
        ),
        Figure(
            "config_store_memory",
            statistics.median(each.resident_bytes for each in loads) / 1e6,
            "MB (resident, after the load)",
            limit="<= 600",
        ),
    )


def figures() -> Iterator[Figure]:
    """The config store's start with a large log, and its memory after the start."""
    yield from measure()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(asyncio.run(_load(Path(sys.argv[1]))))) + "\n")
