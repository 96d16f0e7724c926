"""A value of a file is delivered unchanged, or its row is an error with its position."""

import datetime
import decimal
import gzip
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.connectors.files_harness import FilesRun

UTC = datetime.UTC
FAR = [
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000),
    datetime.datetime(1500, 1, 1),
    datetime.datetime(1, 1, 1),
    datetime.datetime(2262, 4, 12),
    datetime.datetime(2024, 1, 1, 0, 0, 0, 1_000),
    None,
]


def run(path: Path, **config: str) -> FilesRun:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return FilesRun({"path": str(path), **settings}).drain()


def lines(found: FilesRun) -> list[int]:
    return [int(origin.rpartition(":")[2]) for origin in found.origins]


def bad_lines(found: FilesRun) -> list[int]:
    return [int(origin.rpartition(":")[2]) for origin, _, _ in found.bad]


# -- Parquet and Avro ------------------------------------------------------------------------------


def test_old_parquet_timestamps_of_any_year(tmp_path: Path) -> None:
    moments = pa.array(FAR, pa.timestamp("us"))
    table = pa.table(
        {
            "at": moments,
            "inner": pa.StructArray.from_arrays([moments], ["at"]),
            "list": [[each] for each in FAR],
            "deep": [[[{"at": each}]] for each in FAR],
            "map": pa.array([[("k", each)] for each in FAR], pa.map_("string", pa.timestamp("us"))),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert run(tmp_path).rows == table.to_pylist()
    given = run(tmp_path, schema="at timestamp, inner struct<at: timestamp>").rows
    assert given == [
        {
            "at": each and each.replace(tzinfo=UTC),
            "inner": {"at": each and each.replace(tzinfo=UTC)},
        }
        for each in FAR
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_parquet_timestamps_of_a_schema_are_truncated_to_milliseconds(
    tmp_path: Path, unit: str
) -> None:
    counts = {"s": 1, "ms": 1_000, "us": 1_000_001, "ns": 1_000_000_001}[unit]
    pq.write_table(pa.table({"at": pa.array([counts], pa.timestamp(unit))}), tmp_path / "a.parquet")
    found = run(tmp_path, schema="at timestamp")
    assert found.rows == [{"at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}]


@pytest.mark.parametrize(
    ("values", "ddl", "kept"),
    [
        (pa.array([0, 86_400_000_001], pa.timestamp("us")), "v date", datetime.date(1970, 1, 1)),
        (pa.array([7, 300], pa.int64()), "v tinyint", 7),
        (pa.array([7, 2**53 + 1], pa.int64()), "v double", 7.0),
        (pa.array([7, 2**24 + 1], pa.int64()), "v float", 7.0),
        (pa.array([0.5, 0.1], pa.float64()), "v float", 0.5),
        (pa.array([0.5, 1e300], pa.float64()), "v float", 0.5),
        (pa.array([7.0, 7.5], pa.float64()), "v bigint", 7),
        (pa.array([1.25, 1.255], pa.float64()), "v decimal(6,2)", decimal.Decimal("1.25")),
        (pa.array([2**63 - 1, 2**63], pa.uint64()), "v bigint", 2**63 - 1),
        (
            pa.array([decimal.Decimal("1.50"), decimal.Decimal("12345678901234567890.25")]),
            "v double",
            1.5,
        ),
        (
            pa.array([decimal.Decimal("1.50"), decimal.Decimal("1.51")]),
            "v decimal(6,1)",
            decimal.Decimal("1.5"),
        ),
        (pa.array(["1.5", "12345678901234567890"]), "v double", 1.5),
        (pa.array(["2024-01-01", "2024-02-30"]), "v date", datetime.date(2024, 1, 1)),
        (pa.array([[7], [7, 300]]), "v array<tinyint>", [7]),
        (pa.array([{"x": 7}, {"x": 300}]), "v struct<x: tinyint>", {"x": 7}),
        (
            pa.array([[("k", 7)], [("k", 300)]], pa.map_("string", "int64")),
            "v map<string, tinyint>",
            [("k", 7)],
        ),
    ],
)
def test_one_value_that_does_not_fit_rejects_its_row_only(
    tmp_path: Path, values: Any, ddl: str, kept: Any
) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [0, 1, 2, 3], "v": pa.concat_arrays([values, values])}), file)
    found = run(file, schema=f"id int, {ddl}")
    assert found.rows == [{"id": 0, "v": kept}, {"id": 2, "v": kept}]
    assert lines(found) == [1, 3]
    assert [origin for origin, _, _ in found.bad] == [f"{file}:2", f"{file}:4"]
    assert all("in column 'v'" in error for _, _, error in found.bad)
    assert [json.loads(raw)["id"] for _, raw, _ in found.bad] == [1, 3]


def test_null_fits_every_type(tmp_path: Path) -> None:
    table = pa.table({"a": pa.nulls(2), "b": pa.array([1, None]), "c": pa.array([None, [1]])})
    pq.write_table(table, tmp_path / "a.parquet")
    found = run(tmp_path, schema="a date, b date, c bigint, d map<string, int>")
    assert found.rows == []
    pq.write_table(table.slice(1).set_column(2, "c", pa.nulls(1)), tmp_path / "a.parquet")
    found = run(tmp_path, schema="a date, b date, c bigint, d map<string, int>")
    assert found.rows == [dict.fromkeys("abcd")]


def avro_file(path: Path, fields: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    schema: Any = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    with path.open("wb") as out:
        fastavro.writer(out, schema, rows)


def test_avro_times_of_any_year(tmp_path: Path) -> None:
    fields = {
        "millis": {"type": "long", "logicalType": "timestamp-millis"},
        "micros": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}},
        "day": ["null", {"type": "int", "logicalType": "date"}],
    }
    plain = {"millis": "long", "micros": {"type": "array", "items": "long"}, "day": ["null", "int"]}
    far = 300_000_000_000_000  # the year 11476
    avro_file(
        tmp_path / "plain.avro", plain, [{"millis": far, "micros": [far * 1000], "day": 10**7}]
    )
    data = (tmp_path / "plain.avro").read_bytes()
    avro_file(tmp_path / "b.avro", fields, [])
    head = (tmp_path / "b.avro").read_bytes()
    marker = head[-16:]
    body = data[data.index(data[-16:]) + 16 : -16]
    (tmp_path / "plain.avro").unlink()
    (tmp_path / "b.avro").write_bytes(head + body + marker)
    found = FilesRun({"path": str(tmp_path / "b.avro")})
    found.start()
    assert found.task is not None
    batch = found.task.poll()
    assert batch is not None
    frame: Any = batch.frame
    (rows,) = frame.read(0)
    assert rows.column("millis").cast(pa.int64()).to_pylist() == [far]
    assert rows.column("micros").flatten().cast(pa.int64()).to_pylist() == [far * 1000]
    assert rows.column("day").cast(pa.int32()).to_pylist() == [10**7]


def test_one_avro_text_that_is_no_text_rejects_its_row_only(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    avro_file(file, {"t": "string"}, [{"t": "good"}, {"t": "bad!"}, {"t": "fine"}])
    file.write_bytes(file.read_bytes().replace(b"bad!", b"b\xffd!"))
    found = run(file)
    assert found.rows == [{"t": "good"}, {"t": "fine"}]
    assert [origin for origin, _, _ in found.bad] == [f"{file}:2"]


def test_avro_decimals_keep_their_digits(tmp_path: Path) -> None:
    kinds = {
        "small": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
        "fixed": {
            "type": "fixed",
            "name": "F",
            "size": 20,
            "logicalType": "decimal",
            "precision": 45,
            "scale": 5,
        },
    }
    rows = [
        {"small": decimal.Decimal("1234567890123456789012345678.0123456789"), "fixed": each}
        for each in (
            decimal.Decimal("1234567890123456789012345678901234567.12345"),
            decimal.Decimal("-0.00001"),
        )
    ]
    avro_file(tmp_path / "a.avro", kinds, rows)
    assert run(tmp_path).rows == rows


# -- csv -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [
        ["02134"],
        ["00012345", "7"],
        ["+491234"],
        ["0x1F"],
        ["12345678901234567890"],
        ["99999999999999999999999"],
        ["007.50"],
        ["7.50"],
        ["1e5"],
        ["1e-7"],
        ["1E5", "2"],
        ["9007199254740993", "1.5"],
        ["0.1234567890123456789"],
        [".5"],
        ["5."],
        ["-0"],
        ["--1"],
        ["nan"],
        ["inf"],
        ["-Infinity"],
        ["True", "False"],
        ["TRUE"],
        ["true", "1"],
        ["0", "1", "x"],
        [" 5"],
        ["5 ", "6"],
        ["1_000"],
        ["1,5"],
        ["2024-1-2"],
        ["2024-02-30"],
        ["0000-01-01"],
        ["20240102", "020240102"],
        ["2024-01-02T03:04:05.123456Z"],
        ["2024-01-02 03:04:05.1234567"],
        ["2024-01-02T03:04:05+02:00"],
        ["2024-01-02T03:04:05Z", "2024-01-02"],
        ["2024-01-02T25:00:00Z"],
        ["10:20:30"],
        ["٣"],
    ],
)
def test_a_column_keeps_its_texts(tmp_path: Path, texts: list[str]) -> None:
    (tmp_path / "a.csv").write_text("v\n" + "".join(f'"{each}"\n' for each in texts))
    found = run(tmp_path)
    written = [each["v"] for each in found.rows]
    if texts == ["-0"]:
        assert [str(each) for each in written] == ["-0.0"]
        return
    assert (written, found.bad) == (texts, [])


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["0", "-7", "9223372036854775807"], [0, -7, 2**63 - 1]),
        (["1.5", "-0.25", "10.0", "2"], [1.5, -0.25, 10.0, 2.0]),
        (["0.1", "123456789.125"], [0.1, 123456789.125]),
        (["true", "false"], [True, False]),
        (["0001-01-01", "9999-12-31"], [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        (
            ["2024-01-02T03:04:05Z", "9999-12-31 23:59:59.999", "2024-01-02 03:04"],
            [
                datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
                datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
                datetime.datetime(2024, 1, 2, 3, 4, tzinfo=UTC),
            ],
        ),
    ],
)
def test_values_whose_texts_are_kept_have_types(
    tmp_path: Path, texts: list[str], values: list[Any]
) -> None:
    (tmp_path / "a.csv").write_text(
        "n,v\n" + "".join(f"{n},{each}\n" for n, each in enumerate(texts)) + "9,\n"
    )
    assert [each["v"] for each in run(tmp_path).rows] == [*values, None]


@pytest.mark.parametrize("packed", [False, True])
def test_the_last_value_of_a_large_file_decides_its_type(tmp_path: Path, packed: bool) -> None:
    content = (
        "zip,n\n" + "".join(f"{10_000 + n % 80_000},{n}\n" for n in range(120_000)) + "02134,0"
    )
    file = tmp_path / ("a.csv.gz" if packed else "a.csv")
    file.write_bytes(gzip.compress(content.encode(), 1) if packed else content.encode())
    assert len(content) > 1_400_000
    found = FilesRun({"path": str(file), "files.settle.ms": "0"}).start()
    assert found.step()
    assert found.rows[0] == {"zip": "10000", "n": 0}
    (offset,) = found.committed.values()
    assert json.loads(offset.offset_json)["schema"] == "zip string, n bigint"


def test_each_file_has_its_own_types(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip\n12345\n")
    (tmp_path / "b.csv").write_text("zip\n02134\n12345\n")
    assert [each["zip"] for each in run(tmp_path).rows] == [12345, "02134", "12345"]


def test_a_later_line_that_contradicts_the_types_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("zip,v\n12345,1.5\n")
    found = run(file)
    with file.open("a") as out:
        out.write("02134,2\n12346,3.10\n12347,4.25\n")
    for each in (found, found.start()):
        each.drain()
        assert found.rows == [
            {"zip": 12345, "v": 1.5},
            {"zip": 12347, "v": 4.25},
        ]
        assert [(origin, raw) for origin, raw, _ in found.bad] == [
            (f"{file}:3", b"02134,2"),
            (f"{file}:4", b"12346,3.10"),
        ]
    assert (
        "'02134' in column 'zip', which is of type int64 by its first lines: set schema"
        in found.bad[0][2]
    )


def test_a_header_without_rows_waits_for_types(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("zip\n")
    found = run(file)
    with file.open("a") as out:
        out.write("02134\n")
    assert found.drain().rows == [{"zip": "02134"}]


def test_lines_that_are_no_rows_do_not_decide_types(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b'id,v\n1,2\nx,y,z\n\xff,1\n"x,1\n3,4\n')
    found = run(file)
    assert found.rows == [{"id": 1, "v": 2}, {"id": 3, "v": 4}]
    assert bad_lines(found) == [3, 4, 5]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("config", [{}, {"schema": "n int"}, {"schema": "n string"}])
def test_an_empty_line_of_csv_with_one_column_is_a_null(
    tmp_path: Path, line_end: str, config: dict[str, str]
) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(line_end.join(["n", "", "1", "", "", "2", ""]).encode())
    found = run(file, **config)
    kind = str if config.get("schema") == "n string" else int
    assert [each["n"] for each in found.rows] == [None, kind(1), None, None, kind(2)]
    assert lines(found) == [2, 3, 4, 5, 6]
    file.write_bytes(line_end.join(["n,m", "", "1,2", "", "3,4", ""]).encode())
    found = run(file)
    assert [(each["n"], each["m"]) for each in found.rows] == [(1, 2), (3, 4)]


def test_the_result_does_not_depend_on_where_a_file_of_joined_files_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    mark = "\ufeff"
    file.write_text(f"{mark}n,m\n" + f"{mark}a,1\n" * 2_000)
    found = run(file, batch_max_bytes="1024")
    assert {each["n"] for each in found.rows} == {f"{mark}a"}
    assert len(found.rows) == 2_000


@pytest.mark.parametrize(
    ("ddl", "numbers"),
    [("v double", [1e300, -1e22, 2.0**60, 1.7976931348623157e308]), ("v float", [1e30, 2.0**40])],
)
def test_large_floating_point_that_a_sink_wrote_is_read(
    tmp_path: Path, ddl: str, numbers: list[float]
) -> None:
    kind = np.float32 if ddl == "v float" else np.float64
    file = tmp_path / "a.csv"
    file.write_text("id,v\n" + "".join(f"1,{kind(each)!s}\n" for each in numbers))
    found = run(file, schema=f"id int, {ddl}")
    assert (found.bad, [kind(each["v"]) for each in found.rows]) == ([], [kind(n) for n in numbers])


def test_a_nested_column_of_csv_is_an_error_of_its_records(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('id,v\n1,"[1,2]"\n2,\n')
    found = run(file, schema="id int, v array<int>")
    assert found.rows == [{"id": 2, "v": None}]
    assert ["has '[1,2]' in column 'v'" in error for _, _, error in found.bad] == [True]


@pytest.mark.parametrize(
    ("ddl", "bad"),
    [
        ("v double", ["12345678901234567890", "9007199254740993", "1e400"]),
        ("v float", ["16777217", "1e39"]),
        ("v decimal(4,1)", ["1.25", "12345"]),
        ("v decimal(38,0)", ["340282366920938463463374607431768211457"]),  # 2**128 + 1
        ("v int", ["2147483648", "1.5", "1e3"]),
        ("v date", ["2024-01-01T10:00:00", "2024-02-30"]),
        ("v timestamp", ["2024-02-30T00:00:00Z", "yesterday"]),
    ],
)
def test_csv_that_a_type_of_the_schema_does_not_hold(
    tmp_path: Path, ddl: str, bad: list[str]
) -> None:
    file = tmp_path / "a.csv"
    good = {"date": "2024-01-01", "timestamp": "2024-01-01T00:00:00Z"}.get(ddl.split()[1], "7")
    file.write_text("v\n" + "".join(f"{each}\n" for each in [good, *bad, good]))
    found = run(file, schema=ddl)
    assert len(found.rows) == 2
    assert [raw.decode() for _, raw, _ in found.bad] == bad


def test_times_of_nine_digits_and_of_any_year_are_truncated(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "at\n9999-12-31T23:59:59.123456789Z\n0001-01-01 00:00:00.1234567890\n"
    )
    assert [each["at"] for each in run(tmp_path, schema="at timestamp").rows] == [
        datetime.datetime(9999, 12, 31, 23, 59, 59, 123_000, tzinfo=UTC),
        datetime.datetime(1, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC),
    ]


@pytest.mark.parametrize("quote", ['"', "'", "|", "^"])
def test_text_after_a_quoted_field_is_an_error(tmp_path: Path, quote: str) -> None:
    file = tmp_path / "a.csv"
    good = ['1,"c""d"', '2,"a,""b"" c"', '3,x"y"z', '4, "q"', '5,""', '6,"1,2"\r', "7,"]
    bad = ['8,"a"b', '9,"a" ', '10,"a"b"c"']
    content = "id,s\n" + "".join(f"{each}\n" for each in [*good, *bad])
    file.write_bytes(content.replace('"', quote).encode())
    found = run(file, csv_quote=quote)
    texts = ['c"d', 'a,"b" c', 'x"y"z', ' "q"', "", "1,2", None]
    assert [each["s"] for each in found.rows] == [
        each and each.replace('"', quote) for each in texts
    ]
    assert bad_lines(found) == [9, 10, 11]
    assert "after the end of a quoted field" in found.bad[0][2]


def test_line_ends_in_quoted_fields_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b'id,s,p\r\n0,"A\r\nB",x\r\n1,"C\n\n",y\r\n')
    assert [each["s"] for each in run(file, csv_multiline="true").rows] == ["A\r\nB", "C\n\n"]


# -- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers",
    [
        ["9007199254740993", "1.5"],
        ["18446744073709551615", "9223372036854775807"],
        ["123456789012345678901234567890"],
        ["-9223372036854775809", "0"],
        ["0.12345678901234567890", "1"],
        ["1" * 50, "2"],
        ["-18446744073709551616", "340282366920938463463374607431768211457"],
        ["12345678901234567890.12345678901234567890", "1e-20"],
        ["9007199254740993", "1e0"],
        ["1.0", "9007199254740993", "0.5"],
    ],
)
@pytest.mark.parametrize("shape", ['{{"v":{}}}', '{{"o":{{"v":{}}}}}', '{{"l":[{{"v":[{}]}}]}}'])
def test_numbers_of_json_keep_their_digits(tmp_path: Path, numbers: list[str], shape: str) -> None:
    (tmp_path / "a.json").write_text("".join(shape.format(each) + "\n" for each in numbers))
    found = run(tmp_path)
    assert found.bad == []

    def number(row: Any) -> Any:
        while isinstance(row, dict | list):
            row = next(iter(row.values())) if isinstance(row, dict) else row[0]
        return row

    values = [number(each) for each in found.rows]
    assert [decimal.Decimal(each) for each in values] == [decimal.Decimal(each) for each in numbers]


@pytest.mark.parametrize("text", ['"0"', '"1.5"', "true", '""'])
def test_a_text_among_large_numbers_is_no_number(tmp_path: Path, text: str) -> None:
    numbers = ["-18446744073709551616", "5"]
    rows = [f'{{"v":{each}}}' for each in (*numbers, text)]
    (tmp_path / "a.json").write_text("".join(f"{each}\n" for each in rows))
    found = run(tmp_path)
    *before, last = [each["v"] for each in found.rows]
    assert before == [decimal.Decimal(each) for each in numbers]
    assert repr(last) == repr(json.loads(text))


def test_a_fraction_keeps_its_digits_beside_a_text(tmp_path: Path) -> None:
    numbers = ["1.5", "0.014991459837018112"]  # the next floating-point number ends with 111
    rows = [f'{{"v":{each}}}' for each in (*numbers, '""')]
    (tmp_path / "a.json").write_text("".join(f"{each}\n" for each in rows))
    found = run(tmp_path)
    delivered = [each["v"] for each in found.rows]
    assert [str(each) for each in delivered][: len(numbers)] == numbers


def test_floating_point_of_any_program_stays_floating_point(tmp_path: Path) -> None:
    texts = [
        "0.1",
        "0.10000000000000001",
        "52.520006600000002",
        "0.30000000000000004",
        "1e300",
        "2.2250738585e-313",
        "2",
    ]
    (tmp_path / "a.json").write_text("".join(f'{{"v":{each}}}\n' for each in texts))
    assert [each["v"] for each in run(tmp_path).rows] == [float(each) for each in texts]


def test_a_later_number_that_is_longer_keeps_its_digits(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(
        f'{{"id":1,"text":"{"x" * 100}"}}\n' * 12_000
        + '{"id":18446744073709551615}\n{"id":9007199254740993}\n{"id":0.5}\n'
    )
    found = run(file)
    assert found.bad == []
    assert [int(each["id"] * 2) for each in found.rows[-3:]] == [
        18446744073709551615 * 2,
        9007199254740993 * 2,
        1,
    ]
    with file.open("a") as out:
        out.write('{"id":7}\n')
    assert found.start().drain().rows[-1]["id"] == 7


@pytest.mark.parametrize(
    ("ddl", "bad"),
    [
        ("v double", ["12345678901234567890", "9007199254740993"]),
        ("v float", ["16777217"]),
        ("v bigint", ["9223372036854775808", "1.5", '"1"', "true"]),
        ("v int", ["2147483648"]),
        ("v decimal(4,1)", ["1.25", "12345", "true"]),
        ("v decimal(38,0)", ["340282366920938463463374607431768211457"]),  # 2**128 + 1
        ("v string", ["1", "1.5", "{}"]),
        ("v string, d decimal(4,1)", ["1", "1.5", "{}", "[]", "true"]),
        ("v struct<x: double>", ['{"x":9007199254740993}']),
        ("v array<double>", ["[1,9007199254740993]"]),
    ],
)
def test_json_that_a_type_of_the_schema_does_not_hold(
    tmp_path: Path, ddl: str, bad: list[str]
) -> None:
    file = tmp_path / "a.json"
    rows = [f'{{"v":{each}}}' for each in ["null", *bad, "null"]]
    file.write_text("".join(f"{each}\n" for each in rows))
    found = run(file, schema=ddl)
    assert lines(found) == [1, len(rows)]
    assert [raw.decode() for _, raw, _ in found.bad] == rows[1:-1]


@pytest.mark.parametrize("name", ["", " a", "a.b", "a`b", "``", "a\nb", "é", "select"])
def test_fields_of_any_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({name: 1, "in": {name: "x"}}) + "\n" + json.dumps({name: 2}) + "\n")
    assert run(file).rows == [{name: 1, "in": {name: "x"}}, {name: 2, "in": None}]


def test_a_field_that_is_given_twice_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"id":1,"id":2}\n{"id":3}\n{"id":18446744073709551615,"o":{"x":1,"x":2}}\n')
    for each in (run(file), run(file, schema="id bigint, o struct<x: decimal(4,1)>")):
        assert [row["id"] for row in each.rows] == [3]
        assert bad_lines(each) == [1, 3]


def test_maps_of_a_schema(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"m":{"a":1,"b":null}}\n{"m":null}\n{"m":{"a":1.5}}\n{"m":{}}\n'
    )
    found = run(tmp_path, schema="m map<string, int>")
    assert found.rows == [{"m": [("a", 1), ("b", None)]}, {"m": None}, {"m": []}]
    assert bad_lines(found) == [3]
