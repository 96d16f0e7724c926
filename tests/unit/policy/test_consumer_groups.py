"""Which consumer groups the Kafka client can commit to: the rule is compared with the client."""

from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from drover.policy.consumer_groups import (
    group_id_fault,
    group_violations,
    sink_group_violations,
)

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def _client_commits(group_id: str) -> bool:
    """Whether the client accepts the group, without brokers."""
    consumer = Consumer({**NOWHERE, "group.id": group_id})
    group = consumer.consumer_group_metadata()
    consumer.close()
    producer = Producer({**NOWHERE, "transactional.id": "x"})
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], group, 0.01)
    return "is not safe" not in str(refused.value)


@pytest.mark.parametrize(
    "char",
    [
        *("\x01", "\t", "\n", "\r", "\x1b", "\x1f", " ", "!", '"', "'", "$", "`", "\\", "/", "%"),
        *("~", "\x7f", "\x80", "\x85", "\x9b", "\xa0", "\xad", "ä", "ÿ", "Ā", "日", "\u200b"),
        *("\u202e", "\ue000", "\ufeff", "😀", "é"),
    ],
)
def test_the_rule_for_characters_is_that_of_the_client(char: str) -> None:
    group_id = f"connect-a{char}b"
    assert (group_id_fault(group_id) is None) == _client_commits(group_id)


@pytest.mark.parametrize("group_id", ["a" * 255, "a" * 10_000, "a b ", "connect-'; rm -rf"])
def test_any_length_and_spaces_are_accepted(group_id: str) -> None:
    assert group_id_fault(group_id) is None
    assert _client_commits(group_id)


def test_a_group_does_not_lose_a_space_at_its_start() -> None:
    with closing(Consumer({**NOWHERE, "group.id": " a "})) as consumer:
        assert b"\xffa \0" in consumer.consumer_group_metadata()
    for group_id in (" a ", " ", "  ", ""):  # without any other character the client aborts
        assert group_id_fault(group_id) is not None


def test_a_group_is_not_cut_off_at_a_nul() -> None:
    assert _client_commits("a\0ä")  # the client reads "a"
    assert group_id_fault("a\0ä") is not None
    assert group_id_fault("a\0b") is not None


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"name": "orders"}, None),
        ({"name": "a 'b' $x"}, None),
        ({"name": "näme"}, "name"),
        ({"name": "日本"}, "name"),
        ({"name": "näme", "consumer.override.group.id": "readers"}, None),
        ({"name": "näme", "consumer.override.group.id": " "}, "name"),
        ({"name": "a", "consumer.override.group.id": "bücher"}, "consumer.override.group.id"),
        ({"name": "a", "consumer.override.group.id": "a\x1b[31m"}, "consumer.override.group.id"),
        ({}, None),
    ],
)
def test_the_setting_that_causes_the_group_is_named(
    config: dict[str, str], field: str | None
) -> None:
    found = sink_group_violations(config)
    assert [each.field for each in found] == ([field] if field else [])
    for each in found:
        assert "printable ASCII" in each.description
        remedy = "set consumer.override.group.id to a group in ASCII"
        assert (remedy in each.description) == (field == "name")


def test_another_default_group_is_named() -> None:
    (found,) = group_violations("offsets.group.id", "", "drover-näme")
    assert (found.field, "group drover-näme," in found.description) == ("name", True)
