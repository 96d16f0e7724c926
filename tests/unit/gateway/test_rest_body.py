"""Bodies of the REST API: values become texts as in Kafka Connect, all faults are in one error."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from drover_gateway.rest.body import (
    ConfigBody,
    OffsetBody,
    json_text,
    parse_config,
    parse_create,
    parse_level,
    parse_object,
    parse_offsets,
)
from drover_gateway.rest.errors import RestError


def refused(parse: Callable[[bytes], Any], body: bytes) -> str:
    """The message of the error."""
    with pytest.raises(RestError) as found:
        parse(body)
    assert found.value.status == 400
    return found.value.message


def test_numbers_keep_their_digits_and_booleans_become_texts() -> None:
    body = b"""{"a": 12345678901234567890123, "b": 1.50, "c": 1e5, "d": true, "e": false, "f": "x",
               "g": null, "h": -0.0}"""
    assert parse_config(body) == ConfigBody(
        {
            "a": "12345678901234567890123",
            "b": "1.50",
            "c": "1e5",
            "d": "true",
            "e": "false",
            "f": "x",
            "h": "-0.0",
        },
        ("g",),
    )


def test_the_last_of_a_repeated_field_counts() -> None:
    made = parse_create(b'{"name":"a","name":"b","config":{"x":"1","x":"2"}}')
    assert (made.name, made.config.settings) == ("b", {"x": "2"})


def test_all_faults_of_a_body_are_told() -> None:
    message = refused(
        parse_create,
        b'{"name": [], "config": {"a": {}, "b": []}, "initial_state": "SLEEPING", "more": 1}',
    )
    for fault in (
        "name must be a text, not a list",
        "config.a must be a text, not an object",
        "config.b must be a text, not a list",
        "initial_state must be RUNNING, PAUSED, STOPPED, not 'SLEEPING'",
        "more is unknown: the fields are name, config, initial_state",
    ):
        assert fault in message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"{not json",
        b'{"a": 1} garbage',
        b'{"a": 1}{"a": 1}',
        b"[]",
        b'"text"',
        b"1",
        b"null",
        b"true",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        b"\x1f\x8b\x08",
        b'{"a": "\x01"}',
        b'{"a": 01}',
        b"{'a': 1}",
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    assert "the request body" in refused(parse_object, body)


def test_half_a_surrogate_is_refused_anywhere() -> None:
    half = rb"\ud800"
    for body in (
        b'{"%b": "a"}' % half,
        b'{"a": "%b"}' % half,
    ):
        assert "Unicode" in refused(parse_config, body)
    assert "Unicode" in refused(parse_create, b'{"name": "%b", "config": {}}' % half)
    assert "Unicode" in refused(parse_level, b'{"level": "%b"}' % half)
    offsets = b'{"offsets": [{"partition": {"%b": 1}, "offset": null}]}' % half
    assert parse_offsets(b'{"offsets": [{"partition": {"a": "\xf0\x9f\x98\x80"}}]}')
    assert "Unicode" in refused(parse_offsets, offsets)


def test_offsets_keep_their_digits() -> None:
    body = b"""{"offsets": [
        {"partition": {"a": 1.50, "b": [true, null, "x\\""]},
         "offset": {"n": 12345678901234567890}},
        {"partition": {}, "offset": null},
        {"partition": {"\xc3\xbc": 1}}
    ]}"""
    assert parse_offsets(body) == (
        OffsetBody('{"a":1.50,"b":[true,null,"x\\""]}', '{"n":12345678901234567890}'),
        OffsetBody("{}", None),
        OffsetBody('{"ü":1}', None),
    )


@pytest.mark.parametrize("body", [b"{}", b'{"offsets": null}', b'{"offsets": []}'])
def test_a_body_may_have_no_offsets(body: bytes) -> None:
    assert parse_offsets(body) == ()


def test_all_faults_of_offsets_are_told() -> None:
    message = refused(
        parse_offsets,
        b'{"offsets": [{"partition": "a", "offset": 1, "more": 2}, {"offset": null}, 7], "x": 1}',
    )
    for fault in (
        "offsets[0].partition must be a JSON object, not a text",
        "offsets[0].offset must be a JSON object or null, not a number",
        "offsets[0].more is unknown",
        "offsets[1].partition must be a JSON object, not null",
        "offsets[2] must be a JSON object, not a number",
        "x is unknown",
    ):
        assert fault in message


def test_deep_offsets_are_refused_or_kept() -> None:
    for depth in (100, 300, 500, 800, 990, 3_000):
        inner = b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"offsets": [{"partition": ' + inner + b', "offset": null}]}'
        try:
            (found,) = parse_offsets(body)
        except RestError:
            assert "nested too deeply" in refused(parse_offsets, body)
        else:
            assert found.partition.encode() == inner


@pytest.mark.parametrize(
    ("body", "level"),
    [
        (b'{"level": "DEBUG"}', "DEBUG"),
        (b'{"level": 1}', "1"),
        (b'{"level": null}', None),
        (b"{}", None),
        (b'{"level": "WARN", "a": []}', "WARN"),
    ],
)
def test_a_level_may_be_missing_and_other_fields_are_ignored(
    body: bytes, level: str | None
) -> None:
    assert parse_level(body) == level


def test_json_is_written_as_it_was_read() -> None:
    text = '{"a":[1,2.0,-1E+5],"b":{"c":null,"d":"\\u0001ü"}}'
    assert json_text(parse_object(text.encode())) == text
    assert json.loads(text)
