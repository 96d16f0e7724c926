"""Reads ranges with librdkafka, message by message; used if its settings require it."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from confluent_kafka import KafkaError

from drover.dataplane.kafka.clients import RangeConsumer, shared_client
from drover.dataplane.kafka.fetched_batches import Columns, as_rows
from drover.dataplane.kafka.range_reader import check_silence, removed_error
from drover.dataplane.values import ReadRange
from drover.log.kafka.errors import LOST
from drover.log.storage import KafkaStorage

#: The most messages per batch of rows.
_MESSAGES_AT_ONCE = 20_000
_POLL_S = 0.5

_SETTINGS = {
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # data after the range's end is fetched and decoded in vain, because the client is faster than
    # its reader; this limits it. With four times as much a reader used a third more CPU
    "fetch.message.max.bytes": 1024 * 1024,
    "queued.max.messages.kbytes": 2 * 1024,
    "queued.min.messages": 1_000_000,
    # the end after a transaction marker shows only in an empty fetch
    "fetch.wait.max.ms": 10,
    # the default of a second would stall a fast reader
    "fetch.queue.backoff.ms": 10,
}


class MessageReader:
    """See RangeReader."""

    def __init__(self, storage: KafkaStorage) -> None:
        self._client = shared_client(storage)
        self._consumer = RangeConsumer(storage, _SETTINGS)

    def read(self, wanted: ReadRange, columns: frozenset[str]) -> Iterator[Any]:
        """See RangeReader."""
        self._consumer.go_to({(wanted.topic, wanted.partition): wanted.start_offset})
        try:
            position = wanted.start_offset
            last_message_s = time.monotonic()
            while position < wanted.end_offset:
                most = min(wanted.end_offset - position, _MESSAGES_AT_ONCE)
                messages = self._consumer.take(most, _POLL_S)
                if not messages:
                    check_silence(wanted, position, last_message_s)
                    continue
                last_message_s = time.monotonic()
                events = [each for each in messages if each.error() is not None]
                for event in events:
                    position = max(position, self._position_of(wanted, event))
                records = [each for each in messages if each.error() is None]
                if records:
                    position = max(position, records[-1].offset() + 1)
                    part = as_columns(records, columns)
                    part = part.cut(wanted.start_offset, wanted.end_offset)
                    if len(part.offsets):
                        yield as_rows(wanted, [part])
        finally:
            self._consumer.leave()

    def close(self) -> None:
        """See RangeReader."""
        self._consumer.close()

    def _position_of(self, wanted: ReadRange, event: Any) -> int:
        """The partition's current end, if the event reports it."""
        error = event.error()
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            return int(event.offset())
        if code in LOST:
            raise removed_error(wanted, error.str())
        raise self._client.translated(
            error,
            doing=f"{wanted.topic}-{wanted.partition} cannot be read",
            topic=wanted.topic,
            operation="Read",
        )


def as_columns(records: Sequence[Any], names: frozenset[str]) -> Columns:
    """Messages of a partition as columns."""
    # one list per column: calls per message and column are most of the cost
    first, last = records[0].offset(), records[-1].offset()
    if last - first == len(records) - 1:  # offsets only increase
        offsets = np.arange(first, last + 1, dtype=np.int64)
    else:
        offsets = np.array([each.offset() for each in records], np.int64)
    return Columns(
        offsets,
        [each.key() for each in records] if "key" in names else None,
        [each.value() for each in records] if "value" in names else None,
        [each.headers() for each in records] if "headers" in names else None,
        [each.timestamp()[1] for each in records] if "timestamp" in names else None,
    )
