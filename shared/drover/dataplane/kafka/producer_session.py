"""Transactions of one transactional id in as few requests as possible: partitions are added
together, each leader gets one request with a batch per partition, then the transaction is ended.

All coroutines run on ``shared_loop`` and continue until they succeed or are refused: the caller
sets a timeout. After an error only a new session can be used.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from confluent_kafka import KafkaError

from drover.dataplane.kafka.batch_format import OVERHEAD_BYTES
from drover.dataplane.kafka.record_batches import EncodedBatch, cut
from drover.dataplane.values import PublishedRange
from drover.log.kafka.brokers import (
    CONNECTION_ERRORS,
    Brokers,
    Coordinated,
    Place,
    RefusedError,
)
from drover.log.kafka.client import SOCKET_TIMEOUT_MS
from drover.log.kafka.errors import TOO_LARGE, UNKNOWN_TOPIC

#: Between attempts: markers of the last transaction are written within milliseconds, an election
#: takes seconds.
_FIRST_PAUSE_S = 0.005
_LAST_PAUSE_S = 0.2
#: Some brokers do not know a new topic for a moment.
_UNKNOWN_TOPIC_S = SOCKET_TIMEOUT_MS / 1000
_ALL_REPLICAS = -1
_SEQUENCE_END = 2**31
#: The size of the pieces of a batch, as a share of the smallest size that was refused.
_CUT_SHARE = 0.95
_NO_ANSWER = KafkaError._TRANSPORT
#: Another broker is now the coordinator of the id.
_COORDINATOR_MOVED = frozenset(
    {KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, _NO_ANSWER}
)
#: The coordinator will be ready soon.
_COORDINATOR_BUSY = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        *UNKNOWN_TOPIC,
    }
)
#: Nothing was written, or only by the leader: the same batch can be sent again.
_LEADER_BUSY = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.INVALID_MSG,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        _NO_ANSWER,
        *UNKNOWN_TOPIC,
    }
)
#: An earlier attempt wrote the batch, and its response was lost.
_WRITTEN = frozenset({KafkaError.NO_ERROR, KafkaError.DUPLICATE_SEQUENCE_NUMBER})
#: Another partition of the request could not be added, so this one was not.
_NOT_ATTEMPTED = KafkaError.OPERATION_NOT_ATTEMPTED


class ProducerSession:
    """A producer from its initialisation until another one fences it.

    Args:
        brokers: The brokers.
        transactional_id: Its id.
        timeout_ms: How long a transaction may take.
        refused_bytes: The size of the smallest batch that was refused as too large, by topic;
            updated.
    """

    def __init__(
        self,
        brokers: Brokers,
        transactional_id: str,
        *,
        timeout_ms: int,
        refused_bytes: MutableMapping[str, int] | None = None,
    ) -> None:
        self._brokers = brokers
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._coordinator: int | None = None
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._refused_bytes = {} if refused_bytes is None else refused_bytes
        #: Partitions of the open transaction.
        self._added: set[Place] = set()

    async def begin(self) -> None:
        """End open transactions of earlier producers with the id, and fence them.

        Raises:
            RefusedError: A broker refuses; ``write`` and ``end`` raise it as well.
            CONNECTION_ERRORS: No broker can be reached.
        """
        await self._brokers.connect()
        request = InitProducerIdRequest(self._id, self._timeout_ms)
        found = await self._coordinate(request, lambda answer: [answer.error_code])
        self._producer_id, self._epoch = found.producer_id, found.producer_epoch

    async def write(self, batches: Mapping[Place, EncodedBatch]) -> list[PublishedRange]:
        """Write a batch to each of these partitions in the open transaction, and wait for
        acknowledgement. A batch that is over the limit of its topic is cut, as by Kafka's
        producer.

        Returns:
            Where the records are, as far as the brokers report it.
        """
        ranges = []
        new = [place for place in batches if place not in self._added]
        if new:
            await self._add(new)
        large = {
            place: batch for place, batch in batches.items() if self._is_too_large(place, batch)
        }
        waiting = {
            place: self._built(place, batch)
            for place, batch in batches.items()
            if place not in large
        }
        attempts = _Attempts()
        while waiting:
            found = await self._send(waiting)
            for place, (code, base) in found.items():
                if code in TOO_LARGE:
                    large[place] = self._refused(place, batches[place], len(waiting.pop(place)))
                elif code in _WRITTEN:
                    del waiting[place]
                    if base >= 0:
                        end = base + batches[place].record_count
                        ranges.append(PublishedRange(*place, base, end))
            if waiting:
                await attempts.pause_after(code for code, _ in found.values())
        pieces = {place: await self._cut(place, batch) for place, batch in large.items()}
        while pieces:
            ranges += await self.write({place: rest.popleft() for place, rest in pieces.items()})
            pieces = {place: rest for place, rest in pieces.items() if rest}
        return ranges

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction, if it has any partitions."""
        if not self._added:
            return
        request = EndTxnRequest(self._id, self._producer_id, self._epoch, commit)
        await self._coordinate(request, lambda answer: [answer.error_code])
        self._added.clear()

    async def _add(self, places: Iterable[Place]) -> None:
        request = AddPartitionsToTxnRequest(
            self._id,
            self._producer_id,
            self._epoch,
            _by_topic((place, place[1]) for place in places),
        )
        await self._coordinate(
            request, lambda answer: [code for _, found in answer.errors for _, code in found]
        )
        self._added.update(places)

    def _built(self, place: Place, batch: EncodedBatch) -> bytes:
        """The batch's bytes, equal for every attempt."""
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = (sequence + batch.record_count) % _SEQUENCE_END
        return batch.build(self._producer_id, self._epoch, sequence)

    def _is_too_large(self, place: Place, batch: EncodedBatch) -> bool:
        """Whether the brokers have refused a batch of this size for the topic."""
        limit_bytes = self._refused_bytes.get(place[0])
        size_bytes = OVERHEAD_BYTES + len(batch.records)
        return limit_bytes is not None and size_bytes >= limit_bytes and batch.record_count > 1

    async def _cut(self, place: Place, batch: EncodedBatch) -> deque[EncodedBatch]:
        """At least two batches that are below the size that is refused, if their records are of
        about the same size.
        """
        limit_bytes = self._refused_bytes[place[0]]
        size_bytes = OVERHEAD_BYTES + len(batch.records)
        piece_count = max(2, -(-size_bytes // max(1, int(limit_bytes * _CUT_SHARE))))
        return deque(await asyncio.to_thread(cut, batch, piece_count))

    def _refused(self, place: Place, batch: EncodedBatch, size_bytes: int) -> EncodedBatch:
        """Note the size of a refused batch, of which nothing was written.

        Raises:
            RefusedError: It has a single record.
        """
        if batch.record_count == 1:
            raise RefusedError(KafkaError.MSG_SIZE_TOO_LARGE)
        known_bytes = self._refused_bytes.get(place[0], size_bytes)
        self._refused_bytes[place[0]] = min(known_bytes, size_bytes)
        self._sequences[place] = (self._sequences[place] - batch.record_count) % _SEQUENCE_END
        return batch

    async def _send(self, batches: Mapping[Place, bytes]) -> dict[Place, tuple[int, int]]:
        """Send each leader its batches; returns their error codes, of which some mean to send a
        batch again, or to halve it, and first offsets, -1 where they are not known.

        Raises:
            RefusedError: A batch cannot be written.
        """
        answers: dict[Place, tuple[int, int]] = {}
        by_leader: dict[int, list[Place]] = defaultdict(list)
        for place in batches:
            try:
                by_leader[await self._brokers.leader(place)].append(place)
            except RefusedError as error:
                answers[place] = error.code, -1
            except CONNECTION_ERRORS:
                answers[place] = _NO_ANSWER, -1
        sent = [
            self._produce(leader, {place: batches[place] for place in places})
            for leader, places in by_leader.items()
        ]
        for found in [await sent[0]] if len(sent) == 1 else await asyncio.gather(*sent):
            answers.update(found)
        for (topic, _), (code, _) in answers.items():
            if code in _LEADER_BUSY:
                self._brokers.forget(topic)
            elif code not in _WRITTEN | TOO_LARGE:
                raise RefusedError(code)
        return answers

    async def _produce(
        self, leader: int, batches: Mapping[Place, bytes]
    ) -> dict[Place, tuple[int, int]]:
        """The error code and the first offset of each batch."""
        request = ProduceRequest(
            transactional_id=self._id,
            required_acks=_ALL_REPLICAS,
            timeout=self._timeout_ms,
            topics=_by_topic((place, (place[1], built)) for place, built in batches.items()),
        )
        try:
            answer = await self._brokers.ask(leader, request)
        except CONNECTION_ERRORS:
            return dict.fromkeys(batches, (_NO_ANSWER, -1))
        return {
            (topic, partition): (code, base)
            for topic, partitions in answer.topics
            for partition, code, base, *_ in partitions
        }

    async def _coordinate(self, request: Any, codes_of: Callable[[Any], Iterable[int]]) -> Any:
        """The coordinator's response, after retries."""
        attempts = _Attempts()
        while True:
            try:
                if self._coordinator is None:
                    found = await self._brokers.coordinator(self._id, Coordinated.TRANSACTION)
                    self._coordinator = found
                answer = await self._brokers.ask_coordinator(self._coordinator, request)
                codes = {*codes_of(answer)} - {KafkaError.NO_ERROR, _NOT_ATTEMPTED}
            except RefusedError as error:
                codes = {error.code}
            except CONNECTION_ERRORS:
                codes = {_NO_ANSWER}
            if not codes:
                return answer
            for code in codes:
                if code in _COORDINATOR_MOVED:
                    self._coordinator = None
                elif code not in _COORDINATOR_BUSY:
                    raise RefusedError(code)
            await attempts.pause_after(codes)


class _Attempts:
    """Pauses between attempts."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._began_s = time.monotonic()

    async def pause_after(self, codes: Iterable[int]) -> None:
        """Pause, a little longer each time.

        Raises:
            RefusedError: A topic has been unknown for too long.
        """
        unknown = UNKNOWN_TOPIC.intersection(codes)
        if unknown and time.monotonic() - self._began_s > _UNKNOWN_TOPIC_S:
            raise RefusedError(min(unknown))
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)


def _by_topic(entries: Iterable[tuple[Place, Any]]) -> list[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for (topic, _), entry in entries:
        found[topic].append(entry)
    return list(found.items())
