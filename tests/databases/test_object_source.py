"""Objects of a real S3 server as rows: each once, also when they are replaced."""

import gzip
import io
from typing import Any

import fastavro
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drover.connector import RetriableError
from drover.connector.settings import parse_config
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.storage.object_reading import ObjectFile
from tests.support.s3 import S3
from tests.unit.connectors.files_harness import FilesRun

COUNT = 20_000


def put(s3: S3, name: str, data: bytes) -> None:
    obstore.put(s3.store(), name, data)


def run_of(s3: S3, path: str, **changed: str) -> FilesRun:
    return FilesRun({"path": f"s3://{s3.bucket}/{path}", **s3.settings, **changed})


def csv(first: int, count: int) -> bytes:
    return b"n,text\n" + b"".join(b"%d,row %d\n" % (n, n) for n in range(first, first + count))


def jsonl(first: int, count: int) -> bytes:
    return b"".join(b'{"n": %d, "text": "row %d"}\n' % (n, n) for n in range(first, first + count))


def parquet(first: int, count: int) -> bytes:
    numbers = list(range(first, first + count))
    file = io.BytesIO()
    table = pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})
    pq.write_table(table, file, row_group_size=3_000)
    return file.getvalue()


def avro(first: int, count: int) -> bytes:
    fields = [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}]
    rows = [{"n": n, "text": f"row {n}"} for n in range(first, first + count)]
    file = io.BytesIO()
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    fastavro.writer(file, schema, rows)
    return file.getvalue()


def gzipped(first: int, count: int) -> bytes:
    return gzip.compress(csv(first, count))


MAKERS = {
    "csv": csv,
    "csv.gz": gzipped,
    "jsonl": jsonl,
    "parquet": parquet,
    "avro": avro,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_rows_of_objects_arrive_once_though_tasks_are_restarted(s3: S3, kind: str) -> None:
    put(s3, f"in/a b.{kind}", MAKERS[kind](0, COUNT))
    put(s3, f"in/é.{kind}", MAKERS[kind](COUNT, 10))
    put(s3, f"in/_left_out.{kind}", MAKERS[kind](0, 5))
    put(s3, f"in/deeper/c.{kind}", MAKERS[kind](0, 5))
    run = run_of(s3, "in", **{"batch.max.records": "4000"})
    while run.start().step():
        pass  # each batch is the first of a new task
    assert [each["n"] for each in run.rows] == list(range(COUNT + 10))
    assert run.rows[5]["text"] == "row 5"
    assert run.origins[0].startswith(f"s3://{s3.bucket}/in/a b.{kind}:")
    put(s3, f"in/later.{kind}", MAKERS[kind](COUNT + 10, 10))
    run.drain()
    assert [each["n"] for each in run.rows] == list(range(COUNT + 20))
    assert not run.bad


def test_an_object_that_is_put_again_is_read_from_its_start(s3: S3) -> None:
    put(s3, "in/a.csv", csv(0, 3))
    run = run_of(s3, "in").drain()
    put(s3, "in/a.csv", csv(10, 2))
    run.drain()
    assert [each["n"] for each in run.rows] == [0, 1, 2, 10, 11]


def test_an_object_that_is_put_again_while_it_is_read_is_told(s3: S3) -> None:
    put(s3, "in/a.csv", csv(0, 3))
    run = run_of(s3, "in").start()
    assert run.task is not None
    run.task._next_scan_s = 0.0
    batch = run.task.poll()
    assert batch is not None
    rows: Any = batch.frame
    put(s3, "in/a.csv", csv(10, 2))
    (bad,) = [row for number in range(rows.partition_count) for row in rows.read(number)]
    assert "was removed or replaced while it was read" in str(bad.to_pylist())


def test_globs_cross_directories(s3: S3) -> None:
    for n, name in enumerate(("y=1/m=1/a.jsonl", "y=1/m=2/b.jsonl", "y=2/m=1/c.txt", "d.jsonl")):
        put(s3, f"in/{name}", jsonl(n, 1))
    assert [each["n"] for each in run_of(s3, "in/**/*.jsonl").drain().rows] == [3, 0, 1]
    assert [each["n"] for each in run_of(s3, "in/y=*/m=1/*.jsonl").drain().rows] == [0]
    assert [each["n"] for each in run_of(s3, "in/y=1/**").drain().rows] == [0, 1]
    assert [each["n"] for each in run_of(s3, "in/d.jsonl").drain().rows] == [3]
    assert [each["n"] for each in run_of(s3, "*/[cd].jsonl").drain().rows] == [3]
    assert not run_of(s3, "in/none").drain().rows


def test_what_has_been_read_costs_no_request_again(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, make in MAKERS.items():
        put(s3, f"in/a.{kind}", make(0, 10))
    run = run_of(s3, "in").drain()
    monkeypatch.setattr(ObjectFile, "_get", None)
    run.start().drain()
    assert len(run.rows) == 10 * len(MAKERS)


def test_damaged_objects_are_told_and_hold_up_no_other(s3: S3) -> None:
    put(s3, "in/a.parquet", parquet(0, 10)[:-3])
    put(s3, "in/b.avro", avro(0, 10)[:-3])
    put(s3, "in/c.csv", csv(0, 2) + b"only one\n")
    put(s3, "in/d.jsonl", jsonl(7, 1))
    run = run_of(s3, "in").drain()
    assert [each["n"] for each in run.rows if "n" in each] == [0, 1, 7]
    assert [origin.rpartition("/")[2] for origin, _, _ in run.bad] == [
        *("c.csv:4", "a.parquet", "b.avro")
    ]


def test_a_store_that_is_away_is_asked_again(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, "in/a.avro", avro(0, 10))
    run = run_of(s3, "in").start()
    whole = ObjectFile._get

    def away(self: ObjectFile, start: int, end: int) -> bytes:
        raise RetriableError("503")

    monkeypatch.setattr(ObjectFile, "_get", away)
    with pytest.raises(RetriableError):
        run.step()
    monkeypatch.setattr(ObjectFile, "_get", whole)
    assert len(run.drain().rows) == 10


def faults(s3: S3, **changed: str) -> dict[str, str]:
    raw = {
        "name": "source",
        "connector.class": "FilesSource",
        "topic": "orders",
        "path": f"s3://{s3.bucket}/in",
        **s3.settings,
        **changed,
    }
    return {each.field: each.description for each in parse_config(FilesSource, raw).violations}


def test_a_config_is_tried_at_the_store(s3: S3) -> None:
    assert faults(s3) == {}
    assert "check the credentials" in faults(s3, **{"aws.secret.access.key": "wrong"})["path"]
    assert "the bucket does not exist" in faults(s3, path="s3://no-such-bucket/in")["path"]
    assert "cannot be read" in faults(s3, **{"store.url": "http://127.0.0.1:1"})["path"]
    assert "must be a URL such as" in faults(s3, path="ftp://a/b")["path"]
