"""Reads existing changes of PostgreSQL's log into a topic, one contestant after another.

All connectors have read the log up to the same position; they are stopped while it grows.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Message

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
    delete_records,
    fill_table,
    make_table,
    read_records,
)
from bench.figure import Figure
from bench.rounds import FIVE_TIMES, Round, Watch, figures_of
from bench.running import in_turn
from tests.support.kafka.clients import create_topic
from tests.support.kafka.debezium import POSTGRES_SOURCE
from tests.support.postgres import Postgres

TABLE = "orders"
_TRANSACTION_ROWS = 1_000
#: The number of last records compared between the topics.
_COMPARED = 100


class Changes:
    """Makes changes: inserts and updates in transactions of 1,000, on new rows each time."""

    def __init__(self, postgres: Postgres, count: int) -> None:
        self._postgres = postgres
        self._row_count = count // 2
        self._next = 1
        make_table(postgres, TABLE)

    def make(self) -> None:
        """Insert rows, then update each of them: half of the changes each."""
        first, end = self._next, self._next + self._row_count
        self._next = end
        blocks = [
            (start, min(start + _TRANSACTION_ROWS, end) - 1)
            for start in range(first, end, _TRANSACTION_ROWS)
        ]
        for start, last in blocks:
            fill_table(self._postgres, TABLE, first=start, last=last)
        self._postgres.execute(
            *(
                f"UPDATE {TABLE} SET amount = amount + 1, city = 'molde'"
                f" WHERE id BETWEEN {start} AND {last}"
                for start, last in blocks
            )
        )


class Capture:
    """One contestant's connector; it is stopped between its rounds."""

    def __init__(
        self, servers: Servers, who: Contestant, config: Mapping[str, str], change_count: int
    ) -> None:
        self.topic = f"{who.key}.public.{TABLE}"
        self._servers, self._who, self._change_count = servers, who, change_count
        self._config = config
        self._connector = f"changes-{who.key}"
        self._stack = ExitStack()
        self._end: Callable[[], int]
        #: Where the changes of this round begin, and the last of them, once they were read.
        self._first = 0
        self.last: Sequence[Message] = ()

    async def begin(self) -> None:
        """Start the connector; its topic is empty."""
        bootstrap, who = self._servers.bootstrap, self._who
        await asyncio.to_thread(create_topic, bootstrap, self.topic)
        self._end = self._stack.enter_context(TopicEnd(bootstrap, self.topic))
        await who.side.create(self._connector, self._config)
        await arrived_s(self._is_reading, f"the replication slot of {who.name}")

    async def stop(self) -> None:
        """Stop the connector after the topic has exactly the changes of the round."""
        wanted, name, bootstrap = self._change_count, self._who.name, self._servers.bootstrap

        def all_there() -> bool:
            if self._end() < self._first + wanted:
                return False
            count, self.last = read_records(bootstrap, self.topic, self._first, _COMPARED)
            assert count <= wanted, f"{name} wrote {count}, not {wanted}"
            return count == wanted

        await arrived_s(all_there, f"{wanted} changes by {name}")
        await self._who.side.stop(self._connector)
        await arrived_s(lambda: not self._is_reading(), f"{name} leaves its slot")
        self._first = await asyncio.to_thread(self._end)
        await asyncio.to_thread(delete_records, bootstrap, self.topic, self._first)

    async def read(self) -> Round:
        """Read the changes since the last stop, and stop the connector again.

        Raises:
            TimeoutError: The changes do not arrive in time.
        """
        # a few transaction markers are among the records
        before, wanted = self._first, self._change_count
        watch = Watch(wanted)
        await self._who.side.resume(self._connector)
        done_s = await arrived_s(
            lambda: watch.saw(self._end() - before), f"{wanted} changes by {self._who.name}"
        )
        found = watch.done(done_s)
        await self.stop()
        return found

    async def close(self) -> None:
        """Release resources and delete the connector."""
        self._stack.close()
        await self._who.side.delete(self._connector)

    def _is_reading(self) -> bool:
        found = self._servers.postgres.rows(
            f"SELECT active FROM pg_replication_slots WHERE slot_name = 'slot_{self._who.key}'"
        )
        return found == [(True,)]


def drover_config(postgres: Postgres, prefix: str) -> dict[str, str]:
    """The connector's defaults."""
    return {"connector.class": "PostgresCdcSource", **_config(postgres, prefix)}


def debezium_config(postgres: Postgres, prefix: str) -> dict[str, str]:
    """The connector's defaults."""
    return {
        "connector.class": POSTGRES_SOURCE,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        **_config(postgres, prefix),
    }


def _config(postgres: Postgres, prefix: str) -> dict[str, str]:
    return {
        **postgres.cdc_settings,
        "topic.prefix": prefix,
        "slot.name": f"slot_{prefix}",
        "publication.name": f"publication_{prefix}",
        "table.include.list": rf"public\.{TABLE}",
        "snapshot.mode": "no_data",
        "time.precision.mode": "connect",
        **JSON_BOTH,
    }


async def measure(
    stage: Stage,
    *,
    change_count: int = ROW_COUNT,
    rounds: int = ROUNDS,
    name: str = "cdc_changes",
    limit: str = FIVE_TIMES,
) -> Sequence[Figure]:
    """All read the same changes, one after the other."""
    changes = Changes(stage.postgres, change_count)
    captures = {who: _capture(stage, who, change_count) for who in stage.contestants}
    for capture in captures.values():
        await capture.begin()
    await asyncio.to_thread(changes.make)
    for capture in captures.values():
        await capture.stop()
    try:
        done = await in_turn(
            stage.contestants,
            lambda who, _: captures[who].read(),
            rounds=rounds,
            prepare=changes.make,
        )
        ours, *others = (_changes_of(each.last) for each in captures.values())
        for theirs in others:
            for records in zip(ours, theirs, strict=True):
                assert records[0] == records[1], f"{records[0]} is not {records[1]}"
    finally:
        for capture in captures.values():
            await capture.close()
    peer = f"Debezium {stage.debezium.postgres_version} in Kafka Connect, same database and broker"
    return [*figures_of(name, "changes", done, stage.peers(peer), limit)]


def _capture(stage: Stage, who: Contestant, change_count: int) -> Capture:
    config = (drover_config if who.is_drover else debezium_config)(stage.postgres, who.key)
    if who.has_large_batches:
        config |= LARGE_BATCHES
    return Capture(stage, who, config, change_count)


def _changes_of(records: Sequence[Message]) -> list[dict[str, Any]]:
    """The row and the key of each record."""
    found = []
    for record in records:
        key, value = (json.loads(part or b"")["payload"] for part in (record.key(), record.value()))
        found.append({"key": key, "op": value["op"], "after": value["after"]})
    return found
