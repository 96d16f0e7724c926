"""Converters, transforms and predicates in Java for the records of connectors of Drover.

They run in the plugin's JVM, which the driver starts when a pass first needs them. Executors send
it batches of records: keys and values as JSON with schemas, in Kafka Connect's form.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType, to_text
from drover.config.configurable import Configurable
from drover.connectors.java.made_classes import python_class
from drover.convert.converter import Converter, Decoded
from drover.convert.json_converter import JsonConverter
from drover.convert.steps import DecodeRecords, encoded_column
from drover.java_plugins.catalogue import JavaClass, Kind
from drover.java_plugins.host import (
    HOSTS,
    POLL_LIMIT,
    Lease,
    Plugins,
    hanging_message,
    limit_s,
)
from drover.java_plugins.wire import (
    MADE_SCHEMA,
    STEP_SCHEMA,
    Address,
    JavaCallError,
    JavaCallHangsError,
    JavaHostEndedError,
)
from drover.record.arrow import Array, Binaries, Headers, Mask, Texts, offsets_of
from drover.record.batch import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    VALUE,
    with_column,
)
from drover.record.errors import (
    PassError,
    RecordError,
    RetriableError,
    RowsError,
    StageError,
    rows_at,
)
from drover.record.json.schema_parser import parse_schema
from drover.record.json.schema_writer import schema_text
from drover.transform.transform import Predicate, Transform

#: The size of the records of one call of the host, which holds them in its heap.
_CALL_BYTES = 4 * 1024 * 1024
_CALL_ROWS = 4_000
#: How long the end of a step waits for the record on which the plugin works.
_CLOSE_S = 5.0
#: The methods of a plugin.
_METHODS = {
    "transform": "apply()",
    "matches": "test()",
    "encode": "fromConnectData()",
    "decode": "toConnectData()",
}
_TIMES = pa.timestamp("ms", tz="UTC")
_SCHEMA_START, _PAYLOAD_START = '{"schema":', ',"payload":'
_JSON_PARSER = json.JSONDecoder()
_HEADER_FIELDS = list(HEADERS_TYPE.value_type)


class JavaStepError(PassError):
    """A step's JVM has ended, or the plugin failed without regard to a record."""


@lru_cache(maxsize=1)
def _json() -> JsonConverter:
    parsed = JsonConverter.config_def().parse({"replace.null.with.default": "false"})
    return JsonConverter(parsed.values, is_key=False)


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A step that runs in a host; picklable.

    Attributes:
        address: The host.
        run: The step's number in the host.
        java_class: Its class, for messages.
        limit_s: How many seconds it may work on one record.
    """

    address: Address
    run: int
    java_class: str
    limit_s: float

    @property
    def name(self) -> str:
        """Its class and plugin, for messages."""
        return f"{self.java_class} ({self.address.plugin})"

    def apply(self, what: str, rows: pa.RecordBatch) -> pa.Table:
        """What the step made of records, without failed ones; ``row`` is the row of the record.

        Raises:
            RowsError: Records failed.
            RetriableError: The plugin raised a RetriableException.
            JavaStepError: The JVM has ended, or the plugin works too long on a record.
        """
        if not rows.num_rows:
            return MADE_SCHEMA.empty_table()
        step = max(1, min(_CALL_ROWS, rows.num_rows * _CALL_BYTES // max(1, rows.nbytes)))
        parts = []
        for start in range(0, rows.num_rows, step):
            made = self._call(what, rows.slice(start, step))
            numbers = pc.add(made.column("row"), pa.scalar(start, pa.int32()))
            parts.append(made.set_column(0, "row", numbers))
        found = pa.concat_tables(parts).combine_chunks()
        failed = found.filter(pc.is_valid(found.column("error")))
        if failed.num_rows:
            pairs = zip(
                failed.column("row").to_pylist(), failed.column("error").to_pylist(), strict=True
            )
            raise RowsError({row: RecordError(f"{self.name}: {error}") for row, error in pairs})
        return found

    def _call(self, what: str, rows: pa.RecordBatch) -> pa.Table:
        try:
            return self.address.apply(self.run, what, rows, self.limit_s)
        except JavaHostEndedError as error:
            raise JavaStepError(str(error)) from None
        except JavaCallError as error:
            kind = RetriableError if error.is_retriable else JavaStepError
            raise kind(f"{self.name} failed: {error}") from error
        except JavaCallHangsError as error:
            message = hanging_message(
                _METHODS[what],
                self.java_class,
                self.address.plugin,
                seconds=self.limit_s,
                limit=POLL_LIMIT[0],
                stack=str(error),
            )
            raise JavaStepError(message) from None


class JavaStep(Configurable):
    """What Java converters, transforms and predicates have in common."""

    java_class: ClassVar[JavaClass]
    #: Whether the class is for running connectors: the config was validated before.
    in_engine: ClassVar[bool]
    version: ClassVar[str]

    config: Mapping[str, Any]
    is_key: bool = False

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The settings that the class declares; for running connectors none."""
        return cls.config_def_for({})

    @classmethod
    def config_def_for(cls, given: Mapping[str, str]) -> ConfigDef:
        """The settings that the class declares, and all others that a config has; with the faults
        that the class finds.

        Raises:
            ValueError: The class fails.
        """
        if not cls.in_engine:
            # imported lazily: running connectors do not need it
            from drover.connectors.java.step_settings import checked_config_def

            return checked_config_def(cls.java_class, given)
        return given_config_def(given)

    @classmethod
    def own_values(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See Configurable: all settings that a config has."""
        return {name: each for name, each in values.items() if each is not None}

    def _init_step(self) -> None:
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._running: RunningStep | None = None
        self._owner = ""

    def belong_to(self, owner: str) -> None:
        """See Configurable: a JVM for the steps of this task or preview."""
        self._owner = owner

    def running(self) -> RunningStep:
        """The step in the plugin's JVM, which it starts if there is none. Only on the driver.

        Raises:
            JavaStepError: The JVM does not start, or the plugin rejects its settings.
        """
        with self._lock:
            if self._running is None:
                self._running = self._started()
            return self._running

    def _started(self) -> RunningStep:
        java = self.java_class
        name = f"{java.name} ({java.plugin})"
        paths = () if is_kafkas(java) else (java.path,)
        lease = HOSTS.use(Plugins(paths, java.plugin), self._owner)
        try:
            started = lease.host.call(
                "start_step",
                path="" if is_kafkas(java) else str(java.path),
                kind=java.kind.value,
                config={key: to_text(each) for key, each in self.config.items()},
                is_key=self.is_key,
                **{"class": java.name},
            )
        except JavaCallError as error:
            lease.release()
            raise JavaStepError(f"{name} rejects its settings: {error}\n{error.trace}") from error
        except JavaHostEndedError as error:
            lease.release()
            raise JavaStepError(str(error)) from None
        self._lease = lease
        return RunningStep(lease.host.address, started["run"], java.name, limit_s(POLL_LIMIT))

    def close(self) -> None:
        """End the step in its JVM."""
        with self._lock:
            lease, self._lease = self._lease, None
            running, self._running = self._running, None
        if lease is None:
            return
        try:
            if running is not None:
                with suppress(JavaCallError, JavaHostEndedError):
                    lease.host.address.call_within(_CLOSE_S, "stop_step", run=running.run)
        except JavaCallHangsError:
            # the plugin still works on a record, perhaps for ever
            lease.host.retire()
        finally:
            lease.release()


def is_kafkas(java_class: JavaClass) -> bool:
    """Whether a class is Kafka's own, which every host has."""
    return java_class.plugin == KAFKA


#: The plugin of Kafka's own classes, in messages.
KAFKA = "Apache Kafka"


def given_config_def(given: Mapping[str, str]) -> ConfigDef:
    """Settings as they were written."""
    return ConfigDef(
        *(ConfigKey(name, ConfigType.STRING, default=None, trimmed=False) for name in given)
    )


@dataclass(frozen=True, slots=True)
class _TransformOnExecutor:
    step: RunningStep

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See Transform."""
        made = self.step.apply("transform", _records(batch))
        if not made.num_rows:
            return
        rows = made.column("row").combine_chunks()
        with rows_at(rows):
            yield from _typed(_changed(batch.take(rows), made))


def _changed(batch: pa.RecordBatch, made: pa.Table) -> pa.RecordBatch:
    """Records with the columns that a transform can change; keys and values are JSON."""
    for name in (TOPIC, PARTITION, KEY, VALUE):
        column = made.column(name).combine_chunks()
        batch = with_column(batch, pa.field(name, column.type), column)
    times = made.column(TIMESTAMP).combine_chunks().cast(_TIMES)
    batch = with_column(batch, pa.field(TIMESTAMP, _TIMES), times)
    headers = _read_headers(made.column(HEADERS).combine_chunks())
    return with_column(batch, pa.field(HEADERS, HEADERS_TYPE), headers)


def _typed(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Records with the keys and the values of their JSON."""
    try:
        return list(DecodeRecords(_json(), _json())(batch))
    except StageError as error:  # the stage is the transform's
        raise error.__cause__ or error from None


@dataclass(frozen=True, slots=True)
class _PredicateOnExecutor:
    step: RunningStep

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """See Predicate."""
        return self.step.apply("matches", _records(batch)).column("matches").combine_chunks()


@dataclass(frozen=True, slots=True)
class _ConverterOnExecutor:
    step: RunningStep

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter."""
        if not len(values):
            return pa.array([], pa.binary())
        rows = _values(_json().encode(field, values, topics), topics)
        return self.step.apply("encode", rows).column("value").combine_chunks()

    def encode_framed(self, field: pa.Field, values: Array, topics: Texts | None) -> Any:
        """See Converter."""
        return Converter.encode_framed(self, field, values, topics)  # type: ignore[arg-type]

    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """See Converter."""
        present = pc.indices_nonzero(values.is_valid()).cast(pa.int64())
        texts: Binaries = pa.nulls(len(values), pa.binary())
        if len(present):
            some = None if topics is None else topics.take(present)
            with rows_at(present):
                made = self.step.apply("decode", _values(values.take(present), some))
            mask = values.is_valid()
            texts = pc.replace_with_mask(texts, mask, made.column("value").combine_chunks())
        return _json().decode(texts, topics)


class JavaTransform(JavaStep, Transform):
    """A transform in Java; subclasses are made for each class."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._init_step()

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        return _TransformOnExecutor(self.running())(batch)

    def __reduce__(self) -> tuple[Any, ...]:
        return _TransformOnExecutor, (self.running(),)


class JavaPredicate(JavaStep, Predicate):
    """A predicate in Java; subclasses are made for each class."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._init_step()

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """See Predicate."""
        return _PredicateOnExecutor(self.running()).matches(batch)

    def __reduce__(self) -> tuple[Any, ...]:
        return _PredicateOnExecutor, (self.running(),)


class JavaConverter(JavaStep, Converter):
    """A converter or a header converter in Java; subclasses are made for each class."""

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._init_step()

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter."""
        return _ConverterOnExecutor(self.running()).encode(field, values, topics)

    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """See Converter."""
        return _ConverterOnExecutor(self.running()).decode(values, topics)

    def __reduce__(self) -> tuple[Any, ...]:
        return _ConverterOnExecutor, (self.running(),)


_BASES: Mapping[Kind, type[JavaStep]] = {
    Kind.TRANSFORM: JavaTransform,
    Kind.PREDICATE: JavaPredicate,
    Kind.CONVERTER: JavaConverter,
    Kind.HEADER_CONVERTER: JavaConverter,
}


@lru_cache(maxsize=1_000)
def step_of(java_class: JavaClass, *, in_engine: bool) -> type[JavaStep]:
    """The Python class of a Java converter, transform or predicate."""
    made: type[JavaStep] = python_class(
        java_class, _BASES[java_class.kind], in_engine=in_engine, aliases=()
    )
    return made


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records as the host reads them."""
    for name in (KEY, VALUE):
        batch = encoded_column(batch, name, _json())
    count = batch.num_rows
    columns = {
        TOPIC: batch.column(TOPIC).cast(pa.string()),
        PARTITION: batch.column(PARTITION).cast(pa.int32()),
        OFFSET: batch.column(OFFSET).cast(pa.int64()),
        TIMESTAMP: batch.column(TIMESTAMP).cast(_TIMES, safe=False).cast(pa.int64()),
        KEY: batch.column(KEY),
        VALUE: batch.column(VALUE),
        "header_key": pa.nulls(count, pa.string()),
        HEADERS: _written_headers(batch.column(HEADERS)),
    }
    return pa.RecordBatch.from_arrays(
        [columns[each.name].cast(each.type) for each in STEP_SCHEMA], schema=STEP_SCHEMA
    )


def _values(values: Binaries, topics: Texts | None) -> pa.RecordBatch:
    """Keys, values or headers as the host reads them."""
    count = len(values)
    texts = pa.repeat(pa.scalar(""), count)
    columns = {TOPIC: texts if topics is None else topics.cast(pa.string()), VALUE: values}
    if topics is None:
        columns["header_key"] = texts
    return pa.RecordBatch.from_arrays(
        [columns.get(each.name, pa.nulls(count, each.type)) for each in STEP_SCHEMA],
        schema=STEP_SCHEMA,
    )


def _written_headers(headers: Headers) -> Array:
    """Headers as the host reads them: typed ones are JSON with schemas."""
    keys, values, types = headers.flatten().cast(HEADERS_TYPE.value_type).flatten()
    typed = types.is_valid()
    whole = (
        pc.binary_join_element_wise(
            _SCHEMA_START,
            types,
            _PAYLOAD_START,
            values.cast(pa.string()).fill_null("null"),
            "}",
            "",
        )
        if pc.any(typed).as_py()
        else types
    )
    chosen = pc.if_else(typed, whole.cast(pa.binary()), values)
    entries = pa.StructArray.from_arrays(
        [keys, chosen, typed], fields=list(STEP_SCHEMA.field(HEADERS).type.value_type)
    )
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(
        offsets_of(lengths), entries, type=STEP_SCHEMA.field(HEADERS).type
    )


def _read_headers(headers: Array) -> Headers:
    """The headers that the host wrote."""
    keys, values, typed = headers.flatten().flatten()
    found, types = values, pa.nulls(len(values), pa.string())
    if pc.any(typed).as_py():
        texts: list[bytes | None] = []
        said: list[str | None] = []
        for value, is_typed in zip(values.to_pylist(), typed.to_pylist(), strict=True):
            text, schema = _parts(value) if is_typed and value is not None else (value, None)
            texts.append(text)
            said.append(schema)
        found, types = pa.array(texts, pa.binary()), pa.array(said, pa.string())
    entries = pa.StructArray.from_arrays([keys, found, types], fields=_HEADER_FIELDS)
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(offsets_of(lengths), entries, type=HEADERS_TYPE)


def _parts(envelope: bytes) -> tuple[bytes, str]:
    """The payload and the schema of a header."""
    text = envelope.decode()
    _, end = _JSON_PARSER.raw_decode(text, len(_SCHEMA_START))
    payload = text[end + len(_PAYLOAD_START) : -1]
    return payload.encode(), schema_text(parse_schema(text[len(_SCHEMA_START) : end]))
