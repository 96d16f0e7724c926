"""Records as people see them: keys and values as JSON, headers as text."""

import base64
import json
from typing import Any

import pyarrow as pa

from drover.api.common.v1 import preview_pb2
from drover.record.batch import HEADERS, KEY, TOPIC, VALUE
from drover.record.json import schemaless
from drover.record.schema import is_schemaless

_PREVIEWED_MAX_LENGTH = 16 * 1024


def shown_record(record: pa.RecordBatch, default_topic: str | None) -> preview_pb2.PreviewedRecord:
    """The one record of a batch, its parts cut to 16 KiB."""
    topic = record.column(TOPIC)[0].as_py() if TOPIC in record.schema.names else None
    shown = preview_pb2.PreviewedRecord(topic=topic or default_topic or "")
    key, value = shown_json(record, KEY), shown_json(record, VALUE)
    if key is not None:
        shown.key = key[:_PREVIEWED_MAX_LENGTH]
    if value is not None:
        shown.value = value[:_PREVIEWED_MAX_LENGTH]
    headers = record.column(HEADERS)[0].as_py() if HEADERS in record.schema.names else None
    for each in headers or ():
        header = shown.headers.add(key=each["key"])
        if each["value"] is not None:
            header.value = each["value"].decode(errors="replace")[:_PREVIEWED_MAX_LENGTH]
    return shown


def shown_json(record: pa.RecordBatch, name: str, row: int = 0) -> str | None:
    """The key or value of a row as JSON; None for null. Bytes that are no text are base64 in an
    object.
    """
    index = record.schema.get_field_index(name)
    value = record.column(index)[row].as_py() if index >= 0 else None
    if value is None:
        return None
    if is_schemaless(record.schema.field(index)):
        return str(value)
    return json_of(value)


def type_text(field: pa.Field) -> str:
    """The type of a key or value, for people."""
    return "schemaless" if is_schemaless(field) else str(field.type)


def json_of(value: Any) -> str:
    """A value of Python as JSON; text and bytes that are JSON already stay as they are."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return json.dumps({"bytes": base64.b64encode(value).decode()})
        if is_json(text):
            return text
        value = text
    try:
        return schemaless.dumps(value)
    except (TypeError, ValueError):
        return json.dumps(value, default=str)


def is_json(text: str) -> bool:
    """Whether a text is JSON."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
