"""What a case is, and short words to write many.

A case is a JSON object: ``name``, ``class``, ``config``, ``record``, and the result:
``expected`` (the parts of the record that changed; null when it was dropped), ``matches`` (of
predicates) or
``error`` ({at: configure | apply, class, message}).

A record has topic, partition, offset (null: the record of a source), timestamp (ms), key and value
as {schema, payload}, headers as [key, schema, payload]. Schemas are the JSON converter's; null for
none. Payloads with a schema: bytes in base64, decimals as text, dates in days, times and timestamps
in ms, maps as lists of pairs, numbers that are not finite as text; {"@other": …} where the real
transform made a value that does not fit its own schema. Payloads without: a whole number is a Long,
one with a point or exponent a Double; other classes have a tag: @byte, @short, @int, @float,
@double (not finite), @decimal, @date (java.util.Date, ms), @bytes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Json = Any
TRANSFORMS = "org.apache.kafka.connect.transforms"
PREDICATES = f"{TRANSFORMS}.predicates"
DATA = "org.apache.kafka.connect.data"
#: 2024-02-29T12:34:56.789Z
AT_MS = 1_709_210_096_789


class Cases:
    """The cases of one class; names are unique."""

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name
        self.found: dict[str, Json] = {}

    def add(
        self,
        name: str,
        config: Mapping[str, str],
        value: Json = None,
        *,
        form: str = "Value",
        **record: Json,
    ) -> None:
        """A case; ``value`` is the value (or, with the form Key, the key), made by ``typed`` or
        ``plain``. ``record`` are further parts of the record.
        """
        side = {} if value is None else {form.lower() or "value": value}
        unique, count = name, 1
        while unique in self.found:
            count += 1
            unique = f"{name} #{count}"
        self.found[unique] = {
            "name": unique,
            "class": f"{self.class_name}${form}" if form else self.class_name,
            "config": dict(config),
            "record": record_of(**side, **record),
        }

    def both(self, name: str, config: Mapping[str, str], value: Json, **record: Json) -> None:
        """The case with the value and with the key."""
        self.add(name, config, value, **record)
        self.add(f"{name} (key)", config, value, form="Key", **record)


def record_of(**parts: Json) -> Json:
    """A record with some of its parts."""
    return {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": AT_MS,
        "key": plain(None),
        "value": plain(None),
        "headers": [],
    } | parts


def typed(schema: Json, payload: Json) -> Json:
    """A key or value with a schema."""
    return {"schema": schema, "payload": payload}


def plain(payload: Json) -> Json:
    """A key or value without a schema."""
    return {"schema": None, "payload": payload}


def kind(base: str, /, **more: Json) -> Json:
    """The schema of a type; required unless ``optional=True``."""
    return {"type": base, "optional": False} | more


def logical(name: str, **more: Json) -> Json:
    """The schema of a logical type: Decimal (of scale 2), Date, Time, Timestamp."""
    base = {"Decimal": "bytes", "Timestamp": "int64"}.get(name, "int32")
    scale = {"parameters": {"scale": "2"}} if name == "Decimal" else {}
    return kind(base, name=f"{DATA}.{name}", version=1, **({**scale, **more}))


def struct(fields: Mapping[str, Json], **more: Json) -> Json:
    """The schema of a struct."""
    listed = [schema | {"field": name} for name, schema in fields.items()]
    return kind("struct", fields=listed, **more)


def array(items: Json, **more: Json) -> Json:
    """The schema of an array."""
    return kind("array", items=items, **more)


def map_of(keys: Json, values: Json, **more: Json) -> Json:
    """The schema of a map."""
    return kind("map", keys=keys, values=values, **more)


def optional(schema: Json) -> Json:
    """The schema, optional."""
    return schema | {"optional": True}


STRING, BOOLEAN, BYTES = kind("string"), kind("boolean"), kind("bytes")
INT8, INT16, INT32, INT64 = kind("int8"), kind("int16"), kind("int32"), kind("int64")
FLOAT32, FLOAT64 = kind("float"), kind("double")
DECIMAL, DATE, TIME, TIMESTAMP = (
    logical(each) for each in ("Decimal", "Date", "Time", "Timestamp")
)

#: A struct with a field of every type, and a value of it.
EVERY = struct(
    {
        "i8": INT8, "i16": INT16, "i32": INT32, "i64": INT64, "f32": FLOAT32, "f64": FLOAT64,
        "bool": BOOLEAN, "text": STRING, "bytes": BYTES, "decimal": DECIMAL, "date": DATE,
        "time": TIME, "at": TIMESTAMP, "list": array(INT32), "map": map_of(STRING, INT32),
        "inner": struct({"a": INT32, "b": optional(STRING)}, name="shop.Inner"),
        "none": optional(STRING), "given": optional(INT32) | {"default": 7},
    },
    name="shop.Every", version=2, doc="every type",
)  # fmt: skip
EVERY_PAYLOAD: Json = {
    "i8": 1, "i16": -2, "i32": 3, "i64": 4_000_000_000, "f32": 1.5, "f64": -2.25, "bool": True,
    "text": "hello", "bytes": "AAH/", "decimal": "12.34", "date": 19782, "time": 45296789,
    "at": AT_MS, "list": [1, 2], "map": [["x", 1]], "inner": {"a": 1, "b": "in"}, "none": None,
    "given": None,
}  # fmt: skip
EVERY_VALUE = typed(EVERY, EVERY_PAYLOAD)
#: Every kind of value in JSON without a schema.
PLAIN_PAYLOAD: Json = {
    "whole": 3, "number": -2.25, "bool": True, "text": "hello", "list": [1, "b"], "none": None,
    "inner": {"a": 1, "b": "in", "deep": {"c": 2.5}},
}  # fmt: skip
PLAIN_VALUE = plain(PLAIN_PAYLOAD)
#: Values that are no struct and no map, for transforms that need one.
NOT_STRUCTS: Iterable[tuple[str, Json]] = (
    ("text", typed(STRING, "hello")),
    ("int", typed(INT32, 5)),
    ("array", typed(array(INT32), [1])),
    ("a typed map", typed(map_of(STRING, INT32), [["i32", 1]])),
    ("plain text", plain("hello")),
    ("plain number", plain(5)),
    ("plain list", plain([1])),
)
NULLS: Iterable[tuple[str, Json]] = (
    ("null without schema", plain(None)),
    ("null with schema", typed(optional(EVERY), None)),
)
