"""PostgreSQL's values, LSNs and messages, without a server."""

import struct
from datetime import UTC, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from drover.connectors.postgres.copied import parse_array
from drover.connectors.postgres.pgoutput import (
    RelationColumn,
    parse_begin,
    parse_relation,
)
from drover.connectors.postgres.row_columns import TextColumn
from drover.connectors.postgres.settings import key_rules
from drover.connectors.postgres.snapshot_point import SnapshotPoint
from drover.connectors.postgres.values import (
    ColumnReader,
    DatabaseTypes,
    ValueForms,
    column_type,
    hstore_json,
    interval_iso,
    interval_us,
    type_of,
)
from drover.record.schema import schema_of


def reader(oid: int, modifier: int = -1, decimals: str = "precise") -> ColumnReader:
    column = RelationColumn("c", oid, modifier)
    return ColumnReader(column, column_type(oid, modifier, decimals), "?")


def no_fault(row: int, why: str) -> None:
    raise AssertionError(f"row {row}: {why}")


def sent(*texts: str | None, unchanged: bool = False) -> TextColumn:
    """A column of texts; with ``unchanged`` the first value was not sent."""
    marks = np.arange(len(texts)) == 0 if unchanged else None
    return TextColumn(pa.array(texts, pa.string()), marks)


@pytest.mark.parametrize(
    ("oid", "raw", "value"),
    [
        (16, "t", True),
        (17, "\\xff00", b"\xff\x00"),
        (20, "-9223372036854775808", -9223372036854775808),
        (701, "NaN", "nan"),
        (1700, "123456789012345678901234567890.5", "123456789012345678901234567890.5"),
        (1007, '{1,NULL,"3"}', [1, None, 3]),
        (1009, '{a,"b \\"c\\\\",NULL,"NULL",""}', ["a", 'b "c\\', None, "NULL", ""]),
        (1083, "03:04:05.006", time(3, 4, 5, 6_000)),
        (1114, "2026-01-02 03:04:05.000006", datetime(2026, 1, 2, 3, 4, 5, 6)),
        (1184, "2026-01-02 03:04:05+00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (2950, "12345678-1234-1234-1234-123456789abc", "12345678-1234-1234-1234-123456789abc"),
    ],
)
def test_values_are_what_their_text_says(oid: int, raw: str, value: object) -> None:
    (found,) = reader(oid).from_column(sent(raw), no_fault).to_pylist()
    assert (str(found) if value == "nan" else found) == value


def test_numeric_is_exact_or_as_asked_for() -> None:
    modifier = (10 << 16 | 2) + 4
    found = reader(1700, modifier).from_column(sent("12.50", None), no_fault)
    assert found.to_pylist() == [Decimal("12.50"), None]
    assert reader(1700, modifier, "double").type.arrow_type == pa.float64()
    assert reader(1700, modifier, "string").type.arrow_type == pa.string()


@pytest.mark.parametrize(
    ("oid", "modifier", "raw", "name", "value"),
    [
        (1082, -1, "1969-12-31", "Date", -1),
        (1083, -1, "03:04:05.006007", "MicroTime", 11_045_006_007),
        (1083, 3, "03:04:05.006", "Time", 11_045_006),
        (1114, -1, "1970-01-01 00:00:01.000002", "MicroTimestamp", 1_000_002),
        (1114, 3, "1970-01-01 00:00:01.002", "Timestamp", 1_002),
        (1114, 0, "1969-12-31 23:59:59", "Timestamp", -1_000),
        (1184, -1, "2026-01-02 03:04:05.00001+00", "ZonedTimestamp", "2026-01-02T03:04:05.00001Z"),
        (1184, -1, "2026-01-02 03:04:05+00", "ZonedTimestamp", "2026-01-02T03:04:05Z"),
    ],
)
def test_times_are_as_debezium_tells_them(
    oid: int, modifier: int, raw: str, name: str, value: object
) -> None:
    kind = column_type(oid, modifier, "precise", "adaptive")
    read = ColumnReader(RelationColumn("c", oid, modifier), kind, "?")
    assert read.from_column(sent(raw, None), no_fault).to_pylist() == [value, None]
    schema = schema_of(kind.field("c"))
    assert schema is not None
    assert (schema.name, schema.version) == (f"io.debezium.time.{name}", 1)
    faults: dict[int, str] = {}
    assert read.from_column(sent("infinity"), faults.setdefault).to_pylist() == [None]
    assert "'infinity'" in faults[0]


def test_times_of_a_day_may_always_be_microseconds_and_arrays_hold_what_columns_do() -> None:
    kind = column_type(1083, 3, "precise", "adaptive_time_microseconds")
    assert kind.array(pa.array(["00:00:00.001"])).to_pylist() == [1_000]
    kind = column_type(1115, -1, "precise", "adaptive")
    found = kind.array(pa.array(['{"1970-01-01 00:00:01",NULL}', None, "{}"]))
    assert found.to_pylist() == [[1_000_000, None], None, []]
    schema = schema_of(kind.field("c"))
    assert schema is not None
    assert schema.value_schema is not None
    assert schema.value_schema.name == "io.debezium.time.MicroTimestamp"


def test_key_rules() -> None:
    found = key_rules(r"public\.(a|b):id, day;public\.c:x;")
    assert found == ((r"public\.(a|b)", ("id", "day")), (r"public\.c", ("x",)))
    for wrong in ("public.a", ":id", "public.a:", "public.a:id,,x"):
        with pytest.raises(ValueError, match=r"is not schema\.table:column"):
            key_rules(wrong)


def test_a_value_without_a_place_is_one_rows_fault() -> None:
    faults: dict[int, str] = {}
    found = reader(1082).from_column(sent("2026-01-02", "infinity", None), faults.setdefault)
    assert [each is not None for each in found.to_pylist()] == [True, False, False]
    assert list(faults) == [1]
    assert "'infinity'" in faults[1]


def test_what_was_not_sent_has_a_placeholder_or_is_null() -> None:
    faults: dict[int, str] = {}
    column = sent(None, "x", unchanged=True)
    assert reader(25).from_column(column, faults.setdefault).to_pylist() == ["?", "x"]
    column = sent(None, unchanged=True)
    assert reader(17).from_column(column, faults.setdefault).to_pylist() == [b"?"]
    assert reader(1007).from_column(column, faults.setdefault).to_pylist() == [[63]]
    assert reader(1009).from_column(column, faults.setdefault).to_pylist() == [["?"]]
    assert reader(1001).from_column(column, faults.setdefault).to_pylist() == [[b"?"]]
    assert reader(1000).from_column(column, faults.setdefault).to_pylist() == [None]
    modifier = (10 << 16 | 2) + 4
    assert reader(1700, modifier).from_column(column, faults.setdefault).to_pylist() == [None]
    assert not faults


@pytest.mark.parametrize("array", ["{{1,2},{3,4}}", "[2:3]={1,2}"])
def test_arrays_of_other_shapes_are_refused(array: str) -> None:
    with pytest.raises(ValueError, match="array"):
        parse_array(array)


@pytest.mark.parametrize(
    ("xid", "commit_lsn", "seen"),
    [
        (99, 500, True),  # below xmin
        (100, 500, False),  # in progress
        (101, 500, True),  # between xmin and xmax, committed
        (110, 500, False),  # at xmax, started later
        (99, 1000, False),  # transaction ids have wrapped around
    ],
)
def test_a_snapshot_has_seen_what_was_committed_before(
    xid: int, commit_lsn: int, *, seen: bool
) -> None:
    point = SnapshotPoint.parse("100:110:100,105", 1000)
    assert point.has_seen(xid, commit_lsn) is seen
    assert SnapshotPoint.of_offset(point.offset()) == point


def test_ids_of_32_bits_are_those_near_the_snapshot() -> None:
    epoch = 1 << 32
    point = SnapshotPoint.parse(f"{epoch + 5}:{epoch + 10}:", 1000)
    assert point.has_seen(4, 1)
    assert point.has_seen(epoch - 1, 1)
    assert not point.has_seen(10, 1)


def test_messages_are_parsed() -> None:
    begin = b"B" + struct.pack(">QqI", 77, 1_000_000, 5)
    assert parse_begin(begin).commit_lsn == 77
    assert parse_begin(begin).committed_us == 946_684_801_000_000
    relation = parse_relation(
        b"R" + struct.pack(">I", 9) + b"public\0a b\0d" + struct.pack(">H", 1)
        + b"\x01id\0" + struct.pack(">Ii", 23, -1)
    )  # fmt: skip
    assert relation.name == "public.a b"
    assert relation.columns == (RelationColumn("id", 23, -1, in_identity=True),)


@pytest.mark.parametrize(
    ("text", "micros", "iso"),
    [
        ("00:00:00", 0, "P0Y0M0DT0H0M0S"),
        ("1 year 2 mons 3 days 04:05:06.7", 37_091_106_700_000, "P1Y2M3DT4H5M6.7S"),
        ("-1 days +02:03:00", -79_020_000_000, "P0Y0M-1DT2H3M0S"),
        ("-04:05:06", -14_706_000_000, "P0Y0M0DT-4H-5M-6S"),
        ("178000000 years", 178_000_000 * 12 * 2_629_800_000_000, None),
    ],
)
def test_intervals_as_in_debezium(text: str, micros: int, iso: str | None) -> None:
    assert interval_us(text) == micros
    assert iso is None or interval_iso(text) == iso


def test_intervals_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="infinity"):
        interval_us("infinity")


def test_hstore_as_json() -> None:
    assert hstore_json(r'"a"=>"1", "b \"c\\"=>NULL, ""=>"x=>y, z"') == (
        '{"a":"1","b \\"c\\\\":null,"":"x=>y, z"}'
    )
    assert hstore_json("") == "{}"


def test_arrays_have_the_types_of_their_elements() -> None:
    modifier = (8 << 16 | 2) + 4
    types = DatabaseTypes({9_000: (1700, modifier)}, {9_001: 9_000, 9_002: 9_003})
    forms = ValueForms("precise")
    prices = type_of(1231, modifier, forms, types)
    assert prices.arrow_type == pa.list_(pa.field("item", pa.decimal128(8, 2)))
    assert prices.array(pa.array(["{1.5,NULL}"])).to_pylist() == [[Decimal("1.50"), None]]
    assert type_of(9_001, -1, forms, types).arrow_type == prices.arrow_type
    assert type_of(9_002, -1, forms, types).arrow_type == pa.list_(pa.field("item", pa.string()))
    assert type_of(1231, -1, forms, types).arrow_type == pa.list_(pa.field("item", pa.string()))


def test_texts_that_equal_the_placeholder_are_noticed() -> None:
    texts = pa.array(["x", None, "?"])
    found = reader(25).resembling(texts)
    assert found is not None
    assert found.to_pylist() == [False, False, True]
    assert reader(25).resembling(pa.array(["x"])) is None
    assert reader(23).resembling(pa.array(["1"])) is None
    for oid, text in ((17, "\\x3f"), (1009, "{?}"), (1009, '{"?"}'), (1007, "{63}")):
        assert reader(oid).resembling(pa.array([text])) is not None, text
