"""Errors name the rows of a batch whose JSON texts cannot be read."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.connector.record_settings import with_defaults
from drover.convert.converter import Converter
from drover.convert.json_converter import JsonConverter
from drover.record.errors import RecordError, RowsError

STRUCT = {"type": "struct", "fields": [{"field": "a", "type": "int32"}]}
OTHER = {"type": "struct", "fields": [{"field": "b", "type": "string"}]}


def converter(**settings: str) -> Converter:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    return JsonConverter(JsonConverter.config_def().parse(config).values, is_key=False)


ENVELOPES = with_defaults(JsonConverter)
PLAIN = converter(schemas_enable="false")
FIXED = converter(schema_content=json.dumps(STRUCT))


def envelope(schema: object, payload: object) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def rows_in_error(of: Converter, texts: Sequence[bytes | None]) -> dict[int, str]:
    values = pa.array(texts, pa.binary())
    with pytest.raises(RowsError) as raised:
        of.decode(values, pa.array(["t"] * len(texts)))
    return {row: str(error) for row, error in raised.value.rows.items()}


GOOD, BAD = envelope(STRUCT, {"a": 1}), envelope(STRUCT, {"a": "x"})


def test_rows_that_are_no_json_are_named() -> None:
    found = rows_in_error(PLAIN, [b'{"a": 1}', b"{broken", None, b"{", b"1"])
    assert list(found) == [1, 3]
    assert found[1].startswith("it cannot be read as JSON")


def test_rows_that_are_no_text_are_named() -> None:
    found = rows_in_error(PLAIN, [b"1", None, b"\xff", b"2"])
    assert found == {2: "the bytes are no UTF-8, as JSON must be"}


def test_rows_whose_payload_does_not_fit_are_named_beside_tombstones() -> None:
    found = rows_in_error(ENVELOPES, [None, GOOD, BAD, GOOD, None, BAD])
    assert list(found) == [2, 5]
    assert found[2] == "field a: 'x' is no value of type int32"


def test_rows_without_an_envelope_are_named() -> None:
    texts = [GOOD, b'{"a": 1}', envelope(OTHER, {"b": "x"}), b"[", GOOD, b""]
    found = rows_in_error(ENVELOPES, texts)
    assert list(found) == [1, 3, 5]
    assert "schemas.enable=false" in found[1]


def test_rows_of_a_schema_that_is_set_are_named() -> None:
    assert list(rows_in_error(FIXED, [b'{"a": 1}', None, b'{"a": "x"}', b"{"])) in ([2, 3], [3])


TEXTS = [
    *(GOOD, BAD, envelope(OTHER, {"b": "x"}), envelope(None, {"c": 1}), envelope(STRUCT, {})),
    *(None, b"", b"null", b"{broken", b"\xff", b'{"a": 1}', b'{"payload": 1}'),
    envelope({"type": "nonsense"}, 1),
]


@given(
    of=st.sampled_from([ENVELOPES, PLAIN, FIXED]),
    texts=st.lists(st.sampled_from(TEXTS), min_size=2, max_size=8),
)
def test_leaving_out_what_is_named_ends_with_exactly_the_rows_that_are_good_alone(
    of: Converter, texts: list[bytes | None]
) -> None:
    def is_good(text: bytes | None) -> bool:
        try:
            of.decode(pa.array([text], pa.binary()), pa.array(["t"]))
        except RecordError:
            return False
        return True

    left = list(range(len(texts)))
    while (errors := errors_of(of, [texts[row] for row in left])) is not None:
        left = [row for place, row in enumerate(left) if place not in errors]
    assert left == [row for row, text in enumerate(texts) if is_good(text)]


def errors_of(of: Converter, texts: Sequence[bytes | None]) -> set[int] | None:
    try:
        of.decode(pa.array(texts, pa.binary()), pa.array(["t"] * len(texts)))
    except RowsError as error:
        return set(error.rows)
    except RecordError as error:
        raise AssertionError("no row is named") from error
    return None
