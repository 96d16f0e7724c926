"""Batches staged by executors on other machines: parts of their content, joined by the driver."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.dataplane.kafka import staging
from drover.dataplane.kafka.record_batches import Encoding
from drover.dataplane.kafka.staging import (
    ArrivingFiles,
    FileStager,
    StagedFiles,
    read_batches,
    read_staged,
    staged_files,
)
from drover.dataplane.plane import Destination
from drover.log.storage import KafkaStorage

STORAGE = KafkaStorage(bootstrap_servers="127.0.0.1:1", group_id="g")
ENCODINGS = [Encoding(max_bytes=1_000_000, compression="none"), None]
VALUES = [b"%06d" % number * 20 for number in range(2_000)]


def rows_of(directory: Path | None, values: list[bytes], encoding: Encoding | None) -> list[Any]:
    stager = FileStager(
        STORAGE, directory, Destination(topic="lines"), encoding, known_counts={"lines": 1}
    )
    batches = [
        pa.RecordBatch.from_pydict({"value": values[start : start + 500]})
        for start in range(0, len(values), 500)
    ]
    return [row for each in stager(iter(batches)) for row in each.to_pylist()]


def contents(staged: StagedFiles, encoding: Encoding | None) -> list[Any]:
    """The values, or the record batches (whose times differ) as sizes."""
    if encoding is None:
        return [
            value
            for part in staged.parts
            for _, records, _ in read_staged(part)
            for value in records.column("value").to_pylist()
        ]
    return [
        (place, batch.record_count, len(batch.records))
        for part in staged.parts
        for place, batch in read_batches(part)
    ]


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(staging, "SENT_BYTES_MAX", 10_000)
    return 10_000


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_arrives_in_parts_is_what_executors_on_this_machine_write(
    tmp_path: Path, encoding: Encoding | None, small_rows: int
) -> None:
    here = staged_files(rows_of(tmp_path / "here", VALUES, encoding))
    sent = rows_of(None, VALUES, encoding)
    assert len(sent) > 20
    assert max(len(row["content"]) for row in sent) == small_rows
    assert [row["is_last"] for row in sent] == [False] * (len(sent) - 1) + [True]
    files = ArrivingFiles(tmp_path / "there")
    for row in sent:
        files.take(row)
    there = files.staged(believes=False)
    assert contents(there, encoding) == contents(here, encoding)
    assert (there.record_count, there.size_bytes) == (here.record_count, here.size_bytes)
    assert there.partition_counts == here.partition_counts == {"lines": 1}
    there.remove()
    assert not list((tmp_path / "there").iterdir())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_little_content_gets_no_file(tmp_path: Path, encoding: Encoding | None) -> None:
    (row,) = rows_of(None, VALUES[:3], encoding)
    files = ArrivingFiles(tmp_path / "there")
    files.take(row)
    staged = files.staged(believes=False)
    assert contents(staged, encoding)
    assert isinstance(staged.parts[0], bytes)
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("directory", [None, "here"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_records_are_no_row(
    tmp_path: Path, encoding: Encoding | None, directory: str | None
) -> None:
    assert rows_of(tmp_path / directory if directory else None, [], encoding) == []


def test_spark_partitions_that_arrive_mixed_are_published_in_order(
    tmp_path: Path, small_rows: int
) -> None:
    sent = [
        [{**row, "spark_partition": number} for row in rows_of(None, values, None)]
        for number, values in enumerate([VALUES[:700], VALUES[700:]])
    ]
    files = ArrivingFiles(tmp_path)
    for index in range(max(map(len, sent))):
        for rows in reversed(sent):
            for row in rows[index : index + 1]:
                files.take(row)
    assert contents(files.staged(believes=False), None) == VALUES


def test_a_pass_that_fails_leaves_no_files(tmp_path: Path, small_rows: int) -> None:
    files = ArrivingFiles(tmp_path)
    for row in rows_of(None, VALUES, None)[:5]:
        files.take(row)
    assert list(tmp_path.iterdir())
    files.discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "stage",
    [
        lambda path: rows_of(path, VALUES, None),
        lambda path: ArrivingFiles(path).take(next(iter(rows_of(None, VALUES, None)))),
    ],
)
def test_a_full_disk_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Callable[[Path], object]
) -> None:
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    monkeypatch.setattr(staging, "_new_file", lambda *_: full)
    with pytest.raises(OSError, match="no space to stage a batch in"):
        stage(tmp_path)
    assert not list(tmp_path.iterdir())
