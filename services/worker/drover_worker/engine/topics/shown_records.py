"""Shows records to people: keys and values as JSON, headers as text."""

import base64
import json

import pyarrow as pa

from drover.api.common.v1 import preview_pb2
from drover.convert.lenient import is_json
from drover.record.arrow import is_binary
from drover.record.batch import HEADERS, KEY, TOPIC, VALUE
from drover.record.json.encode import json_texts
from drover.record.json.form import SHOWN
from drover.record.json.schemaless import value_text
from drover.record.schema import is_schemaless
from drover.transform.conditions import header_text

_PREVIEWED_MAX_LENGTH = 16 * 1024


def shown_record(record: pa.RecordBatch, default_topic: str | None) -> preview_pb2.PreviewedRecord:
    """The record of a one-row batch, each part shortened to 16 KiB."""
    topic = record.column(TOPIC)[0].as_py() if TOPIC in record.schema.names else None
    shown = preview_pb2.PreviewedRecord(topic=topic or default_topic or "")
    (key,), (value,) = shown_texts(record, KEY), shown_texts(record, VALUE)
    if key is not None:
        shown.key = key[:_PREVIEWED_MAX_LENGTH]
    if value is not None:
        shown.value = value[:_PREVIEWED_MAX_LENGTH]
    headers = record.column(HEADERS)[0].as_py() if HEADERS in record.schema.names else None
    for each in headers or ():
        header = shown.headers.add(key=each["key"])
        if each["value"] is not None:
            header.value = (header_text(each["value"]) or "")[:_PREVIEWED_MAX_LENGTH]
    return shown


def shown_texts(records: pa.RecordBatch, name: str) -> list[str | None]:
    """The keys or values as JSON; None for null.

    Bytes that contain JSON stay unchanged, other texts become JSON strings, and bytes that are not
    UTF-8 become base64 in an object. Values of a schema are shown as JsonForm SHOWN.
    """
    index = records.schema.get_field_index(name)
    if index < 0:
        return [None] * records.num_rows
    field, values = records.schema.field(index), records.column(index)
    if is_binary(field.type):
        return [None if each is None else _text_of_bytes(each) for each in values.to_pylist()]
    try:
        texts: list[str | None] = json_texts(field, values, SHOWN).to_pylist()
    except pa.ArrowNotImplementedError:  # of types that a connector may make and no schema has
        texts = [None if each is None else value_text(each, SHOWN) for each in values.to_pylist()]
    return texts


def type_text(field: pa.Field) -> str:
    """The type of a key or value, as text for people."""
    return "schemaless" if is_schemaless(field) else str(field.type)


def _text_of_bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return json.dumps({"bytes": base64.b64encode(value).decode()})
    return text if is_json(text) else value_text(text)
