"""What committed offsets, marks and traces mean for the start of a sink."""

from drover.connector.offsets import SinkOffset, sink_offset
from drover.errors import Reason
from drover.model import sink_offsets
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_outputs import OutputMark, SinkMetadata, SinkOutput, encode_mark
from drover_worker.engine.core.sink_starts import lost_offsets, starts_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(key: TopicPartition, offset: int, output: SinkOutput) -> CommittedOffset:
    return sink_offset(*key, offset, SinkMetadata("note", output).text)


def marked(key: TopicPartition, mark: OutputMark) -> CommittedOffset:
    return sink_offsets.sink_offset(key, None, encode_mark(mark))


def test_offsets_of_the_present_topic_are_taken_over_without_drovers_prefix() -> None:
    starts = starts_of([committed(T0, 5, SinkOutput("a", "0a1b2c3d"))], {"t": "a"})
    assert starts.offsets == {T0: SinkOffset(5, "note")}
    assert starts.output_ids == {T0: "0a1b2c3d"}
    assert not starts.recreated


def test_an_offset_without_an_id_is_one_of_the_present_topic() -> None:
    starts = starts_of([committed(T0, 5, SinkOutput())], {"t": "a"})
    assert starts.offsets == {T0: SinkOffset(5, "note")}
    assert not starts.output_ids


def test_an_offset_of_a_deleted_topic_is_not_one_of_the_topic_of_its_name() -> None:
    offsets = [
        committed(T0, 5, SinkOutput("a")),
        committed(TopicPartition("u", 0), 7, SinkOutput()),
    ]
    starts = starts_of(offsets, {"t": "b", "u": "c"})
    assert starts.offsets == {TopicPartition("u", 0): SinkOffset(7, "note")}
    assert starts.recreated == {"t"}
    assert starts.output_ids == {T0: SinkOutput("a").after_recreation("b").output_id}


def test_topics_that_do_not_exist_are_left_for_later() -> None:
    starts = starts_of(
        [committed(T0, 5, SinkOutput("a")), marked(T1, OutputMark(SinkOutput(), 2))], {}
    )
    assert (starts.offsets, starts.marks, starts.output_ids) == ({}, {}, {})


def test_a_mark_of_the_present_topic_is_a_lost_offset() -> None:
    mark = OutputMark(SinkOutput("a", "0a1b2c3d"), 5)
    starts = starts_of([marked(T0, mark)], {"t": "a"})
    assert starts.marks == {T0: mark}
    assert starts.output_ids == {T0: "0a1b2c3d"}


def test_a_mark_of_a_deleted_topic_or_of_a_reset_is_another_output() -> None:
    old, reset = SinkOutput("a"), SinkOutput("b").after_reset()
    starts = starts_of(
        [marked(T0, OutputMark(old, 5)), marked(T1, OutputMark(reset, 0, is_reset=True))],
        {"t": "b"},
    )
    assert not starts.marks
    assert starts.output_ids == {
        T0: old.after_recreation("b").output_id,
        T1: reset.output_id,
    }


def test_a_topic_that_is_recreated_after_a_reset_begins_another_output() -> None:
    reset = SinkOutput("a").after_reset()
    starts = starts_of([marked(T0, OutputMark(reset, 0, is_reset=True))], {"t": "b"})
    assert starts.output_ids == {T0: reset.after_recreation("b").output_id}


def test_lost_offsets_are_reported_with_what_the_mark_and_the_output_show() -> None:
    marks = {T0: OutputMark(SinkOutput("a"), 4)}
    error = lost_offsets("files", marks, {T0: 10, T1: 3}, {T0: 0, T1: 0})
    assert error is not None
    assert error.reason is Reason.OFFSETS_LOST
    assert (
        "t-0: no committed offset, the last known one is 4 or higher, the output goes up to 10"
        in (error.message)
    )
    assert "t-1: no committed offset, the output goes up to 3" in error.message
    assert "drover connector offsets files --adopt" in error.message
    assert "drover connector offsets files --reset" in error.message


def test_other_partitions_do_not_matter() -> None:
    assert lost_offsets("files", {}, {}, {T0: 0}) is None
    assert lost_offsets("files", {T1: OutputMark(SinkOutput(), 4)}, {T1: 3}, {T0: 0}) is None
