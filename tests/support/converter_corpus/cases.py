"""What the real converters of Kafka Connect are asked.

A case is a dict for JSON: ``name``, ``class`` and ``config`` of the converter, ``header`` (whether
it converts headers), and either ``bytes`` to read (base64, or None) or ``schema`` and ``value`` to
write (as the JSON converter writes them, ``"NaN"`` for NaN; without a schema any JSON).
Its result is ``schema`` and ``value`` that were read, ``bytes`` that were written, or ``error``.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

from drover.record import schema as schemas

Case = dict[str, Any]

_CLASSES = {
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "string": "org.apache.kafka.connect.storage.StringConverter",
    "simple": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "bytes": "org.apache.kafka.connect.converters.ByteArrayConverter",
    **{
        name: f"org.apache.kafka.connect.converters.{name.capitalize()}Converter"
        for name in ("boolean", "short", "integer", "long", "float", "double")
    },
}


def cases() -> list[Case]:
    """All of them; their names differ."""
    found = [
        *_read_envelopes(),
        *_read_schemaless(),
        *_write_json(),
        *_strings(),
        *_numbers(),
        *_simple_headers(),
        *_other_headers(),
    ]
    names = [each["name"] for each in found]
    assert len(set(names)) == len(names), sorted({each for each in names if names.count(each) > 1})
    return found


def _read(kind: str, name: str, data: bytes | None, *, header: bool = False, **config: str) -> Case:
    return {
        "name": f"{kind} reads {name}{' as a header' if header else ''}",
        "class": _CLASSES[kind],
        "config": _settings(config),
        "header": header,
        "bytes": None if data is None else base64.b64encode(data).decode(),
    }


def _write(
    kind: str, name: str, schema: object, value: object, *, header: bool = False, **config: str
) -> Case:
    return {
        "name": f"{kind} writes {name}{' as a header' if header else ''}",
        "class": _CLASSES[kind],
        "config": _settings(config),
        "header": header,
        "schema": schema,
        "value": value,
    }


def _settings(config: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in config.items()}


def _of(kind: str, *, optional: bool = False, **more: object) -> dict[str, object]:
    return {"type": kind, "optional": optional, **more}


def _struct(*fields: dict[str, object], **more: Any) -> dict[str, object]:
    return _of("struct", fields=list(fields), **more)


def _field(name: str, kind: str, **more: Any) -> dict[str, object]:
    return _of(kind, field=name, **more)


def _decimal(scale: int = 2, **more: Any) -> dict[str, object]:
    parameters = {"scale": str(scale)}
    return _of("bytes", name=schemas.DECIMAL, version=1, parameters=parameters, **more)


_DATE = _of("int32", name=schemas.DATE, version=1)
_TIME = _of("int32", name=schemas.TIME, version=1)
_TIMESTAMP = _of("int64", name=schemas.TIMESTAMP, version=1)
_ORDER = _struct(
    _field("id", "int32"), _field("who", "string", optional=True), _field("price", "double"),
    name="shop.Order", version=2,
)  # fmt: skip
_DEFAULTS = _struct(
    _field("a", "int32", default=7),
    _field("b", "string", optional=True, default="none"),
    _field("c", "double", optional=True),
)
_INT_MAP = _of("map", keys=_of("int32"), values=_of("string", optional=True))
_TEXT_MAP = _of("map", keys=_of("string"), values=_of("int64"))
_INTS = _of("array", items=_of("int32", optional=True))


def _payloads() -> Iterator[tuple[str, object, str]]:
    """Names, schemas, payloads as text."""
    for bits in (8, 16, 32, 64):
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        for number in (0, low, high, low - 1, high + 1):
            yield f"int{bits} {number}", _of(f"int{bits}"), str(number)
    for text in ("1.0", "1.5", '"1"', "true", "null", "1e2", "[]", "01"):
        yield f"int32 {text}", _of("int32"), text
    for text in ("1", "1.5", "-0.0", "1e300", "1e400", '"NaN"', "NaN", '"Infinity"', '"x"', "true"):
        yield f"double {text}", _of("double"), text
    for text in ("0.1", "3.5e38", "16777217"):
        yield f"float {text}", _of("float"), text
    for text in ("true", "false", "1", '"true"', "null"):
        yield f"boolean {text}", _of("boolean"), text
    for text in ('"x"', '""', '"\\u0000\\n\\"\\\\é\\ud83d\\ude00"', "1", "null", "{}"):
        yield f"string {text}", _of("string"), text
    for text in ('"AAH/"', '""', '"A"', '"no base64!"', "1"):
        yield f"bytes {text}", _of("bytes"), text
    for text in ('"AJY="', '"gA=="', '""', "1.50", "1.5", "1.505", "150", '"x!"', "true"):
        yield f"decimal {text}", _decimal(), text
    yield "a decimal without scale", _of("bytes", name=schemas.DECIMAL, version=1), '"AJY="'
    for text in ("0", "19782", "-1", '"2024-01-01"', "3000000000"):
        yield f"date {text}", _DATE, text
    for text in ("0", "86399999", "-1", "90000000"):
        yield f"time {text}", _TIME, text
    for text in ("0", "1704067200123", "-62135596800000", "9223372036854775807", '"now"'):
        yield f"timestamp {text}", _TIMESTAMP, text
    for text in ("[1,null,3]", "[]", '[1,"x"]', "{}", "1"):
        yield f"array {text}", _INTS, text
    yield "an array of required with null", _of("array", items=_of("int32")), "[1,null]"
    for text in ('{"a":1,"b":2}', "{}", '{"a":null}', "[[1,2]]", "1"):
        yield f"map {text}", _TEXT_MAP, text
    for text in ('[[1,"x"],[2,null]]', "[]", '{"1":"x"}', "[[1]]", "[1]", '[[null,"x"]]'):
        yield f"map with numbers as keys {text}", _INT_MAP, text
    for text in (
        '{"id":1,"who":"x","price":1.5}',
        '{"id":1,"who":null,"price":2}',
        '{"price":1.5,"id":1}',
        '{"id":1,"who":"x"}',
        '{"id":null,"who":"x","price":1}',
        '{"id":1,"who":"x","price":1,"more":{"x":1}}',
        '{"id":1,"id":2,"price":1}',
        "[]",
        "null",
    ):
        yield f"struct {text}", _ORDER, text
    yield "null for an optional struct", {**_ORDER, "optional": True}, "null"
    yield (
        "a struct in a struct",
        _struct(_field("in", "struct", fields=[_field("x", "int8")])),
        ('{"in":{"x":5}}'),
    )
    yield "a struct without fields", _struct(), "{}"
    yield "defaults", _DEFAULTS, '{"a":1,"b":"x","c":1.5}'
    yield "defaults for null", _DEFAULTS, '{"a":null,"b":null,"c":null}'
    yield "defaults for missing fields", _DEFAULTS, "{}"
    yield "the default of a value", _of("int64", default=5), "null"
    yield "the default of a struct", _struct(_field("a", "int32"), default={"a": 4}), "null"
    yield "a decimal's default", _struct(_decimal() | {"field": "d", "default": "AJY="}), "{}"
    yield "doc and parameters", _of("int8", doc="what", parameters={"p": "1"}, name="n"), "1"


def _read_envelopes() -> Iterator[Case]:
    for name, schema, payload in _payloads():
        text = f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'
        yield _read("json", name, text.encode())
    for name, payload in (("null", '{"a":null,"b":null,"c":null}'), ("nothing", "{}")):
        text = f'{{"schema":{json.dumps(_DEFAULTS)},"payload":{payload}}}'
        yield _read(
            "json", f"{name}, keeping null", text.encode(), replace__null__with__default="false"
        )
    schema = json.dumps(_of("int32"))
    for name, data in {
        "a tombstone": None,
        "no bytes": b"",
        "no JSON": b"{nope",
        "a number without envelope": b"1",
        "an object without envelope": b'{"a":1}',
        "null without envelope": b"null",
        "no schema": b'{"payload":1}',
        "no payload": b'{"schema":null}',
        "another field": f'{{"schema":{schema},"payload":1,"x":1}}'.encode(),
        "the payload first": f'{{"payload":1,"schema":{schema}}}'.encode(),
        "white space": f' {{ "schema" : {schema} ,\n "payload" :\n1\n}} '.encode(),
        "something behind": f'{{"schema":{schema},"payload":1}} x'.encode(),
        "two values": f'{{"schema":{schema},"payload":1}}'.encode() * 2,
        "no UTF-8": b'{"schema":{"type":"string"},"payload":"\xff"}',
        "half a surrogate": b'{"schema":{"type":"string"},"payload":"\\ud800"}',
        "null as schema, an object": b'{"schema":null,"payload":{"a":[1,2.5,"x",null,true]}}',
        "null as schema, null": b'{"schema":null,"payload":null}',
        "text as schema": b'{"schema":"int32","payload":1}',
        "a schema without type": b'{"schema":{},"payload":1}',
        "an unknown type": b'{"schema":{"type":"int7"},"payload":1}',
        "an array without items": b'{"schema":{"type":"array"},"payload":[]}',
        "a map without keys": b'{"schema":{"type":"map","values":{"type":"int8"}},"payload":{}}',
        "a struct without list of fields": b'{"schema":{"type":"struct"},"payload":{}}',
        "a field without name": (
            b'{"schema":{"type":"struct","fields":[{"type":"int8"}]},"payload":{}}'
        ),
        "parameters that are no text": (
            b'{"schema":{"type":"int8","parameters":{"a":1}},"payload":1}'
        ),
        "a default of another type": b'{"schema":{"type":"int8","default":"x"},"payload":1}',
    }.items():
        yield _read("json", name, data)
    order = json.dumps(_ORDER)
    for data in (b'{"id":1,"price":2}', b"{}", None):
        yield _read("json", f"with schema.content {data!r}", data, schema__content=order)


def _read_schemaless() -> Iterator[Case]:
    for data in (
        None, b"", b"null", b"1", b"-1.5", b"1.0", b"true", b'"x"', b"[1,[2]]", b'{"a":{"b":null}}',
        b"{", b"nope", b"NaN", b"1 2", b"01", b"9223372036854775808", b'{"a":1,"a":2}', b" {} ",
        b'"\xff"', b"{'a':1}", b"// no\n1", b'\xef\xbb\xbf{"a":1}', b"[1,]",
    ):  # fmt: skip
        yield _read("json", f"schemaless {data!r}", data, schemas__enable="false")


def _writable() -> Iterator[tuple[str, object, object]]:
    for bits in (8, 16, 32, 64):
        yield f"int{bits}", _of(f"int{bits}"), -(1 << (bits - 1))
    for number in (1.0, 1.5, 0.1, 1e7, 1e-5, 1e300, "NaN", "Infinity", "-Infinity", -0.0, 123456.0):
        yield f"double {number}", _of("double"), number
    for number in (1.0, 0.1, 3.4e38, 1e-10, 16777216.0):
        yield f"float {number}", _of("float"), number
    yield "true", _of("boolean"), True
    for text in ("", "x", 'a"b\\c/d\n\t\u0001', "é😀\u2028", "null"):
        yield f"string {text!r}", _of("string"), text
    yield "bytes", _of("bytes"), "AAH/"
    for text in ("AJY=", "/w==", "AA=="):
        yield f"decimal {text}", _decimal(), text
    yield "a small decimal", _decimal(10), "AQ=="
    yield "a date", _DATE, 19782
    yield "a date before 1970", _DATE, -10
    yield "the first date", _DATE, 0
    yield "a time", _TIME, 3723004
    yield "a timestamp", _TIMESTAMP, 1704067200123
    yield "a timestamp at midnight", _TIMESTAMP, 1704067200000
    yield "a timestamp before 1970", _TIMESTAMP, -1500
    yield "an array", _INTS, [1, None, 3]
    yield "an empty array", _INTS, []
    yield "a map", _TEXT_MAP, {"a": 1}
    yield "a map with numbers as keys", _INT_MAP, [[1, "x"]]
    yield "an array of strings", _of("array", items=_of("string")), ['a"b', ""]
    yield "a struct", _ORDER, {"id": 1, "who": "x", "price": 1.5}
    yield "a struct with null", _ORDER, {"id": 1, "price": 2.0}
    yield "a struct with a required null", _ORDER, {"price": 2.0}
    yield "a struct with defaults", _DEFAULTS, {}
    inner = _field(
        "in", "struct", optional=True, fields=[_field("x", "int8"), _INTS | {"field": "y"}]
    )
    yield "a struct in a struct", _struct(inner), {"in": {"x": 5, "y": [1]}}
    yield "an optional struct in a struct", _struct(inner), {}
    yield "a struct without fields", _struct(), {}
    yield "doc and parameters", _of("int8", doc="what", parameters={"p": "1"}, name="n"), 1
    yield "null", _of("string", optional=True), None
    yield "null for required", _of("string"), None
    yield "null with default", _of("string", default="d"), None
    yield "tombstone", None, None
    schemaless: tuple[object, ...] = (
        {"a": 1, "b": [1, "x", None], "c": {"d": True}},
        [],
        "text",
        5,
        2.5,
        True,
    )
    for value in schemaless:
        yield f"schemaless {json.dumps(value)}", None, value


def _write_json() -> Iterator[Case]:
    for name, schema, value in _writable():
        yield _write("json", name, schema, value)
        yield _write("json", f"{name} without envelope", schema, value, schemas__enable="false")
    for text in ("AJY=", "/w=="):
        yield _write("json", f"numeric {text}", _decimal(), text, decimal__format="NUMERIC")
    default = _struct(_decimal() | {"field": "d", "default": "AJY="})
    yield _write("json", "a numeric default", default, {}, decimal__format="numeric")
    yield _write(
        "json", "null for a default", _DEFAULTS, {"a": 1}, replace__null__with__default="false"
    )
    yield _write("json", "with schema.content", _ORDER, {"id": 1, "price": 2.0},
                 schema__content=json.dumps(_ORDER))  # fmt: skip


def _strings() -> Iterator[Case]:
    for name, schema, value in _writable():
        yield _write("string", name, schema, value)
    for data in (None, b"", b"x", "é😀".encode(), b"a\xffb", b"\xe2\x82", b"\xf0\x9f\x98x"):
        yield _read("string", repr(data), data)
    for encoding in ("UTF-16", "ISO-8859-1", "US-ASCII", "UTF-16LE"):
        data = b"\x00a\x00b"
        yield _read("string", f"{encoding} bytes", data, converter__encoding=encoding)
        text = _of("string")
        yield _write("string", f"{encoding} text", text, "aé", converter__encoding=encoding)


def _numbers() -> Iterator[Case]:
    values = {
        "boolean": ("boolean", True, b"\x01"),
        "short": ("int16", -2, b"\xff\xfe"),
        "integer": ("int32", -2, b"\xff\xff\xff\xfe"),
        "long": ("int64", 258, b"\0\0\0\0\0\0\1\2"),
        "float": ("float", 1.5, b"\x3f\xc0\0\0"),
        "double": ("double", -0.1, b"\xbf\xb9\x99\x99\x99\x99\x99\x9a"),
    }
    for kind, (type_name, value, data) in values.items():
        yield _write(kind, type_name, _of(type_name), value)
        yield _write(kind, "null", _of(type_name, optional=True), None)
        yield _write(kind, "text", _of("string"), "1")
        yield _write(kind, "an int8", _of("int8"), 1)
        yield _read(kind, "a value", data)
        for other in (None, b"", data + b"\0", b"12345"):
            yield _read(kind, repr(other), other)
    yield _read("boolean", "2", b"\x02")
    yield _read("boolean", "0", b"\x00")
    yield _write("float", "NaN", _of("float"), "NaN")
    yield _write("bytes", "bytes", _of("bytes"), "AAH/")
    yield _write("bytes", "null", _of("bytes", optional=True), None)
    yield _write("bytes", "text", _of("string"), "x")
    yield _write("bytes", "a decimal", _decimal(), "AJY=")
    yield _write("bytes", "schemaless text", None, "x")
    for raw in (None, b"", b"\x00\xff"):
        yield _read("bytes", repr(raw), raw)


def _simple_headers() -> Iterator[Case]:
    for name, schema, value in _writable():
        yield _write("simple", name, schema, value, header=True)
    for text in (
        "", " ", "null", "true", "FALSE", "false", " true ", "true blue", "true,false", "x", "0",
        "127", "128", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808",
        "+5", "-", "1.0", "1.5", "0.1", "3.14159265358979", "1e5", "1e400", "1.5e400", ".5", "5.",
        "1e", "NaN", "0x10", "1_000", "12 34", "2024-02-29", "2024-13-45", "2024-1-1xx",
        "12:34:56.789Z", "2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56Z", "25:00:00.000Z",
        "[]", "[1,2,3]", "[1, 300]", "[1,2.5]", "[1.5,2]", '["a","b"]', '[1,"a"]', "[a,b]",
        "[1,null]", "[null,1]", '{"a":1,"b":null}', '{"a":null,"b":1}', '["x",null]', "-.5",
        "[null]", "[1,]", "[,1]", "[1", "[[1],[2,3]]", "[1,2] x", "{}", '{"a":1}',
        '{"a":1,"b":300}',
        '{"a":1,"b":"x"}', "{1:2}", "{a:1}", '{"a":null}', '{"a":[1,2],"b":[]}', '{"a"}', '{"a":1',
        '{"a":1 "b":2}', '{null:1}', '{"d":"2024-02-29"}', "[2024-02-29]", '"quoted"', '["a,b:{}"]',
        '["a\\"b"]', "a:b", "a,b", "\\[1]", "http://x.y/z?a=1,2", "\u00e9", "0012", "-0", "{[1]:2}",
        "[true,false]", "[true,1]", '{"a":true,"b":false}', "[12:34:56.789Z]", '["2024-13-45"]',
        "1 ", " 1", "[1]]", "null,", "[{}]", "[ ]", "{ }", "1,2", "123abc", "1d", "1f", "1.50",
        "100000000000000000000.5", "4e38", "1e40", "1.5e40", "0e5", "[\"\"]", "[ \"a\" , \"b\" ]",
    ):  # fmt: skip
        yield _read("simple", repr(text), text.encode(), header=True)
    yield _read("simple", "no text", b"\xff\xfe", header=True)
    yield _read("simple", "nothing", None, header=True)


def _other_headers() -> Iterator[Case]:
    yield _write("json", "a map", _TEXT_MAP, {"a": 1}, header=True)
    yield _read("json", "a number", b'{"schema":{"type":"int8"},"payload":1}', header=True)
    yield _write("string", "a number", _of("int32"), 5, header=True)
    yield _read("string", "text", b"x", header=True)
    yield _read("bytes", "bytes", b"\x00", header=True)
