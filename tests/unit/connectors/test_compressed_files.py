"""Compressed text files: each line is read once, and damaged files are reported."""

import bz2
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connector.settings import parse_config
from drover.connectors.files import files_source, source_files
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.formats import compressed as compressed_files
from tests.unit.connectors.files_harness import FilesRun


def zstd(data: bytes) -> bytes:
    found: bytes = pa.compress(data, "zstd", asbytes=True)
    return found


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}


def lines(first: int, count: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(first, first + count))


def texts(found: FilesRun) -> list[str]:
    return [row["line"] for row in found.rows]


def expected(count: int, first: int = 0) -> list[str]:
    return [f"line {n}" for n in range(first, first + count)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that a small file takes many batches."""
    monkeypatch.setattr(source_files, "PIECES_MAX_BYTES", 1_000)
    monkeypatch.setattr(files_source, "PIECES_MAX_BYTES", 1_000)
    monkeypatch.setattr(source_files, "RANGE_BYTES", 300)
    monkeypatch.setattr(compressed_files, "_READ_BYTES", 100)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", PACKERS)
def test_each_line_is_read_once_over_restarts(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a.log{suffix}"
    file.write_bytes(PACKERS[suffix](lines(0, 1_000)))
    found = FilesRun({"path": str(file)})
    batch_count = 0
    while found.step():
        batch_count += 1
        found.start()
    assert batch_count >= len(lines(0, 1_000)) // 2_000  # one batch does not hold all lines
    assert texts(found) == expected(1_000)
    assert found.origins[-1] == f"{file}:1000"
    (offset,) = (json.loads(each.offset_json) for each in found.committed.values())
    assert offset["position"] == len(lines(0, 1_000))


@pytest.mark.usefixtures("small")
def test_a_file_is_decompressed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Counting(compressed_files.CompressedFile):
        def _read(self) -> None:
            before = len(self._text)
            super()._read()
            read.append(len(self._text) - before)

    file = tmp_path / "a.log.gz"
    file.write_bytes(gzip.compress(lines(0, 1_000)))
    monkeypatch.setattr(source_files, "CompressedFile", Counting)
    found = FilesRun({"path": str(file)}).drain()
    found.start()
    assert not found.step()
    assert len(found.rows) == 1_000
    assert sum(read) == len(lines(0, 1_000))


@pytest.mark.parametrize(
    ("name", "content", "config", "rows"),
    [
        ("a.csv.gz", b"id,name\n1,a\n2,b", {}, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]),
        ("a.tsv.gz", b"id\tname\n1\ta\n", {}, [{"id": 1, "name": "a"}]),
        ("a.jsonl.GZ", b'{"id": 1}\n', {}, [{"id": 1}]),
        ("a", b"x\n", {"compression": "gzip", "format": "text"}, [{"line": "x"}]),
        ("a.csv.gz", b"", {}, []),
        ("a.csv.gz", b"id,name\n", {}, []),
        (
            "a.csv.gz",
            b'id,name\n1,"a\nb"\n',
            {"csv.multiline": "true"},
            [{"id": 1, "name": "a\nb"}],
        ),
    ],
)
def test_formats_go_by_the_name_within(
    tmp_path: Path, name: str, content: bytes, config: dict[str, str], rows: list[Any]
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content))
    found = FilesRun({"path": str(tmp_path / name), **config}).drain()
    assert found.rows == rows
    assert found.bad == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", PACKERS)
def test_a_file_that_is_cut_off_is_told_with_its_place(tmp_path: Path, suffix: str) -> None:
    text = random.Random(1).randbytes(40_000).hex().encode()
    text = b"\n".join(text[at : at + 63] for at in range(0, len(text), 63)) + b"\n"
    packed = PACKERS[suffix](text)
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(packed[: len(packed) * 2 // 3])
    found = FilesRun({"path": str(file)}).drain()
    got = "\n".join(texts(found))
    assert text.decode().startswith(got)
    assert [each[0] for each in found.bad] == [str(file)]
    assert f"truncated after line {len(found.rows)} (byte " in found.bad[0][2]
    # reported once, also after a restart
    found.start()
    assert not found.step()
    # reading resumes once the file is complete
    file.write_bytes(packed)
    found.drain()
    assert texts(found) == text.decode().splitlines()


@pytest.mark.usefixtures("small")
def test_a_file_that_grows_by_members_is_read_on(tmp_path: Path) -> None:
    file = tmp_path / "a.log.gz"
    found = FilesRun({"path": str(file), "files.settle.ms": "60000"})
    for turn in range(4):
        with file.open("ab") as target:
            target.write(gzip.compress(lines(turn * 100, 100)))
        if turn == 2:
            found.start()
        found.drain()
        assert texts(found) == expected(100 * (turn + 1))


@pytest.mark.usefixtures("small")
def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "a.log.gz"
    packed = gzip.compress(lines(0, 5_000))
    found = FilesRun({"path": str(file), "files.settle.ms": "60000"})
    for end in range(0, len(packed), 1_000):
        file.write_bytes(packed[:end])
        found.drain()
        assert found.bad == []
    file.write_bytes(packed)
    assert texts(found.drain()) == expected(5_000)


@pytest.mark.usefixtures("small")
def test_a_file_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "a.log.gz"
    file.write_bytes(gzip.compress(lines(0, 1_000)))
    found = FilesRun({"path": str(file)})
    assert found.step()
    (tmp_path / "new").write_bytes(gzip.compress(lines(7_000, 10)))
    (tmp_path / "new").rename(file)
    found.drain()
    assert texts(found)[-10:] == expected(10, first=7_000)


def test_a_file_that_would_fill_memory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_files, "WINDOW_MAX_BYTES", 3 * 1024 * 1024)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    (tmp_path / "b.log").write_bytes(lines(0, 1))
    found = FilesRun({"path": str(tmp_path)}).drain()
    assert texts(found) == expected(1)
    assert [each[0] for each in found.bad] == [str(tmp_path / "a.log.gz")]
    assert "unpack it" in found.bad[0][2]


def test_what_is_not_compressed_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(lines(0, 3))
    found = FilesRun({"path": str(tmp_path)}).drain()
    assert found.rows == []
    assert "damaged" in found.bad[0][2]
    plain = FilesRun({"path": str(tmp_path), "compression": "none", "format": "text"}).drain()
    assert texts(plain) == expected(3)


def test_parquet_and_avro_are_not_compressed_as_a_whole(tmp_path: Path) -> None:
    config = {
        "name": "f",
        "connector.class": "FilesSource",
        "topic": "t",
        "path": str(tmp_path),
        "format": "parquet",
        "compression": "gzip",
    }
    (fault,) = parse_config(FilesSource, config).violations
    assert fault.field == "compression"
    (tmp_path / "a.parquet.gz").write_bytes(b"x")
    assert not FilesRun({"path": str(tmp_path)}).step()
