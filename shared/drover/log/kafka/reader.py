"""Reads partitions of a topic, up to the last stable offset or continuously."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from drover.errors import DroverError
from drover.log.kafka import errors
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.client_shutdown import wait_until_ended
from drover.log.kafka.progress import Progress
from drover.log.kafka.records import EARLIEST, Headers, KafkaRecord, ReadBatch
from drover.log.log import closed_error

_logger = structlog.get_logger(__name__)

READ_BATCH_RECORDS = 500
MAX_WAITING_BATCHES = 4
POLL_S = 0.2
TOPIC_CHECK_S = 10.0
FETCH_WAIT_MS = 50
"""librdkafka reports the end of a partition after an empty fetch, which takes this long."""
FETCH_WAIT_TO_END_MS = 10
TOPIC_GONE_LOOKS = 3
TRANSACTION_TIMEOUT_S = 10.0
"""The longest time for which the open transaction of a dead writer delays readers."""


@dataclass(slots=True)
class _Fetched:
    """The result of one poll of the consumer: records, and new positions by partition.

    ``suspicious`` means that the topic may have been deleted.
    """

    records: list[KafkaRecord] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    suspicious: bool = False


class TopicReader:
    """Reads committed records of some partitions of a topic, for one caller of ``batches``.

    It joins no consumer group. When brokers are back after a failure, it continues at the next
    offset. It replaces a consumer that returns no records although the brokers have some, because
    librdkafka sometimes stalls for ever after a lost connection.

    Args:
        client: Reaches the brokers.
        topic: The topic's name.
        starts: The first offset of each partition to read, or ``EARLIEST``.
        fetch_wait_ms: How long the brokers delay the response to an empty fetch.

    Attributes:
        progress: The positions read so far; ``batches`` may lag behind them.
    """

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        starts: Mapping[int, int],
        *,
        fetch_wait_ms: int = FETCH_WAIT_MS,
    ) -> None:
        self.progress = Progress(starts)
        self._client = client
        self._topic = topic
        self._starts = dict(starts)
        self._fetch_wait_ms = fetch_wait_ms
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[ReadBatch | DroverError | None] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_WAITING_BATCHES)
        self._stopping = threading.Event()
        self._topic_id = ""
        self._consumer: Consumer | None = None
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kafka {topic} reader", daemon=True)
        self._thread.start()

    async def batches(self) -> AsyncGenerator[ReadBatch, None]:
        """Yield batches of at most 500 records; ends when closed.

        Raises:
            DataLossError: LOG_CORRUPT, the topic was truncated, deleted or recreated before all
                records were read. With topic, partition and offset.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic or not authorised.
        """
        while True:
            batch = await self._batches.get()
            if batch is None:
                return
            if isinstance(batch, DroverError):
                raise batch
            self._room.release()
            yield batch

    async def close(self) -> None:
        """Stop reading; idempotent."""
        self.stop()
        await asyncio.to_thread(wait_until_ended, self._thread, self._finished)

    def stop(self) -> None:
        """Request the end of reading, without waiting for it; idempotent."""
        self._stopping.set()
        self._room.release()
        self.progress.fail(closed_error())

    # on the reader's thread

    def _run(self) -> None:
        ending: DroverError | None = None
        try:
            positions: dict[int, int] = {}
            while not self._stopping.is_set():
                consumer = self._new_consumer()
                positions = positions or self._first_positions()  # while it connects
                self._read(consumer, positions)
        except KafkaException as error:
            ending = self._translated(error.args[0])
        except DroverError as error:
            ending = error
        except Exception:
            _logger.exception("defect in a reader of Kafka", topic=self._topic)
            ending = closed_error()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so there are no waiters
            self._loop.call_soon_threadsafe(self._end, ending)
        self._finished.set()
        if self._consumer is not None:
            _close(self._consumer)

    def _new_consumer(self) -> Consumer:
        """Replace the consumer."""
        if self._consumer is not None:
            # in a separate thread, because closing a stalled consumer may never return
            threading.Thread(target=_close, args=[self._consumer], daemon=True).start()
        self._consumer = self._client.consumer({"fetch.wait.max.ms": self._fetch_wait_ms})
        return self._consumer

    def _read(self, consumer: Consumer, positions: dict[int, int]) -> None:
        """Read and advance ``positions`` until ``stop`` is called or the consumer stalls."""
        consumer.assign(
            [TopicPartition(self._topic, partition, at) for partition, at in positions.items()]
        )
        behind: dict[int, int] = {}
        checked_s = -TOPIC_CHECK_S
        while not self._stopping.is_set():
            first = consumer.poll(POLL_S)
            fetched = _Fetched()
            if first is not None:
                self._take(first, positions, fetched)
                for message in consumer.consume(READ_BATCH_RECORDS - 1, timeout=0):
                    self._take(message, positions, fetched)
            is_due = time.monotonic() - checked_s >= TOPIC_CHECK_S
            if fetched.suspicious or (is_due and (first is None or not self._topic_id)):
                self._check_topic(positions)
                checked_s = time.monotonic()
            if is_due and first is None:
                before, behind = behind, self._behind(positions)
                if before.items() & behind.items():
                    _logger.warning(
                        "a consumer has stalled and is replaced", topic=self._topic, at=behind
                    )
                    return
            positions.update(fetched.positions)
            if fetched.positions:
                self._hand_over(ReadBatch(fetched.records, dict(positions)))

    def _behind(self, positions: Mapping[int, int]) -> dict[int, int]:
        """The positions of partitions with unread records; empty if no broker responds."""
        try:
            ends = self._client.offsets_now(
                [(self._topic, partition) for partition in positions], OffsetSpec.latest()
            )
        except (KafkaException, TimeoutError):
            return {}
        return {
            partition: at
            for partition, at in positions.items()
            if ends.get((self._topic, partition), 0) > at
        }

    def _first_positions(self) -> dict[int, int]:
        """The start offsets, with ``EARLIEST`` resolved.

        The consumer could resolve it, but takes half a second longer while it is not connected.
        """
        earliest = [partition for partition, at in self._starts.items() if at == EARLIEST]
        first_offsets: dict[int, int] = {}
        if earliest:
            with contextlib.suppress(KafkaException, TimeoutError):
                first_offsets = self._client.first_offsets_now(self._topic, earliest)
        return {**self._starts, **first_offsets}

    def _take(self, message: Message, positions: Mapping[int, int], fetched: _Fetched) -> None:
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is None:
            assert partition is not None
            assert offset is not None
            _, timestamp_ms = message.timestamp()
            fetched.records.append(
                KafkaRecord(
                    partition,
                    offset,
                    timestamp_ms,
                    message.key(),
                    message.value(),
                    cast("Headers", tuple(message.headers() or ())),
                )
            )
            fetched.positions[partition] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None
            assert offset is not None
            fetched.positions[partition] = offset
        elif error.code() in errors.LOST or error.code() in errors.CORRUPT:
            at = fetched.positions.get(partition or 0, positions.get(partition or 0, 0))
            self._check_topic(positions)
            raise errors.lost_records(self._topic, partition or 0, at, error.str())
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise self._translated(error)
        else:
            # librdkafka reconnects; only an unknown topic is checked
            fetched.suspicious |= error.code() in errors.UNKNOWN_TOPIC

    def _check_topic(self, positions: Mapping[int, int]) -> None:
        """Check that the topic still has the same id; without a response, change nothing.

        Raises:
            DataLossError: LOG_CORRUPT, the topic was deleted or recreated.
            FailedPreconditionError: STORAGE_MISCONFIGURED, the topic has never existed.
        """
        partition, position = next(iter(positions.items()))
        for _ in range(TOPIC_GONE_LOOKS):
            try:
                state = self._client.describe_topic_now(self._topic)
            except (KafkaException, TimeoutError):
                return
            if state is not None:
                if self._topic_id and state.topic_id != self._topic_id:
                    what = "the topic was deleted and recreated"
                    raise errors.lost_records(self._topic, partition, position, what)
                self._topic_id = state.topic_id
                return
            # a broker that has just restarted may not know the topic yet
            if self._stopping.wait(POLL_S):
                return
        if self._topic_id:
            what = "the topic was deleted"
            raise errors.lost_records(self._topic, partition, position, what)
        raise self._translated(KafkaError(KafkaError._UNKNOWN_TOPIC))

    def _hand_over(self, batch: ReadBatch) -> None:
        self._room.acquire()
        if not self._stopping.is_set():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._publish, batch)

    def _translated(self, error: KafkaError) -> DroverError:
        doing = f"the topic {self._topic} cannot be read"
        return self._client.translated(error, doing=doing, topic=self._topic)

    # on the event loop

    def _publish(self, batch: ReadBatch) -> None:
        self.progress.advance(batch)
        self._batches.put_nowait(batch)

    def _end(self, error: DroverError | None) -> None:
        self._batches.put_nowait(error)
        self.progress.fail(error or closed_error())


def _close(consumer: Consumer) -> None:
    with contextlib.suppress(KafkaException):
        consumer.close()


async def read_to_end(
    client: KafkaClient,
    topic: str,
    starts: Mapping[int, int],
    *,
    at_least: Mapping[int, int] | None = None,
    patience_s: float | None = None,
) -> AsyncGenerator[ReadBatch, None]:
    """Yield the records from ``starts`` to the last stable offsets as of the call.

    Args:
        client: Reaches the brokers.
        topic: The topic's name.
        starts: The first offset of each partition to read, or ``EARLIEST``.
        at_least: Read at least up to these offsets, which the caller has written and which may not
            be stable yet.
        patience_s: The maximum wait for the next batch. By default the client's timeout; with
            ``at_least`` plus the transaction timeout of Drover's logs.

    Raises:
        UnavailableError: STORAGE_UNAVAILABLE, no batch was read within ``patience_s``.
        DataLossError, FailedPreconditionError: As ``TopicReader.batches``.
    """
    ends = await client.stable_offsets(topic, starts)
    for partition, offset in (at_least or {}).items():
        ends[partition] = max(ends[partition], offset)
    unread_ends = {partition: end for partition, end in ends.items() if starts[partition] < end > 0}
    if not unread_ends:
        return
    if patience_s is None:
        patience_s = client.timeout_s + (TRANSACTION_TIMEOUT_S if at_least else 0)
    starts = {partition: starts[partition] for partition in unread_ends}
    reader = TopicReader(client, topic, starts, fetch_wait_ms=FETCH_WAIT_TO_END_MS)
    try:
        async with aclosing(reader.batches()) as batches:
            behind = True
            while behind:
                batch = await _next(batches, client, topic, patience_s)
                positions = batch.positions
                behind = any(positions[partition] < end for partition, end in unread_ends.items())
                yield _cut(batch, unread_ends)
    finally:
        reader.stop()


async def _next(
    batches: AsyncGenerator[ReadBatch, None], client: KafkaClient, topic: str, patience_s: float
) -> ReadBatch:
    try:
        return await asyncio.wait_for(anext(batches), patience_s)
    except TimeoutError as error:
        doing = f"the topic {topic} cannot be read"
        raise client.translated(error, doing=doing, topic=topic) from error


def _cut(batch: ReadBatch, ends: Mapping[int, int]) -> ReadBatch:
    """The batch without the records at or after ``ends``."""
    if all(position <= ends[partition] for partition, position in batch.positions.items()):
        return batch
    return ReadBatch(
        [record for record in batch.records if record.offset < ends[record.partition]],
        {partition: min(at, ends[partition]) for partition, at in batch.positions.items()},
    )
