"""Our converters against the answers of Kafka Connect's own (tests/golden/converters.json)."""

import base64
import json
from typing import Any

import pytest

from tests.support.converter_corpus.answers import answer, comparable, written_json
from tests.support.converter_corpus.cases import cases
from tests.support.each import by, check_each
from tests.support.repository import REPOSITORY

GOLDEN = json.loads((REPOSITORY / "tests" / "golden" / "converters.json").read_text())

#: Where Kafka Connect silently loses or changes a value, Drover refuses or keeps it.
DEVIATIONS = {
    "a number out of range wraps around": (
        "json reads int8 -129", "json reads int8 128", "json reads int16 -32769",
        "json reads int16 32768", "json reads int32 -2147483649", "json reads int32 2147483648",
        "json reads int64 -9223372036854775809", "json reads int64 9223372036854775808",
        "json reads schemaless b'9223372036854775808'", "json reads double 1e400",
        "json reads float 3.5e38",
    ),
    "a value of another type is 0, false, null or empty": (
        'json reads int32 "1"', "json reads int32 true", "json reads int32 []",
        'json reads double "x"', "json reads double true", "json reads boolean 1",
        'json reads boolean "true"', "json reads string 1", "json reads string {}",
        "json reads bytes 1", 'json reads array [1,"x"]', "json reads array {}",
        "json reads array 1", "json reads a default of another type",
    ),
    "what it writes for NaN and infinity it reads as 0": (
        'json reads double "NaN"', 'json reads double "Infinity"',
    ),
    "digits are cut off": (
        "json reads int32 1.5", "json reads decimal 1.505", "json reads double -0.0",
        "simple reads '3.14159265358979' as a header",
        "simple reads '100000000000000000000.5' as a header",
    ),
    "text after a value is dropped": (
        "json reads something behind", "json reads two values", "json reads schemaless b'1 2'",
        "simple reads '[1,2] x' as a header", "simple reads '[1]]' as a header",
        "simple reads '1,2' as a header",
    ),
    "half a character becomes a question mark, bytes that are no text U+FFFD": (
        "json reads half a surrogate", "simple reads no text as a header",
    ),
    "what is no JSON by its standard is taken": (
        "json reads int32 01", "json reads schemaless b'01'",
        'json reads schemaless b\'\\xef\\xbb\\xbf{"a":1}\'',
    ),
    "a struct's default cannot be read": ("json reads the default of a struct",),
    "the address of an object is written": ("string writes bytes",),
    "the date of a day before the second of 1970 is lost": (
        "simple writes a date before 1970 as a header", "simple writes the first date as a header",
        "simple writes a timestamp before 1970 as a header",
    ),
    "a struct that lacks a required field is written": (
        "simple writes a struct with a required null as a header",
    ),
    "days and hours that are none are taken for others": (
        "simple reads '2024-13-45' as a header", "simple reads '2024-1-1xx' as a header",
        "simple reads '25:00:00.000Z' as a header", "simple reads '[\"2024-13-45\"]' as a header",
    ),
    "a value is read that no column can hold; it stays text": (
        "simple reads '1e400' as a header", "simple reads '1.5e400' as a header",
        "simple reads '{[1]:2}' as a header",
    ),
}  # fmt: skip
_DEVIATING = {name for names in DEVIATIONS.values() for name in names}
_ENTRIES = by(GOLDEN["cases"], lambda entry: entry["case"]["class"].rpartition(".")[2])


def test_the_corpus_is_that_of_the_cases() -> None:
    assert [each["case"] for each in GOLDEN["cases"]] == json.loads(json.dumps(cases()))
    assert {each["case"]["name"] for each in GOLDEN["cases"]} >= _DEVIATING


@pytest.mark.parametrize("converter", sorted(_ENTRIES))
def test_the_answer_is_that_of_kafka_connect(converter: str) -> None:
    check_each(_ENTRIES[converter], _check, lambda entry: entry["case"]["name"])


def _check(entry: dict[str, Any]) -> None:
    case, expected = entry["case"], entry["result"]
    found = answer(case)
    if case["name"] in _DEVIATING:
        assert comparable(found) != comparable(expected), "the case no longer deviates"
    elif "bytes" in found and case["class"].endswith("JsonConverter"):
        assert written_json(found["bytes"]) == written_json(expected.get("bytes")), expected
    else:
        assert comparable(found) == comparable(expected), _shown(found)


def _shown(result: dict[str, Any]) -> object:
    return base64.b64decode(result["bytes"]) if result.get("bytes") else result
