"""A sink that writes rows and offsets in one SQLite transaction.

The table ``latest`` holds the latest value of each key as JSON. The table ``ledger`` holds the end
offset of each output: a topic partition, and the id of its output, because a topic that is deleted
and created again starts at offset 0.
"""

import functools
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.connector import (
    ONCE,
    ConfigDef,
    ConfigKey,
    ConfigType,
    NonEmpty,
    OffsetChange,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    TopicPartition,
)
from drover.connector.records import KEY, OFFSET, PARTITION, VALUE, original_topics

#: How long a transaction waits for another task's write lock.
WAIT_S = 60.0

#: A topic, a partition and the id of the output.
Output = tuple[str, int, str]


class LedgerSinkTask(SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self._path: str = context.config["path"]
        self._output_ids = context.output_ids
        with closing(opened(self._path)):
            pass  # creates the tables

    def write(self, batch: SinkBatch) -> str:
        # A batch that was written but not committed is redelivered: bad records are rejected again,
        # written ones are skipped. positions() would skip the batch and lose its dead letters.
        for bad in batch.run_in_arrow(without_key):
            batch.reject(bad["topic"], bad["partition"], bad["offset"], "the record has no key")
        ids = self._output_ids
        keys = {
            TopicPartition(each.topic, each.partition): each.end_offset for each in batch.ranges
        }
        ends = {(*key, ids.get(key, "")): end for key, end in keys.items()}
        write = functools.partial(write_rows, self._path, ends)
        batch.run_in_arrow(write, at_once=True)
        return ""


class LedgerSink(SinkConnector):
    """Keeps the latest value of each key in a SQLite table; a tombstone deletes its row."""

    version = "1.0"
    guarantees = ONCE
    structured = True
    task_class = LedgerSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey(
                "path",
                ConfigType.STRING,
                validator=NonEmpty(),
                documentation="The database file, on a disk shared by all workers.",
            )
        )

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        with closing(opened(config["path"])) as database:
            database.execute("BEGIN IMMEDIATE")
            for partition, _ in changes:
                at = (partition["kafka_topic"], partition["kafka_partition"])
                database.execute("DELETE FROM ledger WHERE (topic, partition) = (?, ?)", at)
            database.commit()
        return True

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        if not Path(config["path"]).exists():
            return {}
        with closing(opened(config["path"])) as database:
            found = ledger_of(
                database, {(*key, output_id) for key, output_id in partitions.items()}
            )
        return {TopicPartition(*at): end for at, end in found.items() if end > 0}

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{} for _ in range(max_tasks)]


def opened(path: str) -> sqlite3.Connection:
    """Open the database and create its tables."""
    database = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
    database.execute("CREATE TABLE IF NOT EXISTS latest (key TEXT PRIMARY KEY, value TEXT)")
    database.execute(
        "CREATE TABLE IF NOT EXISTS ledger "
        "(topic TEXT, partition INTEGER, output_id TEXT, end_offset INTEGER, "
        "PRIMARY KEY (topic, partition, output_id))"
    )
    return database


def ledger_of(
    database: sqlite3.Connection, outputs: Collection[Output]
) -> dict[tuple[str, int], int]:
    """The end offsets of outputs, by topic partition."""
    rows = database.execute("SELECT topic, partition, output_id, end_offset FROM ledger")
    return {(row[0], row[1]): row[3] for row in rows if row[:3] in outputs}


def without_key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Topic, partition and offset of the records without a key; runs on executors."""
    for batch in batches:
        columns = [original_topics(batch), batch.column(PARTITION), batch.column(OFFSET)]
        places = pa.RecordBatch.from_arrays(columns, names=["topic", "partition", "offset"])
        yield places.filter(batch.column(KEY).is_null())


def write_rows(
    path: str, ends: Mapping[Output, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a batch's records and end offsets in one transaction; runs on an executor."""
    with closing(opened(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        ledger = ledger_of(database, ends.keys())
        for batch in batches:
            columns = (batch.column(name) for name in (PARTITION, OFFSET, KEY, VALUE))
            names = (each.to_pylist() for each in (original_topics(batch), *columns))
            for topic, partition, offset, key, value in zip(*names, strict=True):
                if key is None or offset < ledger.get((topic, partition), 0):
                    continue  # rejected, or written before
                database.execute("DELETE FROM latest WHERE key = ?", (text_of(key),))
                if value is not None:
                    new = (text_of(key), text_of(value))
                    database.execute("INSERT INTO latest VALUES (?, ?)", new)
        for output, end in ends.items():
            entry = (*output, max(end, ledger.get(output[:2], 0)))
            database.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", entry)
        database.commit()
    yield from ()


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
