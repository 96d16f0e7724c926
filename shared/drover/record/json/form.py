"""The forms of JSON, which differ in decimals, times, maps and numbers that are not finite."""

from dataclasses import dataclass, replace
from enum import Enum


class Decimals(Enum):
    """What a decimal is in JSON."""

    #: The base64 of its digits as a whole number, in two's complement; its schema has the scale.
    BASE64 = "base64"
    #: A number with all its digits.
    NUMBER = "number"
    #: The text of that number, for readers whose numbers are doubles.
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonForm:
    """How values are written for which JSON has several ways. Bytes are base64 in every form."""

    decimals: Decimals
    #: Whether dates, times and timestamps are texts in ISO 8601; else they are days since 1970,
    #: milliseconds of the day and milliseconds since 1970.
    iso_times: bool
    #: Whether NaN and infinities are null; else they are the texts NaN, Infinity and -Infinity.
    non_finite_is_null: bool
    #: Whether maps whose keys are no texts are objects, too, with the text of each key; else they
    #: are arrays of [key, value].
    maps_are_objects: bool


#: What Kafka Connect's JsonConverter writes.
CONNECT = JsonForm(
    decimals=Decimals.BASE64, iso_times=False, non_finite_is_null=False, maps_are_objects=False
)
#: The same with decimal.format=NUMERIC.
CONNECT_NUMERIC = replace(CONNECT, decimals=Decimals.NUMBER)
#: For readers without a schema.
PLAIN = JsonForm(
    decimals=Decimals.NUMBER, iso_times=True, non_finite_is_null=True, maps_are_objects=True
)
#: For columns of JSON in databases, some of which would make doubles of decimals.
PLAIN_FOR_DATABASES = replace(PLAIN, decimals=Decimals.TEXT)
