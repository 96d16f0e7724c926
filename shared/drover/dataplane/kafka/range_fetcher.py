"""Reads ranges by whole fetches, which is much cheaper than single messages.

aiokafka manages connections, and encodes and decodes requests.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from aiokafka.protocol.fetch import FetchRequest
from confluent_kafka import KafkaError, KafkaException

from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.fetched_batches import CorruptBatchError, Fetched
from drover.dataplane.kafka.range_reader import SILENCE_S, check_silence, removed_error
from drover.dataplane.values import ReadRange
from drover.errors import DroverError
from drover.log.kafka.aiokafka_client import result_of, submit
from drover.log.kafka.brokers import CONNECTION_ERRORS, Brokers, Place, RefusedError
from drover.log.kafka.client import RETRY_S, SOCKET_TIMEOUT_MS
from drover.log.kafka.errors import LOST, UNKNOWN_TOPIC
from drover.log.storage import KafkaStorage

_READ_COMMITTED = 1
#: Brokers respond at once if they have data; this is the limit if they have none.
_WAIT_MS = 500
_FETCH_BYTES = 4 * 1024 * 1024
#: The first fetch of a range, before the size of its records in the topic is known.
_FIRST_FETCH_BYTES = 1024 * 1024
_LEAST_FETCH_BYTES = 64 * 1024
#: From this version on, responses have a preferred replica after the aborted transactions.
_NAMES_A_REPLICA = 11
_SOCKET_S = SOCKET_TIMEOUT_MS / 1000
_CLOSE_S = 5.0
#: Errors while a partition moves between brokers.
_MOVING = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)


class RangeFetcher:
    """See RangeReader. The next fetch is sent while one is decoded."""

    def __init__(self, storage: KafkaStorage) -> None:
        self._storage = storage
        self._client = shared_client(storage)
        self._brokers = Brokers(storage)

    def read(self, wanted: ReadRange, columns: frozenset[str]) -> Iterator[Any]:
        """See RangeReader."""
        position = wanted.start_offset
        first_bytes = min(_LEAST_FETCH_BYTES + wanted.size_bytes, _FIRST_FETCH_BYTES)
        coming = self._ask(wanted, position, first_bytes)
        since_s = time.monotonic()
        try:
            while position < wanted.end_offset:
                fetched = self._answer(coming, wanted)
                following = fetched.next_offset
                if following is None or following <= position:
                    check_silence(wanted, position, since_s)
                    coming = self._ask(wanted, position, first_bytes)
                    continue
                if following < wanted.end_offset:
                    # data after the end would be fetched in vain
                    share = (wanted.end_offset - following) / (following - position)
                    left_bytes = int(fetched.size_bytes * share)
                    left_bytes += max(fetched.last_bytes, _LEAST_FETCH_BYTES)
                    coming = self._ask(wanted, following, min(left_bytes, _FETCH_BYTES))
                try:
                    yield from fetched.rows(wanted, columns)
                except CorruptBatchError as error:
                    what = KafkaError(KafkaError._BAD_MSG, str(error))
                    raise self._meaning(what, wanted) from error
                position, since_s = following, time.monotonic()
        finally:
            coming.cancel()

    def close(self) -> None:
        """See RangeReader."""
        submit(self._brokers.close(), _CLOSE_S)

    def _ask(self, wanted: ReadRange, offset: int, max_bytes: int) -> "Future[Fetched]":
        """Start a fetch."""
        place = (wanted.topic, wanted.partition)
        return submit(self._fetch(place, offset, max_bytes), SILENCE_S + _SOCKET_S)

    def _answer(self, coming: "Future[Fetched]", wanted: ReadRange) -> Fetched:
        try:
            return result_of(coming)
        except RefusedError as error:
            raise self._meaning(KafkaError(error.code), wanted) from error
        except KafkaException as error:
            # aiokafka does not distinguish unavailable brokers from refused logins
            try:
                self._client.topics_now([wanted.topic])
            except (KafkaException, TimeoutError) as told:
                raise self._meaning(told, wanted) from error
            raise self._meaning(error, wanted) from error

    def _meaning(
        self, error: KafkaException | KafkaError | TimeoutError, wanted: ReadRange
    ) -> DroverError:
        if isinstance(error, KafkaError) and error.code() in LOST:
            return removed_error(wanted, error.str())
        doing = f"{wanted.topic}-{wanted.partition} cannot be read"
        return self._client.translated(error, doing=doing, topic=wanted.topic, operation="Read")

    async def _fetch(self, place: Place, offset: int, max_bytes: int) -> Fetched:
        """The leader's data from this offset on; looks up the leader again if it moves."""
        since_s = time.monotonic()
        patience_s = SILENCE_S if self._brokers.is_connected else self._client.timeout_s
        while True:
            try:
                return await self._fetch_once(place, offset, max_bytes)
            except RefusedError as error:
                self._brokers.forget(place[0])
                if error.code in UNKNOWN_TOPIC:
                    patience_s = self._client.timeout_s
                elif error.code not in _MOVING:
                    raise
                if time.monotonic() - since_s > patience_s:
                    raise
            except CONNECTION_ERRORS:
                self._brokers.forget(place[0])
                if time.monotonic() - since_s > patience_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _fetch_once(self, place: Place, offset: int, max_bytes: int) -> Fetched:
        leader = await self._brokers.leader(place)
        topic, partition = place
        asked = [(topic, [(partition, offset, max_bytes)])]
        request = FetchRequest(_WAIT_MS, 1, max_bytes, _READ_COMMITTED, asked)
        response = await self._brokers.ask(leader, request)
        ((_, ((_, code, *found),)),) = response.topics
        if code:
            raise RefusedError(code)
        aborted = found[-3 if response.API_VERSION >= _NAMES_A_REPLICA else -2]
        return Fetched(found[-1] or b"", tuple(aborted or ()))
