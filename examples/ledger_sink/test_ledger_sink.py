"""Tests of the sink in Drover's test kit, without a cluster: `pytest` in this folder."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import TopicPartition
from drover.connector.records import KEY, OFFSET, PARTITION, TOPIC, VALUE
from drover.testing import KillPoint, SinkKit
from ledger_sink import LedgerSink, opened, write_rows

FIRST = TopicPartition("records", 0)
MakeSink = Callable[..., SinkKit]


def rows_in(path: Path, sql: str = "SELECT key, value FROM latest ORDER BY key") -> list[Any]:
    with closing(opened(str(path))) as database:
        return list(database.execute(sql))


def audited(path: Path) -> Path:
    """A database with a trigger that logs every insert, which reveals a row written twice."""
    with closing(opened(str(path))) as database:
        database.executescript(
            "CREATE TABLE audit (n INTEGER PRIMARY KEY, value TEXT);"
            "CREATE TRIGGER put AFTER INSERT ON latest "
            "BEGIN INSERT INTO audit (value) VALUES (NEW.value); END;"
        )
    return path


def test_the_latest_row_of_each_key_is_kept(sink_kit: MakeSink, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    kit = sink_kit(LedgerSink, path=path)
    kit.feed([{"n": 1}, {"n": 2}, {"n": 3}, None, None], keys=["a", "b", "a", "b", "c"])
    kit.run()
    assert rows_in(path) == [("a", '{"n": 3}')]
    assert rows_in(path, "SELECT * FROM ledger") == [("records", 0, "", 5)]


def test_each_record_is_written_once_despite_kills(sink_kit: MakeSink, tmp_path: Path) -> None:
    path = audited(tmp_path / "a.db")
    kit = sink_kit(LedgerSink, path=path)
    kit.feed([{"n": n} for n in range(20)], keys=[f"k{n % 3}" for n in range(20)])
    kit.kill(before_line="batch.run_in_arrow(write", after_batches=1, batch_records=4)
    kit.kill(KillPoint.AFTER_WRITE, batch_records=3)
    assert kit.committed == {FIRST: 4}
    assert rows_in(path, "SELECT * FROM ledger") == [("records", 0, "", 7)]
    kit.kill(KillPoint.AFTER_COMMIT, batch_records=5)
    kit.run(batch_records=6)
    assert rows_in(path, "SELECT value FROM audit ORDER BY n") == [
        (f'{{"n": {n}}}',) for n in range(20)
    ]


def test_a_kill_loses_no_dead_letter(sink_kit: MakeSink, tmp_path: Path) -> None:
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
    kit = sink_kit(LedgerSink, letters, path=tmp_path / "a.db")
    kit.feed([{"n": 1}, {"n": 2}], keys=["a", None])
    kit.feed([b"no json"], keys=[b"b"])
    kit.feed([{"n": 4}], keys=["d"])
    kit.kill(before_line='return ""')  # after the rows, before their dead letters
    assert kit.records("bad") == []
    kit.run()
    assert [key for key, _ in rows_in(tmp_path / "a.db")] == ["a", "d"]
    assert len(kit.records("bad")) == 2


def test_a_failed_transaction_writes_nothing(tmp_path: Path) -> None:
    path = audited(tmp_path / "a.db")

    def records(start: int, *values: Any) -> pa.RecordBatch:
        count = len(values)
        columns = {
            TOPIC: ["t"] * count,
            PARTITION: [0] * count,
            OFFSET: list(range(start, start + count)),
            KEY: ["k"] * count,
            VALUE: list(values),
        }
        return pa.RecordBatch.from_pydict(columns)

    def failing() -> Iterator[pa.RecordBatch]:
        yield records(0, "a")
        raise sqlite3.OperationalError("killed")

    with pytest.raises(sqlite3.OperationalError, match="killed"):
        list(write_rows(str(path), {("t", 0, ""): 2}, failing()))
    assert rows_in(path) == rows_in(path, "SELECT * FROM ledger") == []
    list(write_rows(str(path), {("t", 0, ""): 2}, [records(0, "a", "b")]))
    list(write_rows(str(path), {("t", 0, ""): 3}, [records(1, "not again", "c")]))
    assert rows_in(path, "SELECT value FROM audit ORDER BY n") == [("a",), ("b",), ("c",)]
    list(write_rows(str(path), {("t", 0, "0a1b2c3d"): 1}, [records(0, "of a new topic")]))
    assert len(rows_in(path, "SELECT value FROM audit ORDER BY n")) == 4
    config, key = {"path": str(path)}, TopicPartition("t", 0)
    found = [LedgerSink.traced_offsets("s", config, {key: each}) for each in ("", "0a1b2c3d", "f")]
    assert found == [{key: 3}, {key: 1}, {}]
    at = {"kafka_topic": "t", "kafka_partition": 0}
    assert LedgerSink.alter_offsets(config, [(at, {"kafka_offset": 1})])
    list(write_rows(str(path), {("t", 0, ""): 2}, [records(1, "again")]))
    assert len(rows_in(path, "SELECT value FROM audit ORDER BY n")) == 5


def test_a_database_that_does_not_exist_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    key = TopicPartition("t", 0)
    assert LedgerSink.traced_offsets("s", {"path": str(path)}, {key: ""}) == {}
    assert not path.exists()
