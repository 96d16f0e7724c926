"""A record of a topic as a line of text and as a JSON document."""

import json
from decimal import Decimal
from typing import Any

from drover.api.common.v1.topics_pb2 import TopicRecord
from drover.cli.console import shortened

_CELL_MAX_LENGTH = 400


def record_line(record: TopicRecord) -> str:
    """``partition:offset  time  key  value``, then headers and the decoding error."""
    parts = [f"{record.partition}:{record.offset}", time_text(record)]
    if record.HasField("key"):
        parts.append(_cell(record.key))
    parts.append(_cell(record.value) if record.HasField("value") else "null")
    if record.headers:
        headers = ", ".join(f"{each.key}={each.value}" for each in record.headers)
        parts.append(f"[{_cell(headers)}]")
    if record.error:
        parts.append(f"(not decoded: {record.error})")
    return "  ".join(part for part in parts if part)


def record_document(topic: str, record: TopicRecord) -> dict[str, Any]:
    """The record as a document; key and value are parsed if they are JSON, else strings. Numbers
    in them keep their values (see ``_number``).
    """
    document: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": time_text(record) or None,
        "key": _parsed(record.key) if record.HasField("key") else None,
        "value": _parsed(record.value) if record.HasField("value") else None,
        "headers": [
            {"key": each.key, "value": each.value if each.HasField("value") else None}
            for each in record.headers
        ],
    }
    if record.error:
        document["error"] = record.error
    if record.truncated:
        document["truncated"] = True
        document["omitted_char_count"] = record.omitted_char_count
    return document


def time_text(record: TopicRecord) -> str:
    """The record's timestamp in ISO 8601; empty if it has none."""
    if not record.HasField("record_time"):
        return ""
    return record.record_time.ToDatetime().isoformat(timespec="milliseconds") + "Z"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_number)
    except ValueError:
        return text


def _number(text: str) -> float | str:
    """A number with a fraction; as text if floating point (64 bits) would change its value."""
    found = float(text)
    return found if Decimal(repr(found)) == Decimal(text) else text


def _cell(text: str) -> str:
    return shortened(text, _CELL_MAX_LENGTH)
