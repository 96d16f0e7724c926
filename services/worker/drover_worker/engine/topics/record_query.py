"""A query for records of a topic: converters, conditions, and the parts to show."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from drover.api.common.v1 import topics_pb2
from drover.connector.record_settings import KEY_CONVERTER, VALUE_CONVERTER
from drover.convert.converter import Converter
from drover.convert.lenient import Guess, Hex, LenientDecoder
from drover.convert.registry import build_converter, converter_config_def
from drover.errors import InvalidArgumentError, Violation
from drover.pipeline.layouts import topic_records
from drover.record.batch import ERROR, HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from drover.record.json.form import SHOWN
from drover.transform.conditions import Condition, header_text, split_path
from drover.transform.part_texts import part_texts
from drover_worker.engine.topics.shown_records import shown_texts

AUTO, HEX = "auto", "hex"
_SHORT_NAMES = {
    "json": "JsonConverter",
    "avro": "AvroConverter",
    "protobuf": "ProtobufConverter",
    "string": "StringConverter",
}
_SCHEMAS_ENABLE = "schemas.enable"
#: The limit for a key, a value or a header in a response.
_PART_MAX_CHARS = 64 * 1024
_NAME_MAX_CHARS = 100


class RecordQuery:
    """Decodes batches of a topic and selects the matching records.

    Without a converter the format of each key and value is guessed: JSON (of an envelope with a
    schema the payload, with the types of its schema), then text, then hexadecimal digits.
    """

    def __init__(
        self, query: topics_pb2.RecordQuery, connector_config: Mapping[str, str] | None = None
    ) -> None:
        """``connector_config`` sets converters that the query does not name, and their settings.

        It has the connector's passwords, so the query must not set, for example, another URL.

        Raises:
            InvalidArgumentError: INVALID_REQUEST with every fault. Runs plugin code.
        """
        faults = connector_faults(query.config, connector_config or {}, "query")
        settings = {**(connector_config or {}), **query.config}
        key = _converter(KEY_CONVERTER, query.key_converter, settings, faults)
        value = _converter(VALUE_CONVERTER, query.value_converter, settings, faults)
        self._conditions = _each(Condition, "query.conditions", query.conditions, faults)
        self._paths = _each(split_path, "query.paths", query.paths, faults)
        self._names = list(query.paths)
        if faults:
            raise InvalidArgumentError.listing(faults)
        self._decode = LenientDecoder(key, value)

    @property
    def is_selective(self) -> bool:
        """Whether the query has conditions."""
        return bool(self._conditions)

    def wanted(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The matching records, decoded, in order; ``batch`` is in the format of topic reads. If a
        named converter cannot decode a record, its format is guessed and ERROR has the reason.
        """
        for records in topic_records(batch):
            for decoded in self._decode(records):
                for condition in self._conditions:
                    decoded = decoded.filter(condition.matches(decoded))
                if decoded.num_rows:
                    yield decoded

    def shown(self, batch: pa.RecordBatch) -> Iterator[topics_pb2.TopicRecord]:
        """Records of ``wanted``, in order."""
        keys = shown_texts(batch, KEY)
        values = self._selected(batch) if self._paths else shown_texts(batch, VALUE)
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            yield self._shown(batch, row, key, value)

    def _shown(
        self, batch: pa.RecordBatch, row: int, key: str | None, value: str | None
    ) -> topics_pb2.TopicRecord:
        shown = topics_pb2.TopicRecord(
            partition=batch.column(PARTITION)[row].as_py(), offset=batch.column(OFFSET)[row].as_py()
        )
        time = batch.column(TIMESTAMP)[row].as_py()
        if time is not None:
            shown.record_time.FromDatetime(time)
        if key is not None:
            shown.key = _cut(key, shown)
        if value is not None:
            shown.value = _cut(value, shown)
        for each in batch.column(HEADERS)[row].as_py() or ():
            header = shown.headers.add(key=each["key"])
            text = header_text(each["value"])
            if text is not None:
                header.value = _cut(text, shown)
        if ERROR in batch.schema.names:
            shown.error = batch.column(ERROR)[row].as_py() or ""
        return shown

    def _selected(self, batch: pa.RecordBatch) -> list[str]:
        """An object with the parts at the paths, of each record."""
        names = [f"{json.dumps(name, ensure_ascii=False)}:" for name in self._names]
        columns = [part_texts(batch, side, path, SHOWN).to_pylist() for side, path in self._paths]
        return [
            "{" + ",".join(map("".join, zip(names, parts, strict=True))) + "}"
            for parts in zip(*columns, strict=True)
        ]


def connector_faults(
    config: Mapping[str, str], connector_config: Mapping[str, str], place: str
) -> list[Violation]:
    """The settings of a request that names a connector, whose passwords must not be sent to another
    address than the connector's.
    """
    return [
        Violation(
            f'{place}.config["{name[:_NAME_MAX_CHARS]}"]',
            "must not be set together with connector, whose converter settings are used: "
            "leave out connector, or this setting; a query may name other converters",
        )
        for name in (config if connector_config else ())
        if name not in (KEY_CONVERTER, VALUE_CONVERTER)
    ]


def _converter(
    setting: str, name: str, settings: Mapping[str, str], faults: list[Violation]
) -> Converter:
    is_key = setting == KEY_CONVERTER
    chosen = name.strip() or settings.get(setting, AUTO)
    if chosen == AUTO:
        return Guess({}, is_key=is_key)
    found = named_converter(setting, chosen, settings, "query", faults)
    return found if found is not None else Guess({}, is_key=is_key)


def named_converter(
    setting: str, chosen: str, settings: Mapping[str, str], place: str, faults: list[Violation]
) -> Converter | None:
    """The converter of a short name or a class; None if it has faults, which are added."""
    is_key = setting == KEY_CONVERTER
    if chosen == HEX:
        return Hex({}, is_key=is_key)
    raw: dict[str, str | None] = {**settings, setting: _SHORT_NAMES.get(chosen, chosen)}
    if chosen == "json":
        raw.setdefault(f"{setting}.{_SCHEMAS_ENABLE}", "false")
    parsed = converter_config_def(setting, raw).parse(raw)
    field = f"{place}.{'key' if is_key else 'value'}_converter"
    for each in parsed.violations:
        at = field if each.field == setting else f'{place}.config["{each.field}"]'
        faults.append(Violation(at, each.description))
    if parsed.violations:
        return None
    return build_converter(setting, parsed.values, is_key=is_key)


def _each(parse: Any, field: str, texts: Sequence[str], faults: list[Violation]) -> list[Any]:
    parsed = []
    for index, text in enumerate(texts):
        try:
            parsed.append(parse(text))
        except ValueError as error:
            faults.append(Violation(f"{field}[{index}]", str(error)))
    return parsed


def _cut(text: str, shown: topics_pb2.TopicRecord) -> str:
    if len(text) <= _PART_MAX_CHARS:
        return text
    shown.truncated = True
    shown.omitted_char_count += len(text) - _PART_MAX_CHARS
    return text[:_PART_MAX_CHARS]
