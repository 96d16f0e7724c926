"""Changes of a table that are in PostgreSQL's log already, read into a topic by both sides in turn.

Both connectors have read the same log up to the same place, and are stopped while it grows.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

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

TABLE = "orders"
_CONNECTOR = "changes"
_TRANSACTION_ROWS = 1_000
#: Of the last records of both topics.
_COMPARED = 100
_LIMIT = "ratio >= 5"


@dataclass(frozen=True, slots=True)
class Rates:
    """Changes a second: from the connector's start on, and behind the first ones that arrived."""

    whole: float
    flowing: float


class Changes:
    """Makes them: inserts and updates in transactions of 1,000, of new rows each time."""

    def __init__(self, postgres: Postgres, count: int) -> None:
        self._postgres = postgres
        self._row_count = count // 2
        self._next = 1
        make_table(postgres, TABLE)

    def make(self) -> None:
        """Half of them inserts, then an update of each of these rows."""
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
    """One side's connector, which is stopped between its rounds."""

    def __init__(self, stage: Stage, side: StoppableSide, change_count: int) -> None:
        self.prefix = "ours" if side is stage.drover else "theirs"
        self.topic = f"{self.prefix}.public.{TABLE}"
        self._stage, self._side, self._change_count = stage, side, change_count
        self._stack = ExitStack()
        self._end: Callable[[], int]
        #: Where the changes of this round begin, and the last of them, once they were read.
        self._first = 0
        self.last: Sequence[Message] = ()

    async def begin(self) -> None:
        """The connector reads the log, of which nothing is in its topic yet."""
        stage, side = self._stage, self._side
        await asyncio.to_thread(create_topic, stage.bootstrap, self.topic)
        self._end = self._stack.enter_context(TopicEnd(stage.bootstrap, self.topic))
        own = drover_config if side is stage.drover else debezium_config
        await side.create(_CONNECTOR, own(stage.postgres, self.prefix))
        await arrived_s(self._is_reading, f"the replication slot of {side.name}")

    async def stop(self) -> None:
        """Once all changes of the round are in the topic, and no more than these."""
        wanted, name = self._change_count, self._side.name

        def all_there() -> bool:
            if self._end() < self._first + wanted:
                return False
            count, self.last = read_records(
                self._stage.bootstrap, self.topic, self._first, _COMPARED
            )
            assert count <= wanted, f"{name} wrote {count}, not {wanted}"
            return count == wanted

        await arrived_s(all_there, f"{wanted} changes by {name}")
        await self._side.stop(_CONNECTOR)
        await arrived_s(lambda: not self._is_reading(), f"{self._side.name} leaves its slot")

    async def read(self) -> Rates:
        """Read the changes since the last stop; the connector is stopped again.

        Raises:
            TimeoutError: They do not come.
        """
        before = self._first = await asyncio.to_thread(self._end)
        wanted = before + self._change_count  # with a handful of markers among the records
        seen: list[tuple[float, int]] = []

        def all_there() -> bool:
            count = self._end()
            if count > before:
                seen.append((time.monotonic(), count))
            return count >= wanted

        started_s = time.monotonic()
        await self._side.resume(_CONNECTOR)
        done_s = await arrived_s(all_there, f"{self._change_count} changes by {self._side.name}")
        await self.stop()
        first_s, first_count = seen[0]
        return Rates(
            self._change_count / (done_s - started_s),
            # all at once are no flow: then the whole time is that of all
            (wanted - first_count) / (done_s - first_s)
            if first_count < wanted
            else self._change_count / (done_s - started_s),
        )

    async def close(self) -> None:
        """Nothing of it goes on."""
        self._stack.close()
        await self._side.delete(_CONNECTOR)

    def _is_reading(self) -> bool:
        found = self._stage.postgres.rows(
            f"SELECT active FROM pg_replication_slots WHERE slot_name = 'slot_{self.prefix}'"
        )
        return found == [(True,)]


def drover_config(postgres: Postgres, prefix: str) -> dict[str, str]:
    """With its defaults."""
    return {"connector.class": "PostgresCdcSource", **_config(postgres, prefix)}


def debezium_config(postgres: Postgres, prefix: str) -> dict[str, str]:
    """With larger batches than by default."""
    return {
        "connector.class": POSTGRES_SOURCE,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        **LARGE_BATCHES,
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
    stage: Stage, *, change_count: int = ROW_COUNT, rounds: int = ROUNDS
) -> Sequence[Figure]:
    """Both read the same changes, one after the other."""
    changes = Changes(stage.postgres, change_count)
    captures = {side.name: Capture(stage, side, change_count) for side in stage.sides}
    for capture in captures.values():
        await capture.begin()
    await asyncio.to_thread(changes.make)
    for capture in captures.values():
        await capture.stop()
    try:
        ours, theirs = await in_turn(
            stage.sides,
            lambda side, _: captures[side.name].read(),
            rounds=rounds,
            prepare=changes.make,
        )
        for records in zip(*(_changes_of(each.last) for each in captures.values()), strict=True):
            assert records[0] == records[1], f"{records[0]} is not {records[1]}"
    finally:
        for capture in captures.values():
            await capture.close()
    peer = f"Debezium {stage.debezium.postgres_version} in Kafka Connect, same database and broker"
    return [
        _figure(
            "cdc_changes",
            "from the start",
            [each.whole for each in ours],
            peer,
            [each.whole for each in theirs],
            change_count,
        ),
        _figure(
            "cdc_changes_flowing",
            "behind the first",
            [each.flowing for each in ours],
            peer,
            [each.flowing for each in theirs],
            change_count,
        ),
    ]


def _figure(
    name: str, since: str, ours: Sequence[float], peer: str, theirs: Sequence[float], count: int
) -> Figure:
    return Figure(
        name,
        statistics.median(ours),
        f"changes/s ({count} of PostgreSQL's log to a topic, {since})",
        peer=peer,
        peer_value=statistics.median(theirs),
        limit=_LIMIT,
        samples=ours,
    )


def _changes_of(records: Sequence[Message]) -> list[dict[str, Any]]:
    """What records say of the row, and of its key."""
    found = []
    for record in records:
        key, value = (json.loads(part or b"")["payload"] for part in (record.key(), record.value()))
        found.append({"key": key, "op": value["op"], "after": value["after"]})
    return found
