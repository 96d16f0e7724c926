"""Which offsets are positions of a consumer group."""

import pytest

from drover.connector.offsets import sink_offset as as_sinks_commit
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_offsets import (
    SinkOffsetError,
    group_of,
    parse_sink_offset,
    sink_offset,
)

AT = TopicPartition("lines", 3)


def test_what_a_sink_commits_is_found_as_it_was() -> None:
    committed = as_sinks_commit("lines", 3, 42, "length=7")
    assert parse_sink_offset(committed) == (AT, 42)
    assert sink_offset(AT, 42, "length=7") == committed
    assert group_of("a sink") == "connect-a sink"


@pytest.mark.parametrize(
    ("partition_json", "offset_json"),
    [
        ('{"kafka_partition":"3","kafka_topic":"lines"}', '{"kafka_offset":"42"}'),
        ('{"kafka_partition":"003","kafka_topic":"lines"}', '{"kafka_offset":42}'),
    ],
)
def test_numbers_may_be_texts(partition_json: str, offset_json: str) -> None:
    assert parse_sink_offset(CommittedOffset(partition_json, offset_json)) == (AT, 42)


@pytest.mark.parametrize(
    "partition_json",
    [
        "{}",
        '{"filename":"f"}',
        '{"kafka_topic":"t"}',
        '{"kafka_topic":"t","kafka_partition":1,"x":1}',
    ],
)
def test_others_are_source_offsets(partition_json: str) -> None:
    assert parse_sink_offset(CommittedOffset(partition_json, "{}")) is None


@pytest.mark.parametrize(
    ("topic", "partition", "offset_json", "what"),
    [
        ("1", "1", '{"kafka_offset":1}', "kafka_topic"),
        ('""', "1", '{"kafka_offset":1}', "kafka_topic"),
        ('"a b"', "1", '{"kafka_offset":1}', "kafka_topic"),
        ('"t"', "-1", '{"kafka_offset":1}', "kafka_partition"),
        ('"t"', "true", '{"kafka_offset":1}', "kafka_partition"),
        ('"t"', "1.0", '{"kafka_offset":1}', "kafka_partition"),
        ('"t"', "2147483648", '{"kafka_offset":1}', "kafka_partition"),
        ('"t"', '"x"', '{"kafka_offset":1}', "kafka_partition"),
        ('"t"', "1", "{}", "kafka_offset"),
        ('"t"', "1", '{"kafka_offset":-1}', "kafka_offset"),
        ('"t"', "1", '{"kafka_offset":null}', "kafka_offset"),
        ('"t"', "1", '{"kafka_offset":1,"more":1}', "kafka_offset"),
        ('"t"', "1", None, "cannot be removed"),
    ],
)
def test_a_topic_partition_without_a_position(
    topic: str, partition: str, offset_json: str | None, what: str
) -> None:
    committed = CommittedOffset(
        f'{{"kafka_topic":{topic},"kafka_partition":{partition}}}', offset_json
    )
    with pytest.raises(SinkOffsetError, match=what):
        parse_sink_offset(committed)
