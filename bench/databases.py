"""The common part of the database figures: PostgreSQL, a broker, and both sides on them."""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.figure import Figure
from bench.kafka_sides import StoppableSide, connect_side, drover_side, measured_broker
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET
from tests.support.kafka.connect import JSON_CONVERTER
from tests.support.kafka.debezium import Debezium, find_debezium
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.postgres import Postgres, binaries, running_postgres
from tests.support.waiting import pause, wait_until

#: Enough rows for several seconds, so the start is a small part.
ROW_COUNT = int(os.environ.get("DROVER_BENCH_ROWS") or 1_000_000)
ROUNDS = 3
TIMEOUT_S = 900.0
_POLL_S = 0.02
_READ_AT_ONCE = 10_000

#: Both sides write and read the same JSON, with schemas.
JSON_BOTH = {"key.converter": JSON_CONVERTER, "value.converter": JSON_CONVERTER}
#: Larger batches and queues for Debezium's sources, which are slower with their defaults.
LARGE_BATCHES = {
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "producer.override.batch.size": "1048576",
    "producer.override.linger.ms": "10",
    "producer.override.compression.type": "lz4",
}
COLUMNS = "id, name, city, amount, changed_at"
_ROWS = (
    "SELECT n, 'customer ' || n * 7919 % 1000003,"
    " (ARRAY['oslo', 'bergen', 'trondheim', 'bodo'])[1 + n % 4], (n % 99999)::numeric / 100,"
    " TIMESTAMP '2026-01-01' + n * INTERVAL '1 second'"
    " FROM generate_series({first}::bigint, {last}) n"
)

#: Keys of contestants.
DROVER, LARGE, DEFAULTS = "drover", "large", "defaults"


@dataclass(frozen=True, slots=True)
class Contestant:
    """Drover, or Kafka Connect with one of two settings for Debezium's connectors.

    ``key`` is short, for names of topics, tables and slots.
    """

    key: str
    side: StoppableSide

    @property
    def is_drover(self) -> bool:
        """Whether this is Drover, which runs with its defaults."""
        return self.key == DROVER

    @property
    def has_large_batches(self) -> bool:
        """Whether Debezium runs with ``LARGE_BATCHES``."""
        return self.key == LARGE

    @property
    def settings(self) -> str:
        """Which settings of Debezium it has."""
        return "with larger batches" if self.has_large_batches else "with its defaults"

    @property
    def name(self) -> str:
        """The name in error messages."""
        return f"{self.side.name} ({self.key})"


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers that all contestants use."""

    postgres: Postgres
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Stage(Servers):
    """Both sides on the same servers; one is idle while the other works."""

    drover: StoppableSide
    connect: StoppableSide
    debezium: Debezium
    folder: Path

    @property
    def contestants(self) -> tuple[Contestant, ...]:
        """The contestants in the order of the figures."""
        sides = {DROVER: self.drover, LARGE: self.connect, DEFAULTS: self.connect}
        return tuple(Contestant(key, side) for key, side in sides.items())

    def peers(self, what: str) -> Sequence[str]:
        """What describes the contestants after Drover; ``what`` is the connector."""
        return [f"{what}, {each.settings}" for each in self.contestants[1:]]


@asynccontextmanager
async def staged(
    jars: KafkaJars, bootstrap: str, folder: Path, postgres: Postgres
) -> AsyncIterator[Stage]:
    """Drover, and a Kafka Connect with Debezium's connectors.

    Raises:
        KafkaMissingError: Debezium's connectors are not available.
    """
    debezium = find_debezium()
    async with AsyncExitStack() as stack:
        connect = await stack.enter_async_context(
            connect_side(jars, bootstrap, folder / "connect", settings=debezium.worker_settings)
        )
        drover = await stack.enter_async_context(drover_side(bootstrap, folder / "drover"))
        yield Stage(postgres, bootstrap, drover, connect, debezium, folder)


@contextmanager
def measured_postgres(part: str) -> Iterator[Postgres | None]:
    """A PostgreSQL server; where it is not installed, prints the reason and yields None."""
    if binaries() is None:
        sys.stderr.write(f"{part} is skipped: install PostgreSQL (postgres and initdb)\n")
        yield None
        return
    with running_postgres() as postgres:
        yield postgres


@contextmanager
def measured_servers(part: str) -> Iterator[tuple[KafkaJars, str, Path, Postgres] | None]:
    """What measured_broker and measured_postgres yield; None, and the reason, without either."""
    with measured_broker(part) as broker:
        if broker is None:
            yield None
            return
        with measured_postgres(part) as postgres:
            yield None if postgres is None else (*broker, postgres)


def on_stage(
    part: str, measures: Sequence[Callable[[Stage], Awaitable[Sequence[Figure]]]]
) -> Iterator[Figure]:
    """Run the measures one after another if PostgreSQL and a broker are available.

    The error of a failed measure is raised after the figures of the measures before it.
    """

    async def measured(
        jars: KafkaJars, bootstrap: str, folder: Path, postgres: Postgres
    ) -> tuple[list[Figure], Exception | None]:
        found: list[Figure] = []
        async with staged(jars, bootstrap, folder, postgres) as stage:
            try:
                for measure in measures:
                    found += await measure(stage)
            except Exception as error:  # noqa: BLE001 - raised again by the consumer of the figures
                return found, error
        return found, None

    with measured_servers(part) as servers:
        if servers is None:
            return
        try:
            figures, failure = asyncio.run(measured(*servers))
        except KafkaMissingError as error:
            sys.stderr.write(f"{part} is skipped: {error}\n")
            return
    yield from figures
    if failure is not None:
        raise failure


class TopicEnd:
    """The end offset of a topic with one partition; it counts records and transaction markers."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench-that-looks", **QUIET}
        )
        self._place = TopicPartition(topic, 0)

    def __enter__(self) -> "TopicEnd":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def __call__(self) -> int:
        """The current end offset."""
        ends = self._consumer.get_watermark_offsets(self._place, timeout=CALL_TIMEOUT_S)
        return int(ends[1])


async def arrived_s(there: Callable[[], bool], what: str) -> float:
    """Poll ``there`` on a thread; returns the time at which it was true (monotonic seconds).

    Raises:
        TimeoutError: It is not true in time.
    """
    end_s = time.monotonic() + TIMEOUT_S
    while not await asyncio.to_thread(there):
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {TIMEOUT_S:g} s")
        await pause(_POLL_S)
    return time.monotonic()


def make_table(postgres: Postgres, table: str) -> None:
    """An empty table of five columns."""
    postgres.execute(
        f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL,"
        " amount NUMERIC(12, 2) NOT NULL, changed_at TIMESTAMP NOT NULL)"
    )


def fill_table(postgres: Postgres, table: str, *, first: int, last: int) -> None:
    """Rows with the numbers from ``first`` to ``last``, in one transaction."""
    rows = _ROWS.format(first=first, last=last)
    postgres.execute(f"INSERT INTO {table} ({COLUMNS}) {rows}")


def read_records(
    bootstrap: str, topic: str, first: int, kept: int
) -> tuple[int, Sequence[Message]]:
    """The number of committed records in a one-partition topic from an offset on, and the last of
    them.

    Offsets alone do not give the number: each transaction marker occupies one.
    """
    settings = {"group.id": "bench-that-reads", "enable.partition.eof": True, **QUIET}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, first)])
        last: deque[Message] = deque(maxlen=kept)
        count = 0

        def at_end() -> bool:
            nonlocal count
            read = consumer.consume(_READ_AT_ONCE, timeout=1)
            found = [each for each in read if each.error() is None]
            last.extend(found)
            count += len(found)
            return len(found) < len(read)

        wait_until(at_end, describe=lambda: f"{count} records of {topic}")
        return count, last
    finally:
        consumer.close()


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic to free disk space: a million records take gigabytes."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.delete_topics([topic])[topic].result(CALL_TIMEOUT_S)


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    """Delete the records before an offset in a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for each in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        each.result(CALL_TIMEOUT_S)
