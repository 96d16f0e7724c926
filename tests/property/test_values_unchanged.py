"""A delivered value equals the source's value, or its record is an error with its position.

Each ``Way`` writes values, sends them through readers, converters or sinks, and reads them back. To
cover another one, add it to ``WAYS``. ``make test-faults ONLY=connectors`` draws many more values.
"""

import csv
import datetime
import decimal
import io
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.connectors.ddl import to_ddl
from drover.convert.registry import build_converter, converter_config_def
from drover.record.json.numbers import is_double
from drover.record.schema import schema_of
from tests.databases import test_delta_table as delta
from tests.databases import test_iceberg_table as iceberg
from tests.support.drawn_values import (
    DECIMAL,
    FINE,
    FINE_MOMENT,
    SCALARS,
    TEXTS,
    TRICKY,
    UTC,
    as_json,
    integers,
    of_json,
    plain,
    tables,
)
from tests.support.lake_records import records as lake_records
from tests.support.registry_converters import converter_at
from tests.support.table_records import address_with_ledger, write
from tests.unit.connectors import test_files_sink as files_sink
from tests.unit.connectors.files_harness import FilesRun


@dataclass(frozen=True)
class Rejected:
    """The error of a record."""

    reason: str


#: A row, or the error of its record.
Outcome = Any


@dataclass(frozen=True)
class Way:
    """A way of rows through a part of Drover.

    ``send`` returns the row, or the error, for each row of a batch. ``expected`` is a delivered row
    for a row of the source. A way that ``rejects`` may reject rows.
    """

    rows: st.SearchStrategy[pa.RecordBatch]
    send: Callable[[pa.RecordBatch, Path], list[Outcome]]
    expected: Callable[[Any], Any] = lambda row: row
    rejects: bool = False
    examples: int = 25


def parsed_json(text: str | bytes) -> Any:
    return json.loads(text, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


# -- readers of files ------------------------------------------------------------------------------


def from_file(path: Path, count: int, first_line: int, **config: str) -> list[Outcome]:
    """The outcome of each row of a file; the position of an error is that of its row."""
    found = FilesRun({"path": str(path), **{n.replace("_", "."): v for n, v in config.items()}})
    found.drain()
    outcomes: dict[int, Outcome] = {}
    for origin, row in zip(found.origins, found.rows, strict=True):
        outcomes[int(origin.rpartition(":")[2]) - first_line] = row
    for origin, _, error in found.bad:
        assert error
        outcomes[int(origin.rpartition(":")[2]) - first_line] = Rejected(error)
    assert sorted(outcomes) == list(range(count)), "each row is delivered or an error"
    return [outcomes[row] for row in range(count)]


def through_parquet(rows: pa.RecordBatch, path: Path, *, old: bool = False) -> list[Outcome]:
    table = pa.Table.from_batches([rows])
    pq.write_table(table, path / "a.parquet", use_deprecated_int96_timestamps=old)
    return from_file(path / "a.parquet", rows.num_rows, 1)


def avro_type(kind: pa.DataType, names: list[str]) -> Any:
    names.append("")
    inner: Any
    if pa.types.is_list(kind):
        inner = {"type": "array", "items": avro_type(kind.value_type, names)}
    elif pa.types.is_map(kind):
        inner = {"type": "map", "values": avro_type(kind.item_type, names)}
    elif pa.types.is_struct(kind):
        inner = {"type": "record", "name": f"R{len(names)}"}
        inner["fields"] = [{"name": f.name, "type": avro_type(f.type, names)} for f in kind]
    elif pa.types.is_decimal(kind):
        inner = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
    elif pa.types.is_timestamp(kind):
        unit = {"ms": "millis", "us": "micros"}[kind.unit]
        inner = {"type": "long", "logicalType": f"timestamp-{unit}"}
    elif pa.types.is_date(kind):
        inner = {"type": "int", "logicalType": "date"}
    else:
        named = {"bool": "boolean", "int64": "long", "string": "string", "binary": "bytes"}
        inner = named.get(str(kind), str(kind)) if not pa.types.is_integer(kind) else "long"
    return ["null", inner]


def through_avro(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    names: list[str] = []
    fields = [{"name": each.name, "type": avro_type(each.type, names)} for each in rows.schema]
    schema: Any = {"type": "record", "name": "Rows", "fields": fields}
    with (path / "a.avro").open("wb") as out:
        fastavro.writer(out, schema, map(_without_empty_maps(rows.schema), rows.to_pylist()))
    return from_file(path / "a.avro", rows.num_rows, 1)


def _without_empty_maps(schema: pa.Schema) -> Callable[[Any], Any]:
    """For fastavro: maps as dicts, which an empty list of pairs does not show."""

    def converted(value: Any, kind: pa.DataType) -> Any:
        if value is None:
            return None
        if pa.types.is_map(kind):
            return {name: converted(each, kind.item_type) for name, each in value}
        if pa.types.is_list(kind):
            return [converted(each, kind.value_type) for each in value]
        if pa.types.is_struct(kind):
            return {each.name: converted(value[each.name], each.type) for each in kind}
        return value

    return lambda row: {each.name: converted(row[each.name], each.type) for each in schema}


def through_json(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    """Values of JSON with the types of a schema."""
    kind = pa.struct(list(rows.schema))
    lines = [json.dumps(as_json(each, kind), default=_marked) for each in rows.to_pylist()]
    text = "".join(f"{each}\n" for each in lines)
    (path / "a.json").write_text(_numbers_without_quotes(text))
    return from_file(path / "a.json", rows.num_rows, 1, schema=to_ddl(rows.schema))


_QUOTED = "\ue000"


def _marked(value: Any) -> Any:
    """For ``json.dumps``: numbers as marked texts."""
    return f"{_QUOTED}{value}{_QUOTED}"


def _numbers_without_quotes(text: str) -> str:
    mark = json.dumps(_QUOTED)[1:-1]
    return text.replace(f'"{mark}', "").replace(f'{mark}"', "")


NUMBER_TEXTS = (
    st.integers(-(10**45), 10**45).map(str)
    | integers(65).map(str)
    | st.sampled_from(["9007199254740993", "1.5", "18446744073709551615", "0.1", "1e5", "-0.0"])
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda each: repr(each))
    | st.decimals(-(10**20), 10**20, allow_nan=False, places=18).map(lambda each: f"{each:f}")
)


@st.composite
def documents(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows of one field with JSON of any numbers, texts and booleans."""
    values = NUMBER_TEXTS
    if draw(st.booleans()):
        values = values | TEXTS.map(json.dumps) | st.sampled_from(["true", "null"])
    found = draw(st.lists(values, min_size=1, max_size=5))
    return pa.RecordBatch.from_pylist([{"v": each} for each in found])


def through_json_without_types(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    shapes = ('{{"v":{}}}', '{{"v":{},"w":{{"x":1}}}}')
    texts = rows.column("v").to_pylist()
    lines = [shapes[index % 2].format(each) for index, each in enumerate(texts)]
    (path / "a.json").write_text("".join(f"{each}\n" for each in lines))
    found = from_file(path / "a.json", len(texts), 1)
    return [
        each if isinstance(each, Rejected) else {"v": _source_text(each.get("v"), text)}
        for each, text in zip(found, texts, strict=True)
    ]


def _source_text(value: Any, text: str) -> Any:
    """The text of the source if the value equals it, else the value."""
    try:
        source = json.loads(text, parse_float=decimal.Decimal)
    except ValueError:
        return value
    if isinstance(source, bool) or not isinstance(source, int | decimal.Decimal):
        return text if value == source and type(value) is type(source) else value
    if isinstance(value, str):
        return text if value == text else value
    if isinstance(value, float):
        same = float(source) == value and is_double(source)
    else:
        same = value is not None and decimal.Decimal(value) == source
    return text if same else value


@st.composite
def cells(draw: st.DrawFn) -> pa.RecordBatch:
    """Columns of texts for csv."""
    values = st.sampled_from(TRICKY[1:]) | TEXTS.filter(bool)
    if draw(st.booleans()):  # texts of one type
        values = draw(
            st.sampled_from(
                [
                    integers(66).map(str),
                    st.floats(allow_nan=False).map(repr),
                    st.decimals(-(10**18), 10**18, allow_nan=False, places=2).map(str),
                    st.dates().map(lambda each: each.isoformat()),
                    st.datetimes().map(lambda each: each.isoformat()),
                    st.sampled_from(["true", "false"]),
                ]
            )
        )
    texts = draw(st.lists(values, min_size=1, max_size=5))
    quoted = [each.replace("\n", " ") for each in texts]
    return pa.RecordBatch.from_pylist([{"v": each} for each in quoted])


def through_csv_without_types(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    texts = rows.column("v").to_pylist()
    _write_csv(path / "a.csv", ["v"], [[each] for each in texts])
    found = from_file(path / "a.csv", len(texts), 2)
    return [
        {"v": text} if _is_text_of(each["v"], text) else each
        for each, text in zip(found, texts, strict=True)
    ]


def _is_text_of(value: Any, text: str) -> bool:
    match value:
        case bool():
            return text == str(value).lower()
        case float():
            return text in (repr(value), repr(value).removesuffix(".0"))
        case datetime.datetime():
            wanted = datetime.datetime.fromisoformat(text)
            return value.replace(tzinfo=None) == wanted.replace(tzinfo=None) and (
                wanted.tzinfo is None or not wanted.utcoffset()
            )
        case datetime.date():
            return text == value.isoformat()
        case int():
            return text == str(value)
    return bool(value == text)


def _write_csv(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([names, *rows])
    path.write_text(out.getvalue())


# -- a schema of other types -----------------------------------------------------------------------

WIDE: Sequence[tuple[pa.DataType, st.SearchStrategy[Any], str]] = [
    (pa.int64(), SCALARS[pa.int64()], "int"),
    (pa.int64(), SCALARS[pa.int64()], "double"),
    (pa.int64(), SCALARS[pa.int64()], "float"),
    (pa.int64(), SCALARS[pa.int64()], "decimal(18,0)"),
    (pa.int64(), SCALARS[pa.int64()], "string"),
    (pa.uint64(), st.integers(0, 2**64 - 1), "bigint"),
    (pa.float64(), SCALARS[pa.float64()], "float"),
    (pa.float64(), SCALARS[pa.float64()] | st.integers(-100, 100).map(float), "bigint"),
    (DECIMAL, SCALARS[DECIMAL], "decimal(30,2)"),
    (DECIMAL, SCALARS[DECIMAL], "decimal(38,12)"),
    (pa.decimal128(38, 0), st.integers(-(10**20), 10**20).map(decimal.Decimal), "bigint"),
    (
        FINE_MOMENT,
        FINE[FINE_MOMENT] | SCALARS[pa.date32()].map(lambda n: n * 86_400_000_000),
        "date",
    ),
    (FINE_MOMENT, FINE[FINE_MOMENT], "timestamp"),
    (pa.date32(), SCALARS[pa.date32()], "timestamp"),
]


@st.composite
def other_types(draw: st.DrawFn) -> pa.RecordBatch:
    kind, values, ddl = draw(st.sampled_from(WIDE))
    drawn = draw(st.lists(st.none() | values, min_size=1, max_size=4))
    metadata = {"ddl": f"v {ddl}"}
    return pa.RecordBatch.from_arrays(
        [pa.array(drawn, kind)], schema=pa.schema([("v", kind)], metadata=metadata)
    )


def through_another_schema(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    pq.write_table(pa.Table.from_batches([rows]), path / "a.parquet")
    ddl = (rows.schema.metadata or {})[b"ddl"].decode()
    found = from_file(path / "a.parquet", rows.num_rows, 1, schema=ddl)
    return [
        each if isinstance(each, Rejected) else {"v": _as_source(each["v"], source, ddl)}
        for each, source in zip(found, rows.column("v").to_pylist(), strict=True)
    ]


def _as_source(value: Any, source: Any, ddl: str) -> Any:
    if isinstance(source, datetime.datetime) and isinstance(value, datetime.datetime):
        cut = source.replace(microsecond=source.microsecond // 1000 * 1000)
        return source if cut == value else value
    if isinstance(source, datetime.datetime) and isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time(), UTC)
    if isinstance(value, datetime.datetime):
        return value.date() if value.time() == datetime.time() else value
    return int(value) if ddl.endswith("string") and value is not None else value


# -- converters ------------------------------------------------------------------------------------


def through_converter(rows: pa.RecordBatch, name: str) -> list[Outcome]:
    values = rows.to_struct_array()
    field = pa.field("value", values.type, nullable=False)
    if name == "Json":
        raw: dict[str, str | None] = {"value.converter": "Json"}
        parsed = converter_config_def("value.converter", raw).parse(raw).require_valid()
        converter: Any = build_converter("value.converter", parsed, is_key=False)
        (found,) = converter.decode(converter.encode(field, values, None), None)
    else:
        more = {"optional_for_nullables": "true"} if name == "ProtobufConverter" else {}
        converter = converter_at(name, "http://127.0.0.1:1", **more)
        schema = schema_of(field)
        assert schema is not None
        own = converter.schema_format.parse(converter.text_of(schema), ())
        written = converter.write(field, values, own, b"\0\0\0\0\1", True)
        (found,) = converter.read(written, converter.schema_format.for_reading(own))
    return list(found.values.to_pylist())


def through_schemaless_json(rows: pa.RecordBatch, _: Path) -> list[Outcome]:
    """Documents of JSON, after a transform that parses and writes them."""
    from drover.record.json.form import PLAIN
    from drover.record.json.schemaless import dumps, loads, plain_texts

    texts = [f'{{"v":{each}}}' for each in rows.column("v").to_pylist()]
    written = plain_texts(pa.array([dumps(loads(each)) for each in texts]), PLAIN).to_pylist()
    return [
        {"v": source if _same_document(got, text) else got}
        for got, text, source in zip(written, texts, rows.column("v").to_pylist(), strict=True)
    ]


def _same_document(one: str, other: str) -> bool:
    left, right = (parsed_json(each)["v"] for each in (one, other))
    if isinstance(left, decimal.Decimal) and isinstance(right, decimal.Decimal):
        return left == right or (is_double(right) and float(left) == float(right))
    return bool(left == right)


# -- sinks -----------------------------------------------------------------------------------------


def through_files_sink(rows: pa.RecordBatch, path: Path, kind: str) -> list[Outcome]:
    sink = files_sink.started(path, format=kind)
    sink.write(files_sink.batch_of([files_sink.records(rows.to_struct_array())]))
    sink.stop()
    (name,) = files_sink.files_in(path, kind)
    row_type = pa.struct(list(rows.schema))
    if kind == "parquet":
        return list(pq.ParquetFile(path / name).read().to_pylist())
    with (path / name).open(newline="") as file:
        if kind == "json":
            return [of_json(parsed_json(each), row_type) for each in file]
        return [
            {each.name: _of_csv(row[each.name], each.type) for each in rows.schema}
            for row in csv.DictReader(file)
        ]


def _of_csv(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return text
    if not text and not pa.types.is_binary(kind):
        return None
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return decimal.Decimal(text)
    return of_json(text, kind)


def nulls_as_empty(row: Any) -> Any:
    """A row as csv has it: null is the empty text, and so are texts without characters."""
    return {name: _EMPTY if each in (None, "", b"") else each for name, each in row.items()}


_EMPTY = "empty"


def through_iceberg(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    own = iceberg.settings(path)
    iceberg.write(own, lake_records(rows.to_struct_array()))
    found = iceberg.table(own).scan().to_arrow().sort_by("id").to_pylist()
    return list(found)


def through_delta(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    delta.write(delta.settings(path), lake_records(rows.to_struct_array()))
    table = deltalake.DeltaTable(str(path / "orders")).to_pyarrow_table().sort_by("id")
    return list(table.to_pylist())


def through_sqlite(rows: pa.RecordBatch, path: Path) -> list[Outcome]:
    address = address_with_ledger({"connection.url": f"sqlite:{path}/a.db"})
    write(
        address,
        files_sink.records(rows.to_struct_array(), topic="items"),
        insert_mode="insert",
        pk_mode="none",
        deletes=False,
    )
    with sqlite3.connect(path / "a.db") as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM items ORDER BY id").fetchall()
    return [dict(each) for each in found]


def without(*kinds: pa.DataType) -> dict[pa.DataType, st.SearchStrategy[Any]]:
    return {kind: values for kind, values in SCALARS.items() if kind not in kinds}


IN_SQLITE = {
    kind: SCALARS[kind] for kind in (pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.int8())
}
WAYS: Mapping[str, Way] = {
    "Parquet": Way(tables({**SCALARS, **FINE}, 2), through_parquet),
    "old Parquet": Way(
        tables({**SCALARS, **FINE}, 2), lambda r, p: through_parquet(r, p, old=True)
    ),
    "Avro files": Way(tables({**SCALARS, **FINE}, 2), through_avro),
    "Parquet in another schema": Way(
        other_types(), through_another_schema, rejects=True, examples=60
    ),
    "JSON without a schema": Way(
        documents(), through_json_without_types, rejects=True, examples=60
    ),
    "csv without a schema": Way(cells(), through_csv_without_types, examples=60),
    "JsonConverter": Way(tables(SCALARS, 2), lambda rows, _: through_converter(rows, "Json")),
    "AvroConverter": Way(
        tables(SCALARS, 2), lambda rows, _: through_converter(rows, "AvroConverter")
    ),
    "ProtobufConverter": Way(
        tables(SCALARS, 0), lambda rows, _: through_converter(rows, "ProtobufConverter")
    ),
    "JSON without schemas": Way(documents(), through_schemaless_json),
    "FilesSink, Parquet": Way(tables(SCALARS, 2), lambda r, p: through_files_sink(r, p, "parquet")),
    "FilesSink, JSON": Way(tables(SCALARS, 2), lambda r, p: through_files_sink(r, p, "json")),
    "FilesSink, csv": Way(
        tables(SCALARS, 0),
        lambda r, p: [nulls_as_empty(each) for each in through_files_sink(r, p, "csv")],
        nulls_as_empty,
    ),
    "JSON with a schema": Way(tables(without(pa.binary()), 2), through_json),
    "IcebergSink": Way(tables(SCALARS, 2), through_iceberg, examples=6),
    "DeltaSink": Way(tables(SCALARS, 2), through_delta, examples=6),
    "JdbcSink, SQLite": Way(tables(IN_SQLITE, 0), through_sqlite, examples=10),
}


def check(way: Way, rows: pa.RecordBatch) -> None:
    with TemporaryDirectory() as directory:
        found = way.send(rows, Path(directory))
    assert len(found) == rows.num_rows
    for row, outcome in zip(rows.to_pylist(), found, strict=True):
        if isinstance(outcome, Rejected):
            assert way.rejects, outcome
        else:
            assert plain(outcome) == plain(way.expected(row))


def tried(way: Way, examples: int) -> None:
    """Draw values for a way; a failure prints the values, and how to repeat them."""
    drawn = given(way.rows)(lambda rows: check(way, rows))
    settings(max_examples=examples, print_blob=True)(drawn)()


@pytest.mark.parametrize("name", WAYS)
def test_a_value_is_delivered_unchanged_or_its_record_is_an_error(name: str) -> None:
    tried(WAYS[name], WAYS[name].examples)


@pytest.mark.faults("connectors")
@pytest.mark.parametrize("name", WAYS)
def test_many_values_are_delivered_unchanged_or_their_records_are_errors(name: str) -> None:
    tried(WAYS[name], WAYS[name].examples * 40)
