"""The topic and the output that a committed offset belongs to, in its metadata."""

import pytest

from drover.model.offsets import METADATA_MAX_BYTES
from drover.model.sink_outputs import (
    TASK_METADATA_MAX_BYTES,
    OutputMark,
    SinkMetadata,
    SinkOutput,
    decode_mark,
    encode_mark,
)

KAFKA_ID = "3Db5QLSqSZieL3rJBUUegA"


@pytest.mark.parametrize("metadata", ["", "note", '{"length":5}', "drover:x:y;", "a;b", "ü\n"])
@pytest.mark.parametrize(
    "output",
    [SinkOutput(), SinkOutput(KAFKA_ID), SinkOutput("9f3a"), SinkOutput(KAFKA_ID, "0a1b2c3d")],
    ids=str,
)
def test_the_tasks_metadata_comes_back_unchanged(output: SinkOutput, metadata: str) -> None:
    for is_start in (False, True):
        stored = SinkMetadata(metadata, output, is_start)
        assert SinkMetadata.parsed(stored.text) == stored


@pytest.mark.parametrize("text", ["", "note", "drover:", "drover:a b:;x", "drover:a:xyz;m"])
def test_metadata_of_other_programs_and_of_earlier_versions_is_the_tasks(text: str) -> None:
    assert SinkMetadata.parsed(text) == SinkMetadata(text)


def test_the_longest_metadata_fits_kafkas_limit() -> None:
    output = SinkOutput(KAFKA_ID, "0a1b2c3d")
    stored = SinkMetadata("x" * TASK_METADATA_MAX_BYTES, output, is_start=True)
    assert len(stored.text) <= METADATA_MAX_BYTES


def test_an_unknown_topic_id_equals_every_id() -> None:
    assert SinkOutput("a").is_of("a")
    assert SinkOutput("").is_of("a")
    assert SinkOutput("a").is_of("")
    assert not SinkOutput("a").is_of("b")


def test_each_recreation_and_each_reset_begins_another_output() -> None:
    first = SinkOutput("a")
    again, reset = first.after_recreation("b"), first.after_reset()
    outputs = [first, again, again.after_recreation("c"), reset, reset.after_reset()]
    ids = [each.output_id for each in outputs]
    assert len(set(ids)) == len(ids)
    assert all(len(each) == 8 and int(each, 16) >= 0 for each in ids[1:])
    assert [each.topic_id for each in outputs] == ["a", "b", "c", "a", "a"]


def test_marks_come_back_unchanged() -> None:
    for mark in (OutputMark(SinkOutput("a", "0a1b2c3d"), 7), OutputMark(SinkOutput(), 0, True)):
        assert decode_mark(encode_mark(mark)) == mark
    for text in ("note", "[]", "{}", '{"topic_id":"a","output_id":"","offset":null}'):
        with pytest.raises(ValueError):
            decode_mark(text)
