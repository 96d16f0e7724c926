"""ConsoleSink shows records in the log; NullSink measures everything before a sink."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from drover.connector import (
    ONCE,
    REPEATED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    InRange,
    OverwriteKey,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
)
from drover.connector.records import KEY, OFFSET, PARTITION, TOPIC, VALUE, json_texts

ROWS_MAX = "rows.max"
RECORD_MAX_CHARS = "record.max.chars"

_PLACE = (TOPIC, PARTITION, OFFSET)
_COUNTED = pa.schema([("rows", pa.int64())])
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FirstRows:
    """The first rows of each Spark partition as lines of JSON; picklable."""

    rows_max: int
    chars_max: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the lines; reads all records."""
        left = self.rows_max
        for batch in batches:
            shown = batch.slice(0, left)
            if shown.num_rows:
                left -= shown.num_rows
                columns = [shown.column(name) for name in _PLACE]
                lines = pa.array(self._lines(shown), pa.string())
                yield pa.RecordBatch.from_arrays([*columns, lines], names=[*_PLACE, "line"])

    def _lines(self, batch: pa.RecordBatch) -> list[str]:
        keys, values = _texts(batch, KEY), _texts(batch, VALUE)
        lines = [
            f"{key} {value}" if key != "null" else value
            for key, value in zip(keys, values, strict=True)
        ]
        return [
            line if len(line) <= self.chars_max else f"{line[: self.chars_max]}…" for line in lines
        ]


def _texts(batch: pa.RecordBatch, name: str) -> list[str]:
    """Keys or values as JSON."""
    texts = json_texts(batch.schema.field(name), batch.column(name))
    return [each or "null" for each in texts.to_pylist()]


@dataclass(frozen=True)
class CountedRows:
    """Counts the records of a Spark partition; picklable."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield one row with the count."""
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pylist([{"rows": count}], schema=_COUNTED)


class ConsoleSinkTask(SinkTask):
    """Logs the first rows of each batch."""

    def start(self, context: SinkTaskContext) -> None:
        """Read the settings."""
        config = context.config
        self._rows = FirstRows(config[ROWS_MAX], config[RECORD_MAX_CHARS])

    def write(self, batch: SinkBatch) -> str:
        """Log the first rows and the record count."""
        found = batch.run_in_arrow(self._rows)
        lines = sorted(found, key=lambda each: [each[name] for name in _PLACE])
        lines = lines[: self._rows.rows_max]
        for each in lines:
            _log.info("%s-%d@%d %s", *(each[name] for name in _PLACE), each["line"])
        count = sum(each.end_offset - each.start_offset for each in batch.ranges)
        if count > len(lines):
            _log.info("… of %d records", count)
        return ""


class ConsoleSink(SinkConnector):
    """Shows the first records of each batch in the worker's log, as JSON.

    For inspecting topics; it stores nothing.
    """

    version = "0.1.0"
    aliases = ("ConsoleSink",)
    guarantees = REPEATED
    structured: ClassVar[bool] = True
    task_class = ConsoleSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return ConfigDef(
            ConfigKey(
                ROWS_MAX,
                ConfigType.INT,
                default=10,
                group="Console",
                documentation="How many records of a batch are shown.",
                validator=InRange(1, 1_000),
            ),
            ConfigKey(
                RECORD_MAX_CHARS,
                ConfigType.INT,
                default=2_000,
                group="Console",
                documentation="How many characters of a record are shown.",
                validator=InRange(20, 100_000),
            ),
        )

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Nothing is stored."""
        del config
        return ()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config; they differ in their topic partitions."""
        return [{} for _ in range(max_tasks)]


class NullSinkTask(SinkTask):
    """Reads each batch."""

    writes_ahead: ClassVar[bool] = True

    def write(self, batch: SinkBatch) -> str:
        """Read the batch through converters and transforms."""
        batch.run_in_arrow(CountedRows())
        return ""


class NullSink(SinkConnector):
    """Reads topics and writes nothing: measures everything before a sink.

    Records pass through converters and transforms as for any other structured sink, and are counted
    in the connector's status.
    """

    version = "0.1.0"
    aliases = ("NullSink",)
    guarantees = ONCE
    structured: ClassVar[bool] = True
    task_class = NullSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The connector has no settings."""
        return ConfigDef()

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Nothing is stored."""
        del config
        return ()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config; they differ in their topic partitions."""
        return [{} for _ in range(max_tasks)]
