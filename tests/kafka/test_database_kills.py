"""Tables are copied through topics into other tables while processes of every kind are killed."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
import pymysql
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from drover.codec.common import decode_figures
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.mariadb import MariaDb, running_mariadb
from tests.support.mysql import running_mysql
from tests.support.postgres import Postgres, running_postgres
from tests.support.random_kills import kill_in_turn
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.faults("connectors"),
    pytest.mark.timeout(1800),
]

SEED = 14
ROUNDS = 12
ROWS_A_ROUND = 3_000

#: "inserted" has no key: a redelivered row is there twice.
TABLES = {
    "postgresql": (
        "CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, price NUMERIC(10, 2) NOT NULL,"
        " note TEXT, changed TIMESTAMP(3) NOT NULL DEFAULT now())",
        "CREATE TABLE inserted (LIKE orders)",
        "CREATE TABLE upserted (LIKE orders INCLUDING INDEXES)",
    ),
    "mysql": (
        "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, price DECIMAL(10, 2) NOT NULL,"
        " note TEXT, changed DATETIME(3) NOT NULL DEFAULT now(3))",
        "CREATE TABLE inserted AS SELECT * FROM orders",
        "CREATE TABLE upserted LIKE orders",
    ),
}
#: Starts a cluster of two workers.
ClusterStart = Callable[[], AbstractAsyncContextManager[EmbeddedCluster]]
Database = Postgres | MariaDb
#: The clients' errors while a server is down.
AWAY = (psycopg.OperationalError, pymysql.err.OperationalError)


@pytest.fixture(params=["embedded", "kafka"])
def started(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterStart:
    """Clusters on each kind of storage."""
    if request.param == "embedded":
        return partial(embedded_cluster, tmp_path)
    bootstrap = request.getfixturevalue("kafka").bootstrap
    prefix = request.getfixturevalue("topic_prefix")
    options = ConnectOptions.named(f"{prefix}cluster", exactly_once_source="enabled")
    return partial(drover_on_kafka, bootstrap, options, tmp_path, workers=2)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """The test's own database server with tables; the test kills it."""
    match request.param:
        case "postgres":
            with running_postgres() as postgres:
                postgres.execute(*TABLES["postgresql"])
                yield postgres
        case kind:
            with running_mariadb() if kind == "mariadb" else running_mysql() as server:
                shop = server.created("shop")
                shop.execute(*TABLES["mysql"])
                yield shop


@pytest.mark.parametrize(
    ("started", "database"),
    [
        ("embedded", "postgres"),
        ("kafka", "postgres"),
        ("embedded", "mariadb"),
        pytest.param("embedded", "mysql", marks=pytest.mark.faults("mysql")),
    ],
    indirect=True,
)
async def test_a_copy_is_equal_whatever_is_killed(
    started: ClusterStart, database: Database
) -> None:
    rng = random.Random(SEED)
    async with started() as cluster:
        await cluster.wait_until_members()
        await _create_connectors(cluster, database)
        for turn in range(ROUNDS):
            await asyncio.to_thread(_insert, database)
            count = turn * ROWS_A_ROUND + rng.randrange(ROWS_A_ROUND)
            await _wait_until_copied(database, count, "inserted")
            await kill_in_turn(cluster, rng, turn, database.kill)
        await cluster.wait_until_members()
        for table in ("inserted", "upserted"):
            await wait_until_async(
                partial(asyncio.to_thread, _equal, database, table),
                timeout_s=600,
                describe=partial(_counts, database, table),
            )
    total = ROUNDS * ROWS_A_ROUND
    assert database.rows("SELECT count(*) FROM inserted") == [(total,)]


async def test_changes_arrive_whatever_is_killed(started: ClusterStart, tmp_path: Path) -> None:
    """Inserts, updates and deletes: in the end all copies are equal, also those in lakehouses."""
    rng = random.Random(SEED)
    with running_postgres() as postgres:
        postgres.execute(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, price NUMERIC(10, 2), note TEXT)",
            "CREATE TABLE copied (LIKE orders INCLUDING INDEXES)",
        )
        await asyncio.to_thread(_change, postgres, 0)
        async with started() as cluster:
            await cluster.wait_until_members()
            await _create_capture(cluster, postgres, tmp_path)
            for turn in range(ROUNDS):
                await asyncio.to_thread(_change, postgres, turn + 1)
                await _wait_until_copied(postgres, rng.randrange(2_000 * turn + 1), "copied")
                await kill_in_turn(cluster, rng, turn, postgres.kill)
            await cluster.wait_until_members()
            await wait_until_async(
                partial(asyncio.to_thread, _equal, postgres, "copied"),
                timeout_s=600,
                describe=partial(_counts, postgres, "copied"),
            )
            found = postgres.rows("SELECT id, note FROM orders")
            wanted: dict[object, object] = {each[0]: each[1] for each in found}
            for read in (_in_iceberg, _in_delta):
                await wait_until_async(
                    partial(asyncio.to_thread, read, tmp_path, wanted),
                    timeout_s=600,
                    describe=read.__name__,
                )
            await wait_until_async(  # statuses lag behind the work by some seconds
                partial(_tells_lag, cluster), timeout_s=120, describe=lambda: "no figures of lag"
            )
        assert postgres.rows("SELECT count(*) > 20000 FROM copied") == [(True,)]


async def _tells_lag(cluster: EmbeddedCluster) -> bool:
    async with cluster.client() as client:
        status = await client.get_connector_status("capture")
    told = decode_figures(status.tasks[0].figures).keys() if status.tasks else set()
    return {"slot_lag_bytes", "slot_kept_bytes", "behind_ms"} <= told


def _in_iceberg(path: Path, wanted: dict[object, object]) -> bool:
    uri = f"sqlite:///{path}/lake.db"
    table = load_catalog("iceberg", type="sql", uri=uri).load_table("shop.orders")
    return _same(table.scan().to_arrow(), wanted)


def _in_delta(path: Path, wanted: dict[object, object]) -> bool:
    return _same(DeltaTable(str(path / "delta" / "orders")).to_pyarrow_table(), wanted)


def _same(found: pa.Table, wanted: dict[object, object]) -> bool:
    """Whether a copy has exactly these ids and remarks, each once."""
    if found.num_rows != len(wanted):
        return False
    pairs = zip(found["id"].to_pylist(), found["remark"].to_pylist(), strict=True)
    return dict(pairs) == wanted


async def _create_capture(cluster: EmbeddedCluster, postgres: Postgres, path: Path) -> None:
    lake = {
        "topics": "cdc.public.orders",
        "errors.retry.timeout": "60000",
        "batch.wait.ms": "1000",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "transforms": "rename",
        "transforms.rename.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.rename.renames": "note:remark",
    }
    async with cluster.client() as client:
        await client.create_connector(
            "lake-iceberg",
            {
                "connector.class": "IcebergSink",
                **lake,
                "iceberg.catalog.type": "sql",
                "iceberg.catalog.uri": f"jdbc:sqlite:{path}/lake.db",
                "iceberg.catalog.warehouse": f"file://{path}/iceberg",
                "iceberg.tables": "shop.orders",
                "iceberg.tables.auto-create-enabled": "true",
                "iceberg.tables.upsert-mode-enabled": "true",
            },
        )
        await client.create_connector(
            "lake-delta",
            {
                "connector.class": "DeltaSink",
                **lake,
                "table.uri": f"{path}/delta/orders",
                "insert.mode": "upsert",
                "compact.every.commits": "10",
            },
        )
        await client.create_connector(
            "capture",
            {
                "connector.class": "PostgresCdcSource",
                **postgres.cdc_settings,
                "topic.prefix": "cdc",
                "table.include.list": "public[.]orders",
                "record.layout": "flat",
                "heartbeat.interval.ms": "200",
                "errors.retry.timeout": "60000",
            },
        )
        await client.create_connector(
            "copy",
            {
                "connector.class": "JdbcSink",
                **postgres.settings,
                "topics": "cdc.public.orders",
                "table.name.format": "copied",
                "insert.mode": "upsert",
                "pk.mode": "record_key",
                "delete.enabled": "true",
                "errors.retry.timeout": "60000",
            },
        )


def _change(postgres: Postgres, turn: int) -> None:
    first = turn * ROWS_A_ROUND
    postgres.execute(
        f"INSERT INTO orders SELECT {first} + n, n / 4.0, 'note ' || n"
        f" FROM generate_series(0, {ROWS_A_ROUND - 1}) n",
        f"UPDATE orders SET note = note || '.' || {turn} WHERE id % 7 = {turn % 7}",
        f"DELETE FROM orders WHERE id % 61 = {turn}",
    )


async def _create_connectors(cluster: EmbeddedCluster, database: Database) -> None:
    async with cluster.client() as client:
        await client.create_connector(
            "source",
            {
                "connector.class": "JdbcSource",
                **database.settings,
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "table.whitelist": "orders",
                "topic.prefix": "db-",
                "key": "id",
                "poll.interval.ms": "100",
                "errors.retry.timeout": "60000",
            },
        )
        for table, mode in (("inserted", "insert"), ("upserted", "upsert")):
            keys = {"pk.mode": "record_key", "pk.fields": "id"} if mode == "upsert" else {}
            await client.create_connector(
                f"sink-{mode}",
                {
                    "connector.class": "JdbcSink",
                    **database.settings,
                    "topics": "db-orders",
                    "table.name.format": table,
                    "insert.mode": mode,
                    "errors.retry.timeout": "60000",
                    **keys,
                },
            )


async def _wait_until_copied(database: Database, count: int, table: str) -> None:
    """Wait until this many rows are copied: the kill comes in the middle of the copy."""

    def there() -> bool:
        try:
            ((found,),) = database.rows(f"SELECT count(*) FROM {table}")
        except AWAY:
            return False
        return isinstance(found, int) and found >= count

    await wait_until_async(
        partial(asyncio.to_thread, there),
        timeout_s=300,
        describe=partial(_counts, database, table),
    )


def _insert(database: Database) -> None:
    rows = ", ".join(f"({n / 4}, 'note {n}')" for n in range(ROWS_A_ROUND))
    database.execute(f"INSERT INTO orders (price, note) VALUES {rows}")


def _equal(database: Database, table: str) -> bool:
    try:
        ((differing,),) = database.rows(
            "SELECT count(*) FROM ((SELECT * FROM orders EXCEPT ALL SELECT * FROM "
            f"{table}) UNION ALL (SELECT * FROM {table} EXCEPT ALL SELECT * FROM orders)) differing"
        )
    except AWAY:
        return False
    return differing == 0


def _counts(database: Database, table: str) -> str:
    return str(
        database.rows(
            f"SELECT (SELECT count(*) FROM orders), count(*), count(DISTINCT id) FROM {table}"
        )
    )
