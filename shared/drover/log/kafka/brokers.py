"""Connections to brokers, and a cache of partition leaders.

aiokafka manages the connections, authenticates, and encodes requests. All coroutines here run on
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

#: Errors of a broken or failed connection.
CONNECTION_ERRORS = (AioKafkaError, TimeoutError, OSError)
#: The maximum number of topics in the cache of leaders.
_TOPICS_MAX = 10_000
#: Leaders are looked up again after an error, not periodically.
_NEVER_MS = 2**31
_NO_LEADER = -1
#: Sets of shared connections, for one cluster and in total.
_LANES = 8
_SHARED_MAX = 4 * _LANES
_CLOSE_S = 5.0


class Coordinated(IntEnum):
    """The key type of a coordinator, as in Kafka's FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class RefusedError(Exception):
    """A broker responded with an error."""

    def __init__(self, code: int) -> None:
        super().__init__(KafkaError(code).str())
        self.code = code


class _Client(AIOKafkaClient):  # type: ignore[misc]  # it has no types
    """A client that is used for connections only."""

    def force_metadata_update(self) -> "asyncio.Future[bool]":
        """Do nothing: it would fetch all topics after each broken connection."""
        updated: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        updated.set_result(True)
        return updated


class Brokers:
    """The brokers of one cluster. A connection handles its requests one after the other."""

    def __init__(
        self, storage: KafkaStorage, *, request_timeout_ms: int = SOCKET_TIMEOUT_MS
    ) -> None:
        self._storage = storage
        self._request_timeout_ms = request_timeout_ms
        self._client: AIOKafkaClient | None = None
        self._connecting: asyncio.Task[AIOKafkaClient] | None = None
        #: The leaders of each topic's partitions, by number.
        self._leaders: dict[str, tuple[int, ...]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether a broker has been reached since the creation or the last ``close``."""
        return self._client is not None

    async def connect(self) -> None:
        """Connect to the cluster unless connected.

        Raises:
            CONNECTION_ERRORS: No broker can be reached.
        """
        await self._connected()

    async def ask(self, node: int, request: Any) -> Any:
        """Send a request to a broker and return its response.

        Raises:
            CONNECTION_ERRORS: There was no response.
        """
        return await _answer(await self._connected(), node, request, ConnectionGroup.DEFAULT)

    async def ask_coordinator(self, node: int, request: Any) -> Any:
        """As ``ask``, over a separate connection, so that it does not wait for fetches."""
        return await _answer(await self._connected(), node, request, ConnectionGroup.COORDINATION)

    async def leader(self, place: Place) -> int:
        """The id of the broker that leads the partition.

        Raises:
            RefusedError: The partition does not exist or has no leader.
            CONNECTION_ERRORS: No broker responded.
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
        """The topic's number of partitions; raises as ``leader``."""
        return len(await self._leaders_of(topic))

    def known_partition_count(self, topic: str) -> int | None:
        """As ``partition_count``, from the cache only; for any thread."""
        leaders = self._leaders.get(topic)
        return None if leaders is None else len(leaders)

    def forget(self, topic: str) -> None:
        """Drop the topic's leaders from the cache."""
        self._leaders.pop(topic, None)

    async def coordinator(self, name: str, of: Coordinated) -> int:
        """The coordinator of a group or of a transactional id; raises as ``leader``."""
        response = await self._ask_any(FindCoordinatorRequest(name, of))
        if response.error_code:
            raise RefusedError(response.error_code)
        cluster = (await self._connected()).cluster
        broker = cluster.broker_metadata(response.coordinator_id)
        if broker is None or (broker.host, broker.port) != (response.host, response.port):
            cluster.update_metadata(await self._ask_any(MetadataRequest([])))
        return int(response.coordinator_id)

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _leaders_of(self, topic: str) -> tuple[int, ...]:
        cached = self._leaders.get(topic)
        if cached is not None:
            return cached
        response = await self._ask_any(MetadataRequest([topic], allow_auto_topic_creation=False))
        (await self._connected()).cluster.update_metadata(response)
        for code, name, _, partitions in response.topics:
            if name == topic and code:
                raise RefusedError(code)
            if name == topic and partitions:
                by_number = {partition: leader for _, partition, leader, *_ in partitions}
                leaders = tuple(
                    by_number.get(number, _NO_LEADER) for number in range(max(by_number) + 1)
                )
                if len(self._leaders) >= _TOPICS_MAX:
                    self._leaders.clear()
                self._leaders[topic] = leaders
                return leaders
        raise RefusedError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    async def _ask_any(self, request: Any) -> Any:
        """Send a request to the brokers one after the other until one responds."""
        client = await self._connected()
        nodes = [each.nodeId for each in client.cluster.brokers()]
        random.shuffle(nodes)
        error: Exception = NodeNotReadyError("no broker is known")
        for node in nodes:
            try:
                return await _answer(client, node, request, ConnectionGroup.DEFAULT)
            except CONNECTION_ERRORS as caught:
                error = caught
        # all brokers may have new addresses: connect again by the bootstrap servers
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
        # aiokafka's race between a timed-out request and a closed connection
        raise KafkaConnectionError(f"the connection to broker {node} is closed") from error
    except NotImplementedError as error:
        raise RefusedError(KafkaError.UNSUPPORTED_VERSION) from error


_shared: dict[Hashable, Brokers] = {}
_lock = threading.Lock()


def shared_brokers(storage: KafkaStorage, user: str, *, request_timeout_ms: int) -> Brokers:
    """The connections for ``user``, one of several sets that all users of the process share.

    Several sets, because the requests of one connection wait for each other, and a timeout closes
    the connection.
    """
    lane = zlib.crc32(user.encode()) % _LANES
    key = (storage_key(storage), lane)
    with _lock:
        brokers = _shared.get(key)
        if brokers is None:
            if len(_shared) >= _SHARED_MAX:
                submit(_shared.pop(next(iter(_shared))).close(), _CLOSE_S)
            brokers = _shared[key] = Brokers(storage, request_timeout_ms=request_timeout_ms)
        return brokers


def outcome_of(future: "Future[T]") -> T:
    """As ``result_of``, but translates RefusedError into KafkaException too."""
    try:
        return result_of(future)
    except RefusedError as error:
        raise KafkaException(KafkaError(error.code)) from error


def call(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    """Run a coroutine on the shared loop and wait for it; raises as ``outcome_of``."""
    return outcome_of(submit(work, limit_s))
