"""Edits of offsets: what a form changes, and what conflicts with it."""

import pytest

from drover_gateway.console.offset_edits import (
    Edit,
    EditError,
    conflicts_of,
    digest_of,
    edits_of,
    field_of,
    key_of,
    readable,
)

SINK = '{"kafka_partition":0,"kafka_topic":"t"}'


def test_only_what_differs_is_an_edit() -> None:
    rows = [
        ('{"a":1}', '{"at":1}', '{ "at": 1 }'),
        ('{"a":2}', '{"at":1}', '{"at":9007199254740993}'),
        ('{"a":3}', '{"at":1}', "  "),
        (SINK, '{"kafka_offset":5}', "5"),
        (SINK.replace("0", "1"), '{"kafka_offset":5}', "4"),
        (SINK.replace("0", "2"), '{"kafka_offset":5}', '{"kafka_offset":4}'),
        ("", "", ""),
    ]
    assert edits_of(rows) == [
        Edit('{"a":2}', '{"at":1}', '{"at":9007199254740993}'),
        Edit('{"a":3}', '{"at":1}', ""),
        Edit(SINK.replace("0", "1"), '{"kafka_offset":5}', '{"kafka_offset":4}'),
        Edit(SINK.replace("0", "2"), '{"kafka_offset":5}', '{"kafka_offset":4}'),
    ]


def test_numbers_keep_their_digits() -> None:
    large, fraction = '{"at":12345678901234567890123}', '{"at":0.12345678901234567891}'
    for text in (large, fraction):
        (edit,) = edits_of([('{"a":1}', '{"at":1}', text)])
        assert edit.after == text
        assert key_of(text) != key_of(text[:-2] + "4}")
    assert key_of('{"a":1,"b":2}') == key_of(' {"b": 2, "a": 1}')


@pytest.mark.parametrize(
    ("partition", "entered"),
    [
        ("{", "{}"),
        ("[]", "{}"),
        ("null", "{}"),
        ("[" * 100_000, "{}"),
        ("", "{}"),
        ('{"a":1}', "[1]"),
        ('{"a":1}', "1"),
        ('{"a":1}', '{"at":NaN}'),
        ('{"a":1}', "{'at':1}"),
        (SINK, "-1"),
        (SINK, "1.5"),
        (SINK, "1e3"),
        (SINK, "\u0661"),
        (SINK, "9" * 20),
    ],
)
def test_what_cannot_be_read_is_refused(partition: str, entered: str) -> None:
    with pytest.raises(EditError):
        edits_of([(partition, "", entered)])


def test_all_faults_are_named_at_once() -> None:
    rows = [('{"a":1}', "", "x"), ("y", "", "{}"), ('{"b":1}', "", "{}"), ('{ "b":1}', "", "{}")]
    with pytest.raises(EditError) as raised:
        edits_of(rows)
    assert len(str(raised.value).split("\n")) == 3


def test_an_offset_that_has_changed_since_is_a_conflict() -> None:
    same = Edit('{"a": 1}', '{"at": 1}', '{"at":2}')
    removed, changed = Edit('{"b":1}', '{"at":1}', ""), Edit('{"c":1}', '{"at":1}', "")
    appeared = Edit('{"d":1}', "", '{"at":1}')
    present = {
        key_of('{"a":1}'): '{"at":1}',
        key_of('{"c":1}'): '{"at":3}',
        key_of('{"d":1}'): '{"at":1}',
    }
    found = conflicts_of([same, removed, changed, appeared], present)
    assert [(each.edit, each.now) for each in found] == [
        (removed, ""),
        (changed, '{"at":3}'),
        (appeared, '{"at":1}'),
    ]
    pairs = [('{"a":1}', '{"at":1}'), ('{"b":1}', '{"at":2}')]
    assert digest_of(pairs) == digest_of([('{ "b":1}', '{"at": 2}'), pairs[0]])
    assert digest_of(pairs) != digest_of([pairs[0], ('{"b":1}', '{"at":3}')])


def test_partitions_and_offsets_are_shown_as_people_write_them() -> None:
    assert readable(SINK) == "kafka_partition=0 kafka_topic=t"
    assert readable('{"file":{"a":[1]}}') == 'file={"a": [1]}'
    assert readable("<b>") == "<b>"
    assert field_of(SINK, '{"kafka_offset":5}') == "5"
    assert field_of('{"a":1}', '{"kafka_offset":5}') == '{"kafka_offset":5}'
