"""Configs in the form of public repositories: validation, preview and run agree."""

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path

import psycopg
import pyarrow.dataset
import pytest

from tests.support.http_api import Reply, Request, running_api
from tests.support.iceberg_rest import running_iceberg_rest
from tests.support.kafka.choice import running_kafka
from tests.support.kafka.clients import create_topic, produce
from tests.support.postgres import Postgres, running_postgres
from tests.support.predictions import (
    as_shown,
    delivered,
    json_rows,
    predicted,
    running,
    same_faults,
    sink_agrees,
    source_agrees,
    wait_for_rows,
)
from tests.support.public_configs import FAULTS, public_configs, without_class_sentence
from tests.support.s3 import running_s3
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]

FAULTY = pytest.mark.faults("connectors")
#: The other refused configs are compared with the fault tests; tests/contract has them all.
ALWAYS = ("debezium-router-filter", "iceberg-dynamic", "mysql-capture")
PREFIX = "public-"
_CONFIGS = public_configs()
_HOST = re.compile(r"\w+\.example\.com(:\d+)?")


def config_of(name: str, **changed: str) -> dict[str, str]:
    """A config with the addresses, paths and topics of a test; two underscores are a dot."""
    more = {setting.replace("__", "."): text for setting, text in changed.items()}
    return {**_CONFIGS[name], **more, "name": f"{PREFIX}{name}"}


def at(server: Postgres, *, capture: bool = False) -> dict[str, str]:
    """A server's address and login."""
    settings = server.cdc_settings if capture else server.settings
    return {setting.replace(".", "__"): text for setting, text in settings.items()}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ALWAYS else FAULTY)
        for name, faults in FAULTS.items()
        if faults
    ],
)
async def test_a_refused_config_has_the_same_faults_everywhere(
    unharmed: SharedCluster, name: str
) -> None:
    # a port that refuses connections: a name that does not exist takes seconds
    config = {
        setting: _HOST.sub("127.0.0.1" if setting.endswith("hostname") else "127.0.0.1:9", text)
        for setting, text in config_of(name, database__port="9").items()
    }
    found = await same_faults(unharmed.client, config)
    assert {*FAULTS[name]} <= {*found} <= {*FAULTS[name], "database.hostname", "connection.url"}
    for setting, text in FAULTS[name].items():
        assert without_class_sentence(config, found[setting][0]).startswith(text)


async def test_lines_of_file_configs_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    topic = f"{PREFIX}lines"
    source = config_of("file-source", file=str(tmp_path / "in.txt"), topic=topic)
    found = await source_agrees(unharmed, source)
    expected = [{"line": line, "data_source": "test-file-source"} for line in ("one", "two")]
    assert [json.loads(each.value) for each in found] == expected
    target = tmp_path / "out.txt"
    sink = config_of("file-sink", file=str(target), topics=topic)
    values = [each.value for each in await predicted(unharmed.client, sink)]

    def lines() -> list[str]:
        return (
            [as_shown(each) for each in target.read_text().splitlines()] if target.exists() else []
        )

    async with unharmed.connector(sink["name"], sink):
        await wait_for_rows(lines, values)
        await running(unharmed.client, sink["name"])


async def test_requests_of_an_http_config_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    topic = f"{PREFIX}hooks"
    source = config_of("file-source", file=str(tmp_path / "in.txt"), topic=topic)
    await source_agrees(unharmed, source)

    def answer(request: Request) -> Reply:
        assert request.headers["authorization"] == "Bearer token"
        return Reply({})

    with running_api(answer) as api:

        def sent() -> list[str]:
            bodies = [json.loads(each.body) for each in api.requests if each.method == "POST"]
            return json_rows(json.dumps(each) for body in bodies for each in body)

        sink = config_of("aiven-http-sink", topics=topic, http__url=f"{api.url}/hooks")
        await sink_agrees(unharmed, sink, sent, allowed_warnings=1)


@FAULTY
async def test_rows_of_database_configs_are_those_of_the_preview(unharmed: SharedCluster) -> None:
    topic = f"{PREFIX}pg-orders"
    with running_postgres() as server:
        server.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT, price NUMERIC(9, 2), "
            "updated_at TIMESTAMP NOT NULL DEFAULT '2026-01-01')",
            "INSERT INTO orders SELECT n, 'order ' || n, n / 4.0 FROM generate_series(1, 5) AS n",
        )
        with_schemas = {
            "value__converter__schemas__enable": "true",
            "key__converter__schemas__enable": "true",
        }
        source = config_of(
            "jdbc-source-tables", topic__prefix=f"{PREFIX}pg-", **at(server), **with_schemas
        )
        assert len(await source_agrees(unharmed, source, allowed_warnings=1)) == 5
        for name, table, warnings in (
            ("jdbc-sink-upsert", "orders_copy", 4),
            ("debezium-jdbc-sink", "orders_debezium", 1),
        ):
            sink = config_of(name, topics=topic, **at(server))
            if name == "debezium-jdbc-sink":
                sink["connection.username"] = sink.pop("connection.user")
            expected = len(await predicted(unharmed.client, sink, allowed_warnings=warnings))

            def written(table: str = table) -> list[tuple[object, ...]]:
                with suppress(psycopg.errors.UndefinedTable):
                    return server.rows(f"SELECT id, note FROM {table} ORDER BY id")
                return []

            async with unharmed.connector(sink["name"], sink):
                await wait_until_async(lambda: len(written()) == expected, timeout_s=120)  # noqa: B023
            assert written() == server.rows("SELECT id, note FROM orders ORDER BY id")


@FAULTY
async def test_changes_of_capture_configs_are_delivered_as_their_settings_state(
    unharmed: SharedCluster,
) -> None:
    with running_postgres() as server:
        server.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT, price NUMERIC(9, 2))",
            "ALTER TABLE orders REPLICA IDENTITY FULL",
            "INSERT INTO orders SELECT n, 'order ' || n, n / 4.0 FROM generate_series(1, 5) AS n",
        )
        old = config_of(
            "debezium-old-names", database__server__name=f"{PREFIX}old", **at(server, capture=True)
        )
        unwrapped = config_of(
            "debezium-unwrap-rewrite",
            transforms__route__replacement=f"{PREFIX}$3",
            **at(server, capture=True),
        )
        for config in (old, unwrapped):
            assert not (await unharmed.client.validate_config(config)).violations
        async with (
            unharmed.connector(old["name"], old),
            unharmed.connector(unwrapped["name"], unwrapped),
        ):
            await delivered(unharmed.client, [f"{PREFIX}old.public.orders"], 5)
            await delivered(unharmed.client, [f"{PREFIX}orders"], 5)
            server.execute("DELETE FROM orders WHERE id = 5")
            events = await delivered(unharmed.client, [f"{PREFIX}old.public.orders"], 6)
            rows = await delivered(unharmed.client, [f"{PREFIX}orders"], 6)
    after = [json.loads(each.value)["after"] for each in events]
    assert sorted(each["price"] for each in after if each) == [
        "0.25",
        "0.50",
        "0.75",
        "1.00",
        "1.25",
    ]
    assert all("note" not in each for each in after if each)
    assert all(each.value for each in events)
    flags = [json.loads(each.value)["__deleted"] for each in rows]
    assert sorted(flags) == ["false"] * 5 + ["true"]


@FAULTY
async def test_rows_of_lake_configs_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id":1,"note":"a"}\n{"id":2,"note":null}\n')
    topic = f"{PREFIX}lake"
    source = {
        "name": f"{PREFIX}rows",
        "connector.class": "FilesSource",
        "path": str(tmp_path / "*.jsonl"),
        "topic": topic,
        "key": "id",
        "schema": "id bigint, note string",
        "value.converter": "JsonConverter",
    }
    await source_agrees(unharmed, source)
    with running_s3() as s3:
        own = s3.created("public")
        sink = config_of(
            "s3-json-by-time",
            topics=topic,
            s3__bucket__name=own.bucket,
            batch__wait__ms="0",
            value__converter__schemas__enable="true",
            key__converter__schemas__enable="true",
            **{setting.replace(".", "__"): text for setting, text in s3.settings.items()},
        )

        def objects() -> list[str]:
            own.download(tmp_path / "objects")
            files = [str(each) for each in (tmp_path / "objects").glob("**/*.json.gz")]
            if not files:
                return []
            found = pyarrow.dataset.dataset(files, format="json").to_table().to_pylist()
            return json_rows(map(json.dumps, found))

        await sink_agrees(unharmed, sink, objects, allowed_warnings=4)
    with running_iceberg_rest(str(tmp_path)) as catalogue:
        settings = {key.replace(".", "__"): text for key, text in catalogue.settings.items()}
        sink = config_of("iceberg-tabular", topics=topic, **settings)
        sink["key.converter"] = "JsonConverter"

        def rows() -> list[str]:
            from pyiceberg.catalog.rest import RestCatalog
            from pyiceberg.exceptions import NoSuchTableError

            try:
                table = RestCatalog("c", uri=catalogue.address).load_table("sales.orders")
            except NoSuchTableError:
                return []
            return json_rows(map(json.dumps, table.scan().to_arrow().to_pylist()))

        await sink_agrees(unharmed, sink, rows, allowed_warnings=2)


@FAULTY
async def test_records_of_a_mirror_config_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    with running_kafka(tmp_path) as kafka:
        topic = f"{PREFIX}mirrored"
        await asyncio.to_thread(create_topic, kafka.bootstrap, topic)
        produce(kafka.bootstrap, topic, [(b"%d" % n, b'{"n":%d}' % n) for n in range(5)])
        source = config_of(
            "mirror-source",
            topics=topic,
            source__cluster__bootstrap__servers=kafka.bootstrap,
        )
        found = await source_agrees(unharmed, source, allowed_warnings=3)
        assert [each.topic for each in found] == [topic] * 5
