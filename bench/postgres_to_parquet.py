"""A table of PostgreSQL through an embedded topic into Parquet, beside dlt in the same run."""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from bench.databases import (
    ROUNDS,
    arrived_s,
    fill_table,
    make_table,
    measured_postgres,
)
from bench.figure import Figure
from bench.topic_sinks import rows_in
from drover.client import ConnectClient
from tests.support.cluster import embedded_cluster
from tests.support.postgres import Postgres
from tests.support.repository import REPOSITORY

TABLE = "visits"
ROW_COUNT = 200_000
DLT_VERSION = "1.31.0"
_REQUIREMENTS = (
    f"dlt[filesystem,parquet,postgres,sql-database]=={DLT_VERSION}",
    "sqlalchemy>=2.0,<2.1",
)
_ENVIRONMENT = REPOSITORY / ".bench-dlt"
_INSTALL_TIMEOUT_S = 600
_RUN_TIMEOUT_S = 300
_SCRIPT = Path(__file__).with_name("dlt_peer.py")


@dataclass(frozen=True, slots=True)
class DltSeconds:
    """The seconds of the whole process, and of its ``pipeline.run`` call."""

    process: float
    run: float


class DltMissingError(Exception):
    """dlt cannot be installed here; the message is one line."""


def find_dlt(environment: Path = _ENVIRONMENT) -> Path:
    """The Python of an environment that has only dlt; creates it if it does not exist.

    Raises:
        DltMissingError: It cannot be created.
    """
    python = environment / DLT_VERSION / "bin" / "python"
    sign = python.parents[1] / ".complete"
    if not sign.exists():
        shutil.rmtree(python.parents[1], ignore_errors=True)
        try:
            _run(sys.executable, "-m", "venv", str(python.parents[1]))
            _run(str(python), "-m", "pip", "install", "--quiet", *_REQUIREMENTS)
        except (OSError, subprocess.SubprocessError) as error:
            raise DltMissingError(f"dlt {DLT_VERSION} could not be installed: {error}") from error
        sign.touch()
    return python


def dlt_seconds(python: Path, postgres: Postgres, target: Path, row_count: int) -> DltSeconds:
    """Run dlt in a new process into a new folder, and check that all rows are there."""
    target.mkdir()
    started_s = time.monotonic()
    done = subprocess.run(
        [str(python), str(_SCRIPT), _url_of(postgres), TABLE, str(target)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_RUN_TIMEOUT_S,
        env={**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false", "HOME": str(target)},
    )
    taken_s = time.monotonic() - started_s
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == row_count, f"dlt wrote {told['rows']} of {row_count} rows"
    return DltSeconds(taken_s, told["run_s"])


async def drover_seconds(
    client: ConnectClient, postgres: Postgres, target: Path, row_count: int
) -> float:
    """Seconds from the creation of the first connector until all rows are in files, which are
    checked.
    """
    name = target.name
    source = {
        **postgres.settings,
        "connector.class": "JdbcSource",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": TABLE,
        "topic.prefix": f"{name}-",
    }
    sink = {"connector.class": "FilesSink", "topics": f"{name}-{TABLE}", "path": str(target)}
    started_s = time.monotonic()
    await client.create_connector(f"{name}-sink", sink)
    await client.create_connector(f"{name}-source", source)
    try:
        done_s = await arrived_s(
            lambda: rows_in(target) >= row_count, f"{row_count} rows in {target}"
        )
    finally:
        for kind in ("source", "sink"):
            await client.delete_connector(f"{name}-{kind}")
    assert rows_in(target) == row_count, f"{rows_in(target)} rows, not {row_count}"
    return done_s - started_s


async def measure(
    postgres: Postgres,
    folder: Path,
    python: Path,
    *,
    row_count: int = ROW_COUNT,
    rounds: int = ROUNDS,
) -> Sequence[Figure]:
    """Alternate both; the first round is a warm-up."""
    make_table(postgres, TABLE)
    fill_table(postgres, TABLE, first=1, last=row_count)
    ours: list[float] = []
    peer: list[DltSeconds] = []
    async with embedded_cluster(folder / "cluster", workers=1) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            for number in range(rounds + 1):
                target = folder / f"ours-{number}"
                seconds = await drover_seconds(client, postgres, target, row_count)
                theirs = await asyncio.to_thread(
                    dlt_seconds, python, postgres, folder / f"dlt-{number}", row_count
                )
                if number:
                    ours.append(seconds)
                    peer.append(theirs)
    figure = partial(
        Figure,
        value=statistics.median(ours),
        unit=f"s ({row_count} rows of 5 columns, table -> embedded topic -> Parquet, warm worker)",
        samples=ours,
    )
    return [
        figure(
            "postgres_to_parquet",
            peer=f"dlt {DLT_VERSION}, its process",
            peer_value=statistics.median(each.process for each in peer),
            limit="ratio < 1",
        ),
        figure(
            "postgres_to_parquet_run",
            peer=f"dlt {DLT_VERSION}, its pipeline.run alone",
            peer_value=statistics.median(each.run for each in peer),
            limit="ratio <= 1",
        ),
    ]


def figures() -> Iterator[Figure]:
    """A table of PostgreSQL to Parquet through an embedded topic, beside dlt."""
    part = "postgres-to-parquet"
    try:
        python = find_dlt()
    except DltMissingError as error:
        sys.stderr.write(f"{part} is skipped: {error}\n")
        return
    with measured_postgres(part) as postgres:
        if postgres is not None:
            with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
                yield from asyncio.run(measure(postgres, Path(folder), python))


def _run(*command: str) -> None:
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=_INSTALL_TIMEOUT_S,
    )


def _url_of(postgres: Postgres) -> str:
    settings = postgres.settings
    user, password = settings["connection.user"], settings["connection.password"]
    place = settings["connection.url"].removeprefix("jdbc:postgresql://")
    return f"postgresql://{user}:{quote(password, safe='')}@{place}"
