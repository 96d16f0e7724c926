"""A database that is stopped and started: all pipelines run again without an operator."""

import asyncio
from functools import partial
from pathlib import Path

import psycopg
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.failures import decode_failures
from drover.model.failures import FailureCause, FailureHistory
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("connectors"),
    pytest.mark.timeout(900),
]

#: Fewer than the failures of the outage below, and short pauses, so that the test need not be long.
RESTARTS = {
    "restart.attempts.max": "1",
    "restart.backoff.ms": "200",
    "restart.backoff.max.ms": "1000",
}
NAMES = ("capture", "reader", "writer", "idle")


async def test_pipelines_run_again_after_a_database_was_down_and_had_another_password(
    tmp_path: Path,
) -> None:
    with running_postgres() as postgres:
        postgres.execute(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, note TEXT)",
            "CREATE TABLE copied (LIKE orders INCLUDING INDEXES)",
            "INSERT INTO orders VALUES (1, 'before')",
        )
        async with embedded_cluster(tmp_path) as cluster:
            await cluster.wait_until_members()
            await _create(cluster, postgres)
            await _copied(postgres, 1)
            await asyncio.to_thread(postgres.end)
            # more failures than restart.attempts.max, of each connector or one of its tasks
            await _failed(cluster, FailureCause.OUTAGE, at_least=4)
            await asyncio.to_thread(postgres.start)
            await asyncio.to_thread(postgres.execute, "INSERT INTO orders VALUES (2, 'after')")
            await _copied(postgres, 2)
            await _all_run(cluster)

            await asyncio.to_thread(_other_password, postgres)
            await _failed(cluster, FailureCause.CREDENTIALS, at_least=2)
            await asyncio.to_thread(_password_as_before, postgres)
            await asyncio.to_thread(postgres.execute, "INSERT INTO orders VALUES (3, 'again')")
            await _copied(postgres, 3)
            await _all_run(cluster)


async def _create(cluster: EmbeddedCluster, postgres: Postgres) -> None:
    sink = {"connector.class": "JdbcSink", **postgres.settings, **RESTARTS}
    upsert = {"insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true"}
    async with cluster.client() as client:
        await client.create_connector(
            "capture",
            {
                "connector.class": "PostgresCdcSource",
                **postgres.cdc_settings,
                **RESTARTS,
                "topic.prefix": "cdc",
                "table.include.list": "public[.]orders",
                "record.layout": "flat",
            },
        )
        await client.create_connector(
            "reader",
            {
                "connector.class": "JdbcSource",
                **postgres.settings,
                **RESTARTS,
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "table.whitelist": "orders",
                "topic.prefix": "read-",
                "poll.interval.ms": "100",
            },
        )
        await client.create_connector(
            "writer",
            {**sink, **upsert, "topics": "cdc.public.orders", "table.name.format": "copied"},
        )
        await client.create_connector(
            "idle", {**sink, "topics": "nothing", "table.name.format": "copied"}
        )


def _superuser(postgres: Postgres, password: str, statement: str) -> None:
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, user="drover", password=password, dbname="postgres"
    ) as session:
        session.execute(statement.encode())


def _other_password(postgres: Postgres) -> None:
    _superuser(postgres, PASSWORD, "ALTER ROLE drover PASSWORD 'another'")
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    _superuser(postgres, "another", f"{end} AND usename = 'drover'")


def _password_as_before(postgres: Postgres) -> None:
    _superuser(postgres, "another", f"ALTER ROLE drover PASSWORD '{PASSWORD}'")


async def _histories(cluster: EmbeddedCluster, name: str) -> list[FailureHistory]:
    async with cluster.client() as client:
        status = await client.get_connector_status(name)
    parts: list[pb.ConnectorState | pb.TaskState] = [status.connector, *status.tasks]
    return [decode_failures(each.failures) for each in parts if each.HasField("failures")]


async def _failed(cluster: EmbeddedCluster, cause: FailureCause, *, at_least: int) -> None:
    """Wait until the pipelines that use the database have failed this often for this cause."""
    # the others connect only when there are records
    for name in ("capture", "reader"):

        async def often(name: str = name) -> bool:
            found = await _histories(cluster, name)
            counts = [sum(f.cause is cause for f in each.failures) for each in found]
            return max(counts, default=0) >= at_least

        await wait_until_async(often, timeout_s=180, describe=partial(_shown, cluster, name))
        for history in await _histories(cluster, name):
            assert history.no_restart_reason == "", f"{name} was given up"


def _shown(cluster: EmbeddedCluster, name: str) -> str:
    return f"{name} did not fail for this cause:\n{cluster.log('worker-1')[-3_000:]}"


async def _copied(postgres: Postgres, count: int) -> None:
    def there() -> bool:
        try:
            return postgres.rows("SELECT count(*) FROM copied") == [(count,)]
        except psycopg.OperationalError:
            return False

    await wait_until_async(partial(asyncio.to_thread, there), timeout_s=180)


async def _all_run(cluster: EmbeddedCluster) -> None:
    for name in NAMES:

        async def runs(name: str = name) -> bool:
            async with cluster.client() as client:
                status = await client.get_connector_status(name)
            states = [status.connector.state, *(task.state for task in status.tasks)]
            return all(state == pb.RUN_STATE_RUNNING for state in states)

        await wait_until_async(runs, timeout_s=120, describe=partial(_shown, cluster, name))
