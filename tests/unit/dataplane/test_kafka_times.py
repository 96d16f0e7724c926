"""The answers of brokers about offsets at a time."""

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from drover.dataplane.kafka.times import answered


@dataclass(frozen=True)
class Failed:
    """A TopicPartition with an error, which only librdkafka can make."""

    error: KafkaError
    topic: str = "t"
    partition: int = 2
    offset: int = 1_769_860_800_000


def failed(code: int) -> Any:
    return Failed(KafkaError(code))


def test_a_partition_without_a_record_so_late_has_no_offset() -> None:
    answers = [TopicPartition("t", 0, 7), TopicPartition("t", 1, -1), TopicPartition("t", 2, 0)]
    assert answered(answers) == {("t", 0): 7, ("t", 1): None, ("t", 2): 0}


def test_a_partition_that_does_not_exist_is_left_out() -> None:
    gone = failed(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert answered([TopicPartition("t", 0, 7), gone]) == {("t", 0): 7}


@pytest.mark.parametrize(
    "unknown", [failed(KafkaError.NOT_LEADER_FOR_PARTITION), TopicPartition("t", 2, OFFSET_INVALID)]
)
def test_a_partition_without_an_answer_is_an_error_and_no_offset(unknown: Any) -> None:
    with pytest.raises(KafkaException):
        answered([TopicPartition("t", 0, 7), unknown])
