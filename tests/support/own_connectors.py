"""A test kit case for each Drover connector: its input, and the expected output."""

import gzip
import json
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drover.testing import Record, SinkKit, SourceKit
from tests.support.http_api import Reply, Request, running_api

COUNT = 20
NUMBERS = list(range(COUNT))
ROWS = [{"id": n, "name": f"name {n}"} for n in NUMBERS]


@dataclass
class Place:
    """A case's environment: its own folder, and the test's fixtures."""

    path: Path
    request: pytest.FixtureRequest

    def fixture(self, name: str) -> Any:
        """A session's server."""
        return self.request.getfixturevalue(name)

    def enter(self, context: Any) -> Any:
        """Enter a context manager until the test ends."""
        entered = context.__enter__()
        self.request.addfinalizer(lambda: context.__exit__(None, None, None))
        return entered


@dataclass
class SinkCase:
    """``found`` returns the ids that arrived; ``once``: no id may occur twice."""

    kind: Any
    config: Mapping[str, str]
    found: Callable[[SinkKit], list[int]]
    once: bool = True
    keys: str | None = "id"


def _row(record: Record) -> Any:
    """A value decoded with the connector's converters, by default JSON with a schema."""
    return record.json["payload"] if isinstance(record.value, bytes) else record.value


@dataclass
class SourceCase:
    """``found`` returns the ids of a record's decoded value; ``other`` are settings for other
    batches.

    ``drops``: a task may be dropped in this process, because its server releases it.
    """

    kind: Any
    config: Mapping[str, str]
    topic: str
    found: Callable[[Record], int] = lambda record: int(_row(record)["id"])
    other: Mapping[str, str] = field(default_factory=dict)
    drops: bool = True

    def numbers(self, kit: SourceKit) -> list[int]:
        """The ids in the topic."""
        return [self.found(each) for each in kit.records(self.topic)]


def _file_stream_sink(place: Place) -> SinkCase:
    from drover.connectors.files.lines.file_stream_sink import FileStreamSink

    path = place.path / "out"

    def found(_: SinkKit) -> list[int]:
        return [int(json.loads(line)["id"]) for line in path.read_text().splitlines()]

    return SinkCase(FileStreamSink, {"file": str(path)}, found)


def _files_sink(place: Place) -> SinkCase:
    from drover.connectors.files.files_sink import FilesSink

    path = place.path / "out"

    def found(_: SinkKit) -> list[int]:
        files = [each for each in path.rglob("*.json.gz") if each.is_file()]
        texts = [gzip.decompress(each.read_bytes()) for each in files]
        return [json.loads(row)["id"] for text in texts for row in text.splitlines()]

    config = {"format": "json", "compression": "gzip", "path": str(path)}
    return SinkCase(FilesSink, config, found)


def _s3_sink(place: Place) -> SinkCase:
    from drover.connectors.files.s3_sink import S3Sink

    s3 = place.fixture("s3")
    config = {
        "s3.bucket.name": s3.bucket,
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "flush.size": "4",
        "rotate.schedule.interval.ms": "1",
        "timezone": "UTC",
        "schema.compatibility": "NONE",
        **s3.settings,
    }

    def found(_: SinkKit) -> list[int]:
        folder = s3.download(place.path / f"found-{random.randrange(10**9)}")
        files = [each for each in folder.rglob("*.json") if each.is_file()]
        return [json.loads(row)["id"] for each in files for row in each.read_text().splitlines()]

    return SinkCase(S3Sink, config, found)


def _jdbc_sink(place: Place) -> SinkCase:
    from drover.connectors.jdbc.sink import JdbcSink

    path = place.path / "rows.db"
    config = {"connection.url": f"jdbc:sqlite:{path}", "auto.create": "true"}

    def found(_: SinkKit) -> list[int]:
        with closing(sqlite3.connect(path)) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM records")]

    return SinkCase(JdbcSink, config, found)


def _delta_sink(place: Place) -> SinkCase:
    from drover.connectors.lakehouse.delta_sink import DeltaSink

    path = str(place.path / "table")

    def found(_: SinkKit) -> list[int]:
        from deltalake import DeltaTable

        numbers: list[int] = DeltaTable(path).to_pyarrow_table().column("id").to_pylist()
        return numbers

    return SinkCase(DeltaSink, {"table.uri": path, "batch.wait.ms": "0"}, found)


def _iceberg_sink(place: Place) -> SinkCase:
    from drover.connectors.lakehouse.iceberg_sink import IcebergSink

    catalogue, warehouse = place.path / "catalogue.db", place.path / "warehouse"
    config = {
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"jdbc:sqlite:{catalogue}",
        "iceberg.catalog.warehouse": f"file://{warehouse}",
        "iceberg.tables": "app.rows",
        "iceberg.tables.auto-create-enabled": "true",
        "batch.wait.ms": "0",
    }

    def found(_: SinkKit) -> list[int]:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(
            "iceberg", type="sql", uri=f"sqlite:///{catalogue}", warehouse=f"file://{warehouse}"
        )
        table = catalog.load_table("app.rows").scan().to_arrow()
        numbers: list[int] = table.column("id").to_pylist()
        return numbers

    return SinkCase(IcebergSink, config, found)


def _http_sink(place: Place) -> SinkCase:
    from drover.connectors.http.sink import HttpSink

    api = place.enter(running_api(lambda _: Reply()))

    def found(_: SinkKit) -> list[int]:
        return [int(json.loads(each.body)["id"]) for each in api.requests]

    return SinkCase(HttpSink, {"http.url": f"{api.url}/in"}, found, once=False)


def _console_sink(place: Place) -> SinkCase:
    from drover.connectors.console_sink import ConsoleSink

    return SinkCase(ConsoleSink, {}, _committed, once=False)


def _null_sink(place: Place) -> SinkCase:
    from drover.connectors.console_sink import NullSink

    return SinkCase(NullSink, {}, _committed, once=False)


def _committed(kit: SinkKit) -> list[int]:
    """All ids below the committed offsets: the sink has no other output."""
    return list(range(sum(kit.committed.values())))


def _kafka_sink(place: Place) -> SinkCase:
    from drover.connectors.kafka.sink import KafkaSink
    from tests.support.kafka.clients import read_all, wait_until_groups_answer

    kafka, prefix = place.fixture("kafka"), place.fixture("topic_prefix")
    wait_until_groups_answer(kafka.bootstrap)
    config = {
        "target.cluster.bootstrap.servers": kafka.bootstrap,
        "topic.format": f"{prefix}kit-${{topic}}",
        "target.producer.linger.ms": "5",
    }

    def found(_: SinkKit) -> list[int]:
        records = read_all(kafka.bootstrap, f"{prefix}kit-records")
        return [int(json.loads(each.value or b"")["id"]) for each in records]

    return SinkCase(KafkaSink, config, found)


def _datagen_source(place: Place) -> SourceCase:
    from drover.connectors.datagen.source import DatagenSource

    config = {"schema": "id bigint, name string", "max.records": str(COUNT), "topic": "t"}
    return SourceCase(DatagenSource, config | {"batch.size": "6"}, "t", other={"batch.size": "4"})


def _file_stream_source(place: Place) -> SourceCase:
    from drover.connectors.files.lines.file_stream_source import FileStreamSource

    path = place.path / "lines.txt"
    path.write_text("".join(f"{n}\n" for n in NUMBERS))
    config = {"file": str(path), "topic": "t", "batch.max.records": "6"}
    return SourceCase(
        FileStreamSource,
        config,
        "t",
        found=lambda record: int(record.value),
        other={"batch.max.records": "4"},
    )


def _files_source(place: Place) -> SourceCase:
    from drover.connectors.files.files_source import FilesSource

    for number in range(4):
        rows = "".join(f"{n}\n" for n in NUMBERS[number * 5 : number * 5 + 5])
        text = f"id\n{rows}"
        if number % 2:
            (place.path / f"{number}.csv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (place.path / f"{number}.csv").write_text(text)
    config = {"path": str(place.path), "topic": "t", "schema": "id bigint"}
    return SourceCase(
        FilesSource,
        config | {"batch.max.records": "6"},
        "t",
        other={"batch.max.records": "4"},
    )


def _jdbc_source(place: Place) -> SourceCase:
    from drover.connectors.jdbc.source import JdbcSource

    path = place.path / "rows.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO rows VALUES (:id, :name)", ROWS)
    config = {
        "connection.url": f"jdbc:sqlite:{path}",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
        "batch.max.rows": "6",
    }
    return SourceCase(JdbcSource, config, "db-rows", other={"batch.max.rows": "4"})


def _postgres_cdc_source(place: Place) -> SourceCase:
    from drover.connectors.postgres.source import PostgresCdcSource

    postgres = place.fixture("kit_shop")
    postgres.execute(
        "CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT)",
        *(f"INSERT INTO rows VALUES ({n}, 'name {n}')" for n in NUMBERS),
    )
    config = {
        **postgres.cdc_settings,
        "topic.prefix": "db",
        "slot.name": f"slot_{postgres.database}",
        "batch.max.records": "6",
    }
    return SourceCase(
        PostgresCdcSource,
        config,
        "db.public.rows",
        found=lambda record: int(_row(record)["after"]["id"]),
        other={"batch.max.records": "4"},
        drops=False,
    )


def _http_source(place: Place) -> SourceCase:
    from drover.connectors.http.source import HttpSource

    def page(request: Request) -> Reply:
        start, size = int(request.query.get("offset", "0")), int(request.query["limit"])
        return Reply({"data": ROWS[start : start + size]})

    api = place.enter(running_api(page))
    config = {
        "http.url": f"{api.url}/rows",
        "topic": "t",
        "http.response.items": "/data",
        "paging.mode": "offset",
        "paging.parameter": "offset",
        "paging.size.parameter": "limit",
        "paging.size": "6",
        "key": "id",
    }
    return SourceCase(HttpSource, config, "t", other={"paging.size": "6"})


def _python_data_source(place: Place) -> SourceCase:
    from drover.connectors.python_data_source import PythonDataSource

    module = "tests.support.data_sources"
    place.fixture("monkeypatch").setenv("DROVER_PLUGIN_MODULES", module)
    path = place.path / "end"
    path.write_text(str(COUNT))
    config = {
        "datasource": f"{module}:Counter",
        "datasource.options": json.dumps({"path": str(path)}),
        "topic": "t",
    }
    return SourceCase(PythonDataSource, config, "t")


def _kafka_source(place: Place) -> SourceCase:
    from drover.connectors.kafka.source import KafkaSource
    from tests.support.kafka.clients import create_topic, produce

    kafka, prefix = place.fixture("kafka"), place.fixture("topic_prefix")
    topic = f"{prefix}kit"
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, [(None, b"%d" % n) for n in NUMBERS])
    config = {
        "source.cluster.bootstrap.servers": kafka.bootstrap,
        "source.cluster.alias": "east",
        "topics": topic,
        "batch.max.records": "6",
    }
    return SourceCase(
        KafkaSource,
        config,
        f"east.{topic}",
        found=lambda record: int(record.value),
        other={"batch.max.records": "4"},
    )


SINKS: Mapping[str, Callable[[Place], SinkCase]] = {
    "ConsoleSink": _console_sink,
    "DeltaSink": _delta_sink,
    "FileStreamSink": _file_stream_sink,
    "FilesSink": _files_sink,
    "HttpSink": _http_sink,
    "IcebergSink": _iceberg_sink,
    "JdbcSink": _jdbc_sink,
    "KafkaSink": _kafka_sink,
    "NullSink": _null_sink,
    "S3Sink": _s3_sink,
}
SOURCES: Mapping[str, Callable[[Place], SourceCase]] = {
    "DatagenSource": _datagen_source,
    "FileStreamSource": _file_stream_source,
    "FilesSource": _files_source,
    "HttpSource": _http_source,
    "JdbcSource": _jdbc_source,
    "KafkaSource": _kafka_source,
    "PostgresCdcSource": _postgres_cdc_source,
    "PythonDataSource": _python_data_source,
}
#: Connectors that need a broker, which the tests of another folder share.
ON_KAFKA = ("KafkaSink", "KafkaSource")


def check_sink(case: SinkCase, kit: SinkKit, *, kills: bool) -> None:
    """Feed it, lose two tasks before their commits, and continue with other batches."""
    from drover.testing import KillPoint

    kit.feed(ROWS[:10], keys=case.keys)
    if kills:
        kit.kill(KillPoint.AFTER_WRITE, batch_records=6)
        kit.kill(KillPoint.AFTER_COMMIT, batch_records=4)
    else:
        kit.run_uncommitted(batch_records=6)
        kit.run_uncommitted(batch_records=4)
    kit.feed(ROWS[10:], keys=case.keys)
    kit.run(batch_records=7)
    found = sorted(case.found(kit))
    assert (found if case.once else sorted({*found})) == NUMBERS


def check_source(case: SourceCase, kit: SourceKit, *, kills: bool) -> None:
    """Lose its first batch and a later one, and continue with other batches."""
    from drover.testing import KillPoint

    def lose(point: KillPoint) -> None:
        if kills or not case.drops:
            kit.kill(point)
        else:
            kit.run_uncommitted()

    lose(KillPoint.AFTER_WRITE)
    assert case.numbers(kit) == []
    if kills:
        lose(KillPoint.AFTER_COMMIT)
    else:
        kit.run(until=lambda: len(case.numbers(kit)) > 0)
    kit.stop()
    kit.config.update(case.other)
    if len(case.numbers(kit)) < COUNT:
        lose(KillPoint.AFTER_WRITE)
    kit.run(until=lambda: len(case.numbers(kit)) >= COUNT)
    assert sorted(case.numbers(kit)) == NUMBERS
