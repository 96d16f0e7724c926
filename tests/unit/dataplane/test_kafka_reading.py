"""Kafka's messages as rows, and the settings of producers."""

from datetime import UTC, datetime

import pytest
from confluent_kafka import Message

from drover.dataplane.kafka.fetched_batches import as_rows
from drover.dataplane.kafka.message_reader import as_columns
from drover.dataplane.kafka.producing import producer_settings
from drover.dataplane.payload import READ_SCHEMA
from drover.dataplane.plane import ALL_COLUMNS
from drover.dataplane.values import ReadRange
from drover.log.storage import KafkaStorage


def test_messages_become_rows_with_what_they_have() -> None:
    messages = [
        Message("t", 0, 5, b"k", b"v", [("h", b"1")], None, (1, 1_700_000_000_123)),
        Message("t", 0, 7, None, None, None, None, (0, -1)),
    ]
    batch = as_rows(ReadRange("t", 3, 5, 8, 0), [as_columns(messages, ALL_COLUMNS)])
    assert batch.schema == READ_SCHEMA
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    full = {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"1"}], "timestamp": at}
    bare = {"key": None, "value": None, "headers": None, "timestamp": None}
    assert batch.to_pylist() == [
        {"topic": "t", "partition": 3, "offset": 5, **full},
        {"topic": "t", "partition": 3, "offset": 7, **bare},
    ]


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        ({}, "lz4"),
        ({"compression.type": "none"}, "none"),
        ({"compression.codec": "zstd"}, "zstd"),
    ],
)
def test_records_are_compressed_unless_the_user_says_otherwise(
    own: dict[str, str], sent: str
) -> None:
    storage = KafkaStorage(bootstrap_servers="b:1", group_id="g", client_config=own)
    assert producer_settings(storage)["compression.type"] == sent


def test_only_what_is_wanted_of_messages_is_read() -> None:
    at = (1, 1_700_000_000_123)
    messages = [Message("t", 0, n, b"k", b"v", [("h", b"1")], None, at) for n in (5, 6)]
    part = as_columns(messages, frozenset({"value"}))
    batch = as_rows(ReadRange("t", 3, 5, 7, 0), [part])
    assert batch.schema == READ_SCHEMA
    bare = {"key": None, "value": b"v", "headers": None, "timestamp": None}
    assert batch.to_pylist() == [
        {"topic": "t", "partition": 3, "offset": 5, **bare},
        {"topic": "t", "partition": 3, "offset": 6, **bare},
    ]
