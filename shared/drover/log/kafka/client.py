"""Clients of a Kafka cluster with Drover's settings, and the translation of Kafka's errors."""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from drover.errors import DroverError, InvalidArgumentError, Reason, UnavailableError, Violation
from drover.log.kafka import errors
from drover.log.kafka.repeated_line_filter import repeated_line_filter
from drover.log.log import closed_error
from drover.log.storage import KafkaStorage
from drover.model.names import BROKER_TOPICS
from drover.policy.kafka_users import principal_of

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 5.0
ADMIN_THREADS = 4
PREFETCH_KBYTES = 16 << 10
RECONNECT_MAX_MS = 1_000
SOCKET_TIMEOUT_MS = 20_000
"""The time after which a connection without responses is closed."""
ADMIN_REFRESH_MS = 2_000
"""How often the admin client refreshes partition leaders: by default it asks a dead broker for
minutes."""
BROKERS_MAX_BYTES = 1_048_588
"""The brokers' default for the largest batch."""
RETRY_S = 0.2
_REFUSED_FOR_S = 60.0
ADMIN_SILENCE_MAX_S = 30.0
"""An admin client without a response for this long is replaced: a client can wait for a controller
for ever after an outage, although the brokers respond to other clients."""

#: Settings on which the guarantees of the logs depend; operators must not set them.
OWN_SETTINGS = frozenset(
    {
        "acks",
        "request.required.acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "metadata.broker.list",
        "enable.auto.commit",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "isolation.level",
        "partitioner",
        "transactional.id",
    }
)
_SETTING = "DROVER_KAFKA_CONFIG"
#: Kafka's alphabet of topic ids
_NO_TOPIC_ID = "A" * 22
_URL_SAFE = str.maketrans("+/", "-_")

StorageKey = tuple[int, str, tuple[tuple[str, str], ...]]


def storage_key(storage: KafkaStorage) -> StorageKey:
    """A key that is equal for storages that can share clients within one process."""
    return os.getpid(), storage.bootstrap_servers, tuple(sorted(storage.client_config.items()))


@dataclass(frozen=True, slots=True)
class TopicState:
    """An existing topic. A topic that was deleted and recreated has another ``topic_id``; it is
    empty for a topic from before Kafka had ids (KIP-516).
    """

    name: str
    topic_id: str
    partition_count: int


class KafkaClient:
    """Creates clients for a storage and makes admin requests. A process needs one.

    Args:
        storage: The brokers and the client settings.
        timeout_s: How long a call waits for unreachable brokers before it fails with
            STORAGE_UNAVAILABLE.

    Raises:
        InvalidArgumentError: INVALID_CONFIG, librdkafka rejects the client settings, or they have
            one that Drover sets.
    """

    def __init__(self, storage: KafkaStorage, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.storage = storage
        self.timeout_s = timeout_s
        self._logger = repeated_line_filter()
        self._refused: tuple[KafkaError, float] | None = None
        self._common: dict[str, Any] = {
            "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "client.id": f"drover-{storage.group_id}",
            **storage.client_config,
            "bootstrap.servers": storage.bootstrap_servers,
            "error_cb": self._on_error,
        }
        self._check_settings()
        self._admin = self._new_admin()
        #: The time of the first call without a response after the last one with.
        self._silent_since_s: float | None = None
        self._threads = ThreadPoolExecutor(ADMIN_THREADS, thread_name_prefix="kafka admin")
        self._closed = False

    def producer(self, settings: Mapping[str, object]) -> Producer:
        """A producer with additional ``settings``, for one thread other than the event loop's."""
        own = {
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 0,
            "logger": self._logger,
        }
        defaults = {"message.max.bytes": BROKERS_MAX_BYTES}
        return self._made(lambda: Producer({**defaults, **self._common, **own, **settings}))

    def consumer(self, settings: Mapping[str, object]) -> Consumer:
        """A consumer that reads committed records, commits nothing and joins no group."""
        own = {
            "group.id": self.storage.group_id,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "check.crcs": True,
            "logger": self._logger,
        }
        defaults = {"queued.max.messages.kbytes": PREFETCH_KBYTES, "fetch.error.backoff.ms": 100}
        return self._made(lambda: Consumer({**defaults, **self._common, **own, **settings}))

    @property
    def user(self) -> str:
        """The brokers' name for the user of this client, as far as its settings show it."""
        return principal_of(self.storage.client_config)

    @property
    def admin(self) -> AdminClient:
        """The admin client; wait for its futures with ``waited`` inside ``run``, as they block."""
        return self._admin

    async def run(self, work: Callable[[], T], *, doing: str, topic: str = "") -> T:
        """Run a blocking call on a thread; ``doing`` describes its failure in messages.

        Raises:
            DroverError: The translated KafkaException, see ``translated``.
        """
        if self._closed:
            raise closed_error()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, work)
        except (KafkaException, TimeoutError) as error:
            raise self.translated(error, doing=doing, topic=topic) from error

    def translated(
        self,
        error: KafkaException | KafkaError | TimeoutError,
        *,
        doing: str,
        topic: str = "",
        operation: str = "",
        resource: str = "",
    ) -> DroverError:
        """Translate an error of Kafka; a TimeoutError means that brokers do not respond.

        UnavailableError STORAGE_UNAVAILABLE for a transient error, InvalidArgumentError TOO_LARGE
        for a record over the limits, FailedPreconditionError STALE_WRITER_EPOCH for a fenced
        producer, NON_EMPTY_GROUP for offsets of a group with members, STORAGE_MISCONFIGURED for an
        error that an operator has to fix (a missing topic, no authorization), and DataLossError
        LOG_CORRUPT for lost records.

        ``operation`` and ``resource`` are for the message if the user lacks the operation on the
        resource, by default on the topic.
        """
        if isinstance(error, TimeoutError):
            error = KafkaError(KafkaError._TIMED_OUT)
        what = error.args[0] if isinstance(error, KafkaException) else error
        assert isinstance(what, KafkaError)
        brokers = self.storage.bootstrap_servers
        meant = errors.as_error(
            what,
            doing=doing,
            topic=topic,
            brokers=brokers,
            user=self.user,
            operation=operation,
            resource=resource,
        )
        if isinstance(meant, UnavailableError) and self._refused is not None:
            refusal, since_s = self._refused
            if time.monotonic() - since_s < _REFUSED_FOR_S:
                return errors.as_error(refusal, doing=doing, topic=topic, brokers=brokers)
        return meant

    async def describe_topic(self, topic: str) -> TopicState | None:
        """Describe a topic; None if it does not exist. Does not auto-create it.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, not authorised.
        """
        return await self.run(
            lambda: self.describe_topic_now(topic),
            doing=f"the topic {topic} cannot be described",
            topic=topic,
        )

    def describe_topic_now(self, topic: str) -> TopicState | None:
        """As ``describe_topic``, for threads; raises KafkaException and TimeoutError."""
        return self.topics_now([topic]).get(topic)

    def topics_now(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Describe the existing ones of ``topics``, for threads.

        Raises KafkaException and TimeoutError.
        """
        collection = TopicCollection(sorted(topics))
        futures = self._admin.describe_topics(collection, request_timeout=self.timeout_s)
        states = {}
        for topic, future in futures.items():
            try:
                described = self.waited(future)
            except KafkaException as error:
                if error.args[0].code() not in errors.UNKNOWN_TOPIC:
                    raise
            else:
                topic_id = str(described.topic_id).translate(_URL_SAFE)
                topic_id = "" if topic_id == _NO_TOPIC_ID else topic_id
                states[topic] = TopicState(topic, topic_id, len(described.partitions))
        return states

    def topic_operations_now(self, topics: Collection[str]) -> dict[str, frozenset[str]]:
        """What the user may do with the existing ones of ``topics``, such as WRITE; for threads.
        It is empty where the brokers do not show the user whether the topic exists.

        Raises KafkaException and TimeoutError.
        """
        found = self._admin.describe_topics(
            TopicCollection(sorted(topics)),
            include_authorized_operations=True,
            request_timeout=self.timeout_s,
        )
        states: dict[str, frozenset[str]] = {}
        for topic, future in found.items():
            try:
                described = self.waited(future)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    states[topic] = frozenset()
                elif code not in errors.UNKNOWN_TOPIC:
                    raise
            else:
                operations = described.authorized_operations or ()
                states[topic] = frozenset(each.name for each in operations)
        return states

    def cluster_operations_now(self) -> tuple[frozenset[str], int]:
        """What the user may do with the cluster, and the number of brokers; for threads.

        Raises KafkaException and TimeoutError.
        """
        future = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=self.timeout_s
        )
        described = self.waited(future)
        operations = frozenset(each.name for each in described.authorized_operations or ())
        return operations, len(described.nodes)

    def group_operations_now(self, group: str) -> frozenset[str]:
        """What the user may do with a consumer group; for threads.

        Raises KafkaException and TimeoutError.
        """
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            found = self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=self.timeout_s
            )
            try:
                described = self.waited(found[group])
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    return frozenset()
                if code not in errors.LOOKING_UP or time.monotonic() >= deadline_s:
                    raise
                self._admin.poll(RETRY_S)  # a pause
            else:
                return frozenset(each.name for each in described.authorized_operations or ())

    def cluster_id_now(self) -> str:
        """The cluster's id, for threads; raises KafkaException."""
        return str(self._admin.list_topics(timeout=self.timeout_s).cluster_id or "")

    def topic_names_now(self) -> list[str]:
        """All topics but the brokers' internal ones, for threads; raises KafkaException."""
        return sorted(self.partitions_now())

    def partitions_now(self) -> dict[str, list[int]]:
        """As ``topic_names_now``, with the partitions of each topic."""
        topics = self._admin.list_topics(timeout=self.timeout_s).topics.items()
        return {name: [*topic.partitions] for name, topic in topics if name not in BROKER_TOPICS}

    def topic_settings_now(self, topic: str) -> dict[str, str]:
        """The settings of a topic without secrets, for threads.

        Raises KafkaException and TimeoutError.
        """
        return {
            name: each.value
            for name, each in self._topic_entries(topic).items()
            if each.value is not None and not each.is_sensitive
        }

    def topic_setting_sources_now(self, topic: str) -> dict[str, ConfigSource]:
        """Where the settings of a topic come from, for threads.

        Raises KafkaException and TimeoutError.
        """
        entries = self._topic_entries(topic).items()
        return {name: ConfigSource(each.source) for name, each in entries}

    def _topic_entries(self, topic: str) -> Mapping[str, ConfigEntry]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        futures = self._admin.describe_configs([resource], request_timeout=self.timeout_s)
        (future,) = futures.values()
        found: Mapping[str, ConfigEntry] = self.waited(future)
        return found

    def broker_setting_now(self, name: str) -> str | None:
        """A setting of one of the brokers, for threads; None if it has none.

        Raises KafkaException and TimeoutError.
        """
        brokers = self._admin.list_topics(timeout=self.timeout_s).brokers
        resource = ConfigResource(ConfigResource.Type.BROKER, str(min(brokers)))
        futures = self._admin.describe_configs([resource], request_timeout=self.timeout_s)
        (future,) = futures.values()
        found = self.waited(future).get(name)
        return None if found is None else found.value

    def make_topic_now(self, topic: NewTopic, *, dry_run: bool = False) -> None:
        """Create a topic unless it exists, for threads; raises KafkaException and TimeoutError.

        Not all brokers know it at once: poll with ``describe_topic`` until it appears. With
        ``dry_run`` the brokers check the request only.
        """
        asked = self._admin.create_topics(
            [topic], request_timeout=self.timeout_s, validate_only=dry_run
        )
        (future,) = asked.values()
        try:
            self.waited(future)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def add_partitions_now(self, wanted: NewPartitions) -> None:
        """Add partitions to a topic unless it has as many, for threads; raises as
        ``make_topic_now``. Not all brokers know them at once.
        """
        asked = self._admin.create_partitions([wanted], request_timeout=self.timeout_s)
        (future,) = asked.values()
        try:
            self.waited(future)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise

    async def stable_offsets(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The last stable offset of each partition: no open transaction has records below it.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic, not authorised.
        """
        return await self._offsets(topic, partitions, OffsetSpec.latest())

    async def last_offsets(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The end of each partition, including open transactions.

        Once these have ended, the last stable offset reaches it.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic, not authorised.
        """
        return await self._offsets(
            topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED
        )

    async def first_offsets(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The first offset of each partition; above 0 if its oldest records were deleted.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic, not authorised.
        """
        return await self._offsets(topic, partitions, OffsetSpec.earliest())

    async def close(self) -> None:
        """Release the threads; idempotent. Readers and writers are closed by their creators."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)

    def waited(self, future: "Future[T]") -> T:
        """Wait for a future of the admin client; raises KafkaException and TimeoutError."""
        try:
            result = future.result(timeout=self.timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() in errors.SILENCE:
                self._note_silence()
            else:
                self._silent_since_s = None
            raise
        finally:
            self._admin.poll(0)  # run the error callback, which records authentication failures
        self._silent_since_s = self._refused = None
        return result

    def _note_silence(self) -> None:
        now_s = time.monotonic()
        since_s = self._silent_since_s
        if since_s is None:
            self._silent_since_s = now_s
        elif now_s - since_s > ADMIN_SILENCE_MAX_S:
            self._admin, self._silent_since_s = self._new_admin(), None

    async def _offsets(
        self,
        topic: str,
        partitions: Collection[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, int]:
        deadline_s = time.monotonic() + self.timeout_s
        places = [(topic, partition) for partition in partitions]
        doing = f"the offsets of the topic {topic} cannot be read"
        while True:
            try:
                offsets = await self.run(
                    lambda: self.offsets_now(places, spec, isolation), doing=doing, topic=topic
                )
                if len(offsets) == len(places):
                    return {partition: offset for (_, partition), offset in offsets.items()}
                unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
                error = self.translated(unknown, doing=doing, topic=topic)
            except UnavailableError as unavailable:
                if errors.is_silence(unavailable):
                    raise
                error = unavailable
            if time.monotonic() >= deadline_s:
                self._check_partitions(topic, partitions, await self.describe_topic(topic))
                raise error
            await asyncio.sleep(RETRY_S)

    def first_offsets_now(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """As ``first_offsets``, for threads; raises KafkaException and TimeoutError."""
        places = [(topic, partition) for partition in partitions]
        offsets = self.offsets_now(places, OffsetSpec.earliest())
        return {partition: offset for (_, partition), offset in offsets.items()}

    def offsets_now(
        self,
        partitions: Collection[tuple[str, int]],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[tuple[str, int], int]:
        """Offsets by topic and partition, for threads, with one request to each leader.

        Partitions that do not exist are left out. Raises KafkaException and TimeoutError.
        """
        try:
            return self._offsets_once(partitions, spec, isolation)
        except KafkaException as error:
            if error.args[0].code() in errors.SILENCE:
                raise
            # After a restart of brokers the client keeps the old leader epochs for minutes, and
            # brokers reject requests with them. Describing the topics refreshes the epochs.
            topics = self.topics_now({topic for topic, _ in partitions})
            present = [each for each in partitions if each[0] in topics]
            return self._offsets_once(present, spec, isolation) if present else {}

    def _offsets_once(
        self,
        partitions: Collection[tuple[str, int]],
        spec: OffsetSpec,
        isolation: IsolationLevel,
    ) -> dict[tuple[str, int], int]:
        futures = self._admin.list_offsets(
            {TopicPartition(*each): spec for each in partitions},
            isolation_level=isolation,
            request_timeout=self.timeout_s,
        )
        offsets = {}
        for place, future in futures.items():
            try:
                offset = self.waited(future).offset
            except KafkaException as error:
                if error.args[0].code() not in errors.UNKNOWN_TOPIC:
                    raise
            else:
                if offset < 0:  # librdkafka's result if the broker's response was lost
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
                offsets[place.topic, place.partition] = offset
        return offsets

    def _check_partitions(
        self, topic: str, partitions: Collection[int], state: TopicState | None
    ) -> None:
        """Raise an error if partitions do not exist; otherwise brokers have just restarted."""
        count = 0 if state is None else state.partition_count
        if count <= max(partitions):
            raise errors.misconfigured(
                f"the topic {topic} has {count} partitions on {self.storage.bootstrap_servers}, but"
                f" partition {max(partitions)} is needed. If it was removed, restart to create it",
                {"topic": topic, "brokers": self.storage.bootstrap_servers},
            )

    def _new_admin(self) -> AdminClient:
        defaults = {"topic.metadata.refresh.interval.ms": ADMIN_REFRESH_MS}
        # it is polled rarely, so its log lines would be late
        own = {"log_level": 0}
        return self._made(lambda: AdminClient({**defaults, **self._common, **own}))

    def _on_error(self, error: KafkaError) -> None:
        if errors.is_refusal(error):
            self._refused = error, time.monotonic()

    def _made(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except KafkaException as error:
            what = error.args[0].str()
            raise InvalidArgumentError(
                Reason.INVALID_CONFIG,
                f"{_SETTING}: {what}",
                violations=[Violation(_SETTING, what)],
            ) from error

    def _check_settings(self) -> None:
        violations = [
            Violation(_SETTING, f"must not have {name}, which Drover sets")
            for name in sorted(self.storage.client_config)
            if name in OWN_SETTINGS
        ]
        if violations:
            raise InvalidArgumentError.listing(violations, reason=Reason.INVALID_CONFIG)
