"""Drover takes over a Kafka Connect cluster with Java plugins, and Kafka Connect takes it back."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from drover.model.secrets import MASK
from tests.support.compiled_plugins import java_host
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import read_all
from tests.support.kafka.connect import JSON_CONVERTER, ConnectOptions, KafkaConnect
from tests.support.kafka.debezium import JDBC_SINK, POSTGRES_SOURCE, Debezium, find_debezium
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.postgres import Postgres, binaries, running_postgres
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("connectors"),
    pytest.mark.timeout(1_800),
]

SOURCE, SINK = "shop-source", "shop-sink"
#: Covers the start of an engine and of two plugins on a busy machine.
TIMEOUT_S = 400.0
_JSON = {
    "key.converter": JSON_CONVERTER,
    "value.converter": JSON_CONVERTER,
}


class Shop:
    """A table whose changes Debezium's source writes to a topic, and a copy that Debezium's JDBC
    sink makes of it, with a row for each record.
    """

    def __init__(self, postgres: Postgres, name: str) -> None:
        self.postgres = postgres
        self.count = 0
        self.topic = f"{name}-orders"
        self._name = name
        postgres.execute(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, note TEXT)",
            "CREATE TABLE copies (id BIGINT, note TEXT, __op TEXT)",
        )

    @property
    def configs(self) -> dict[str, dict[str, str]]:
        settings = self.postgres.settings
        source = {
            "connector.class": POSTGRES_SOURCE,
            **self.postgres.cdc_settings,
            "plugin.name": "pgoutput",
            "topic.prefix": self._name,
            "table.include.list": "public.orders",
            # the broker creates no topics
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "transforms": "unwrap,route",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.add.fields": "op",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": r"(.*)\.public\.(.*)",
            "transforms.route.replacement": "$1-$2",
            **_JSON,
        }
        sink = {
            "connector.class": JDBC_SINK,
            "connection.url": settings["connection.url"],
            "connection.username": settings["connection.user"],
            "connection.password": settings["connection.password"],
            "topics": self.topic,
            "insert.mode": "insert",
            "primary.key.mode": "none",
            "schema.evolution": "none",
            "collection.name.format": "copies",
            **_JSON,
        }
        return {name: {**each, "name": name} for name, each in ((SOURCE, source), (SINK, sink))}

    def insert(self, count: int) -> None:
        """Further orders."""
        rows = [(self.count + n, f"note {self.count + n}") for n in range(count)]
        self.postgres.insert("orders (id, note)", rows)
        self.count += count

    def copied(self) -> Counter[object]:
        """How often each order is in the copy."""
        return Counter(each[0] for each in self.postgres.rows("SELECT id FROM copies"))

    async def wait_until_copied(self, when: str, told: Callable[[], str]) -> None:
        await wait_until_async(
            lambda: asyncio.to_thread(lambda: set(self.copied()) == set(range(self.count))),
            timeout_s=TIMEOUT_S,
            describe=lambda: f"{when}: {len(self.copied())} of {self.count}\n{told()}",
        )

    def records(self, bootstrap: str) -> Sequence[tuple[int, str]]:
        """The identity of each record of the topic, and r for a snapshot, c for an insertion."""
        found = []
        for each in read_all(bootstrap, self.topic):
            row = json.loads(each.value or b"")["payload"]
            found.append((row["id"], row["__op"]))
        return found


@pytest.fixture
def shop(topic_prefix: str) -> Iterator[Shop]:
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres() as postgres:
        yield Shop(postgres, f"{topic_prefix}shop")


@pytest.fixture
def debezium() -> Debezium:
    java_host()
    return find_debezium()


async def test_debezium_and_its_jdbc_sink_are_taken_over_and_given_back(
    kafka: Kafka,
    connect_cluster: Callable[..., KafkaConnect],
    debezium: Debezium,
    topic_prefix: str,
    shop: Shop,
    tmp_path: Path,
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}cluster", exactly_once_source="enabled")
    shop.insert(50)
    connect = await asyncio.to_thread(
        partial(
            connect_cluster,
            bootstrap=kafka.bootstrap,
            options=options,
            settings=debezium.worker_settings,
        )
    )
    for name, config in shop.configs.items():
        await asyncio.to_thread(connect.rest.create, name, config)
    await shop.wait_until_copied("the snapshot", connect.log_end)
    shop.insert(50)
    await shop.wait_until_copied("changes in Kafka Connect", connect.log_end)
    await asyncio.to_thread(connect.stop)

    shop.insert(50)  # while nothing runs
    env = {
        "DROVER_PLUGIN_PATH": debezium.worker_settings["plugin.path"],
        "DROVER_JAVA_PREFERRED": "io.debezium.*",
    }
    async with drover_on_kafka(kafka.bootstrap, options, tmp_path / "drover", env=env) as cluster:
        await cluster.wait_until_members()
        told = partial(cluster.log, "worker-1")
        await shop.wait_until_copied("missed changes in Drover", lambda: told()[-5_000:])
        shop.insert(50)
        await shop.wait_until_copied("changes in Drover", lambda: told()[-5_000:])
        for name in shop.configs:
            task = await cluster.wait_for_task(name)
            assert not task.HasField("failures"), task
            async with cluster.client() as client:
                connector = await client.get_connector(name)
            shown = {
                setting: MASK if setting.endswith("password") else text
                for setting, text in shop.configs[name].items()
            }
            assert dict(connector.config) == shown, "as Kafka Connect had it"

    shop.insert(50)
    await asyncio.to_thread(connect.start)
    await shop.wait_until_copied("missed changes in Kafka Connect", connect.log_end)
    shop.insert(50)
    await shop.wait_until_copied("changes in Kafka Connect at last", connect.log_end)

    wanted = [(n, "r" if n < 50 else "c") for n in range(shop.count)]
    assert shop.records(kafka.bootstrap) == wanted
    # the sink is at least once
    print(f"{shop.copied().total() - shop.count} of {shop.count} rows came twice")  # noqa: T201
