"""JSON as indented text. Numbers keep their digits, since the text is divided and never parsed."""

import json
import re

from drover.api.common.v1.topics_pb2 import TopicRecord

_INDENT = "  "
#: Deeper levels have the indent of this one.
_DEPTH_MAX = 16
#: A text that would be longer with line ends stays as it is.
_GROWTH_MAX = 4
_DECODER = json.JSONDecoder()
_HEX = re.compile(r'"0x[0-9a-f]+"')
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s"{}\[\],:]+|\s+', re.DOTALL)


def indented(text: str) -> str:
    """A JSON text with a line for each member. It may be cut, so it may end anywhere."""
    parts: list[str] = []
    depth = 0
    size_max = _GROWTH_MAX * len(text) + 1_000
    size = 0
    previous = ""
    for found in _TOKENS.finditer(text):
        token = found.group()
        if token.isspace():
            continue
        added = ""
        if token in "}]" and depth:
            depth -= 1
            added = "" if previous in ("{", "[") else _line(depth)
        elif previous in ("{", "[", ","):
            added = _line(depth)
        if token in "{[":
            depth += 1
        added += ": " if token == ":" else token
        parts.append(added)
        size += len(added)
        if size > size_max:
            return text
        previous = token
    return "".join(parts)


def _line(depth: int) -> str:
    return "\n" + _INDENT * min(depth, _DEPTH_MAX)


def members_of(text: str) -> dict[str, str] | None:
    """The members of a JSON object, each with its text; None for another value."""

    def after_space(at: int) -> int:
        while text[at].isspace():
            at += 1
        return at

    found: dict[str, str] = {}
    try:
        at = after_space(0)
        if text[at] != "{":
            return None
        at = after_space(at + 1)
        while text[at] != "}":
            name, at = _DECODER.raw_decode(text, at)
            start = after_space(after_space(at) + 1)
            _, end = _DECODER.raw_decode(text, start)
            found[name] = text[start:end]
            at = after_space(end)
            if text[at] == ",":
                at = after_space(at + 1)
    except (ValueError, IndexError, RecursionError):
        return None
    return found


def kind_of(text: str) -> str:
    """The type of a value that the API shows as JSON, in a word."""
    first = text[:1]
    if text.startswith('{"bytes":') and text.count('"') == 4 and text.endswith("}"):
        return "bytes in base64"
    if _HEX.fullmatch(text):
        return "bytes in hexadecimal digits, or such a text"
    kinds = {"{": "object", "[": "list", '"': "text", "t": "boolean", "f": "boolean", "n": "null"}
    return kinds.get(first, "number")


def document_of(topic: str, record: TopicRecord) -> str:
    """A record as one JSON document. A part that was cut is a text in it."""
    time = record.record_time.ToJsonString() if record.HasField("record_time") else None
    headers = [
        {"key": each.key, "value": each.value if each.HasField("value") else None}
        for each in record.headers
    ]
    members = {
        "topic": _dumped(topic),
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": _dumped(time),
        "key": _part(record.key, record) if record.HasField("key") else "null",
        "value": _part(record.value, record) if record.HasField("value") else "null",
        "headers": _dumped(headers),
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in members.items()) + "}"


def _part(text: str, record: TopicRecord) -> str:
    return _dumped(text) if record.truncated else text


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
