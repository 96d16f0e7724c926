"""A table read into a topic: by JdbcSource, and as the first snapshot of Debezium's connector.

No JDBC source for Kafka Connect is on Maven Central, so its peer is the connector there that reads
tables of PostgreSQL too.
"""

import asyncio
from collections.abc import Mapping, Sequence

from bench.databases import (
    JSON_BOTH,
    LARGE_BATCHES,
    ROUNDS,
    ROW_COUNT,
    Contestant,
    Servers,
    Stage,
    TopicEnd,
    arrived_s,
    delete_topic,
    fill_table,
    make_table,
    read_records,
)
from bench.figure import Figure
from bench.rounds import Round, Watch, figures_of
from bench.running import in_turn
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
    """Rows alone, without their envelopes; else with its defaults."""
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
        **JSON_BOTH,
    }


async def read_table(
    servers: Servers, who: Contestant, prefix: str, config: Mapping[str, str], row_count: int
) -> Round:
    """Read the table into a new topic, by a connector with that config; both are deleted.

    Raises:
        TimeoutError: The rows do not arrive in time.
        AssertionError: The topic has another number of rows.
    """
    bootstrap, topic = servers.bootstrap, f"{prefix}.public.{TABLE}"
    await asyncio.to_thread(create_topic, bootstrap, topic)
    with TopicEnd(bootstrap, topic) as end:
        watch = Watch(row_count)
        await who.side.create(prefix, config)
        done_s = await arrived_s(lambda: watch.saw(end()), f"{topic} by {who.name}")
        found = watch.done(done_s)

    def count() -> int:
        return read_records(bootstrap, topic, 0, kept=0)[0]

    await arrived_s(lambda: count() >= row_count, f"all of {topic}")
    await who.side.stop(prefix)
    assert count() == row_count, f"{who.name} wrote {count()} rows, not {row_count}"
    await who.side.delete(prefix)
    await asyncio.to_thread(delete_topic, bootstrap, topic)
    return found


async def measure(
    stage: Stage, *, row_count: int = ROW_COUNT, rounds: int = ROUNDS
) -> Sequence[Figure]:
    """Each round uses a new topic."""
    make_table(stage.postgres, TABLE)
    fill_table(stage.postgres, TABLE, first=1, last=row_count)

    async def run(who: Contestant, number: int) -> Round:
        prefix = f"{who.key}-{number}"
        config = (drover_config if who.is_drover else debezium_config)(stage.postgres, prefix)
        if who.has_large_batches:
            config |= LARGE_BATCHES
        return await read_table(stage, who, prefix, config, row_count)

    done = await in_turn(stage.contestants, run, rounds=rounds)
    peer = f"the snapshot of Debezium {stage.debezium.postgres_version} in Kafka Connect"
    return [*figures_of("jdbc_source", "rows", done, stage.peers(peer))]
