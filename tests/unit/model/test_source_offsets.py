"""The fold of the offsets topic, and the records written to it."""

import pytest

from drover.model.offset_json import large_numbers, offset_record_key
from drover.model.offsets import CommittedOffset
from drover.model.source_offsets import (
    SourceOffsets,
    SourceRecord,
    UnreadableOffsetError,
)

#: As Kafka Connect 4.4.0 writes it for its FileStreamSource.
CONNECT_KEY = b'["src",{"filename":"/path/in.txt"}]'


@pytest.fixture
def offsets() -> SourceOffsets:
    return SourceOffsets()


def of(offsets: SourceOffsets, connector: str = "src") -> dict[str, CommittedOffset]:
    return dict(offsets.of(connector))


def test_an_offset_of_kafka_connect_is_read_and_written_under_its_own_key(
    offsets: SourceOffsets,
) -> None:
    offsets.replay(CONNECT_KEY, b'{"position":8}', timestamp_ms=1)
    found = CommittedOffset('{"filename":"/path/in.txt"}', '{"position":8}')
    assert of(offsets) == {'{"filename":"/path/in.txt"}': found}
    committed = CommittedOffset('{ "filename" : "/path/in.txt" }', '{ "position": 12 }')
    assert offsets.records("src", committed) == [SourceRecord(CONNECT_KEY, b'{"position":12}', "")]


def test_a_new_key_is_spelled_as_kafka_connect_spells_it(offsets: SourceOffsets) -> None:
    assert offset_record_key("src", '{ "filename": "/path/in.txt" }') == CONNECT_KEY
    committed = CommittedOffset('{"b": 1, "a": "é\\u00e9\\/"}', '{"n": 1}')
    assert offsets.records('c "1"', committed) == [
        SourceRecord('["c \\"1\\"",{"b":1,"a":"éé/"}]'.encode(), b'{"n":1}', "")
    ]


@pytest.mark.parametrize(
    "key",
    [
        b'["c",{"b":1,"a":2}]',
        b'["c",{"a":2,"b":1}]',
        b'[ "c", {"a": 2, "b": 1} ]',
        b'["\\u0063",{"a":2,"b":1}]',
    ],
)
def test_a_key_that_is_there_is_used_byte_for_byte(offsets: SourceOffsets, key: bytes) -> None:
    offsets.replay(key, b'{"n":1}', timestamp_ms=1)
    [record] = offsets.records("c", CommittedOffset('{"b":1,"a":2}', '{"n":2}'))
    assert record.key == key


def test_of_several_spellings_the_newest_counts_and_all_are_written(
    offsets: SourceOffsets,
) -> None:
    old, new = b'["c",{"a":1,"b":2}]', b'["c",{"b":2,"a":1}]'
    offsets.replay(new, b'{"n":2}', timestamp_ms=20)
    offsets.replay(old, b'{"n":1}', timestamp_ms=10)
    assert [each.offset_json for each in of(offsets, "c").values()] == ['{"n":2}']
    committed = CommittedOffset('{"a":1,"b":2}', '{"n":3}')
    assert {each.key for each in offsets.records("c", committed)} == {old, new}
    removed = offsets.records("c", CommittedOffset('{"a":1,"b":2}', None))
    assert {(each.key, each.value) for each in removed} == {(old, None), (new, None)}
    offsets.replay(new, None, timestamp_ms=30)
    assert [each.offset_json for each in of(offsets, "c").values()] == ['{"n":1}']


@pytest.mark.parametrize("value", [None, b"null"])
def test_a_tombstone_removes_and_the_key_is_made_anew(
    offsets: SourceOffsets, value: bytes | None
) -> None:
    key = b'["c",{"a": 1}]'
    offsets.replay(key, b'{"n":1}', timestamp_ms=1)
    offsets.replay(key, value, timestamp_ms=2)
    offsets.replay(key, value, timestamp_ms=3)
    assert of(offsets, "c") == {}
    [record] = offsets.records("c", CommittedOffset('{"a": 1}', "{}"))
    assert record.key == b'["c",{"a":1}]'


def test_metadata_is_kept_beside_the_value(offsets: SourceOffsets) -> None:
    offsets.replay(b'["c",{}]', b"{}", timestamp_ms=1, metadata="m")
    assert of(offsets, "c") == {"{}": CommittedOffset("{}", "{}", "m")}
    [record] = offsets.records("c", CommittedOffset("{}", '{"n":1}', "later"))
    assert record == SourceRecord(b'["c",{}]', b'{"n":1}', "later")


def test_connectors_are_kept_apart(offsets: SourceOffsets) -> None:
    offsets.replay(b'["c",{}]', b'{"n":1}', timestamp_ms=1)
    offsets.replay(b'["c-1",{}]', b'{"n":2}', timestamp_ms=1)
    assert of(offsets, "c")["{}"].offset_json == '{"n":1}'
    assert of(offsets, "c-1")["{}"].offset_json == '{"n":2}'
    assert of(offsets, "other") == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"\xff", b"{}"),
        (b"c", b"{}"),
        (b'{"c":1}', b"{}"),
        (b'["c"]', b"{}"),
        (b'["c",{},1]', b"{}"),
        (b'[1,{"a":1}]', b"{}"),
        (b'["c",null]', b"{}"),
        (b'["c",[1]]', b"{}"),
        (b'["c",{"a":NaN}]', b"{}"),
        (b'["c",{"a":"\\ud800"}]', b"{}"),
        (b'["c",' + b'{"a":' * 100_000, b"{}"),
        (b'["c",{}]', b""),
        (b'["c",{}]', b"7"),
        (b'["c",{}]', b"[]"),
        (b'["c",{}]', b"\xff"),
        (b'["c",{}]', b'{"n":1e999}'),
    ],
)
def test_what_is_none_of_kafka_connects_offsets_changes_nothing(
    offsets: SourceOffsets, key: bytes | None, value: bytes
) -> None:
    offsets.replay(b'["c",{}]', b'{"n":1}', timestamp_ms=1)
    with pytest.raises(UnreadableOffsetError):
        offsets.replay(key, value, timestamp_ms=2)
    assert of(offsets, "c")["{}"].offset_json == '{"n":1}'


@pytest.mark.parametrize(
    ("text", "is_large"),
    [
        ('{"position": 9223372036854775807}', False),
        ('{"position": -9223372036854775808}', False),
        ('{"position": 9223372036854775808}', True),
        ('{"a": [{"b": -1180591620717411303424}]}', True),
        ('{"a": 1.5e300, "b": "99999999999999999999"}', False),
        ('{"a": 1%s}' % ("0" * 5_000), True),
    ],
)
def test_numbers_that_kafka_connect_cannot_read_are_found(text: str, is_large: bool) -> None:
    assert bool(large_numbers([CommittedOffset("{}", text)])) is is_large
    assert bool(large_numbers([CommittedOffset(text, "{}")])) is is_large
