"""Variants of JSON, which differ in decimals, times, maps and non-finite numbers."""

from dataclasses import dataclass, replace
from enum import Enum


class Decimals(Enum):
    """The JSON representation of a decimal."""

    #: The base64 of its unscaled value in two's complement; the schema has the scale.
    BASE64 = "base64"
    #: A JSON number with all digits.
    NUMBER = "number"
    #: The number as a JSON string, for readers that parse numbers as doubles.
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonForm:
    """How values without a standard JSON representation are written. Bytes are base64."""

    decimals: Decimals
    #: Whether dates, times and timestamps are ISO 8601 strings; else they are days since 1970,
    #: milliseconds of the day and milliseconds since 1970.
    iso_times: bool
    #: Whether NaN and infinities are null; else they are the strings NaN, Infinity and -Infinity.
    non_finite_is_null: bool
    #: Whether maps with other keys than text are objects, with each key converted to text; else
    #: they are arrays of [key, value].
    maps_are_objects: bool
    #: Whether bytes are an object with their base64 in the field "bytes"; else only the base64.
    bytes_are_labelled: bool = False
    #: Whether the names of Debezium's semantic types count: times in ISO 8601, numbers of any
    #: scale; else they are the numbers and structs that contain them.
    semantic_types: bool = False


#: The form that Kafka Connect's JsonConverter writes.
CONNECT = JsonForm(
    decimals=Decimals.BASE64, iso_times=False, non_finite_is_null=False, maps_are_objects=False
)
#: The same with decimal.format=NUMERIC.
CONNECT_NUMERIC = replace(CONNECT, decimals=Decimals.NUMBER)
#: For readers without a schema.
PLAIN = JsonForm(
    decimals=Decimals.NUMBER, iso_times=True, non_finite_is_null=True, maps_are_objects=True
)
#: For JSON columns of databases, some of which parse decimals as doubles.
PLAIN_FOR_DATABASES = replace(PLAIN, decimals=Decimals.TEXT)
#: For people, who need to recognise the values.
SHOWN = replace(PLAIN, non_finite_is_null=False, bytes_are_labelled=True, semantic_types=True)
