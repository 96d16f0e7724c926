"""Each connector's documented example: validation, preview and run agree."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psycopg
import pyarrow.dataset
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from tests.support.docs_examples import config_of
from tests.support.docs_tables import connectors
from tests.support.http_api import Reply, Request, running_api
from tests.support.iceberg_rest import running_iceberg_rest
from tests.support.kafka.choice import running_kafka
from tests.support.kafka.clients import create_topic, produce, read_all
from tests.support.postgres import running_postgres
from tests.support.predictions import (
    EXAMPLES,
    PREFIX,
    Shown,
    as_shown,
    delivered,
    json_rows,
    predicted,
    running,
    same_faults,
    sink_agrees,
    source_agrees,
)
from tests.support.s3 import running_s3
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="session"),
]

FAULTS = pytest.mark.faults("connectors")
#: The bad settings of the other examples are compared with the fault tests.
ALWAYS = ("DatagenSource", "FilesSink", "PostgresCdcSource")
ORDERS = f"{PREFIX}orders"
LINES = f"{PREFIX}lines"
COUNT = 20
_FIELDS = ("order_id", "country", "amount", "note")
_SCHEMA = "order_id bigint, country string, amount int, note string"


def named(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as arguments of ``example``."""
    return {setting.replace(".", "__"): text for setting, text in settings.items()}


def example(connector: str, **changed: str) -> dict[str, str]:
    """A connector's documented example, with the addresses, paths and topics of a test.

    ``changed`` has two underscores for a dot; an empty text removes a setting.
    """
    shown = EXAMPLES[connector]
    more = {setting.replace("__", "."): text for setting, text in changed.items()}
    config = {**config_of(shown.page, shown.name), **more}
    config["name"] = f"{PREFIX}{connector.lower()}"
    return {setting: text for setting, text in config.items() if text}


async def count_agrees(shared: SharedCluster, config: Mapping[str, str]) -> None:
    """Compare the number of records that a sink counts with the preview's records."""
    expected = len(await predicted(shared.client, config))
    last = pb.ConnectorStatus()

    async def counted() -> bool:
        last.CopyFrom(await running(shared.client, config["name"]))
        return sum(each.counts.written_count for each in last.tasks) == expected

    async with shared.connector(config["name"], config):
        await wait_until_async(
            counted, timeout_s=400, describe=lambda: f"{expected} records; the status is {last}"
        )


@pytest.fixture(scope="module")
def made() -> dict[str, list[Shown]]:
    """The topics that earlier tests filled."""
    return {}


async def orders(shared: SharedCluster, made: dict[str, list[Shown]]) -> None:
    """Fill the topic of orders once."""
    if ORDERS not in made:
        made[ORDERS] = await source_agrees(
            shared,
            example(
                "DatagenSource",
                quickstart="",
                schema=_SCHEMA,
                max__records=str(COUNT),
                key="order_id",
                topic=ORDERS,
                tasks__max="3",
            ),
        )


async def test_generated_rows_are_those_of_the_preview(
    unharmed: SharedCluster, made: dict[str, list[Shown]]
) -> None:
    await orders(unharmed, made)
    assert {each.topic for each in made[ORDERS]} == {ORDERS}
    keys = [json.loads(each.key)["payload"] for each in made[ORDERS]]
    assert sorted(keys) == list(range(COUNT))


async def test_lines_are_those_of_the_preview(unharmed: SharedCluster, tmp_path: Path) -> None:
    source, target = tmp_path / "lines.txt", tmp_path / "copy.txt"
    source.write_text("one\ntwo \u00e9\n\n{}\n")
    await source_agrees(unharmed, example("FileStreamSource", file=str(source), topic=LINES))
    sink = example("FileStreamSink", file=str(target), topics=LINES)
    expected = [each.value for each in await predicted(unharmed.client, sink)]
    async with unharmed.connector(sink["name"], sink):
        await running(unharmed.client, sink["name"])
        await wait_until_async(
            lambda: target.exists() and len(target.read_text().splitlines()) == len(expected)
        )
    lines = target.read_text().splitlines()
    assert lines == ["one", "two \u00e9", "", "{}"]
    assert [as_shown(each) for each in lines] == expected


async def test_rows_of_files_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path, made: dict[str, list[Shown]]
) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,one\n2,\n")
    (tmp_path / "b.csv").write_text('id,name\n3,"a ""quoted"" name"\n')
    source = example("FilesSource", path=f"{tmp_path}/*.csv", topic=f"{PREFIX}files")
    assert len(await source_agrees(unharmed, source)) == 3

    await orders(unharmed, made)
    target = tmp_path / "orders"

    def rows() -> list[str]:
        files = sorted(target.glob("**/*.json"))
        return json_rows(line for each in files for line in each.read_text().splitlines())

    sink = example("FilesSink", path=str(target), topics=ORDERS, flush__size=str(COUNT))
    await sink_agrees(unharmed, sink, rows)


async def test_counted_records_are_those_of_the_preview(
    unharmed: SharedCluster, made: dict[str, list[Shown]]
) -> None:
    await orders(unharmed, made)
    await asyncio.gather(
        *(
            count_agrees(unharmed, example(connector, topics=ORDERS))
            for connector in ("ConsoleSink", "NullSink")
        )
    )


async def test_rows_of_a_data_source_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    end.write_text("7")
    source = example(
        "PythonDataSource",
        datasource="tests.support.data_sources:Counter",
        datasource__options=json.dumps({"path": str(end)}),
        topic=f"{PREFIX}people",
    )
    assert len(await source_agrees(unharmed, source)) == 7


async def test_rows_of_a_delta_table_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path, made: dict[str, list[Shown]]
) -> None:
    await orders(unharmed, made)
    table = tmp_path / "table"

    def rows() -> list[str]:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return []
        return json_rows(map(json.dumps, found))

    sink = example("DeltaSink", topics=ORDERS, table__uri=str(table), s3__region="")
    await sink_agrees(unharmed, sink, rows)


async def test_records_of_http_apis_are_those_of_the_preview(
    unharmed: SharedCluster, made: dict[str, list[Shown]]
) -> None:
    await orders(unharmed, made)

    def answer(request: Request) -> Reply:
        if request.path == "/token":
            return Reply({"access_token": "t", "expires_in": 60})
        if request.method == "POST":
            return Reply({})
        items = [{"id": n, "updated_at": f"2026-01-0{n}", "title": None} for n in (1, 2)]
        return Reply({"data": [*items, {"id": 3, "updated_at": "2026-01-03", "tags": ["a"]}]})

    with running_api(answer) as api:
        source = example(
            "HttpSource",
            http__url=f"{api.url}/issues",
            http__headers__authorization="Bearer x",
            topic=f"{PREFIX}issues",
        )
        assert len(await source_agrees(unharmed, source)) == 3
        sink = example(
            "HttpSink",
            topics=ORDERS,
            http__url=f"{api.url}/${{topic}}",
            oauth2__access__token__url=f"{api.url}/token",
            oauth2__client__secret="s",
        )

        def sent() -> list[str]:
            bodies = [each.body for each in api.requests if each.path == f"/{ORDERS}"]
            return json_rows(json.dumps(each) for body in bodies for each in json.loads(body))

        await sink_agrees(unharmed, sink, sent)


@pytest.mark.parametrize(
    "connector",
    [pytest.param(each, marks=() if each in ALWAYS else FAULTS) for each in EXAMPLES],
)
async def test_bad_settings_of_an_example_are_the_same_faults_everywhere(
    unharmed: SharedCluster, connector: str
) -> None:
    kind = connectors()[connector]
    own = {key.name: key for key in kind.config_def()}
    topic = next((each for each in ("topic", "topic.prefix") if each in own), "topics")
    # the topics of KafkaSource are patterns of names in the other cluster
    name_of_topic = {} if connector == "KafkaSource" else {topic: "a/b"}
    bad = {
        **example(connector),
        **name_of_topic,
        "tasks.max": "many",
        "errors.tolerance": "some",
        "no.such.setting": "x",
    }
    missing = next((name for name, key in own.items() if key.required and name != topic), None)
    if missing is not None:
        bad.pop(missing, None)
    found = await same_faults(unharmed.client, bad)
    wanted = {"tasks.max", "errors.tolerance", *filter(None, [missing])}
    assert wanted <= found.keys()
    assert {*name_of_topic} <= found.keys()
    assert "no.such.setting" not in found
    warned = (await unharmed.client.validate_config(bad)).warnings
    assert 'config["no.such.setting"]' in {each.field for each in warned}


@FAULTS
async def test_rows_of_a_database_are_those_of_the_preview(unharmed: SharedCluster) -> None:
    with running_postgres() as server:
        for table in ("orders", "customers"):
            server.execute(
                f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, changed_at TIMESTAMP NOT NULL, "
                "name TEXT)",
                f"INSERT INTO {table} SELECT n, '2026-01-01', '{table} ' || n "
                "FROM generate_series(1, 9) AS n",
            )
        source = example("JdbcSource", topic__prefix=f"{PREFIX}shop-", **named(server.settings))
        # a preview shows the first batch, which is a table
        assert len(await source_agrees(unharmed, source)) == 9
        topic = f"{PREFIX}shop-customers"
        sink = example("JdbcSink", topics=topic, **named(server.settings))
        expected = len(await predicted(unharmed.client, sink))
        async with unharmed.connector(sink["name"], sink):

            def written() -> list[tuple[object, ...]]:
                with suppress(psycopg.errors.UndefinedTable):
                    return server.rows(f'SELECT id, name FROM "{topic}" ORDER BY id')
                return []

            await wait_until_async(lambda: len(written()) == expected, timeout_s=240)
        assert written() == server.rows("SELECT id, name FROM customers ORDER BY id")


@FAULTS
async def test_captured_rows_are_those_of_the_preview(unharmed: SharedCluster) -> None:
    with running_postgres() as server:
        for table in ("orders", "customers"):
            server.execute(
                f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, price NUMERIC(9, 2))",
                f"INSERT INTO {table} SELECT n, n / 4.0 FROM generate_series(1, 9) AS n",
            )
        source = example(
            "PostgresCdcSource", topic__prefix=f"{PREFIX}cdc", **named(server.cdc_settings)
        )
        shown = await predicted(unharmed.client, source)
        topics = [f"{PREFIX}cdc.public.{each}" for each in ("orders", "customers")]
        async with unharmed.connector(source["name"], source):
            found = await delivered(unharmed.client, topics, 18)

        def rows_of(records: list[Shown]) -> list[tuple[str, str, object]]:
            # the position and the time of reading differ
            return sorted(
                (each.topic, each.key, json.loads(each.value)["payload"]["after"]["id"])
                for each in records
            )

        assert rows_of(shown) == rows_of(found)
        assert {each.topic for each in shown} == set(topics)


@FAULTS
async def test_records_of_another_kafka_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path, made: dict[str, list[Shown]]
) -> None:
    await orders(unharmed, made)
    with running_kafka(tmp_path) as kafka:
        topic = f"{PREFIX}mirrored"
        create_topic(kafka.bootstrap, topic, partitions=2)
        produce(kafka.bootstrap, topic, [(b"%d" % n, b'{"n":%d}' % n) for n in range(9)])
        plain = {
            "security.protocol": "PLAINTEXT",
            "sasl.mechanism": "",
            "sasl.jaas.config": "",
            "bootstrap.servers": kafka.bootstrap,
        }
        place = {f"source.cluster.{setting}": text for setting, text in plain.items()}
        source = example("KafkaSource", topics=topic, **named(place))
        found = await source_agrees(unharmed, source)
        assert {each.topic for each in found} == {f"east.{topic}"}
        assert len(found) == 9
        place = {f"target.cluster.{setting}": text for setting, text in plain.items()}
        sink = example("KafkaSink", topics=ORDERS, **named(place))
        target = f"east.{ORDERS}"
        create_topic(kafka.bootstrap, target)
        expected = sorted(await predicted(unharmed.client, sink))

        def copied() -> list[Shown]:
            return sorted(
                Shown(ORDERS, (each.key or b"").decode(), (each.value or b"").decode())
                for each in read_all(kafka.bootstrap, target)
            )

        async with unharmed.connector(sink["name"], sink):
            await wait_until_async(lambda: len(copied()) == len(expected), timeout_s=240)
        assert copied() == expected


@FAULTS
async def test_rows_of_objects_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path, made: dict[str, list[Shown]]
) -> None:
    await orders(unharmed, made)
    with running_s3() as s3:
        sink = example(
            "S3Sink",
            topics=ORDERS,
            s3__bucket__name=s3.created("predicted").bucket,
            batch__wait__ms="0",
            partitioner__class="io.confluent.connect.storage.partitioner.DefaultPartitioner",
            path__format="",
            timestamp__extractor="",
            timestamp__field="",
            **named(s3.settings),
        )
        own = s3.created("predicted")

        def objects() -> list[str]:
            target = tmp_path / "objects"
            own.download(target)
            files = [str(each) for each in target.glob("**/*.parquet")]
            if not files:
                return []
            return json_rows(
                json.dumps({name: row[name] for name in _FIELDS})
                for row in pyarrow.dataset.dataset(files).to_table().to_pylist()
            )

        await sink_agrees(unharmed, sink, objects)


@FAULTS
async def test_rows_of_an_iceberg_table_are_those_of_the_preview(
    unharmed: SharedCluster, tmp_path: Path, made: dict[str, list[Shown]]
) -> None:
    await orders(unharmed, made)
    with running_iceberg_rest(str(tmp_path)) as catalogue:
        sink = example(
            "IcebergSink",
            topics=ORDERS,
            **{"iceberg.tables.default-partition-by": "country"},
            iceberg__catalog__credential="",
            **named(catalogue.settings),
        )

        def rows() -> list[str]:
            from pyiceberg.catalog.rest import RestCatalog
            from pyiceberg.exceptions import NoSuchTableError

            try:
                table = RestCatalog("c", uri=catalogue.address).load_table("app.orders")
            except NoSuchTableError:
                return []
            return json_rows(map(json.dumps, table.scan().to_arrow().to_pylist()))

        await sink_agrees(unharmed, sink, rows)
