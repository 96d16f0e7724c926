"""Connections to brokers, and what is known of who leads which partition.

aiokafka keeps the connections, logs in, and encodes requests. Everything here is for coroutines of
``shared_loop``.
"""

import asyncio
import random
import threading
import zlib
from collections.abc import Coroutine, Hashable
from concurrent.futures import Future
from enum import IntEnum
from typing import Any, TypeVar

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest
from confluent_kafka import KafkaError, KafkaException

from drover.log.kafka.aiokafka_client import reach, result_of, submit
from drover.log.kafka.client import SOCKET_TIMEOUT_MS, storage_key
from drover.log.storage import KafkaStorage

T = TypeVar("T")

Place = tuple[str, int]

#: What cuts a connection off, or keeps it from being made.
CONNECTION_ERRORS = (AioKafkaError, TimeoutError, OSError)
#: Topics whose leaders are known.
_TOPICS_MAX = 10_000
#: Leaders are looked up again when one has moved, not by the clock.
_NEVER_MS = 2**31
_NO_LEADER = -1
#: Sets of connections that users share, of one cluster and in all.
_LANES = 8
_SHARED_MAX = 4 * _LANES
_CLOSE_S = 5.0


class Coordinated(IntEnum):
    """What a coordinator is looked up for, in Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


class RefusedError(Exception):
    """A broker answered with an error."""

    def __init__(self, code: int) -> None:
        super().__init__(KafkaError(code).str())
        self.code = code


class _Client(AIOKafkaClient):  # type: ignore[misc]  # it has no types
    """Connections only."""

    def force_metadata_update(self) -> "asyncio.Future[bool]":
        """It would fetch all topics whenever a connection breaks; leaders are looked up here."""
        updated: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        updated.set_result(True)
        return updated


class Brokers:
    """The brokers of one cluster. Requests on one connection are answered one after the other."""

    def __init__(
        self, storage: KafkaStorage, *, request_timeout_ms: int = SOCKET_TIMEOUT_MS
    ) -> None:
        self._storage = storage
        self._request_timeout_ms = request_timeout_ms
        self._client: AIOKafkaClient | None = None
        self._connecting: asyncio.Task[AIOKafkaClient] | None = None
        #: Leaders by partition.
        self._leaders: dict[str, tuple[int, ...]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether a broker has answered since this was made or closed."""
        return self._client is not None

    async def connect(self) -> None:
        """Find the brokers, unless they are known.

        Raises:
            CONNECTION_ERRORS: None can be reached.
        """
        await self._connected()

    async def ask(self, node: int, request: Any) -> Any:
        """The answer of a broker.

        Raises:
            CONNECTION_ERRORS: None came.
        """
        return await _answer(await self._connected(), node, request, ConnectionGroup.DEFAULT)

    async def ask_coordinator(self, node: int, request: Any) -> Any:
        """As ``ask``, over a connection of its own: it waits for no records."""
        return await _answer(await self._connected(), node, request, ConnectionGroup.COORDINATION)

    async def leader(self, place: Place) -> int:
        """The broker that leads the partition.

        Raises:
            RefusedError: The partition is not there, or has no leader.
            CONNECTION_ERRORS: Nobody answered.
        """
        topic, partition = place
        leaders = await self._leaders_of(topic)
        if partition >= len(leaders):
            raise RefusedError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if leaders[partition] == _NO_LEADER:
            self.forget(topic)
            raise RefusedError(KafkaError.LEADER_NOT_AVAILABLE)
        return leaders[partition]

    async def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; raises as ``leader``."""
        return len(await self._leaders_of(topic))

    def known_partition_count(self, topic: str) -> int | None:
        """As ``partition_count``, of what is known already; on any thread."""
        known = self._leaders.get(topic)
        return None if known is None else len(known)

    def forget(self, topic: str) -> None:
        """Look up the topic's leaders when they are asked for next."""
        self._leaders.pop(topic, None)

    async def coordinator(self, name: str, of: Coordinated) -> int:
        """The broker that coordinates a group, or an id's transactions; raises as ``leader``."""
        found = await self._ask_any(FindCoordinatorRequest(name, of))
        if found.error_code:
            raise RefusedError(found.error_code)
        cluster = (await self._connected()).cluster
        known = cluster.broker_metadata(found.coordinator_id)
        if known is None or (known.host, known.port) != (found.host, found.port):
            cluster.update_metadata(await self._ask_any(MetadataRequest([])))
        return int(found.coordinator_id)

    async def close(self) -> None:
        """Close all connections; what is asked later makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _leaders_of(self, topic: str) -> tuple[int, ...]:
        known = self._leaders.get(topic)
        if known is not None:
            return known
        response = await self._ask_any(MetadataRequest([topic], allow_auto_topic_creation=False))
        (await self._connected()).cluster.update_metadata(response)
        for code, name, _, partitions in response.topics:
            if name == topic and code:
                raise RefusedError(code)
            if name == topic and partitions:
                led = {partition: leader for _, partition, leader, *_ in partitions}
                found = tuple(led.get(number, _NO_LEADER) for number in range(max(led) + 1))
                if len(self._leaders) >= _TOPICS_MAX:
                    self._leaders.clear()
                self._leaders[topic] = found
                return found
        raise RefusedError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    async def _ask_any(self, request: Any) -> Any:
        """The answer of the first broker that gives one."""
        client = await self._connected()
        nodes = [each.nodeId for each in client.cluster.brokers()]
        random.shuffle(nodes)
        error: Exception = NodeNotReadyError("no broker is known")
        for node in nodes:
            try:
                return await _answer(client, node, request, ConnectionGroup.DEFAULT)
            except CONNECTION_ERRORS as caught:
                error = caught
        # by now the brokers may be at other addresses than those that were known
        if self._client is client:
            await self.close()
        raise error

    async def _connected(self) -> AIOKafkaClient:
        if self._client is not None:
            return self._client
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
        connecting = self._connecting
        try:
            self._client = await asyncio.shield(connecting)
        finally:
            if self._connecting is connecting and connecting.done():
                self._connecting = None
        return self._client

    async def _connect(self) -> AIOKafkaClient:
        client = _Client(
            **reach(self._storage),
            client_id=f"drover-{self._storage.group_id}",
            metadata_max_age_ms=_NEVER_MS,
            request_timeout_ms=self._request_timeout_ms,
        )
        try:
            await client.bootstrap()
        except BaseException:
            await client.close()
            raise
        return client


async def _answer(client: AIOKafkaClient, node: int, request: Any, group: ConnectionGroup) -> Any:
    try:
        return await client.send(node, request, group=group)
    except KeyError as error:
        # it timed out as others noticed that the connection was closed
        raise KafkaConnectionError(f"the connection to broker {node} is closed") from error
    except NotImplementedError as error:
        raise RefusedError(KafkaError.UNSUPPORTED_VERSION) from error


_shared: dict[Hashable, Brokers] = {}
_lock = threading.Lock()


def shared_brokers(storage: KafkaStorage, user: str, *, request_timeout_ms: int) -> Brokers:
    """The process's connections for what this user asks; some of all users have the same ones.

    Requests of one connection wait for each other, and one that is not answered closes it.
    """
    lane = zlib.crc32(user.encode()) % _LANES
    key = (storage_key(storage), lane)
    with _lock:
        found = _shared.get(key)
        if found is None:
            if len(_shared) >= _SHARED_MAX:
                submit(_shared.pop(next(iter(_shared))).close(), _CLOSE_S)
            found = _shared[key] = Brokers(storage, request_timeout_ms=request_timeout_ms)
        return found


def outcome_of(future: "Future[T]") -> T:
    """As ``result_of``, where what brokers refuse is a KafkaException too."""
    try:
        return result_of(future)
    except RefusedError as error:
        raise KafkaException(KafkaError(error.code)) from error


def call(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    """Have it done on the loop; see ``outcome_of``."""
    return outcome_of(submit(work, limit_s))
