from typing import TYPE_CHECKING, cast

import pytest

from drover.connector import SinkOffset, SourceTaskContext, TopicPartition
from drover.connector.offsets import (
    parse_sink_offsets,
    sink_offset,
    source_offsets,
    to_json,
)
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_offsets_are_compact_json_in_their_own_order() -> None:
    offsets = source_offsets([({"b": 1, "a": "é"}, {"n": 2}), ({"c": 3}, None)])
    assert offsets == [
        CommittedOffset('{"b":1,"a":"é"}', '{"n":2}'),
        CommittedOffset('{"c":3}', None),
    ]


@pytest.mark.parametrize("value", [{"a": b"bytes"}, {"a": float("nan")}, {"a": {1, 2}}])
def test_what_json_cannot_say_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be a JSON object"):
        to_json(value)


def test_a_task_finds_its_offset_whatever_the_spelling() -> None:
    context = SourceTaskContext(
        task=TaskId("c", 0),
        claim=Term(1, 1),
        config={},
        spark=cast("SparkSession", None),
        committed=[CommittedOffset('{"b": 1, "a": 2}', '{"n":3}')],
    )
    assert context.offset({"a": 2, "b": 1}) == {"n": 3}
    assert context.offset({"a": 2}) is None
    assert context.offsets() == [({"b": 1, "a": 2}, {"n": 3})]


def test_a_sinks_offsets_are_those_of_kafka_connect() -> None:
    committed = sink_offset("t", 1, 7, "meta")
    assert committed == CommittedOffset(
        '{"kafka_topic":"t","kafka_partition":1}', '{"kafka_offset":7}', "meta"
    )
    assert parse_sink_offsets([committed]) == {TopicPartition("t", 1): SinkOffset(7, "meta")}
    as_text = CommittedOffset('{"kafka_partition":"1","kafka_topic":"t"}', '{"kafka_offset":"9"}')
    assert parse_sink_offsets([as_text]) == {TopicPartition("t", 1): SinkOffset(9)}


@pytest.mark.parametrize(
    "faulty",
    [
        CommittedOffset("{}", '{"kafka_offset":1}'),
        CommittedOffset('{"kafka_topic":"t","kafka_partition":0}', "{}"),
        CommittedOffset('{"kafka_topic":"t","kafka_partition":"x"}', '{"kafka_offset":1}'),
        CommittedOffset('{"kafka_topic":"t","kafka_partition":0}', '{"kafka_offset":null}'),
    ],
)
def test_what_is_not_a_sinks_offset_is_told_so(faulty: CommittedOffset) -> None:
    with pytest.raises(ValueError, match="not a sink's offset"):
        parse_sink_offsets([faulty])
