"""Iceberg tables: each record is written exactly once, with any number of writers."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StructType

from drover.connector import RetriableError, TopicPartition
from drover.connector.settings import parse_config
from drover.connectors.lakehouse import iceberg_table
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.iceberg_sink import IcebergSink, settings_of
from drover.connectors.lakehouse.iceberg_table import (
    IcebergSettings,
    IcebergWriter,
    opened,
    written_offsets,
)
from drover.connectors.refused_records import RefusedRecordError
from tests.support.http_gate import LOST, Rule, http_gate
from tests.support.lake_records import KEYS, orders, records, schemaless
from tests.support.postgres import Postgres
from tests.support.s3 import S3

UPSERT = {
    "iceberg.tables.upsert-mode-enabled": "true",
    "pk.mode": "record_key",
    "delete.enabled": "true",
}


def raw(path: Path, **changed: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"jdbc:sqlite:{path}/catalogue.db",
        "iceberg.catalog.warehouse": f"file://{path}/warehouse",
        "iceberg.tables": "app.${topic}",
        "iceberg.tables.auto-create-enabled": "true",
        **changed,
    }


def settings(path: Path, **changed: str) -> IcebergSettings:
    config = IcebergSink.config_def().parse(raw(path, **changed)).values
    found = settings_of(config)
    assert isinstance(found, IcebergSettings)
    return found


def write(
    found: IcebergSettings,
    *batches: pa.RecordBatch,
    outputs: Mapping[int, str] = MappingProxyType({}),
) -> int:
    output_ids = {TopicPartition("orders", number): each for number, each in outputs.items()}
    (answer,) = IcebergWriter("sink", found, output_ids)(batches)
    return int(answer.column("rows")[0].as_py())


def table(found: IcebergSettings) -> Any:
    return opened(found.opened(), "app.orders")


def rows(found: IcebergSettings, order: str = "id") -> list[dict[str, Any]]:
    """The rows of a scan, sorted; without delete files, DuckDB must count as many in the data
    files.
    """
    own = table(found)
    seen = own.scan().to_arrow().sort_by(order)
    if not own.inspect.delete_files().num_rows:
        files = [each.file.file_path.removeprefix("file://") for each in own.scan().plan_files()]
        relation = duckdb.connect().sql(
            f"SELECT count(*) FROM read_parquet({files!r}, union_by_name = true)"
        )
        assert relation is not None
        assert relation.fetchall() == [(seen.num_rows,)]
    listed: list[dict[str, Any]] = seen.to_pylist()
    return listed


def ids(found: IcebergSettings) -> list[int]:
    return [each["id"] for each in rows(found)]


def test_a_table_is_created_and_appended_to(tmp_path: Path) -> None:
    by = {"iceberg.tables.default-partition-by": "city, bucket(id, 4)"}
    own = settings(tmp_path, **by)
    assert write(own, orders(0, 5), orders(5, 5)) == 10
    assert ids(own) == list(range(10))
    assert [(each.name, str(each.transform)) for each in table(own).spec().fields] == [
        ("city", "identity"),
        ("id_bucket", "bucket[4]"),
    ]
    assert written_offsets(table(own), "sink", "orders", {}) == {0: 10}


def test_records_that_come_again_are_left_out(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 10))
    assert write(own, orders(0, 7)) == 0
    assert write(own, orders(3, 10)) == 3
    assert write(own, orders(5, 9), orders(0, 4, partition=1)) == 5
    assert ids(own) == sorted([*range(14), *range(4)])


@pytest.mark.parametrize("changed", [{}, UPSERT], ids=["append", "upsert"])
def test_of_two_writers_of_the_same_records_one_writes_them(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    own = settings(tmp_path, **changed)

    def made(first: int, count: int) -> pa.RecordBatch:
        return orders(first, count, keys=[{"id": n} for n in range(first, first + count)])

    write(own, made(0, 1))
    look, calls = iceberg_table.opened, []

    def late(*args: Any) -> Any:
        """Another writer writes while this one reads the table's state."""
        found = look(*args)
        calls.append(args)
        if len(calls) == 1:
            with patch.object(iceberg_table, "opened", look):
                write(own, made(1, 5))
        return found

    with patch.object(iceberg_table, "opened", late):
        assert write(own, made(1, 8)) == 3
    assert len(calls) >= 2
    assert ids(own) == list(range(9))
    assert "commit.retry.num-retries" not in table(own).properties


def test_a_table_that_several_create_has_the_offsets_of_all(tmp_path: Path) -> None:
    own = settings(tmp_path)
    look, calls = iceberg_table.opened, []

    def late(*args: Any) -> Any:
        """After this writer creates the table, another one writes to it before this one reads
        it.
        """
        calls.append(args)
        if len(calls) == 2:
            with patch.object(iceberg_table, "opened", look):
                write(own, orders(0, 4, partition=1))
        return look(*args)

    with patch.object(iceberg_table, "opened", late):
        assert write(own, orders(0, 3)) == 3
    assert written_offsets(table(own), "sink", "orders", {}) == {0: 3, 1: 4}


def test_rows_replace_those_of_their_key_and_are_deleted(tmp_path: Path) -> None:
    own = settings(tmp_path, **UPSERT)
    keys = [{"id": each} for each in (1, 2, 1, 3)]
    first = records([{"id": k["id"], "x": x} for k, x in zip(keys, "abcd", strict=True)], keys=keys)
    assert write(own, first) == 3
    second = records(
        [None, {"id": 2, "x": "B"}, {"id": 4, "x": "e"}, None, {"id": 5, "x": "f"}, None],
        first=4,
        keys=[{"id": each} for each in (3, 2, 4, 9, 5, 5)],
    )
    write(own, second)
    wanted = [{"id": 1, "x": "c"}, {"id": 2, "x": "B"}, {"id": 4, "x": "e"}]
    assert rows(own) == wanted
    write(own, second)
    assert rows(own) == wanted
    nothing = pa.array([None], pa.struct([("id", pa.int64())]))
    assert write(own, records(nothing, first=10, keys=[{"id": 99}])) == 0
    assert write(own, records(nothing, first=11, keys=[{"id": 1}])) == 1
    assert rows(own) == wanted[1:]


def test_keys_of_several_columns(tmp_path: Path) -> None:
    keyed = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.table.app.${topic}.id-columns": "id, city",
    }
    own = settings(tmp_path, **keyed)
    write(own, orders(0, 200))
    changed = [{"id": n, "city": f"city {n % 2}"} for n in range(200)]
    write(own, records(changed, first=200))
    assert len(rows(own)) == 200 + sum(n % 3 != n % 2 for n in range(200))


@pytest.mark.parametrize(
    ("columns", "key_of"),
    [
        ("a,b", lambda n: {"a": n // 250, "b": n % 250}),
        ("a,b", lambda n: {"a": n, "b": -n}),
        ("a,b,c", lambda n: {"a": f"k{n % 17}", "b": n, "c": f"it's {n}"}),
        ("a", lambda n: {"a": f"k{n}"}),
    ],
    ids=["grid", "diagonal", "three", "text"],
)
def test_many_keys_are_replaced(tmp_path: Path, columns: str, key_of: Any) -> None:
    keyed = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": columns,
    }
    own, count = settings(tmp_path, **keyed), 20_000
    for first in (0, count // 2, count):
        rows = [{**key_of(n), "v": first + n} for n in range(count)]
        write(own, records(rows, first=first * 2, partition=first))
    found = table(own).scan().to_arrow().column("v").to_pylist()
    assert sorted(found) == list(range(count, 2 * count))


def test_rows_with_other_keys_stay_in_their_files(tmp_path: Path) -> None:
    by = {"iceberg.tables.default-partition-by": "a"}
    own = settings(
        tmp_path,
        **by,
        **{
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": "a,b",
        },
    )
    rows_of = [{"a": n % 3, "b": n, "v": 0} for n in range(30)]
    write(own, records(rows_of))
    before = {each.file.file_path for each in table(own).scan().plan_files()}
    write(own, records([{"a": 1, "b": 1, "v": 1}, {"a": 2, "b": 1, "v": 1}], first=30))
    after = {each.file.file_path for each in table(own).scan().plan_files()}
    assert len(before & after) == 2, "only the file with the key (1, 1) is replaced"
    found = {(row["a"], row["b"]): row["v"] for row in rows(own, "b")}
    assert found == {(n % 3, n): int(n == 1) for n in range(30)} | {(2, 1): 1}


def refusals(found: IcebergSettings, *batches: pa.RecordBatch) -> dict[int, str]:
    """The refused records' offsets and reasons; the others are written."""
    (answer,) = IcebergWriter("sink", found, tolerates=True)(batches)
    listed = answer.to_pylist()
    return {row["offset"]: row["reason"] for row in listed if row["reason"] is not None}


def test_records_that_are_no_rows_are_refused_one_by_one(tmp_path: Path) -> None:
    own = settings(tmp_path)
    values = [{"n": 1}, "text", {"n": "x"}, {"n": 2}, {"n": 2**63 - 1}, {"n": [1]}, None, {}]
    first = schemaless(values)
    found = refusals(own, first)
    assert sorted(found) == [1, 2, 5]
    assert "its value is 'text'" in found[1]
    assert "'n' has the value 'x'" in found[2]
    assert sorted(each["n"] or 0 for each in rows(own, "n")) == [0, 1, 2, 2**63 - 1]
    # a killed task may not have reported them
    assert refusals(own, first) == found
    assert table(own).scan().to_arrow().num_rows == 4


def test_a_key_that_is_missing_refuses_its_record_only(tmp_path: Path) -> None:
    own = settings(tmp_path, **UPSERT)
    keys = [{"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": None}, None, 5, {"a": 1, "b": 1}]
    found = refusals(own, schemaless([{"v": n} for n in range(5)] + [None], keys=keys))
    assert sorted(found) == [1, 2, 3, 4]
    assert refusals(own, schemaless([{"v": 9}], first=6, keys=[{"a": 2, "b": 2}])) == {}
    assert rows(own, "v") == [{"v": 9, "a": 2, "b": 2}]


def test_columns_that_must_have_a_value_refuse_records_without(tmp_path: Path) -> None:
    own = settings(tmp_path)
    point = StructType(NestedField(3, "x", LongType(), required=True))
    schema = Schema(
        NestedField(1, "n", LongType(), required=True),
        NestedField(2, "p", point, required=False),
        NestedField(4, "l", ListType(5, LongType(), element_required=True), required=False),
    )
    catalog = own.opened()
    catalog.create_namespace("app")
    catalog.create_table("app.orders", schema)
    good: list[Any] = [{"n": 1, "p": {"x": 1}, "l": [1]}, {"n": 2, "p": None, "l": None}]
    bad: list[Any] = [{"p": None}, {"n": None}, {"n": 3, "p": {}}, {"n": 4, "l": [1, None]}]
    found = refusals(own, schemaless([*good, *bad]))
    assert sorted(found) == [2, 3, 4, 5]
    assert "column 'p' of the table is struct<x: int64 not null>" in found[4]
    assert rows(own, "n") == good


def test_empty_lists_have_the_type_of_other_records(tmp_path: Path) -> None:
    own = settings(tmp_path)
    batches = [schemaless([{"n": 1, "t": []}]), schemaless([{"n": 2, "t": ["x"]}], first=1)]
    assert refusals(own, *batches) == {}
    unknown = schemaless([{"n": 3, "u": []}, {"n": 4}], first=2)
    found = refusals(replace(own, evolves=True), unknown)
    assert "field 'u' has the value [], and no record has a type for it" in found[2]
    assert [(each["n"], each["t"]) for each in rows(own, "n")] == [(1, []), (2, ["x"]), (4, None)]


def test_columns_are_added_where_that_is_set(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 1))
    more = records([{"id": 1, "city": "x", "new": 1.5}], first=1)
    told = r"has no column 'new': add it, set iceberg\.tables\.evolve-schema-enabled"
    with pytest.raises(RefusedRecordError, match=told):
        write(own, more)
    assert ids(own) == [0]
    write(replace(own, evolves=True), more)
    evolving = settings(tmp_path, **UPSERT, **{"iceberg.tables.evolve-schema-enabled": "true"})
    write(evolving, records([{"id": 1, "newer": "y"}], first=2, keys=[{"id": 1}]))
    assert table(own).scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 0, "city": "city 0", "new": None, "newer": None},
        {"id": 1, "city": None, "new": None, "newer": "y"},
    ]


def test_fields_of_structs_are_added_where_that_is_set(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, records([{"id": 1, "at": {"x": 1}}]))
    more = records([{"id": 2, "at": {"x": 2, "y": "b"}}], first=1)
    with pytest.raises(RefusedRecordError, match=r"has no column 'at\.y'"):
        write(own, more)
    evolving = {"iceberg.tables.evolve-schema-enabled": "true"}
    write(settings(tmp_path, **evolving), more)
    newer = {"id": 1, "at": {"z": 5, "x": 3}}
    write(settings(tmp_path, **UPSERT, **evolving), records([newer], first=2, keys=[{"id": 1}]))
    assert table(own).scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "at": {"x": 3, "y": None, "z": 5}},
        {"id": 2, "at": {"x": 2, "y": "b", "z": None}},
    ]


@KEYS
def test_keys_may_be_of_many_types(tmp_path: Path, one: Any, other: Any) -> None:
    own = settings(tmp_path, **UPSERT)
    keys = [{"id": one}, {"id": other}]
    write(own, records([{"x": 1}, {"x": 2}], keys=keys))
    write(own, records([{"x": 3}, None], first=2, keys=keys))
    assert [each["x"] for each in rows(own)] == [3]


def test_zero_is_one_key_with_any_sign(tmp_path: Path) -> None:
    own = settings(tmp_path, **UPSERT)
    keys = [{"id": 0.0}, {"id": -0.0}]
    write(own, records([{"x": 1}, {"x": 2}], keys=keys))
    assert [each["x"] for each in rows(own)] == [2]
    write(own, records([{"x": 3}], first=2, keys=keys[:1]))
    assert [each["x"] for each in rows(own)] == [3]


def test_another_type_is_told(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 1))
    with pytest.raises(
        RefusedRecordError, match="'id' of the table is int64, and the records have"
    ):
        write(own, records([{"id": "no number", "city": "x"}], first=1))
    assert ids(own) == [0]


def test_types_come_back(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    row: dict[str, Any] = {
        "id": 1,
        "price": Decimal("12.30"),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "day": date(2026, 1, 2),
        "clock": time(1, 2, 3),
        "raw": b"\x00\xff",
        "yes": True,
        "tags": ["a", None],
        "nested": {"a": 1, "b": [1.5]},
    }
    odd = {"small": pa.uint8(), "tiny": pa.int8(), "big": pa.uint64(), "none": pa.null()}
    fields = pa.RecordBatch.from_pylist([row])
    more = [
        pa.array([each], kind)
        for each, kind in zip((7, -7, 2**63, None), odd.values(), strict=True)
    ]
    struct = pa.StructArray.from_arrays(
        [*fields.columns, *more], names=[*fields.schema.names, *odd]
    )
    own = settings(tmp_path)
    write(own, records(struct))
    (found,) = table(own).scan().to_arrow().to_pylist()
    assert found == {**row, "small": 7, "tiny": -7, "big": 2**63}


def test_a_record_is_written_to_every_table(tmp_path: Path) -> None:
    own = settings(tmp_path, **{"iceberg.tables": "app.orders,other.all"})
    assert write(own, orders(0, 3)) == 6
    found = opened(own.opened(), "other.all")
    assert found is not None
    assert found.scan().to_arrow().num_rows == 3


def test_old_snapshots_are_forgotten(tmp_path: Path) -> None:
    own = replace(settings(tmp_path), expire_hours=1)
    with patch.object(iceberg_table, "timedelta", lambda hours: hours * UTC.utcoffset(None)):
        for n in range(22):
            write(own, orders(n, 1))
    assert len(table(own).metadata.snapshots) < 15
    assert ids(own) == list(range(22))
    assert write(own, orders(0, 22)) == 0


def test_offsets_that_are_set_back_are_written_again(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 10), orders(0, 3, partition=2))
    config = parse_config(IcebergSink, raw(tmp_path)).require_valid()
    place: dict[str, Any] = {"kafka_topic": "orders", "kafka_partition": 0}
    assert IcebergSink.alter_offsets(config, [(place, {"kafka_offset": 8})])
    assert write(own, orders(0, 10), orders(0, 3, partition=2)) == 2
    assert IcebergSink.alter_offsets(config, [])
    assert write(own, orders(0, 10), orders(0, 3, partition=2)) == 13


def test_a_topic_of_the_same_name_is_written_from_its_start(tmp_path: Path) -> None:
    config = parse_config(IcebergSink, raw(tmp_path)).require_valid()
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)

    def traced(**partitions: str) -> Any:
        wanted = {each: partitions.get(f"p{each.partition}", "") for each in (zero, one)}
        return IcebergSink.traced_offsets("sink", config, wanted)

    assert traced() == {}
    assert not list(tmp_path.iterdir())
    own, new = settings(tmp_path), {0: "0a1b2c3d"}
    write(own, orders(0, 10), orders(0, 5, partition=1))
    assert write(own, orders(0, 3), outputs=new) == 3
    assert write(own, orders(0, 4), orders(0, 6, partition=1), outputs=new) == 2
    assert len(ids(own)) == 20
    stored = table(own).properties["drover.offsets.sink.orders"]
    assert stored == '{"0": 10, "0#0a1b2c3d": 4, "1": 6}'
    assert traced() == {zero: 10, one: 6}
    assert traced(p0="0a1b2c3d") == {zero: 4, one: 6}
    assert traced(p0="ffffffff", p1="0a1b2c3d") == {}
    assert IcebergSink.traced_offsets("other", config, {zero: ""}) == {}
    place: dict[str, Any] = {"kafka_topic": "orders", "kafka_partition": 0}
    assert IcebergSink.alter_offsets(config, [(place, {"kafka_offset": 2})])
    assert write(own, orders(0, 4), outputs=new) == 2
    more = {"iceberg.tables": "app.${topic},app.second"}
    two = parse_config(IcebergSink, raw(tmp_path, **more)).require_valid()
    assert IcebergSink.traced_offsets("sink", two, {one: ""}) == {}  # not in the second table yet
    assert IcebergSink.alter_offsets(config, [])
    assert traced(p0="0a1b2c3d") == {}


def faults(path: Path, **changed: str) -> dict[str, str]:
    found = parse_config(IcebergSink, raw(path, **changed)).violations
    return {each.field: each.description for each in found}


def test_a_config_is_tried_at_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []  # the run creates the catalogue
    create = "iceberg.tables.auto-create-enabled"
    assert "table 'app.orders' does not exist" in faults(tmp_path, **{create: "false"})[create]
    write(settings(tmp_path), orders(0, 1))
    columns = "iceberg.tables.default-id-columns"
    upsert = {"iceberg.tables.upsert-mode-enabled": "true"}
    assert "has no column 'nr'" in faults(tmp_path, **upsert, **{columns: "nr"})[columns]
    assert columns in faults(tmp_path, **upsert)
    assert "delete.enabled" in faults(tmp_path, **{"delete.enabled": "true"})
    by = "iceberg.tables.default-partition-by"
    assert "must use year" in faults(tmp_path, **{by: "week(at)"})[by]
    assert "namespace" in faults(tmp_path, **{"iceberg.tables": "orders"})["iceberg.tables"]
    refused = {
        "iceberg.tables.route-field": "kind",
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.table.app.orders.route-regex": "x",
    }
    assert faults(tmp_path, **refused).keys() == refused.keys()
    uri = "iceberg.catalog.uri"
    rest = {"iceberg.catalog.type": "rest", uri: "http://127.0.0.1:1"}
    assert "cannot be used" in faults(tmp_path, **rest)[uri]
    monkeypatch.setenv("DROVER_FILE_ROOTS", str(tmp_path / "elsewhere"))
    assert "must be below" in faults(tmp_path)[uri]


def test_a_password_of_the_catalogues_database_is_not_shown(
    tmp_path: Path, postgres: Postgres
) -> None:
    own = {
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": postgres.url,
        "iceberg.catalog.user": postgres.settings["connection.user"],
        "iceberg.catalog.password": postgres.settings["connection.password"],
    }
    found = settings(tmp_path, **own)
    assert write(found, orders(0, 3)) == 3
    assert ids(found) == [0, 1, 2]
    assert postgres.rows("SELECT table_name FROM iceberg_tables") == [("orders",)]
    assert "pass" not in repr(found)
    told = faults(tmp_path, **{**own, "iceberg.catalog.password": "secret and wrong"})
    assert "password authentication failed" in told["iceberg.catalog.uri"]
    assert "secret and wrong" not in told["iceberg.catalog.uri"]


def at(s3: S3, endpoint: str = "") -> dict[str, str]:
    return {
        "iceberg.catalog.warehouse": f"s3://{s3.bucket}/lake",
        "iceberg.catalog.s3.endpoint": endpoint or s3.endpoint,
        "iceberg.catalog.s3.region": "us-east-1",
        "iceberg.catalog.s3.access-key-id": s3.settings["aws.access.key.id"],
        "iceberg.catalog.s3.secret-access-key": s3.settings["aws.secret.access.key"],
    }


def test_tables_are_in_object_stores_too(tmp_path: Path, s3: S3) -> None:
    own = at(s3)
    found = settings(tmp_path, **own)
    assert write(found, orders(0, 5)) == 5
    assert write(found, orders(2, 5)) == 2
    assert sorted(table(found).scan().to_arrow().column("id").to_pylist()) == list(range(7))
    wrong = settings(tmp_path, **{**own, "iceberg.catalog.s3.secret-access-key": "wrong"})
    with pytest.raises(TableError, match=r"table app\.orders: "):
        write(wrong, orders(7, 5))


@pytest.mark.parametrize("name", ["Order Id", "a'b", 'a"b', "a`b", "a/b=é"])
def test_columns_may_be_called_anything(tmp_path: Path, name: str) -> None:
    evolving = {"iceberg.tables.evolve-schema-enabled": "true"}
    by = {"iceberg.tables.default-partition-by": "by " + name}
    own = settings(tmp_path, **UPSERT, **evolving, **by)
    keys: list[Any] = [{name: 1}, {name: 2}]
    write(own, records([{"by " + name: "u/v"}, {"by " + name: "w"}], keys=keys))
    write(own, records([{"by " + name: "x", name + ".!": 3}, None], first=2, keys=keys))
    found = table(own).scan().to_arrow().to_pylist()
    assert found == [{"by " + name: "x", name: 1, name + ".!": 3}]


def test_columns_of_a_key_have_no_dots(tmp_path: Path) -> None:
    own = settings(tmp_path, **UPSERT)
    with pytest.raises(TableError, match=r"column 'a\.b' of the key has a dot in its name"):
        write(own, records([{"x": 1}], keys=[{"a.b": 1}]))
    columns = "iceberg.tables.default-id-columns"
    assert "must not contain 'a.b'" in faults(tmp_path, **UPSERT, **{columns: "a.b"})[columns]


def test_secrets_of_stores_are_not_shown(tmp_path: Path) -> None:
    names = ("adls.account-key", "adls.sas-token", "adls.connection-string", "gcs.oauth2.token")
    own = {f"iceberg.catalog.{each}": "s3cret" for each in names}
    parsed = IcebergSink.config_def().parse(raw(tmp_path, **own)).values
    assert "s3cret" not in repr(parsed)
    assert dict(settings(tmp_path, **own).properties)["adls.account-key"] == "s3cret"


def refusing_writes(status: int) -> Rule:
    return lambda request: None if request.method == "GET" else status


def test_an_object_store_in_trouble_is_asked_again(tmp_path: Path, s3: S3) -> None:
    with http_gate(s3.port) as gate:
        found = settings(tmp_path, **at(s3, gate.address))
        write(found, orders(0, 5))
        for status in (503, LOST):
            gate.rule = refusing_writes(status)
            with pytest.raises(RetriableError, match=r"table app\.orders: .*AWS Error"):
                write(found, orders(5, 5))
        gate.once(LOST, "PUT", ".metadata.json")
        write(found, orders(5, 5))
        write(found, orders(5, 6))
    away = settings(tmp_path, **at(s3, gate.address))
    with pytest.raises(RetriableError, match=r"table app\.orders: .*AWS Error"):
        write(away, orders(11, 5))
    seen = table(settings(tmp_path, **at(s3))).scan().to_arrow().column("id")
    assert sorted(seen.to_pylist()) == list(range(11))
