"""Reading ranges of topics as Arrow batches, on executors."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from drover.dataplane.kafka.clients import Pool, RangeConsumer, shared_client
from drover.dataplane.kafka.planning import joined
from drover.dataplane.payload import HEADERS_TYPE, READ_SCHEMA
from drover.dataplane.plane import ALL_COLUMNS
from drover.dataplane.values import ReadRange
from drover.errors import OutOfRangeError, Reason, UnavailableError
from drover.log.kafka.errors import LOST
from drover.log.storage import KafkaStorage

#: Messages that become one batch of rows, at most.
MESSAGES_AT_ONCE = 20_000
#: A range that brings nothing for so long is given up; its batch is tried again.
SILENCE_S = 30.0
_POLL_S = 0.5
#: What the client says of a record that has none.
_NO_TIMESTAMP_MS = -1

_SETTINGS = {
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # what lies behind the range's end is fetched and decoded in vain: the client is faster than its
    # reader, so this much at each end. Of four times as much a reader took a third more CPU
    "fetch.message.max.bytes": 1024 * 1024,
    "queued.max.messages.kbytes": 2 * 1024,
    "queued.min.messages": 1_000_000,
    # an end behind a transaction marker shows only when a fetch comes back empty
    "fetch.wait.max.ms": 10,
    # a second by default, in which a reader that is faster would wait
    "fetch.queue.backoff.ms": 10,
}


def _make_consumer(storage: KafkaStorage) -> RangeConsumer:
    return RangeConsumer(storage, _SETTINGS)


_consumers = Pool(_make_consumer, RangeConsumer.close)


@dataclass(frozen=True)
class KafkaRangeReader:
    """Reads groups of ranges by their number; for ArrowRows."""

    storage: KafkaStorage
    groups: tuple[tuple[ReadRange, ...], ...]
    #: What the records need to have; see DataPlane.rows.
    columns: frozenset[str] = ALL_COLUMNS

    def __call__(self, number: int) -> Iterator[Any]:
        """The records of a group."""
        if not self.groups[number]:
            return
        with _consumers.borrow(self.storage) as consumer:
            for each in joined(self.groups[number]):
                yield from read_range(self.storage, consumer, each, self.columns)


def read_range(
    storage: KafkaStorage,
    consumer: RangeConsumer,
    wanted: ReadRange,
    columns: frozenset[str] = ALL_COLUMNS,
) -> Iterator[Any]:
    """The committed records of one range in order, as batches of ``READ_SCHEMA``.

    Offsets without a record (transaction markers, aborted and compacted records) are passed over:
    the range is done when the consumer's position has reached its end.

    Raises:
        OutOfRangeError: REVISION_COMPACTED, retention removed the start of the range meanwhile.
        UnavailableError: STORAGE_UNAVAILABLE, nothing came for SILENCE_S.
    """
    consumer.go_to({(wanted.topic, wanted.partition): wanted.start_offset})
    try:
        position = wanted.start_offset
        last_message_s = time.monotonic()
        while position < wanted.end_offset:
            most = min(wanted.end_offset - position, MESSAGES_AT_ONCE)
            messages = consumer.take(most, _POLL_S)
            if not messages:
                _check_silence(wanted, position, last_message_s)
                continue
            last_message_s = time.monotonic()
            events = [each for each in messages if each.error() is not None]
            for event in events:
                position = max(position, _position_of(storage, wanted, event))
            records = [each for each in messages if each.error() is None] if events else messages
            if records:
                position = max(position, records[-1].offset() + 1)
                if records[-1].offset() >= wanted.end_offset:
                    records = [each for each in records if each.offset() < wanted.end_offset]
            if records:
                yield as_batch(wanted, records, columns)
    finally:
        consumer.leave()


def as_batch(
    wanted: ReadRange, records: Sequence[Any], columns: frozenset[str] = ALL_COLUMNS
) -> Any:
    """Messages of a partition as a batch of ``READ_SCHEMA``; what is not in ``columns`` is null."""
    # one call for each message and column is most of what this costs
    made: dict[str, Callable[[], Any]] = {
        "key": lambda: pa.array([each.key() for each in records], pa.binary()),
        "value": lambda: pa.array([each.value() for each in records], pa.binary()),
        "headers": lambda: _headers([each.headers() for each in records]),
        "timestamp": lambda: _timestamps(records),
    }
    count = len(records)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
            _offsets(records),
            *(
                make() if name in columns else pa.nulls(count, READ_SCHEMA.field(name).type)
                for name, make in made.items()
            ),
        ],
        schema=READ_SCHEMA,
    )


def _offsets(records: Sequence[Any]) -> Any:
    first, last = records[0].offset(), records[-1].offset()
    if last - first == len(records) - 1:  # they only grow
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array([each.offset() for each in records], pa.int64())


def _timestamps(records: Sequence[Any]) -> Any:
    times_ms = pa.array([each.timestamp()[1] for each in records], pa.int64())
    timestamps = pc.if_else(pc.equal(times_ms, _NO_TIMESTAMP_MS), None, times_ms)
    return timestamps.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _headers(headers: Sequence[Any]) -> Any:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS_TYPE)
    return pa.array(
        [
            [{"key": key, "value": value} for key, value in each] if each else None
            for each in headers
        ],
        HEADERS_TYPE,
    )


def _position_of(storage: KafkaStorage, wanted: ReadRange, event: Any) -> int:
    """Where the partition's present end is, if that is what the event says."""
    error = event.error()
    code = error.code()
    if code == KafkaError._PARTITION_EOF:
        return int(event.offset())
    if code in LOST:
        raise OutOfRangeError(
            Reason.REVISION_COMPACTED,
            f"offsets {wanted.start_offset} to {wanted.end_offset - 1} of "
            f"{wanted.topic}-{wanted.partition} were removed while they were read: {error.str()}",
        )
    raise shared_client(storage).translated(
        error, doing=f"{wanted.topic}-{wanted.partition} cannot be read", topic=wanted.topic
    )


def _check_silence(wanted: ReadRange, position: int, last_message_s: float) -> None:
    silent_s = time.monotonic() - last_message_s
    if silent_s > SILENCE_S:
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"{wanted.topic}-{wanted.partition} brought nothing for {silent_s:.0f} s at offset "
            f"{position} of {wanted.end_offset}: are its brokers up?",
        )
