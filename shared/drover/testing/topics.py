"""Writes and reads the topics of a test, with the converters that a config names."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.connector.record_settings import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    VALUE_CONVERTER,
    converter_of,
    with_defaults,
)
from drover.convert.converter import Converter
from drover.convert.steps import DecodeRecords, EncodeRecords
from drover.convert.unchanged import UnchangedConverter
from drover.dataplane.reading import RangeReader
from drover.dataplane.staging import Stager, staged_blobs
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.topic_creation import TopicCreation, TopicRule
from drover.model.ids import TaskId
from drover.pipeline.layouts import topic_records, without_header_types
from drover.record.batch import HEADERS, HEADERS_TYPE, KEY, RECORD_COLUMNS, VALUE, make_batch
from drover.record.errors import StageError
from drover.record.json.schemaless import loads
from drover.record.schema import is_schemaless

_FEEDER = TaskId("feeds-the-test", 0)
_requests = itertools.count()


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic; key and value as the connector's converters decode them.

    They are bytes if the converters leave bytes unchanged, or cannot decode the record (a dead
    letter).
    """

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    #: Milliseconds since the epoch.
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def json(self) -> Any:
        """The value, which is JSON in bytes, decoded."""
        return json.loads(self.value)


class Topics:
    """The topics of an embedded store."""

    def __init__(
        self, store: EmbeddedStore, config: Mapping[str, Any], *, structured: bool
    ) -> None:
        """``config`` is a parsed config; its converters are used."""
        self._store = store
        self._config = config
        self._structured = structured

    def feed(
        self,
        values: Sequence[Any] | pa.Table,
        *,
        topic: str,
        keys: Sequence[Any] | str | None = None,
        partition: int | None = None,
        partition_count: int = 1,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Publish records; see ``SinkKit.feed``."""
        rows = values.to_pylist() if isinstance(values, pa.Table) else list(values)
        array = values.to_struct_array() if isinstance(values, pa.Table) else None
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if isinstance(keys, str):
            keys = [None if row is None else row[keys] for row in rows]
        value_field, value_column, value_converter = self._side(rows, VALUE_CONVERTER, array)
        key_field, key_column, key_converter = self._side(
            [None] * len(rows) if keys is None else list(keys), KEY_CONVERTER, None
        )
        header = [{"key": name, "value": value, "type": None} for name, value in headers]
        batch = make_batch(
            len(rows),
            topic=pa.array([topic] * len(rows), pa.string()),
            key=(key_field, key_column),
            value=(value_field, value_column),
            headers=pa.array([header] * len(rows), HEADERS_TYPE),
        )
        header_converter = converter_of(self._config, HEADER_CONVERTER, structured=True)
        encode = EncodeRecords(key_converter, value_converter, header_converter)
        for encoded in encode(batch):
            self._publish(encoded, partition, partition_count, timestamp_ms)

    def read(self, topic: str) -> list[Record]:
        """All records of a topic, by partition and offset; empty if the topic does not exist."""
        starts = {(topic, number): 0 for number in self._store.end_offsets(topic)}
        plan = self._store.plan_read(starts, max_records=1_000_000)
        found = []
        for batch in RangeReader(self._store.path, (tuple(plan.ranges),))(0):
            for records in topic_records(batch):
                found += self._decoded(records)
        return found

    def _publish(
        self,
        batch: pa.RecordBatch,
        partition: int | None,
        partition_count: int,
        timestamp_ms: int | None,
    ) -> None:
        columns = {name: batch.column(name) for name in ("topic", KEY, VALUE)}
        columns[HEADERS] = without_header_types(batch.column(HEADERS))
        if partition is not None:
            columns["partition"] = pa.array([partition] * batch.num_rows, pa.int32())
        if timestamp_ms is not None:
            columns["timestamp"] = pa.array([timestamp_ms] * batch.num_rows, pa.int64())
        claim = self._store.claim_task(
            _FEEDER, generation=1, owner="test", request_id=f"feed-{next(_requests)}"
        )
        creation = TopicCreation(TopicRule(max(partition_count, (partition or 0) + 1)))
        stager = Stager(self._store.path, _FEEDER, claim, creation=creation)
        made = pa.RecordBatch.from_pydict(columns)
        blobs = [row for staged in stager(iter([made])) for row in staged.to_pylist()]
        self._store.publish(_FEEDER, claim, staged_blobs(blobs))

    def _side(
        self, values: list[Any], setting: str, array: Any | None
    ) -> tuple[pa.Field, Any, Converter]:
        """Keys or values as a column, and the converter that encodes them."""
        name = KEY if setting == KEY_CONVERTER else VALUE
        is_key = setting == KEY_CONVERTER
        if all(each is None or isinstance(each, bytes) for each in values):
            column = pa.array(values, pa.binary())
            converter: Converter = with_defaults(UnchangedConverter, is_key=is_key)
        elif self._structured or self._config.get(setting):
            column = pa.array(values) if array is None else array
            converter = converter_of(self._config, setting, structured=self._structured)
        else:
            column = pa.array([_text(each) for each in values], pa.binary())
            converter = with_defaults(UnchangedConverter, is_key=is_key)
        return pa.field(name, column.type), column, converter

    def _decoded(self, records: pa.RecordBatch) -> list[Record]:
        if not (self._structured or self._config.get(VALUE_CONVERTER)):
            return _records(records)
        decode = DecodeRecords(
            converter_of(self._config, KEY_CONVERTER, structured=self._structured),
            converter_of(self._config, VALUE_CONVERTER, structured=self._structured),
        )
        try:
            return [each for batch in decode(records) for each in _records(batch)]
        except (StageError, ValueError, OverflowError):  # or Python has no object for the value
            if records.num_rows == 1:  # a dead letter
                return _records(records)
        rows = (records.slice(row, 1) for row in range(records.num_rows))
        return [each for row in rows for each in self._decoded(row)]


def _records(batch: pa.RecordBatch) -> list[Record]:
    columns = {name: batch.column(name).to_pylist() for name in RECORD_COLUMNS}
    for name in (KEY, VALUE):
        if is_schemaless(batch.schema.field(name)):
            columns[name] = [None if text is None else loads(text) for text in columns[name]]
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        Record(
            topic=columns["topic"][row],
            partition=columns["partition"][row],
            offset=columns["offset"][row],
            key=columns[KEY][row],
            value=columns[VALUE][row],
            timestamp_ms=stamps[row],
            headers=tuple((h["key"], h["value"]) for h in columns[HEADERS][row] or ()),
        )
        for row in range(batch.num_rows)
    ]


def _text(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str).encode()


def open_store(directory: Path) -> EmbeddedStore:
    """The store in a test's directory, with topics, offsets and claims."""
    directory.mkdir(parents=True, exist_ok=True)
    return EmbeddedStore(directory / "data.db")
