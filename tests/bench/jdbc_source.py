"""A table read into a topic: by JdbcSource, and as the first snapshot of Debezium's connector.

No JDBC source for Kafka Connect is on Maven Central, so its peer is the connector there that reads
tables of PostgreSQL too.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence

from tests.bench.databases import (
    JSON_BOTH,
    LARGE_BATCHES,
    ROUNDS,
    ROW_COUNT,
    Stage,
    TopicEnd,
    arrived_s,
    fill_table,
    in_turn,
    make_table,
    read_records,
)
from tests.bench.figure import Figure
from tests.bench.kafka_sides import StoppableSide
from tests.support.kafka.clients import create_topic
from tests.support.kafka.debezium import POSTGRES_SOURCE
from tests.support.postgres import Postgres

TABLE = "customers"


def drover_config(postgres: Postgres, prefix: str) -> dict[str, str]:
    """With its defaults."""
    return {
        **postgres.settings,
        "connector.class": "JdbcSource",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": TABLE,
        "topic.prefix": f"{prefix}.public.",
        "key": "id",
        **JSON_BOTH,
    }


def debezium_config(postgres: Postgres, prefix: str) -> dict[str, str]:
    """Rows alone, without their envelopes, and with larger batches than by default."""
    return {
        **postgres.cdc_settings,
        "connector.class": POSTGRES_SOURCE,
        "plugin.name": "pgoutput",
        "slot.name": prefix.replace("-", "_"),
        "slot.drop.on.stop": "true",
        "publication.name": prefix.replace("-", "_"),
        "publication.autocreate.mode": "filtered",
        "topic.prefix": prefix,
        "table.include.list": rf"public\.{TABLE}",
        "snapshot.mode": "initial_only",
        "time.precision.mode": "connect",
        "transforms": "row",
        "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
        **LARGE_BATCHES,
        **JSON_BOTH,
    }


async def measure(
    stage: Stage, *, row_count: int = ROW_COUNT, rounds: int = ROUNDS
) -> Sequence[Figure]:
    """Each round has a topic of its own."""
    make_table(stage.postgres, TABLE)
    fill_table(stage.postgres, TABLE, first=1, last=row_count)

    async def run(side: StoppableSide, number: int) -> float:
        own = side is stage.drover
        prefix = f"{'ours' if own else 'theirs'}-{number}"
        topic = f"{prefix}.public.{TABLE}"
        config = (drover_config if own else debezium_config)(stage.postgres, prefix)
        await asyncio.to_thread(create_topic, stage.bootstrap, topic)
        with TopicEnd(stage.bootstrap, topic) as end:
            started_s = time.monotonic()
            await side.create(prefix, config)
            done_s = await arrived_s(lambda: end() >= row_count, f"{topic} by {side.name}")

        def count() -> int:
            return read_records(stage.bootstrap, topic, 0, kept=0)[0]

        await arrived_s(lambda: count() >= row_count, f"all of {topic}")
        await side.stop(prefix)
        assert count() == row_count, f"{side.name} wrote {count()} rows, not {row_count}"
        await side.delete(prefix)
        return row_count / (done_s - started_s)

    ours, theirs = await in_turn(stage.sides, run, rounds=rounds)
    return [
        Figure(
            "jdbc_source",
            statistics.median(ours),
            f"rows/s ({row_count} of a table to a topic, from the connector's creation)",
            peer=f"the snapshot of Debezium {stage.debezium.postgres_version} in Kafka Connect",
            peer_value=statistics.median(theirs),
            limit="ratio >= 5",
            samples=ours,
        )
    ]
