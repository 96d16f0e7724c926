"""PythonDataSource: runs any Python Data Source of Spark as a source.

The methods of the data source are called directly: offsets on the driver, reads on executors,
without Spark's streaming engine and JVM.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import islice
from typing import Any

import pyarrow as pa

from drover.connector import (
    REPLAYED,
    TOPIC_NAME,
    ArrowRows,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    InRange,
    OffsetChange,
    OffsetForm,
    OneOf,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
    load_plugin,
    plugin_fault,
)
from drover.connectors.offset_changes import refuse_misshapen

#: Entry points of distributions with data sources.
GROUP = "drover.data_sources"
NAME, MODE, OPTIONS = "datasource", "datasource.mode", "datasource.options"
SECRET_OPTIONS, SCHEMA, EVERY_MS = (
    "datasource.options.secret",
    "datasource.schema",
    "datasource.every.ms",
)
TOPIC, KEY_COLUMNS = "topic", "key.columns"
AUTO, STREAMING, BATCH = "auto", "streaming", "batch"
_ROWS = 10_000
_PARTITION = "datasource"
_OFFSET, _READS, _TIME_MS = "offset", "reads", "time_ms"


class OffsetWentBackError(Exception):
    """A data source reported a lower offset than before."""


@dataclass(frozen=True)
class ReadPartitions:
    """Reads partitions of a data source on executors."""

    reader: Any
    partitions: Sequence[Any]
    #: As JSON, because not all of Spark's types can be pickled.
    schema: str

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of partition ``number`` as Arrow batches."""
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self.schema))
        yield from arrow_batches(self.reader.read(self.partitions[number]), schema)


def arrow_batches(rows: Iterable[Any], schema: Any) -> Iterator[pa.RecordBatch]:
    """The results of a data source's ``read`` (tuples, Rows or Arrow batches) as Arrow batches.

    Raises:
        TypeError: It yielded something else.
    """
    from pyspark.sql.conversion import LocalDataToArrowConversion

    found = iter(rows)
    while chunk := list(islice(found, _ROWS)):
        given = [each for each in chunk if isinstance(each, pa.RecordBatch)]
        plain = [each for each in chunk if not isinstance(each, pa.RecordBatch)]
        yield from given
        odd = next((each for each in plain if not isinstance(each, tuple | list)), None)
        if odd is not None:
            raise TypeError(f"read() must yield tuples, Rows or record batches, not {type(odd)}")
        if plain:
            yield from LocalDataToArrowConversion.convert(plain, schema, False).to_batches()


def goes_back(start: Any, end: Any) -> bool:
    """Whether the numbers in an offset went back: some are lower and none is higher."""
    lower = higher = False
    pairs = [(start, end)]
    while pairs:
        old, new = pairs.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            pairs += [(old[name], new[name]) for name in old.keys() & new.keys()]
        elif isinstance(old, list) and isinstance(new, list):
            pairs += zip(old, new, strict=False)
        elif isinstance(old, int | float) and isinstance(new, int | float):
            lower |= new < old
            higher |= new > old
    return lower and not higher


class PythonDataSourceTask(SourceTask):
    """Asks the data source for its latest offset, and lets executors read the new data."""

    def start(self, context: SourceTaskContext) -> None:
        """Create the data source and a reader."""
        from pyspark.errors import PySparkNotImplementedError
        from pyspark.sql.types import StructType

        self._context = context
        config = context.config
        self._partition = {_PARTITION: config[NAME]}
        self._committed = context.offset(self._partition) or {}
        found = _data_source(config)
        wanted = config[SCHEMA] or found.schema()
        schema: Any = StructType.fromDDL(wanted) if isinstance(wanted, str) else wanted
        self._schema = schema
        self._reader: Any = None
        self._simple: Any = None
        mode = config[MODE]
        if mode != BATCH:
            try:
                self._reader = found.streamReader(self._schema)
            except PySparkNotImplementedError:
                try:
                    self._simple = found.simpleStreamReader(self._schema)
                except PySparkNotImplementedError:
                    if mode == STREAMING:
                        raise ValueError(
                            f"the data source {config[NAME]} has no stream reader: set {MODE} to "
                            f"{BATCH}"
                        ) from None
        self._batch = found.reader(self._schema) if self._stream is None else None
        self._offset = self._committed.get(_OFFSET)
        if self._stream is not None and self._offset is None:
            self._offset = self._stream.initialOffset()

    @property
    def _stream(self) -> Any:
        return self._reader if self._reader is not None else self._simple

    def poll(self) -> SourceBatch | None:
        """The data since the last offset; None if there is none."""
        if self._batch is not None:
            return self._whole()
        if self._simple is not None:
            rows, end = self._simple.read(self._offset)
            if end == self._offset:
                return None
            table = pa.Table.from_batches(arrow_batches(rows, self._schema), self._arrow_schema())
            return self._made(table, end)
        end = self._latest()
        if end == self._offset:
            return None
        return self._made(self._rows(self._reader, self._offset, end), end)

    def committed(
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """Notify the data source of the committed offset."""
        if self._stream is not None:
            self._stream.commit(self._offset)

    def stop(self) -> None:
        """Stop the reader."""
        if getattr(self, "_reader", None) is not None:
            self._reader.stop()

    def _latest(self) -> Any:
        function = self._reader.latestOffset
        if not signature(function).parameters:  # before Spark 4.2
            return function()
        return function(self._offset, self._reader.getDefaultReadLimit())

    def _made(self, rows: Any, end: Any) -> SourceBatch:
        if goes_back(self._offset, end):
            raise OffsetWentBackError(
                f"the data source {self._context.config[NAME]} went back: from the offset "
                f"{json.dumps(self._offset)} to {json.dumps(end)}; reset the "
                "connector's offsets if its data was replaced"
            )
        self._offset = end
        return self._table(rows, {_OFFSET: end})

    def _whole(self) -> SourceBatch | None:
        """All data, once or periodically."""
        every_ms = self._context.config[EVERY_MS]
        reads, now_ms = self._committed.get(_READS, 0), time.time_ns() // 1_000_000
        if reads and (every_ms is None or now_ms < self._committed[_TIME_MS] + every_ms):
            return None
        self._committed = {_READS: reads + 1, _TIME_MS: now_ms}
        return self._table(self._rows(self._batch), self._committed)

    def _rows(self, reader: Any, *bounds: Any) -> ArrowRows | pa.Table:
        partitions = list(reader.partitions(*bounds))
        if not partitions:
            return self._arrow_schema().empty_table()
        read = ReadPartitions(reader, partitions, self._schema.json())
        return ArrowRows(self._context.spark, read, len(partitions), None)

    def _arrow_schema(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._schema, timezone="UTC")

    def _table(self, rows: Any, offset: Mapping[str, Any]) -> SourceBatch:
        config = self._context.config
        keys = config[KEY_COLUMNS]
        key = keys[0] if keys and len(keys) == 1 else keys
        return SourceBatch.table(rows, [(self._partition, offset)], topic=config[TOPIC], key=key)


class PythonDataSource(SourceConnector):
    """Reads a Python Data Source of Spark, as a stream or as a whole.

    The class is named by an entry point of ``drover.data_sources``, or by its import path, if the
    worker's DROVER_PLUGIN_MODULES allows it.
    """

    version = "0.1.0"
    aliases = ("PythonDataSource",)
    guarantees = REPLAYED
    task_class = PythonDataSourceTask
    offset_forms = (OffsetForm({_PARTITION: str}),)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return ConfigDef(*_source_keys(), *_record_keys())

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Drover keeps no state outside the offsets."""
        del config
        refuse_misshapen(changes, partition={_PARTITION: str}, counts=())
        return True

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The data source must exist; it is imported."""
        fault = _class_fault(config[NAME])
        return () if fault is None else (Violation(NAME, fault),)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """One task; executors share the reading."""
        del max_tasks
        return [{}]


def _source_keys() -> list[ConfigKey]:
    group = "Data source"
    return [
        ConfigKey(
            NAME,
            ConfigType.STRING,
            group=group,
            documentation=f"The data source: an entry point of {GROUP}, or package.module:Class "
            "allowed by the worker's DROVER_PLUGIN_MODULES.",
        ),
        ConfigKey(
            OPTIONS,
            ConfigType.STRING,
            default="{}",
            group=group,
            documentation='Its options, as a JSON object of texts: {"path": "/data"}.',
            validator=Check(_options_fault),
        ),
        ConfigKey(
            SECRET_OPTIONS,
            ConfigType.PASSWORD,
            default=None,
            group=group,
            documentation="Further options, as datasource.options, that are always masked.",
            validator=Check(_options_fault),
        ),
        ConfigKey(
            SCHEMA,
            ConfigType.STRING,
            default=None,
            group=group,
            documentation="The columns, as DDL, for data sources that leave them to the user.",
        ),
        ConfigKey(
            MODE,
            ConfigType.STRING,
            default=AUTO,
            group=group,
            documentation="streaming reads new data, batch reads all data; auto uses streaming if "
            "the data source supports it.",
            validator=OneOf(AUTO, STREAMING, BATCH),
        ),
        ConfigKey(
            EVERY_MS,
            ConfigType.LONG,
            default=None,
            group=group,
            documentation="How often batch reads all data, in milliseconds; by default once.",
            validator=InRange(1),
        ),
    ]


def _record_keys() -> list[ConfigKey]:
    group = "Records"
    return [
        ConfigKey(
            TOPIC,
            ConfigType.STRING,
            group=group,
            documentation="The topic of the records.",
            validator=TOPIC_NAME,
        ),
        ConfigKey(
            KEY_COLUMNS,
            ConfigType.LIST,
            default=None,
            group=group,
            documentation="The column for the records' key; several columns become a struct.",
        ),
    ]


def _class_fault(name: str) -> str | None:
    from pyspark.sql.datasource import DataSource

    fault = plugin_fault(GROUP, name)
    if fault is not None:
        return fault
    found = load_plugin(GROUP, name)
    if not (isinstance(found, type) and issubclass(found, DataSource)):
        return f"must name a class that derives from pyspark's DataSource, not {name!r}"
    return None


def _options_fault(text: Any) -> str | None:
    try:
        found = json.loads(getattr(text, "value", text))
    except (ValueError, RecursionError):
        return "must be a JSON object of texts"
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        return "must be a JSON object of texts"
    return None


def _data_source(config: Mapping[str, Any]) -> Any:
    from pyspark.sql.datasource import CaseInsensitiveDict

    secret = config[SECRET_OPTIONS]
    options = {**json.loads(config[OPTIONS]), **json.loads(secret.value if secret else "{}")}
    return load_plugin(GROUP, config[NAME])(CaseInsensitiveDict(options))
