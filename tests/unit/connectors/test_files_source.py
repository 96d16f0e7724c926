"""Files as rows: formats, growth, replacement, bad lines and bad files."""

import datetime
import decimal
import json
import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drover.connector import ConnectorContext
from drover.connector.settings import parse_config
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.lines.file_stream_source import matching_files
from drover.connectors.files.storage.readable_files import matching_paths
from drover.policy.files import ROOTS_VARIABLE
from tests.unit.connectors.files_harness import FilesRun

#: The user without rights, on every system.
NOBODY = 65_534
BASE = {"name": "f", "connector.class": "FilesSource", "topic": "t"}
UTC = datetime.UTC


def run(path: Path, **config: str) -> FilesRun:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return FilesRun({"path": str(path), **settings})


def lines_of(found: FilesRun) -> list[int]:
    return [int(origin.rpartition(":")[2]) for origin in found.origins]


# -- csv -----------------------------------------------------------------------------------------


def test_types_of_csv_are_found(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        "id,name,price,day,at,ok,none\n"
        "1,a,1.5,2024-01-02,2024-01-02T03:04:05Z,true,\n"
        '2,"b, ""c""",2,2024-01-03,2024-01-02 03:04:05.5Z,false,\n'
    )
    found = run(file).drain()
    assert found.rows[0] == {
        "id": 1,
        "name": "a",
        "price": 1.5,
        "day": datetime.date(2024, 1, 2),
        "at": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        "ok": True,
        "none": None,
    }
    assert found.rows[1]["name"] == 'b, "c"'
    assert found.origins == [f"{file}:2", f"{file}:3"]


def test_a_schema_fixes_types_and_columns(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,price,at,more\n007,1.10,2024-01-02T00:00:00+01:00,x\n")
    ddl = "id string, price decimal(6,2), at timestamp, missing int"
    (row,) = run(file, schema=ddl).drain().rows
    assert row == {
        "id": "007",
        "price": decimal.Decimal("1.10"),
        "at": datetime.datetime(2024, 1, 1, 23, tzinfo=UTC),
        "missing": None,
    }


@pytest.mark.parametrize(
    ("content", "config", "rows"),
    [
        (b"", {}, []),
        (b"id,name\n", {}, []),
        (b"id,name", {}, []),
        (b"\xef\xbb\xbfid,name\n1,a\n", {}, [{"id": 1, "name": "a"}]),
        (b"id,name\r\n1,a\r\n2,b\r\n", {}, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]),
        (b"id,name\n1,a", {}, [{"id": 1, "name": "a"}]),
        (b"id;name\n1;a,b\n", {"csv_delimiter": ";"}, [{"id": 1, "name": "a,b"}]),
        (b"id\tname\n1\ta\n", {"csv_delimiter": r"\t"}, [{"id": 1, "name": "a"}]),
        (b"1,a\n", {"csv_header": "false"}, [{"column_1": 1, "column_2": "a"}]),
        (
            b"1,a\n",
            {"csv_header": "false", "schema": "x int, y string"},
            [{"x": 1, "y": "a"}],
        ),
        (b'id,name\n1,"a\n', {"csv_quote": "none"}, [{"id": 1, "name": '"a'}]),
        (b'id,name\n1,NA\n2,"NA"\n', {"csv_null": "NA"}, [{"id": 1, "name": None}]),
        (b"id,n\n1,1\n\n2,2\n", {}, [{"id": 1, "n": 1}, {"id": 2, "n": 2}]),
        (b'id,name\n1,""\n2,\n', {}, [{"id": 1, "name": ""}, {"id": 2, "name": None}]),
    ],
)
def test_csv_of_every_kind(
    tmp_path: Path, content: bytes, config: dict[str, str], rows: list[dict[str, Any]]
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    found = run(tmp_path / "a.csv", **config).drain()
    assert found.rows[: len(rows)] == rows
    assert (found.rows == []) == (rows == [])
    assert found.bad == []


def test_lines_that_are_no_rows_are_told_and_the_others_delivered(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(
        b'id,name\n1,a\n2,b,c\n3\n\nx,d\n4,\xff\n5,"e\n6,f\n' + b"7," + b"g" * 100 + b"\n"
    )
    found = run(file, schema="id bigint, name string").drain()
    assert [row["id"] for row in found.rows] == [1, 6, 7]
    assert lines_of(found) == [2, 9, 10]
    assert [(origin, raw) for origin, raw, _ in found.bad] == [
        (f"{file}:3", b"2,b,c"),
        (f"{file}:4", b"3"),
        (f"{file}:6", b"x,d"),
        (f"{file}:7", b"4,\xff"),
        (f"{file}:8", b'5,"e'),
    ]
    errors = [error for _, _, error in found.bad]
    for error, word in zip(
        errors, ["3 columns, not 2", "1 columns", "'id'", "UTF-8", "csv.multiline"], strict=True
    ):
        assert word in error


def test_fields_of_several_lines_are_read_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b'id,text\n1,"a\nb"\n2,c\nx,"d\n\ne"\n3,"f ""q""\n"\n')
    found = run(file, csv_multiline="true", schema="id int, text string").drain()
    assert [(row["id"], row["text"]) for row in found.rows] == [
        (1, "a\nb"),
        (2, "c"),
        (3, 'f "q"\n'),
    ]
    assert lines_of(found) == [2, 4, 8]
    assert [(origin, raw) for origin, raw, _ in found.bad] == [(f"{file}:5", b'x,"d\n\ne"')]


def test_records_of_several_lines_are_not_cut(tmp_path: Path) -> None:
    chance = random.Random(3)
    texts = ["\n" * chance.randrange(4) + "x" * chance.randrange(900) for _ in range(400)]
    file = tmp_path / "a.csv"
    file.write_text("n,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    found = run(file, csv_multiline="true", batch_max_bytes="1024", csv_null="null")
    while found.start().step():
        pass
    assert [row["text"] for row in found.rows] == texts
    starts = [2 + n + sum(text.count("\n") for text in texts[:n]) for n in range(len(texts))]
    assert lines_of(found) == starts


# -- JSON and text -------------------------------------------------------------------------------


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    good = [{"id": 1, "in": {"at": "2024-01-01", "tags": ["x"]}}, {"id": 2, "in": None}]
    file.write_text("\n".join(json.dumps(each) for each in good))
    assert run(file).drain().rows == good


def test_bad_json_lines_are_told(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(
        b'{"id":1}\n{"id":\n\n[2]\n{"id":3}{"id":4}\n{"id":"x"}\n{"a":"\xff"}\n{"id":5,"b":true}\n'
    )
    found = run(file).drain()
    assert found.rows == [{"id": 1}, {"id": 5, "b": True}]
    assert lines_of(found) == [1, 8]
    assert sorted(int(origin.rpartition(":")[2]) for origin, _, _ in found.bad) == [2, 4, 5, 6, 7]


def test_json_in_the_types_of_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(
        '{"price": 1.10, "at": "2024-01-01T00:00:00Z", "more": 1, "list": [{"d": 0.1}]}\n{}\n'
    )
    found = run(
        file, schema="price decimal(6,2), at timestamp, list array<struct<d: decimal(3,1)>>"
    ).drain()
    assert found.rows[0] == {
        "price": decimal.Decimal("1.10"),
        "at": datetime.datetime(2024, 1, 1, tzinfo=UTC),
        "list": [{"d": decimal.Decimal("0.1")}],
    }
    assert found.rows[1] == {"price": None, "at": None, "list": None}


def test_a_row_of_50_megabytes(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    large = "x" * 50_000_000
    file.write_text(f'{{"t":"{large}"}}\n{{"t":"small"}}\n')
    found = run(file, batch_max_bytes="1048576").drain()
    assert [len(row["t"]) for row in found.rows] == [50_000_000, 5]


def test_lines_of_text(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\r\n\ntwo \xff\nthree")
    found = run(file).drain()
    assert found.rows == [{"line": "one"}, {"line": ""}, {"line": "three"}]
    assert [(origin, raw) for origin, raw, _ in found.bad] == [(f"{file}:3", b"two \xff")]


# -- growth, replacement, restarts -----------------------------------------------------------------


def test_a_file_that_grows_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,na")
    found = run(file, files_settle_ms="3600000").drain()
    with file.open("a") as out:
        out.write("me\n1,a\n2,")
        out.flush()
        assert found.drain().rows == [{"id": 1, "name": "a"}]
        out.write("b\n3,c\n")
        out.flush()
    found.start()
    assert found.drain().rows == [{"id": n, "name": c} for n, c in ((1, "a"), (2, "b"), (3, "c"))]
    assert lines_of(found) == [2, 3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_into_batches_and_restarts_gives_every_line_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = [f"{n}.csv" for n in range(4)]
    for name in names:
        rows = range(chance.randrange(3000))
        text = "n,text\n" + "".join(f"{n},{'y' * chance.randrange(60)}\n" for n in rows)
        (tmp_path / name).write_text(text)
    found = run(tmp_path, batch_max_bytes="1024")
    busy = True
    while busy:
        tasks = chance.randrange(1, 4)
        found.config["batch.max.bytes"] = str(chance.randrange(1024, 60_000))
        busy = False
        for index in range(tasks):
            found.start(index, tasks)
            for _ in range(chance.randrange(1, 6)):
                busy = found.step() or busy
    wanted = sorted(
        f"{tmp_path / name}:{line}"
        for name in names
        for line in range(2, (tmp_path / name).read_text().count("\n") + 1)
    )
    assert sorted(found.origins) == wanted
    assert all(
        row["n"] == int(origin.rpartition(":")[2]) - 2
        for row, origin in zip(found.rows, found.origins, strict=True)
    )


def test_lines_are_counted_over_blocks_and_ranges(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("n,text\n" + "".join(f"{n},{'y' * (n % 700)}\n" for n in range(20_000)))
    assert file.stat().st_size > 6_000_000
    found = run(file, csv_multiline="true")
    assert found.step()
    assert lines_of(found) == list(range(2, 20_002))
    assert [row["n"] for row in found.rows] == list(range(20_000))


def test_types_are_remembered_over_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\nA1\n")
    found = run(file).drain()
    with file.open("a") as out:
        out.write("2\n")
    assert found.start().drain().rows == [{"id": "A1"}, {"id": "2"}]


def test_a_file_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n2\n")
    found = run(file).drain()
    (tmp_path / "new").write_text("id,name\n1,a\n2,b\n3,c\n")
    (tmp_path / "new").rename(file)
    assert [row["name"] for row in found.start().drain().rows[2:]] == ["a", "b", "c"]
    assert lines_of(found)[2:] == [2, 3, 4]


def test_a_file_that_was_cut_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\n")
    found = run(file).drain()
    with file.open("r+") as out:
        out.truncate(0)
        out.write("new\n")
    assert found.drain().rows == [{"line": "one"}, {"line": "two"}, {"line": "new"}]


def test_new_files_are_found_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    for index, name in enumerate(("b.txt", "a.txt")):
        (tmp_path / name).write_text(f"{name}\n")
        os.utime(tmp_path / name, (1000 + index, 1000 + index))
    (tmp_path / ".hidden.txt").write_text("hidden\n")
    (tmp_path / "_temporary.txt").write_text("temporary\n")
    (tmp_path / "directory.txt").mkdir()
    by_name, by_time = run(tmp_path).drain(), run(tmp_path, files_order="time").drain()
    assert by_name.rows == [{"line": "a.txt"}, {"line": "b.txt"}]
    assert by_time.rows == [{"line": "b.txt"}, {"line": "a.txt"}]
    (tmp_path / "c.txt").write_text("c.txt\n")
    assert by_name.drain().rows[2:] == [{"line": "c.txt"}]


def test_a_glob_without_match_waits(tmp_path: Path) -> None:
    found = run(tmp_path / "later" / "*.txt").drain()
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "a.txt").write_text("a\n")
    assert found.drain().rows == [{"line": "a"}]


def test_a_file_that_vanishes_is_forgotten_about(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").write_text("b\n")
    found = run(tmp_path).drain()
    (tmp_path / "a.txt").unlink()
    with (tmp_path / "b.txt").open("a") as out:
        out.write("c\n")
    assert [row["line"] for row in found.drain().rows] == ["a", "b", "c"]
    assert found.bad == []


# -- Parquet and Avro ------------------------------------------------------------------------------


def test_parquet_row_group_by_row_group(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.table({"id": range(5000), "name": [f"n{n}" for n in range(5000)]})
    pq.write_table(table, file, row_group_size=700)
    found = run(file, batch_max_bytes="1024")
    while found.start().step():
        pass
    assert found.rows == table.to_pylist()
    assert lines_of(found) == list(range(1, 5001))
    (offset,) = found.committed.values()
    assert json.loads(offset.offset_json or "")["done"] is True


def test_parquet_in_the_types_of_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "more": [2]}), file)
    assert run(file, schema="id string, none int").drain().rows == [{"id": "1", "none": None}]


def test_a_parquet_file_that_is_cut_off_is_told_after_the_others(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    pq.write_table(pa.table({"id": range(1000)}), whole)
    (tmp_path / "a.parquet").write_bytes(whole.read_bytes()[:-10])
    whole.rename(tmp_path / "b.parquet")
    found = run(tmp_path)
    assert found.step()
    assert (len(found.rows), found.bad) == (1000, [])
    assert found.step()
    ((origin, _, error),) = found.bad
    assert origin == str(tmp_path / "a.parquet")
    assert "not a complete Parquet file" in error
    assert not found.step()
    assert not found.start().step(), "the error is reported once"
    (tmp_path / "a.parquet").write_bytes((tmp_path / "b.parquet").read_bytes())
    assert len(found.drain().rows) == 2000


def test_a_parquet_file_that_is_being_written_waits(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1 and then")
    found = run(file, files_settle_ms="3600000").drain()
    pq.write_table(pa.table({"id": [1]}), file)
    assert found.drain().rows == [{"id": 1}]
    assert found.bad == []


def test_a_parquet_file_that_is_damaged_inside_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": [os.urandom(50).hex() for _ in range(4000)]}),
        file,
        row_group_size=1000,
        use_dictionary=False,
        write_page_checksum=True,
    )
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 3000] = bytes(3000)
    file.write_bytes(data)
    found = run(file).drain()
    assert 0 < len(found.rows) < 4000
    assert found.bad
    assert re.fullmatch(rf"{re.escape(str(file))}:\d+", found.bad[0][0])


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
TAGS = {"name": "tags", "type": {"type": "array", "items": "string"}}
AVRO_SCHEMA: Any = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": DECIMAL},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [TAGS]}},
    ],
}


def avro_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "name": None if n % 3 else f"n{n}",
            "at": datetime.datetime(2024, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=n),
            "price": decimal.Decimal(n) / 100,
            "kind": "AB"[n % 2],
            "key": "12345678-1234-5678-1234-567812345678",
            "in": {"tags": ["x"] * (n % 3)},
        }
        for n in range(count)
    ]


def test_avro_block_by_block(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    rows = avro_rows(3000)
    with file.open("wb") as out:
        fastavro.writer(out, AVRO_SCHEMA, rows, codec="deflate", sync_interval=2000)
    found = run(file, batch_max_bytes="1024")
    while found.start().step():
        pass
    assert found.rows == rows
    assert lines_of(found) == list(range(1, 3001))


def test_an_avro_file_that_grows_and_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    with file.open("wb") as out:
        fastavro.writer(out, AVRO_SCHEMA, avro_rows(1000), sync_interval=2000)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    found = run(file, files_settle_ms="3600000").drain()
    assert 0 < len(found.rows) < 1000
    assert found.bad == []
    found.config["files.settle.ms"] = "0"
    found.start().drain()
    assert "is truncated after record" in found.bad[0][2]
    with file.open("ab") as out:
        out.write(data[len(data) // 2 :])
    assert found.drain().rows == avro_rows(1000)


def test_an_avro_union_of_several_types_is_refused(tmp_path: Path) -> None:
    schema: Any = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "x", "type": ["int", "string"]}],
    }
    with (tmp_path / "a.avro").open("wb") as out:
        fastavro.writer(out, schema, [{"x": 1}])
    found = run(tmp_path).drain()
    assert "'x' is a union" in found.bad[0][2]


# -- files that cannot be read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.csv", b"\xff\xfei\0d\0\n\0", "UTF-16"),
        ("a.csv", b"id,id\n1,2\n", "twice"),
        ("a.csv", b"\n1,2\n", "empty first line"),
        ("a.csv", b"\xff,b\n1,2\n", "first line"),
        ("a.avro", b"not avro at all", "Avro"),
        ("a.parquet", b"", "Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "b.txt").write_text("b\n")
    found = run(tmp_path).drain()
    assert found.rows == [{"line": "b"}]
    ((origin, _, error),) = found.bad
    assert origin == str(tmp_path / name)
    assert why in error


@contextmanager
def as_somebody() -> Iterator[Path]:
    """A directory of an ordinary user, and this user's rights: root may read every file."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        user = os.geteuid()
        if user == 0:
            os.chown(directory, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield directory
        finally:
            os.seteuid(user)


def test_a_file_without_rights_is_told_and_read_once_it_has_them() -> None:
    with as_somebody() as directory:
        file = directory / "a.txt"
        file.write_text("a\n")
        file.chmod(0)
        found = run(directory).drain()
        assert "Permission denied" in found.bad[0][2]
        file.chmod(0o600)
        assert found.drain().rows == [{"line": "a"}]


def test_a_link_out_of_the_roots_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("secret\n")
    (root / "a.txt").symlink_to(tmp_path / "secret.txt")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "secret.parquet")
    (root / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    (root / "b.txt").write_text("b\n")
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    found = run(root).drain()
    assert found.rows == [{"line": "b"}]
    assert ["must be below" in error for _, _, error in found.bad] == [True, True]


def test_a_glob_lists_no_files_outside_of_the_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret\n")
    (tmp_path / "root" / "up").symlink_to(tmp_path)
    (tmp_path / "root" / "in" / "b.txt").write_text("b\n")
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path / "root"))
    pattern = str(tmp_path / "root" / "*" / "*.txt")
    found = run(Path(pattern)).drain()
    assert (found.rows, found.bad) == ([{"line": "b"}], [])
    assert matching_paths(pattern) == [str(tmp_path / "root" / "in" / "b.txt")]
    assert matching_files(pattern) == [str(tmp_path / "root" / "in" / "b.txt")]
    assert matching_paths(str(tmp_path)) == []


def test_a_name_without_a_format_is_left_out_of_a_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "README").write_text("x\n")
    (tmp_path / "a.txt").write_text("a\n")
    assert run(tmp_path).drain().rows == [{"line": "a"}]
    assert "README' is skipped" in caplog.text
    assert len(run(tmp_path, format="text").drain().rows) == 2


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({}, []),
        ({"path": "data/*.csv"}, ["path"]),
        ({"path": ""}, ["path"]),
        ({"format": "xml"}, ["format"]),
        ({"schema": "id nothing"}, ["schema"]),
        ({"schema": "id int, v array<int>", "format": "csv"}, ["schema"]),
        ({"schema": "id int, v array<int>", "format": "json"}, []),
        ({"csv.delimiter": "::"}, ["csv.delimiter"]),
        ({"csv.delimiter": '"'}, ["csv.quote"]),
        ({"files.order": "size", "rescan.interval.ms": "1"}, ["files.order", "rescan.interval.ms"]),
    ],
)
def test_faults_of_a_config_are_found(config: dict[str, str], fields: list[str]) -> None:
    raw = BASE | {"path": "/data/"} | config
    assert [each.field for each in parse_config(FilesSource, raw).violations] == fields


def test_every_task_has_a_share_whatever_files_there_are() -> None:
    connector = FilesSource()
    connector.start(ConnectorContext("f"), {})
    assert connector.task_configs(3) == [{"task.share": f"{n}/3"} for n in range(3)]
