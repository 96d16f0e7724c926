"""A topic of JSON with schemas: into a table by both sides' sinks, and into files of Parquet."""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import psycopg

from bench.databases import (
    JSON_BOTH,
    ROUNDS,
    ROW_COUNT,
    Contestant,
    Stage,
    arrived_s,
)
from bench.figure import Figure
from bench.rounds import FIVE_TIMES, Round, Watch, figures_of
from bench.running import in_turn
from tests.support.kafka.clients import create_topic, produce
from tests.support.kafka.debezium import JDBC_SINK
from tests.support.postgres import Postgres

TOPIC = "payments"
_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
_FIELDS = (
    {"field": "id", "type": "int64", "optional": False},
    {"field": "name", "type": "string", "optional": False},
    {"field": "city", "type": "string", "optional": False},
    {"field": "amount", "type": "double", "optional": False},
    {"field": "changed_at", "type": "int64", "name": _TIMESTAMP, "version": 1, "optional": False},
    {"field": "version", "type": "int64", "optional": False},
)
_CITIES = ("oslo", "bergen", "trondheim", "bodo")
_START_MS = 1_767_225_600_000
#: Of a poll, and so of a batch: more than by default, with which Debezium's sink is slower.
LARGE_BATCHES = {"batch.size": "2000", "consumer.override.max.poll.records": "2000"}


def records(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, each key twice; ``version`` is the record's number."""
    for number in range(count):
        key = _key(number, count)
        row = {
            "id": key,
            "name": f"customer {number * 7919 % 1000003}",
            "city": _CITIES[number % len(_CITIES)],
            "amount": number % 99_999 / 100,
            "changed_at": _START_MS + number * 1000,
            "version": number,
        }
        yield _with_schema(_FIELDS[:1], {"id": key}), _with_schema(_FIELDS, row)


def last_key(count: int) -> int:
    """That of the last of so many records."""
    return _key(count - 1, count)


def drover_sink(postgres: Postgres, table: str) -> dict[str, str]:
    """With its defaults."""
    return {
        **postgres.settings,
        "connector.class": "JdbcSink",
        "topics": TOPIC,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "pk.fields": "id",
        "table.name.format": table,
        **JSON_BOTH,
    }


def debezium_sink(postgres: Postgres, table: str) -> dict[str, str]:
    """With its defaults."""
    settings = postgres.settings
    return {
        "connector.class": JDBC_SINK,
        "connection.url": settings["connection.url"],
        "connection.username": settings["connection.user"],
        "connection.password": settings["connection.password"],
        "topics": TOPIC,
        "insert.mode": "upsert",
        "primary.key.mode": "record_key",
        "collection.name.format": table,
        "schema.evolution": "none",
        **JSON_BOTH,
    }


def parquet_sink(target: Path) -> dict[str, str]:
    """With its defaults."""
    return {
        "connector.class": "FilesSink",
        "topics": TOPIC,
        "path": str(target),
        "format": "parquet",
        **JSON_BOTH,
    }


def rows_in(target: Path) -> int:
    """How many records FilesSink's files of one topic partition have, by their names."""
    # exclude .drover: the sink removes files there while this code lists them
    ends = (int(path.name.split("-")[-2]) for path in target.glob("*.parquet"))
    return max(ends, default=0)


async def measure(
    stage: Stage, *, record_count: int = ROW_COUNT, rounds: int = ROUNDS
) -> Sequence[Figure]:
    """Both figures, of the same topic."""
    await fill_topic(stage.bootstrap, record_count)
    return [
        *await upserts(stage, record_count=record_count, rounds=rounds),
        await parquet(stage, record_count=record_count, rounds=rounds),
    ]


async def fill_topic(bootstrap: str, record_count: int) -> None:
    """Create the topic with so many records."""
    await asyncio.to_thread(create_topic, bootstrap, TOPIC)
    await asyncio.to_thread(produce, bootstrap, TOPIC, records(record_count), settings=_MANY)


async def upserts(
    stage: Stage,
    *,
    record_count: int,
    rounds: int,
    name: str = "jdbc_upserts",
    limit: str = FIVE_TIMES,
) -> Sequence[Figure]:
    """Each round writes to a new table, created beforehand."""

    async def run(who: Contestant, number: int) -> Round:
        table = f"{who.key}_{number}"
        stage.postgres.execute(
            f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL,"
            " amount DOUBLE PRECISION NOT NULL, changed_at TIMESTAMP NOT NULL,"
            " version BIGINT NOT NULL)"
        )
        # versions are numbers of records, which are written in order
        first = f"SELECT max(version) + 1 FROM {table}"
        last = (
            f"SELECT 1 FROM {table} WHERE id = {last_key(record_count)}"
            f" AND version = {record_count - 1}"
        )
        config = (drover_sink if who.is_drover else debezium_sink)(stage.postgres, table)
        if who.has_large_batches:
            config |= LARGE_BATCHES
        with stage.postgres.connected() as connection:
            watch = Watch(record_count)
            written = 0

            def all_there() -> bool:
                nonlocal written
                written = written or one(connection, first) or 0
                return watch.saw(record_count if one(connection, last) else written)

            await who.side.create(table, config)
            done_s = await arrived_s(all_there, f"the last row of {table}")
            found = watch.done(done_s)
        await who.side.delete(table)
        _check(stage.postgres, table, record_count)
        stage.postgres.execute(f"DROP TABLE {table}")
        return found

    done = await in_turn(stage.contestants, run, rounds=rounds)
    peer = f"the JDBC sink of Debezium {stage.debezium.jdbc_version} in Kafka Connect"
    return [*figures_of(name, "records", done, stage.peers(peer), limit)]


def one(connection: "psycopg.Connection[tuple[object, ...]]", query: str) -> int | None:
    """The number that a query finds; None if it finds nothing, or a null."""
    row = connection.execute(query.encode()).fetchone()
    return None if row is None or row[0] is None else int(str(row[0]))


async def parquet(stage: Stage, *, record_count: int, rounds: int) -> Figure:
    """Beside a loop in Python, as Maven Central has no sink of Parquet for Kafka Connect."""
    ours, loop = [], []
    for number in range(rounds + 1):
        target = stage.folder / f"parquet-{number}"
        started_s = time.monotonic()
        await stage.drover.create(target.name, parquet_sink(target))
        done_s = await arrived_s(
            partial(_has_rows, target, record_count), f"{record_count} rows in {target.name}"
        )
        await stage.drover.delete(target.name)
        plain_s = await asyncio.to_thread(
            plain_seconds, stage.bootstrap, TOPIC, stage.folder / f"plain-{number}", record_count
        )
        if number:
            ours.append(record_count / (done_s - started_s))
            loop.append(record_count / plain_s)
    return Figure(
        "parquet_sink",
        statistics.median(ours),
        f"records/s ({record_count} of a topic to Parquet, from the connector's creation)",
        peer="a loop of confluent-kafka, json and pyarrow in a process of its own",
        peer_value=statistics.median(loop),
        limit="ratio >= 1",
        samples=ours,
    )


def plain_seconds(bootstrap: str, topic: str, target: Path, record_count: int) -> float:
    """What the loop takes, without the start of its process."""
    target.mkdir()
    command = [sys.executable, "-m", "bench.plain_parquet"]
    done = subprocess.run(
        [*command, bootstrap, topic, str(target), str(record_count)],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


#: Large batches for the broker: this is not what is measured.
_MANY = {
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2**31 - 1,
}


def _key(number: int, count: int) -> int:
    return number * 7919 % (count // 2)


def _with_schema(fields: Sequence[object], payload: object) -> bytes:
    schema = {"type": "struct", "optional": False, "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def _has_rows(target: Path, count: int) -> bool:
    return rows_in(target) >= count


def _check(postgres: Postgres, table: str, record_count: int) -> None:
    """The table has the last version of each row."""
    first = record_count // 2
    wanted = (first, sum(range(first, record_count)))
    ((count, total),) = postgres.rows(f"SELECT count(*), sum(version) FROM {table}")
    assert (count, int(str(total))) == wanted, f"{table} has {count}, {total} and not {wanted}"
