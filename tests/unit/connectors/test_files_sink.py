"""Records in files of rows: layout, formats, and each record once for any batch boundaries."""

import csv
import datetime
import decimal
import json
import pickle
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drover.connector import OffsetRange, SinkBatch, SinkOffset, SinkTaskContext, TopicPartition
from drover.connector.settings import parse_config, task_config
from drover.connectors.files.files_sink import FilesSink, FilesSinkTask
from drover.connectors.files.storage.output_directory import UnknownOutputError
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term
from drover.pipeline.failures import RecordFailedError
from drover.policy.files import ROOTS_VARIABLE
from drover.record.batch import make_batch
from drover.record.json.schemaless import dumps
from drover.record.schema import arrow_field

UTC = datetime.UTC
FIRST = Term(1, 1)
BASE = {"name": "sink", "connector.class": "FilesSink", "topics": "rows"}


@dataclass(frozen=True)
class HereRecords:
    """Records by Spark partition; the functions of executors run in this process."""

    spark_partitions: Sequence[Sequence[pa.RecordBatch]]

    def mapInArrow(self, function: Any, ddl: str) -> Any:
        del ddl
        rows = []
        for batches in self.spark_partitions:
            for made in pickle.loads(pickle.dumps(function))(iter(batches)):
                rows += made.to_pylist()
        return SimpleNamespace(collect=lambda: rows)


def records(
    values: Any,
    *,
    first: int = 0,
    topic: str = "rows",
    partition: int = 0,
    field: pa.Field | None = None,
) -> pa.RecordBatch:
    array = pa.array(values) if isinstance(values, list) else values
    count = len(array)
    return make_batch(
        count,
        topic=pa.array([topic] * count),
        partition=pa.array([partition] * count, pa.int32()),
        offset=pa.array(range(first, first + count), pa.int64()),
        timestamp=pa.array([1_700_000_000_000] * count).cast(pa.timestamp("ms", tz="UTC")),
        value=(field or pa.field("value", array.type), array),
    )


def batch_of(*spark_partitions: Sequence[pa.RecordBatch]) -> SinkBatch:
    """A batch whose ranges are the offset ranges of its records."""
    ranges: dict[tuple[str, int], list[int]] = {}
    for batch in (each for batches in spark_partitions for each in batches):
        for row in batch.select(["topic", "partition", "offset"]).to_pylist():
            ranges.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    found: Any = HereRecords(spark_partitions)
    return SinkBatch(
        found, [OffsetRange(*key, min(at), max(at) + 1) for key, at in sorted(ranges.items())]
    )


def started(
    path: Path,
    *,
    claim: Term = FIRST,
    task: int = 0,
    output_id: str = "",
    is_committed: bool = True,
    **config: str,
) -> FilesSinkTask:
    raw = BASE | {"path": str(path)} | {n.replace("_", "."): v for n, v in config.items()}
    sink = FilesSinkTask()
    spark: Any = None
    sink.start(
        SinkTaskContext(
            task=TaskId(raw["name"], task),
            claim=claim,
            config=task_config(FilesSink, raw, {}),
            spark=spark,
            committed={TopicPartition("rows", 0): SinkOffset(0)} if is_committed else {},
            output_ids={TopicPartition("rows", 0): output_id} if output_id else {},
        )
    )
    return sink


def files_in(path: Path, suffix: str = "parquet") -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob(f"*.{suffix}"))


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [
        row for name in files_in(path) for row in pq.ParquetFile(path / name).read().to_pylist()
    ]


EVERY_TYPE: list[dict[str, Any]] = [
    {
        "n": 1,
        "f": 1.5,
        "text": 'a "b", c\n',
        "at": datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        "day": datetime.date(2024, 1, 2),
        "price": decimal.Decimal("1.10"),
        "raw": b"\xff\x00",
        "ok": True,
        "list": [1, None],
        "in": {"x": "y"},
    },
    dict.fromkeys(["n", "f", "text", "at", "day", "price", "raw", "ok", "list", "in"]),
]


def test_a_batch_becomes_a_file_of_each_topic_partition(tmp_path: Path) -> None:
    sink = started(tmp_path)
    one, two = records([{"n": 1}, {"n": 2}], first=5), records([{"n": 3}], partition=1)
    assert sink.write(batch_of([one, two])) == ""
    assert [name.rpartition("-")[0] for name in files_in(tmp_path)] == [
        "rows-0-00000000000000000005-00000000000000000007",
        "rows-1-00000000000000000000-00000000000000000001",
    ]
    assert rows_in(tmp_path) == [{"n": 1}, {"n": 2}, {"n": 3}]
    sink.stop()
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == []


def test_values_come_back_from_parquet_in_their_types(tmp_path: Path) -> None:
    batch = records(EVERY_TYPE)
    started(tmp_path).write(batch_of([batch]))
    (name,) = files_in(tmp_path)
    table = pq.ParquetFile(tmp_path / name).read()
    assert table.to_pylist() == EVERY_TYPE


def test_values_as_json(tmp_path: Path) -> None:
    started(tmp_path, format="json").write(batch_of([records(EVERY_TYPE)]))
    (name,) = files_in(tmp_path, "json")
    lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    assert lines[0] == {
        "n": 1,
        "f": 1.5,
        "text": 'a "b", c\n',
        "at": "2024-01-02T03:04:05.678000Z",
        "day": "2024-01-02",
        "price": 1.1,
        "raw": "/wA=",
        "ok": True,
        "list": [1, None],
        "in": {"x": "y"},
    }
    assert lines[1] == EVERY_TYPE[1]


def test_values_as_csv(tmp_path: Path) -> None:
    started(tmp_path, format="csv").write(batch_of([records(EVERY_TYPE)]))
    (name,) = files_in(tmp_path, "csv")
    with (tmp_path / name).open(newline="") as file:
        header, first, second = csv.reader(file)
    assert header == list(EVERY_TYPE[0])
    assert first == [
        *("1", "1.5", 'a "b", c\n', "2024-01-02T03:04:05.678000Z", "2024-01-02", "1.10", "/wA="),
        *("true", "[1,null]", '{"x":"y"}'),
    ]
    assert second == [""] * len(header)


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize(("codec", "suffix"), [("gzip", "gz"), ("zstd", "zst"), ("bz2", "bz2")])
def test_compressed_files_are_whole_and_are_taken_back_if_not_committed(
    tmp_path: Path, kind: str, codec: str, suffix: str
) -> None:
    for claim, count in ((FIRST, 2_500), (Term(2, 1), 2_000)):  # cut otherwise
        sink = started(tmp_path, claim=claim, format=kind, compression=codec)
        sink.write(batch_of([records([{"n": n} for n in range(count)])]))
        sink.stop()
    (name,) = files_in(tmp_path, f"{kind}.{suffix}")
    with pa.input_stream(str(tmp_path / name), compression=codec) as file:
        lines = file.read().decode().splitlines()
    assert len(lines) == (2_000 if kind == "json" else 2_001)
    assert lines[-1] == ('{"n":1999}' if kind == "json" else "1999")


def test_parquet_is_compressed_inside(tmp_path: Path) -> None:
    started(tmp_path, compression="gzip").write(batch_of([records([{"n": 1}])]))
    (name,) = files_in(tmp_path)
    assert pq.ParquetFile(tmp_path / name).metadata.row_group(0).column(0).compression == "GZIP"


def test_values_without_a_schema_are_lines_of_json(tmp_path: Path) -> None:
    texts = pa.array(['{"a":1}', '["b"]'])
    batch = records(texts, field=arrow_field("value", None))
    started(tmp_path, format="json").write(batch_of([batch]))
    (name,) = files_in(tmp_path, "json")
    assert (tmp_path / name).read_text() == '{"a":1}\n["b"]\n'


def test_bytes_are_a_column(tmp_path: Path) -> None:
    started(tmp_path).write(batch_of([records(pa.array([b"\xff", b"b"]))]))
    assert rows_in(tmp_path) == [{"value": b"\xff"}, {"value": b"b"}]


def test_tombstones_are_left_out(tmp_path: Path) -> None:
    sink = started(tmp_path)
    sink.write(batch_of([records([{"n": 1}, None, {"n": 3}])]))
    sink.write(batch_of([records([None, None], first=3)]))
    assert rows_in(tmp_path) == [{"n": 1}, {"n": 3}]
    assert len(files_in(tmp_path)) == 1


def test_records_of_several_schemas_are_in_several_files(tmp_path: Path) -> None:
    batches = [
        records([{"a": 1}, {"a": 2}]),
        records([{"b": "x"}], first=2),
        records([{"a": 3}], first=3),
    ]
    started(tmp_path).write(batch_of(batches))
    assert len(files_in(tmp_path)) == 2
    assert sorted(rows_in(tmp_path), key=str) == [{"a": 1}, {"a": 2}, {"a": 3}, {"b": "x"}]


def test_directories_by_fields_and_times(tmp_path: Path) -> None:
    def at(month: int) -> datetime.datetime:
        return datetime.datetime(2024, month, 1, 12, tzinfo=UTC)

    values = [
        {"n": 0, "city": "Oslo", "at": at(1)},
        {"n": 1, "city": "../a/b", "at": at(1)},
        {"n": 2, "city": None, "at": at(2)},
        {"n": 3, "city": "Oslo", "at": None},
        {"n": 4, "city": "Oslo", "at": at(1)},
    ]
    started(tmp_path, partition_by="month(at),city").write(batch_of([records(values)]))
    found = {}
    for name in files_in(tmp_path):
        rows = pq.ParquetFile(tmp_path / name).read().to_pylist()
        assert all(set(row) == {"n", "at"} for row in rows)
        found[str(Path(name).parent)] = [row["n"] for row in rows]
    assert found == {
        "month=2024-01/city=Oslo": [0, 4],
        "month=2024-01/city=..%2Fa%2Fb": [1],
        "month=2024-02/city=__HIVE_DEFAULT_PARTITION__": [2],
        "month=__HIVE_DEFAULT_PARTITION__/city=Oslo": [3],
    }


@pytest.mark.parametrize(
    ("by", "directory"),
    [
        ("year", "year=2023"),
        ("day", "day=2023-11-14"),
        ("hour(at)", "hour=2024-01-02T03"),
        ("day(day)", "day=2024-01-02"),
        ("month(ms)", "month=1970-01"),
        ("n", "n=1"),
        ("ok", "ok=true"),
    ],
)
def test_parts_of_times(tmp_path: Path, by: str, directory: str) -> None:
    values = [{**EVERY_TYPE[0], "ms": 1000}]
    started(tmp_path, partition_by=by).write(batch_of([records(values)]))
    assert [str(Path(name).parent) for name in files_in(tmp_path)] == [directory]


@pytest.mark.parametrize(
    ("by", "values", "why"),
    [
        ("town", [{"n": 1}], "do not have; they have n"),
        ("month(n)", [{"n": "2024"}], "needs a time in 'n'"),
        ("n", [{"n": 1}], "no field is left"),
        ("in", [{"n": 1, "in": {"x": 1}}], "of type struct"),
        ("t", [{"n": 1, "t": "x" * 300}], "too long"),
        ("t", [{"n": 1, "t": ""}], "would be read as null"),
        ("t", [{"n": 1, "t": "__HIVE_DEFAULT_PARTITION__"}], "would be read as null"),
        ("n", [{"n": n, "m": 1} for n in range(600)], "more than 500 files"),
        ("n", ["text"], "set a converter"),
    ],
)
def test_what_cannot_be_partitioned_is_told_and_leaves_nothing(
    tmp_path: Path, by: str, values: list[Any], why: str
) -> None:
    sink = started(tmp_path, partition_by=by)
    with pytest.raises((ValueError, RecordFailedError), match=why):
        sink.write(batch_of([records(values)]))
    sink.stop()
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def json_records(values: list[Any], **more: Any) -> pa.RecordBatch:
    """Records of JSON without schemas."""
    texts = pa.array([None if each is None else dumps(each) for each in values], pa.string())
    return records(texts, field=arrow_field("value", None), **more)


def test_json_without_schemas_has_directories_by_its_fields(tmp_path: Path) -> None:
    values: list[dict[str, Any]] = [
        {"n": 2**70, "city": "Oslo", "at": "2024-01-02T03:04:05.123456789+02:00", "p": {"x": 1}},
        {"n": 2, "city": None, "at": 1_704_164_645_000, "p": {"x": 2}},
        {"n": 3.5, "city": 7, "at": "2024-02-01", "p": {"x": True}},
    ]
    by = "city,month(at),p.x"
    started(tmp_path, partition_by=by, format="json").write(batch_of([json_records(values)]))
    found = {
        str(Path(name).parent): json.loads((tmp_path / name).read_text())
        for name in files_in(tmp_path, "json")
    }
    assert found == {
        "city=Oslo/month=2024-01/p.x=1": {name: values[0][name] for name in ("n", "at", "p")},
        "city=__HIVE_DEFAULT_PARTITION__/month=2024-01/p.x=2": {
            name: values[1][name] for name in ("n", "at", "p")
        },
        "city=7/month=2024-02/p.x=true": {name: values[2][name] for name in ("n", "at", "p")},
    }


@pytest.mark.parametrize("format_name", ["parquet", "json", "csv"])
def test_records_without_a_directory_are_refused_one_by_one(
    tmp_path: Path, format_name: str
) -> None:
    good = [{"n": n, "city": "Oslo", "at": "2024-01-02"} for n in range(3)]
    bad: list[Any] = [
        "text",
        {"n": 1, "at": "2024-01-02"},
        {"n": 1, "city": {"x": 1}, "at": "2024-01-02"},
        {"n": 1, "city": "Oslo", "at": "garbage"},
        {"n": 1, "city": "x" * 300, "at": "2024-01-02"},
    ]
    values = [good[0], *bad[:2], good[1], *bad[2:], good[2]]
    options: dict[str, Any] = {
        "partition_by": "city,day(at)",
        "format": format_name,
        "errors_tolerance": "all",
    }
    refused: dict[int, str] = {}

    def reject(topic: str, partition: int, offset: int, reason: Any) -> None:
        assert (topic, partition) == ("rows", 0)
        refused[offset] = str(reason)

    whole = replace(batch_of([json_records(values)]), on_reject=reject)
    for claim in (1, 2):  # the second task finds the files of the first, which was killed
        refused.clear()
        started(tmp_path, claim=Term(1, claim), **options).write(whole)
        assert sorted(refused) == [1, 2, 4, 5, 6]
    assert "'text' is not a JSON object" in refused[1]
    assert "no field 'city'" in refused[2]
    assert "'garbage'" in refused[5]
    texts = [(tmp_path / name) for name in files_in(tmp_path, format_name)]
    assert len(texts) == 1
    if format_name == "json":
        lines = texts[0].read_text().splitlines()
        assert [json.loads(line)["n"] for line in lines] == [0, 1, 2]


def test_a_directory_by_a_nested_field(tmp_path: Path) -> None:
    values = [{"n": 1, "p": {"q": {"x": "a"}}}, {"n": 2, "p": {"q": None}}]
    started(tmp_path, partition_by="p.q.x").write(batch_of([records(values)]))
    directories = [str(Path(name).parent) for name in files_in(tmp_path)]
    assert directories == ["p.q.x=__HIVE_DEFAULT_PARTITION__", "p.q.x=a"]


def test_files_are_bounded_by_records_and_bytes(tmp_path: Path) -> None:
    values = [{"n": n} for n in range(10)]
    started(tmp_path / "a", flush_size="4").write(batch_of([records(values)]))
    sizes = [
        pq.ParquetFile(tmp_path / "a" / name).metadata.num_rows for name in files_in(tmp_path / "a")
    ]
    assert sizes == [4, 4, 2]
    assert rows_in(tmp_path / "a") == values
    batches = [records([{"n": "x" * 2000}], first=n) for n in range(3)]
    started(tmp_path / "b", roll_bytes="1024", format="json").write(batch_of(batches))
    assert len(files_in(tmp_path / "b", "json")) == 3


# -- each record once ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_each_record_is_written_once_however_batches_are_cut(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    values = [{"n": n, "city": f"c{n % 3}"} for n in range(200)]
    committed, claim = 0, 1
    sink = started(tmp_path, partition_by="city")
    while committed < len(values):
        end = min(len(values), committed + chance.randrange(1, 60))
        middle = chance.randrange(committed, end + 1)
        parts = [
            [records(values[a:b], first=a)]
            for a, b in ((committed, middle), (middle, end))
            if a < b
        ]
        sink.write(batch_of(*parts))
        what = chance.randrange(4)
        if what == 0:  # killed before the commit
            claim += 1
            sink = started(tmp_path, claim=Term(1, claim), partition_by="city")
        elif what == 1:  # the same task retries
            sink.write(batch_of(*parts))
            committed = end
        else:
            committed = end
    assert sorted(row["n"] for row in rows_in(tmp_path)) == list(range(200))


def test_a_task_that_was_taken_over_puts_nothing_in_place(tmp_path: Path) -> None:
    zombie = started(tmp_path, claim=Term(1, 1))
    zombie.write(batch_of([records([{"n": 1}])]))
    owner = started(tmp_path, claim=Term(1, 2))
    owner.write(batch_of([records([{"n": 1}, {"n": 2}])]))
    before = files_in(tmp_path)
    for first in (0, 1, 2):
        with pytest.raises(FailedPreconditionError) as caught:
            zombie.write(batch_of([records([{"n": 9}], first=first)]))
        assert caught.value.reason is Reason.STALE_CLAIM
    zombie.stop()
    assert files_in(tmp_path) == before
    owner.write(batch_of([records([{"n": 3}], first=2)]))
    assert [row["n"] for row in rows_in(tmp_path)] == [1, 2, 3]


def test_a_task_that_is_taken_over_while_it_writes_puts_nothing_in_place(tmp_path: Path) -> None:
    zombie = started(tmp_path, claim=Term(1, 1))
    owner = started(tmp_path, claim=Term(1, 2))

    class Overtaken(HereRecords):
        def mapInArrow(self, function: Any, ddl: str) -> Any:
            rows = super().mapInArrow(function, ddl)
            owner.write(batch_of([records([{"n": 1}, {"n": 2}])]))
            return rows

    late: Any = Overtaken([[records([{"n": 1}])]])
    with pytest.raises(FailedPreconditionError, match="taken over"):
        zombie.write(SinkBatch(late, [OffsetRange("rows", 0, 0, 1)]))
    assert [row["n"] for row in rows_in(tmp_path)] == [1, 2]


def test_another_task_takes_a_partition_over_in_a_later_generation(tmp_path: Path) -> None:
    started(tmp_path, claim=Term(1, 9), task=1).write(batch_of([records([{"n": 1}])]))
    owner = started(tmp_path, claim=Term(2, 1), task=0)
    owner.write(batch_of([records([{"n": 1}, {"n": 2}])]))
    with pytest.raises(FailedPreconditionError):
        started(tmp_path, claim=Term(1, 10), task=1).write(batch_of([records([{"n": 1}])]))
    assert [row["n"] for row in rows_in(tmp_path)] == [1, 2]


def test_only_own_files_are_removed(tmp_path: Path) -> None:
    started(tmp_path, name="other").write(batch_of([records([{"n": 1}])]))
    (tmp_path / "rows-0-notes.parquet").touch()
    started(tmp_path, claim=Term(1, 1)).write(batch_of([records([{"n": 2}])]))
    started(tmp_path, claim=Term(1, 2)).write(batch_of([records([{"n": 2}])]))
    (tmp_path / "rows-0-notes.parquet").unlink()
    assert sorted(row["n"] for row in rows_in(tmp_path)) == [1, 2]


def test_committed_files_stay(tmp_path: Path) -> None:
    started(tmp_path, claim=Term(1, 1)).write(batch_of([records([{"n": 1}, {"n": 2}])]))
    started(tmp_path, claim=Term(1, 2)).write(batch_of([records([{"n": 3}], first=2)]))
    assert [row["n"] for row in rows_in(tmp_path)] == [1, 2, 3]


def traced(path: Path, output_id: str = "", *, partition: int = 0, name: str = "sink") -> Any:
    raw = BASE | {"path": str(path)}
    key = TopicPartition("rows", partition)
    found = FilesSink.traced_offsets(name, task_config(FilesSink, raw, {}), {key: output_id})
    return found.get(key)


def test_files_of_a_deleted_topic_stay_when_its_name_is_used_again(tmp_path: Path) -> None:
    started(tmp_path).write(batch_of([records([{"old": n} for n in range(10)])]))
    for sequence in (2, 3):  # the second one after a kill before the commit
        again = started(tmp_path, claim=Term(1, sequence), output_id="0a1b2c3d")
        again.write(batch_of([records([{"new": n} for n in range(sequence)])]))
    rows = rows_in(tmp_path)
    assert [row["old"] for row in rows if "old" in row] == list(range(10))
    assert [row["new"] for row in rows if "new" in row] == [0, 1, 2]
    assert [name.endswith("-0a1b2c3d.parquet") for name in files_in(tmp_path)] == [True, False]
    third = started(tmp_path, claim=Term(1, 4), output_id="ffffffff")
    third.write(batch_of([records([{"newest": 0}])]))
    assert len(rows_in(tmp_path)) == 14


def test_a_task_learns_of_another_output_between_two_batches(tmp_path: Path) -> None:
    output_ids: dict[TopicPartition, str] = {}
    sink = started(tmp_path)
    object.__setattr__(sink._context, "output_ids", output_ids)
    sink.write(batch_of([records([{"n": 0}])]))
    output_ids[TopicPartition("rows", 0)] = "0a1b2c3d"
    sink.write(batch_of([records([{"n": 1}], first=1)]))
    assert len(files_in(tmp_path)) == 2
    assert traced(tmp_path) == 1
    assert traced(tmp_path, "0a1b2c3d") == 2


def test_an_owner_of_an_earlier_output_is_fenced_too(tmp_path: Path) -> None:
    old = started(tmp_path)
    old.write(batch_of([records([{"n": 0}])]))
    started(tmp_path, claim=Term(1, 2), output_id="0a1b2c3d").write(batch_of([records([{"m": 0}])]))
    with pytest.raises(FailedPreconditionError, match="taken over"):
        old.write(batch_of([records([{"n": 1}], first=1)]))


def test_without_a_committed_offset_nothing_is_removed(tmp_path: Path) -> None:
    started(tmp_path).write(batch_of([records([{"n": n} for n in range(10)])]))
    before = files_in(tmp_path)
    for first in (0, 8):
        lost = started(tmp_path, claim=Term(1, 2 + first), is_committed=False)
        with pytest.raises(UnknownOutputError, match="up to offset 10, but no offset is committed"):
            lost.write(batch_of([records([{"n": first}], first=first)]))
        lost.stop()
        assert files_in(tmp_path) == before
    behind = started(tmp_path, claim=Term(2, 1), is_committed=False)
    behind.write(batch_of([records([{"n": 10}], first=10)]))
    assert sorted(row["n"] for row in rows_in(tmp_path)) == list(range(11))


def test_files_show_how_far_they_go(tmp_path: Path) -> None:
    assert traced(tmp_path / "absent") is None
    assert not (tmp_path / "absent").exists()
    sink = started(tmp_path, partition_by="n")
    sink.write(batch_of([records([{"n": 1, "m": 1}, {"n": 2, "m": 2}])]))
    sink.write(batch_of([records([{"n": 3, "m": 3}], first=7)]))
    other = started(tmp_path, claim=Term(1, 2), output_id="0a1b2c3d")
    other.write(batch_of([records([{"n": 1}] * 3)]))
    assert traced(tmp_path) == 8
    assert traced(tmp_path, "0a1b2c3d") == 3
    assert traced(tmp_path, "ffffffff") is None
    assert traced(tmp_path, partition=1) is None
    assert traced(tmp_path, name="other") is None


def test_a_directory_outside_of_the_roots_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / "rows").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (root / "link").symlink_to(tmp_path / "out")
    (root / "rows" / "city=Oslo").symlink_to(tmp_path / "out")
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    for path in (tmp_path / "out", root / "link"):
        violations = parse_config(FilesSink, BASE | {"path": str(path)}).violations
        assert [each.field for each in violations] == ["path"]
    values = [{"n": 1, "city": "Oslo"}]
    with pytest.raises(PermissionError, match="must be below"):
        started(root / "rows", partition_by="city").write(batch_of([records(values)]))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_instead_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError, match=r"/a"):
        started(tmp_path / "a")


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({}, []),
        ({"partition.by": "city, month(at)"}, []),
        ({"path": "out"}, ["path"]),
        ({"format": "avro"}, ["format"]),
        ({"partition.by": "week(at)"}, ["partition.by"]),
        ({"partition.by": "a/b"}, ["partition.by"]),
        ({"partition.by": "city,city"}, ["partition.by"]),
        ({"topics": "t" * 200}, ["topics"]),
        ({"flush.size": "0", "roll.bytes": "1"}, ["flush.size", "roll.bytes"]),
    ],
)
def test_faults_of_a_config_are_found(config: Mapping[str, str], fields: list[str]) -> None:
    raw = {**BASE, "path": "/out", **config}
    assert [each.field for each in parse_config(FilesSink, raw).violations] == fields
