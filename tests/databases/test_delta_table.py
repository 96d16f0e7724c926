"""Delta Lake tables: each record is written exactly once, with any number of writers."""

from collections.abc import Mapping, Sequence
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
from deltalake import DeltaTable

from drover.connector import RetriableError, TopicPartition
from drover.connector.settings import parse_config
from drover.connectors.lakehouse import delta_table
from drover.connectors.lakehouse.delta_sink import DeltaSink, settings_of
from drover.connectors.lakehouse.delta_table import DeltaSettings, DeltaWriter, translated_errors
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.rows import RECORD_KEY, RowSettings
from drover.connectors.refused_records import RefusedRecordError
from tests.support.http_gate import LOST, http_gate
from tests.support.lake_records import KEYS, orders, records, schemaless
from tests.support.s3 import S3

UPSERT = RowSettings(keyed=True, key_source=RECORD_KEY, key_fields=("id",), deletes=True)


def settings(path: Path, **changed: Any) -> DeltaSettings:
    return replace(DeltaSettings(f"{path}/${{topic}}", RowSettings()), **changed)


def write(
    found: DeltaSettings,
    *batches: pa.RecordBatch,
    connector: str = "sink",
    outputs: Mapping[int, str] = MappingProxyType({}),
) -> int:
    output_ids = {TopicPartition("orders", number): each for number, each in outputs.items()}
    (answer,) = DeltaWriter(connector, found, output_ids)(batches)
    return int(answer.column("rows")[0].as_py())


def rows(path: Path, order: str = "id") -> list[dict[str, Any]]:
    """DuckDB's view of the files that the library lists for the table."""
    files = DeltaTable(f"{path}/orders").file_uris()
    found = duckdb.connect().sql(
        f"SELECT * FROM read_parquet({files!r}, hive_partitioning = true, union_by_name = true) "
        f"ORDER BY {order}"
    )
    assert found is not None
    names = found.columns
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def ids(path: Path) -> list[int]:
    return [each["id"] for each in rows(path)]


def test_a_table_is_created_and_appended_to(tmp_path: Path) -> None:
    own = settings(tmp_path, partition_by=("city",))
    assert write(own, orders(0, 5), orders(5, 5)) == 10
    assert ids(tmp_path) == list(range(10))
    table = DeltaTable(str(tmp_path / "orders"))
    assert table.metadata().partition_columns == ["city"]
    assert table.transaction_version("drover:sink:orders:0") == 10


@pytest.mark.parametrize("rows", [RowSettings(), RowSettings(keyed=True, key_fields=("id", "by"))])
@pytest.mark.parametrize(
    ("values", "written", "why"),
    [
        (["", "a b", None, "x/y=%20é"], ["a b", None, "x/y=%20é"], "the empty text as null"),
        ([b"\xff", None], [None], "a partition column of bytes"),
    ],
)
def test_a_partition_column_keeps_its_values_or_the_record_is_rejected(
    tmp_path: Path, rows: RowSettings, values: list[Any], written: list[Any], why: str
) -> None:
    own = settings(tmp_path, partition_by=("by",), rows=rows)
    if rows.keyed:
        values, written = (
            [each for each in found if each is not None] for found in (values, written)
        )
    batch = records([{"id": n, "by": each} for n, each in enumerate(values)])
    (answer,) = DeltaWriter("sink", own, tolerates=True)([batch])
    reasons = [each["reason"] for each in answer.to_pylist() if each["reason"]]
    assert [why in each for each in reasons] == [True]
    if written:
        table = DeltaTable(str(tmp_path / "orders")).to_pyarrow_table()
        assert table.sort_by("id").column("by").to_pylist() == written


def test_records_that_come_again_are_left_out(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 10))
    assert write(own, orders(0, 7)) == 0
    assert write(own, orders(3, 10)) == 3
    other = orders(0, 4, partition=1)
    assert write(own, orders(5, 9), other) == 5
    assert ids(tmp_path) == sorted([*range(14), *range(4)])


def test_of_two_writers_of_the_same_records_one_writes_them(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 1))
    opened, calls = delta_table.opened, []

    def late(*args: Any) -> Any:
        """Another writer writes while this one reads the table's state."""
        found = opened(*args)
        calls.append(args)
        if len(calls) == 1:
            with patch.object(delta_table, "opened", opened):
                write(own, orders(1, 5))
        return found

    with patch.object(delta_table, "opened", late):
        assert write(own, orders(1, 8)) == 3
    assert len(calls) >= 2
    assert ids(tmp_path) == list(range(9))


def test_a_table_that_another_creates_meanwhile(tmp_path: Path) -> None:
    own = settings(tmp_path)
    opened, calls = delta_table.opened, []

    def late(*args: Any) -> Any:
        """After this writer creates the table, another one writes the same records to it."""
        calls.append(args)
        if len(calls) == 2:
            with patch.object(delta_table, "opened", opened):
                write(own, orders(0, 2))
        return opened(*args)

    with patch.object(delta_table, "opened", late):
        assert write(own, orders(0, 3)) == 1
    assert ids(tmp_path) == [0, 1, 2]


def test_rows_replace_those_of_their_key_and_are_deleted(tmp_path: Path) -> None:
    own = settings(tmp_path, rows=UPSERT)
    first = records(
        [{"id": 1, "x": "a"}, {"id": 2, "x": "b"}, {"id": 1, "x": "c"}, {"id": 3, "x": "d"}],
        keys=[{"id": 1}, {"id": 2}, {"id": 1}, {"id": 3}],
    )
    assert write(own, first) == 3
    second = records(
        [None, {"id": 2, "x": "B"}, {"id": 4, "x": "e"}, None, {"id": 5, "x": "f"}, None],
        first=4,
        keys=[{"id": each} for each in (3, 2, 4, 9, 5, 5)],
    )
    write(own, second)
    assert rows(tmp_path) == [{"id": 1, "x": "c"}, {"id": 2, "x": "B"}, {"id": 4, "x": "e"}]
    write(own, second)
    assert len(rows(tmp_path)) == 3


def test_a_batch_of_deletions_alone(tmp_path: Path) -> None:
    own = settings(tmp_path, rows=UPSERT)
    write(own, records([{"id": 1, "x": "a"}, {"id": 2, "x": "b"}], keys=[{"id": 1}, {"id": 2}]))
    gone = records(pa.array([None], pa.struct([("id", pa.int64())])), first=2, keys=[{"id": 1}])
    assert write(own, gone) == 1
    assert ids(tmp_path) == [2]


def test_columns_are_added_where_that_is_set(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 1))
    more = records([{"id": 1, "city": "x", "new": 1.5}], first=1)
    with pytest.raises(RefusedRecordError, match=r"has no column 'new': add it, set auto\.evolve"):
        write(own, more)
    assert ids(tmp_path) == [0]
    write(replace(own, evolves=True), more)
    keyed = replace(own, evolves=True, rows=UPSERT)
    write(keyed, records([{"id": 1, "newer": "y"}], first=2, keys=[{"id": 1}]))
    assert rows(tmp_path) == [
        {"id": 0, "city": "city 0", "new": None, "newer": None},
        {"id": 1, "city": None, "new": None, "newer": "y"},
    ]


def test_fields_of_structs_are_added_where_that_is_set(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, records([{"id": 1, "at": {"x": 1}}]))
    more = records([{"id": 2, "at": {"x": 2, "y": "b"}}], first=1)
    with pytest.raises(RefusedRecordError, match=r"has no column 'at\.y'"):
        write(own, more)
    write(replace(own, evolves=True), more)
    keyed = replace(own, evolves=True, rows=UPSERT)
    newer = {"id": 1, "at": {"z": 5, "x": 3}}
    write(keyed, records([newer], first=2, keys=[{"id": 1}]))
    found = DeltaTable(f"{tmp_path}/orders").to_pyarrow_table().sort_by("id").to_pylist()
    assert found == [
        {"id": 1, "at": {"x": 3, "y": None, "z": 5}},
        {"id": 2, "at": {"x": 2, "y": "b", "z": None}},
    ]


@KEYS
def test_keys_may_be_of_many_types(tmp_path: Path, one: Any, other: Any) -> None:
    own = settings(tmp_path, rows=UPSERT)
    keys = [{"id": one}, {"id": other}]
    write(own, records([{"x": 1}, {"x": 2}], keys=keys))
    write(own, records([{"x": 3}, None], first=2, keys=keys))
    assert [each["x"] for each in rows(tmp_path)] == [3]


def test_zero_is_one_key_with_any_sign(tmp_path: Path) -> None:
    own = settings(tmp_path, rows=UPSERT)
    keys = [{"id": 0.0}, {"id": -0.0}]
    write(own, records([{"x": 1}, {"x": 2}], keys=keys))
    assert [each["x"] for each in rows(tmp_path)] == [2]
    write(own, records([{"x": 3}], first=2, keys=keys[:1]))
    assert [each["x"] for each in rows(tmp_path)] == [3]


def test_another_type_is_told(tmp_path: Path) -> None:
    own = settings(tmp_path, evolves=True)
    write(own, orders(0, 1))
    with pytest.raises(
        RefusedRecordError, match="'id' of the table is int64, and the records have"
    ):
        write(own, records([{"id": "no number", "city": "x"}], first=1))
    write(own, records([{"id": "17", "city": "x"}], first=1))
    assert ids(tmp_path) == [0, 17]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.array([1], pa.int32()), pa.array([2**40])),
        (pa.array([1.5], pa.float32()), pa.array([1e300])),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("12345.5")])),
        (pa.array([1], pa.int8()), pa.array([1000], pa.int32())),
    ],
)
def test_a_value_that_needs_a_wider_column_is_rejected_alone(
    tmp_path: Path, before: pa.Array, after: pa.Array
) -> None:
    own = settings(tmp_path, evolves=True)
    for first, values in enumerate((before, after, before)):
        batch = records(pa.StructArray.from_arrays([values], ["n"]), first=first)
        (answer,) = DeltaWriter("sink", own, tolerates=True)([batch])
        refused = [row["reason"] for row in answer.to_pylist() if row["reason"]]
        assert len(refused) == (first == 1)
        assert all("'n' has the value" in each for each in refused)
        assert all("convert it with Cast, or change the table" in each for each in refused)
    found = DeltaTable(f"{tmp_path}/orders").to_pyarrow_table().column("n").to_pylist()
    assert found == before.to_pylist() * 2


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (pa.array(["text"]), "record orders-0@0: .*it has no fields"),
        (pa.array([{"x": 1}]), "has no 'id'"),
        (
            pa.array([{"id": None, "x": 1}], pa.struct([("id", pa.int64()), ("x", pa.int64())])),
            "no",
        ),
    ],
)
def test_records_that_are_no_rows_are_told(tmp_path: Path, values: pa.Array, told: str) -> None:
    keyed = RowSettings(keyed=True, key_fields=("id",))
    with pytest.raises(RefusedRecordError, match=told):
        write(settings(tmp_path, rows=keyed), records(values))
    assert not (tmp_path / "orders").exists()


def test_records_that_are_no_rows_are_refused_one_by_one(tmp_path: Path) -> None:
    own = settings(tmp_path, rows=RowSettings(keyed=True, key_fields=("id",)), evolves=True)
    values = [{"id": 1}, "text", {"id": "x"}, {"ID": 3, "id": 4}, {"": 1, "id": 5}, {"n": 1}]
    batch = schemaless([*values, {"id": 2, "s": {"x": 1}}, {"id": 6, "s": {"X": 1}}])
    for _ in range(2):
        (answer,) = DeltaWriter("sink", own, tolerates=True)([batch])
        refused = [row["offset"] for row in answer.to_pylist() if row["reason"] is not None]
        assert refused == [1, 2, 3, 4, 5, 7]
        assert ids(tmp_path) == [1, 2]


def test_types_come_back(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    row: dict[str, Any] = {
        "id": 1,
        "price": Decimal("12.30"),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "day": date(2026, 1, 2),
        "raw": b"\x00\xff",
        "yes": True,
        "tags": ["a", None],
        "nested": {"a": 1, "b": [1.5]},
    }
    kinds: Sequence[tuple[str, pa.DataType]] = [
        ("small", pa.uint8()),
        ("big", pa.uint64()),
        ("clock", pa.time32("ms")),
        ("half", pa.float16()),
        ("nothing", pa.null()),
    ]
    fields = pa.RecordBatch.from_pylist([row])
    more = [
        pa.array([each], kind)
        for each, (_, kind) in zip((7, 2**63, time(1, 2, 3), 1.5, None), kinds, strict=True)
    ]
    struct = pa.StructArray.from_arrays(
        [*fields.columns, *more], names=[*fields.schema.names, *(name for name, _ in kinds)]
    )
    write(settings(tmp_path), records(struct))
    (found,) = DeltaTable(str(tmp_path / "orders")).to_pyarrow_table().to_pylist()
    assert found == {**row, "small": 7, "big": 2**63, "clock": "01:02:03.000", "half": 1.5}


def test_small_files_are_joined(tmp_path: Path) -> None:
    own = settings(tmp_path, compact_every=5, retain_hours=0)
    for n in range(9):
        write(own, orders(n, 1))
    assert len(DeltaTable(str(tmp_path / "orders")).file_uris()) < 9
    assert ids(tmp_path) == list(range(9))
    assert write(own, orders(0, 10)) == 1


def raw(uri: object, **changed: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "DeltaSink",
        "topics": "orders",
        "table.uri": str(uri),
        **changed,
    }


def faults(config: dict[str, str]) -> dict[str, str]:
    return {each.field: each.description for each in parse_config(DeltaSink, config).violations}


def test_offsets_that_are_set_back_are_written_again(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write(own, orders(0, 10), orders(0, 3, partition=2))
    config = parse_config(DeltaSink, raw(f"{tmp_path}/${{topic}}")).require_valid()
    place: dict[str, Any] = {"kafka_topic": "orders", "kafka_partition": 0}
    assert DeltaSink.alter_offsets(config, [(place, {"kafka_offset": 8})])
    assert write(own, orders(0, 10)) == 2
    assert DeltaSink.alter_offsets(config, [])
    assert write(own, orders(0, 10), orders(0, 3, partition=2)) == 13


def test_a_topic_of_the_same_name_is_written_from_its_start(tmp_path: Path) -> None:
    own, new = settings(tmp_path), {0: "0a1b2c3d"}
    write(own, orders(0, 10), orders(0, 5, partition=1))
    assert write(own, orders(0, 3), outputs=new) == 3
    assert write(own, orders(0, 4), orders(0, 6, partition=1), outputs=new) == 2
    assert len(ids(tmp_path)) == 20
    config = parse_config(DeltaSink, raw(f"{tmp_path}/${{topic}}")).require_valid()
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)

    def traced(**partitions: str) -> Any:
        wanted = {each: partitions.get(f"p{each.partition}", "") for each in (zero, one)}
        return DeltaSink.traced_offsets("sink", config, wanted)

    assert traced() == {zero: 10, one: 6}
    assert traced(p0="0a1b2c3d") == {zero: 4, one: 6}
    assert traced(p0="ffffffff", p1="0a1b2c3d") == {}
    assert DeltaSink.traced_offsets("other", config, {zero: ""}) == {}
    assert DeltaSink.traced_offsets("sink", config, {TopicPartition("absent", 0): ""}) == {}
    place: dict[str, Any] = {"kafka_topic": "orders", "kafka_partition": 0}
    assert DeltaSink.alter_offsets(config, [(place, {"kafka_offset": 2})])
    assert traced() == {zero: 10, one: 6}
    assert write(own, orders(0, 4), outputs=new) == 2
    assert DeltaSink.alter_offsets(config, [])
    assert traced(p0="0a1b2c3d") == {}


def test_a_config_is_tried_at_the_table(tmp_path: Path) -> None:
    uri = f"{tmp_path}/${{topic}}"
    assert faults(raw(uri)) == {}
    assert "does not exist" in faults(raw(uri, **{"auto.create": "false"}))["auto.create"]
    write(settings(tmp_path), orders(0, 1))
    keyed = {"insert.mode": "upsert", "pk.fields": "nr"}
    assert "has no column 'nr'" in faults(raw(uri, **keyed))["pk.fields"]
    assert "other partition columns" in faults(raw(uri, **{"partition.by": "id"}))["partition.by"]
    assert "must be an absolute path" in faults(raw("here"))["table.uri"]
    assert faults(raw(uri, **{"pk.fields": "id"})).keys() == {"pk.fields"}
    assert faults(raw(uri, **{"delete.enabled": "true"})).keys() == {"delete.enabled"}
    by_value = {"insert.mode": "upsert", "pk.mode": "record_value"}
    assert faults(raw(uri, **by_value)).keys() == {"pk.fields"}


def test_tables_are_in_object_stores_too(s3: S3) -> None:
    config = raw(f"s3://{s3.bucket}/lake/${{topic}}", **s3.settings)
    assert faults(config) == {}
    wrong = faults({**config, "aws.secret.access.key": "wrong"})["table.uri"]
    assert "cannot be read" in wrong
    own = settings_of(parse_config(DeltaSink, config).require_valid())
    assert write(own, orders(0, 5)) == 5
    assert write(own, orders(2, 5)) == 2
    found = DeltaTable(own.uri_of("orders"), storage_options=dict(own.storage_options))
    assert sorted(found.to_pyarrow_table().column("id").to_pylist()) == list(range(7))


def test_an_object_store_in_trouble_is_asked_again(s3: S3) -> None:
    uri = f"s3://{s3.bucket}/lake/${{topic}}"

    def at(address: str) -> DeltaSettings:
        config = raw(uri, **{**s3.settings, "store.url": address})
        found = settings_of(DeltaSink.config_def().parse(config).values)
        assert isinstance(found, DeltaSettings)
        return found

    with http_gate(s3.port) as gate:
        own = at(gate.address)
        write(own, orders(0, 5))
        gate.rule = lambda _: 503
        with pytest.raises(RetriableError, match=r"s3://.*/lake/orders: .*Generic S3 error"):
            write(own, orders(5, 5))
        gate.once(LOST, "PUT", ".json")
        write(own, orders(5, 5))
        assert write(own, orders(5, 6)) == 1
    with pytest.raises(RetriableError, match=r"s3://.*/lake/orders: .*Generic S3 error"):
        write(own, orders(11, 5))
    options = dict(at(s3.endpoint).storage_options)
    found = DeltaTable(own.uri_of("orders"), storage_options=options).to_pyarrow_table()
    assert sorted(found.column("id").to_pylist()) == list(range(11))


def test_a_number_in_an_address_is_no_refusal() -> None:
    text = "Generic S3 error: error performing PUT http://127.0.0.1:40403/403/x: status code: "
    with pytest.raises(RetriableError), translated_errors("s3://lake"):
        raise OSError(f"{text}503 Service Unavailable")
    with pytest.raises(TableError), translated_errors("s3://lake"):
        raise OSError(f"{text}403 Forbidden")


def test_names_that_differ_in_case_only_are_told(tmp_path: Path) -> None:
    own = settings(tmp_path, evolves=True)
    write(own, records([{"id": 1}]))
    with pytest.raises(
        RefusedRecordError, match=r"/orders: field 'ID' differs from column 'id' only in case"
    ):
        write(own, records([{"id": 2, "ID": 3}], first=1))


ODD_NAMES = ["Order Id", "a.b", "a'b", 'a"b', "a`b", "a/b=é"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_columns_may_be_called_anything(tmp_path: Path, name: str) -> None:
    keyed = replace(UPSERT, key_fields=(name,))
    own = settings(tmp_path, rows=keyed, evolves=True, partition_by=("by " + name,))
    keys: list[Any] = [{name: 1}, {name: 2}]
    write(own, records([{"by " + name: "u/v"}, {"by " + name: "w"}], keys=keys))
    write(own, records([{"by " + name: "x", name + "!": 3}, None], first=2, keys=keys))
    found = DeltaTable(str(tmp_path / "orders")).to_pyarrow_table().to_pylist()
    assert found == [{"by " + name: "x", name: 1, name + "!": 3}]


def test_a_record_that_violates_a_constraint_is_refused_alone(tmp_path: Path) -> None:
    own = settings(tmp_path, rows=UPSERT)
    write(own, records([{"id": 1}], keys=[{"id": 1}]))
    DeltaTable(str(tmp_path / "orders")).alter.add_constraint({"positive": "id > 0"})
    numbers = [2, -3, 4, -5, 6]
    batch = records([{"id": n} for n in numbers], first=1, keys=[{"id": n} for n in numbers])
    (answer,) = DeltaWriter("sink", own, tolerates=True)([batch])
    refused = [each for each in answer.to_pylist() if each["reason"] is not None]
    assert [each["offset"] for each in refused] == [2, 4]
    assert "CHECK constraint" in refused[0]["reason"]
    assert ids(tmp_path) == [1, 2, 4, 6]
    with pytest.raises(RefusedRecordError, match=r"orders-0@6: .*CHECK constraint"):
        write(own, records([{"id": -8}], first=6, keys=[{"id": -8}]))
