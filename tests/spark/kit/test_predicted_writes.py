"""A preview of a sink shows where a run writes each record, and which records it rejects."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from drover.connectors.files.files_sink import FilesSink
from drover.connectors.lakehouse.delta_sink import DeltaSink
from drover.connectors.lakehouse.iceberg_sink import IcebergSink
from drover.testing import SinkKit, TaskFailedError
from tests.support.previews import previewed, rejected, targets

pytestmark = pytest.mark.spark

SinkKits = Callable[..., SinkKit]
SCHEMALESS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
WITH_SCHEMA = {**SCHEMALESS, "value.converter.schemas.enable": "true"}
TOLERATES = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "bad",
    "errors.deadletterqueue.context.headers.enable": "true",
}
ORDERS = [
    {"id": 0, "city": "Oslo", "at": "2024-05-01T23:30:00Z", "place": {"zone": "a"}},
    {"id": 1, "city": "São Paulo", "at": "2024-05-02T00:30:00+02:00", "place": {"zone": "b"}},
    {"id": 2, "city": "a/b", "at": 1714608000000, "place": {"zone": "c"}},
    {"id": 3, "city": None, "at": "2024-05-03", "place": {"zone": ""}},
    {"id": 4, "at": "2024-05-03"},
    {"id": 5, "city": ["x"], "at": "soon", "place": 7},
    "text",
    None,
]


def feed(kit: SinkKit, values: Sequence[Any]) -> None:
    texts = [None if each is None else json.dumps(each).encode() for each in values]
    kit.feed(texts, keys=[b"%d" % n for n in range(len(values))], partition=0)


def with_schema(kind: str, values: Sequence[Any]) -> list[Any]:
    fields = [{"field": "part", "type": kind, "optional": True}]
    schema = {"type": "struct", "fields": fields}
    return [{"schema": schema, "payload": {"part": each}} for each in values]


def letters(kit: SinkKit) -> dict[str, str]:
    """The reasons of the dead letters, by their place."""
    found = {}
    for each in kit.records("bad"):
        headers = {name: (value or b"").decode() for name, value in each.headers}
        place = f"records-0@{headers['__connect.errors.offset']}"
        found[place] = headers["__connect.errors.exception.message"]
    return found


def directories(path: Path) -> set[str]:
    files = (each for each in path.rglob("*") if each.is_file() and ".drover" not in each.parts)
    return {each.parent.as_posix() for each in files}


@pytest.mark.parametrize("kind", ["json", "parquet", "csv"])
@pytest.mark.parametrize("by", ["", "city", "day(at)", "place.zone", "hour", "city,month(at)"])
def test_files_are_written_where_the_preview_shows(
    sink_kit: SinkKits, tmp_path: Path, by: str, kind: str
) -> None:
    path = tmp_path / "out"
    config = {"path": str(path), "format": kind, **SCHEMALESS, **TOLERATES}
    kit = sink_kit(FilesSink, {**config, **({"partition.by": by} if by else {})})
    feed(kit, ORDERS)
    found = previewed(kit)
    assert not path.exists()
    kit.run()
    assert rejected(found) == letters(kit)
    assert {each for each in targets(found).values() if each} == directories(path)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int32", [0, -1, 2**31 - 1, None]),
        ("int8", [1]),
        ("double", [0.5, 1e300]),
        ("float", [0.1]),
        ("boolean", [True, False]),
        ("string", ["", "a=b", "..", "ä", "%", "x" * 300]),
        ("bytes", ["YQ=="]),
    ],
)
def test_values_of_any_type_name_the_directory_that_the_preview_shows(
    sink_kit: SinkKits, tmp_path: Path, kind: str, values: list[Any]
) -> None:
    path = tmp_path / "out"
    config = {"path": str(path), "format": "json", "partition.by": "part,day"}
    kit = sink_kit(FilesSink, {**config, **WITH_SCHEMA, **TOLERATES})
    fields = [{**each, "payload": {**each["payload"]}} for each in with_schema(kind, values)]
    for each in fields:
        each["schema"] = {
            **each["schema"],
            "fields": [*each["schema"]["fields"], {"field": "id", "type": "int32"}],
        }
        each["payload"]["id"] = 1
    feed(kit, fields)
    found = previewed(kit)
    kit.run()
    assert rejected(found) == letters(kit)
    assert {each for each in targets(found).values() if each} == directories(path)


def iceberg(path: Path, **changed: str) -> dict[str, str]:
    return {
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"jdbc:sqlite:{path}/catalogue.db",
        "iceberg.catalog.warehouse": f"file://{path}/warehouse",
        "iceberg.tables": "app.${topic},app.second",
        "iceberg.tables.auto-create-enabled": "true",
        **changed,
    }


TABLES: Mapping[str, tuple[Any, Callable[[Path], dict[str, str]], str]] = {
    "iceberg": (IcebergSink, iceberg, "app.records, app.second"),
    "delta": (
        DeltaSink,
        lambda path: {"table.uri": f"{path}/${{topic}}", "auto.create": "true"},
        "{path}/records",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_new_table_takes_the_records_that_the_preview_shows(
    sink_kit: SinkKits, tmp_path: Path, name: str
) -> None:
    kind, config, target = TABLES[name]
    kit = sink_kit(kind, {**config(tmp_path), **SCHEMALESS, **TOLERATES})
    feed(kit, [*ORDERS[:5], {"id": "x"}, {"id": {}}, {"": 1}, {"id": 1, "new": []}, [1], {}])
    found = previewed(kit)
    assert list(tmp_path.rglob("*.parquet")) == []
    kit.run()
    assert rejected(found) == letters(kit)
    assert len(rejected(found)) >= 4
    assert {*targets(found).values()} == {target.format(path=tmp_path)}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("iceberg", {"iceberg.tables.default-partition-by": "day(missing)"}),
        ("delta", {"partition.by": "missing"}),
    ],
)
def test_an_error_of_the_whole_run_is_shown_at_each_record(
    sink_kit: SinkKits, tmp_path: Path, name: str, changed: dict[str, str]
) -> None:
    kind, config, _ = TABLES[name]
    kit = sink_kit(kind, {**config(tmp_path), **SCHEMALESS, **changed})
    feed(kit, ORDERS[:2])
    found = rejected(previewed(kit))
    assert len(found) == 2
    (text,) = {*found.values()}
    with pytest.raises(TaskFailedError) as caught:
        kit.run()
    assert text in str(caught.value)
