"""The way to a Kafka cluster: clients with the right settings, and its errors in our terms."""

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
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from drover.errors import DroverError, InvalidArgumentError, Reason, UnavailableError, Violation
from drover.log.kafka import errors
from drover.log.kafka.repeated_line_filter import repeated_line_filter
from drover.log.log import closed_error
from drover.log.storage import KafkaStorage

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 5.0
ADMIN_THREADS = 4
PREFETCH_KBYTES = 16 << 10
RECONNECT_MAX_MS = 1_000
SOCKET_TIMEOUT_MS = 20_000
"""So long a connection whose other end has vanished is believed in."""
ADMIN_REFRESH_MS = 2_000
"""How often the admin client looks who leads what: else it asks a broker that died for minutes."""
BROKERS_MAX_BYTES = 1_048_588
"""The largest batch that brokers take, unless they are told otherwise."""
RETRY_S = 0.2
_REFUSED_FOR_S = 60.0
ADMIN_SILENCE_MAX_S = 30.0
"""An admin client that has heard nothing for so long is replaced: one was seen to wait for a
controller as long as it lived, though brokers that had been away answered everybody else."""

#: What would break what the logs promise; nobody may set it from outside.
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
#: as Kafka itself writes topic ids
_URL_SAFE = str.maketrans("+/", "-_")

StorageKey = tuple[int, str, tuple[tuple[str, str], ...]]


def storage_key(storage: KafkaStorage) -> StorageKey:
    """Equal for storages whose clients are interchangeable, within one process."""
    return os.getpid(), storage.bootstrap_servers, tuple(sorted(storage.client_config.items()))


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is. A topic that was deleted and made again has another ``topic_id``."""

    name: str
    topic_id: str
    partition_count: int


class KafkaClient:
    """Makes clients for a storage and asks its brokers. One for each process is enough.

    Args:
        storage: Where, and with which further settings.
        timeout_s: How long a call waits for brokers that are away before it fails with
            STORAGE_UNAVAILABLE.

    Raises:
        InvalidArgumentError: INVALID_CONFIG, the client settings are not librdkafka's, or are ones
            that Drover sets itself.
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
        #: Since when its calls have ended without an answer.
        self._silent_since_s: float | None = None
        self._threads = ThreadPoolExecutor(ADMIN_THREADS, thread_name_prefix="kafka admin")
        self._closed = False

    def producer(self, settings: Mapping[str, object]) -> Producer:
        """A producer; ``settings`` come on top. Use it on one thread, away from the event loop."""
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
    def admin(self) -> AdminClient:
        """The admin client; its futures block, so wait for them inside ``run``, by ``waited``."""
        return self._admin

    async def run(self, work: Callable[[], T], *, doing: str, topic: str = "") -> T:
        """Run a blocking call on a thread; ``doing`` says in messages what it was for.

        Raises:
            DroverError: What ``translated`` makes of a KafkaException.
        """
        if self._closed:
            raise closed_error()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, work)
        except (KafkaException, TimeoutError) as error:
            raise self.translated(error, doing=doing, topic=topic) from error

    def translated(
        self, error: KafkaException | KafkaError | TimeoutError, *, doing: str, topic: str = ""
    ) -> DroverError:
        """What Kafka's error means for a caller; a TimeoutError is one of brokers that are silent.

        UnavailableError STORAGE_UNAVAILABLE for what passes by, InvalidArgumentError TOO_LARGE for
        a record over the limits, FailedPreconditionError STALE_WRITER_EPOCH for a producer that
        was fenced, NON_EMPTY_GROUP for offsets of a group that has members, and
        STORAGE_MISCONFIGURED for what an operator has to mend (a topic that is not there, no
        authorisation), DataLossError LOG_CORRUPT for records that are gone.
        """
        if isinstance(error, TimeoutError):
            error = KafkaError(KafkaError._TIMED_OUT)
        what = error.args[0] if isinstance(error, KafkaException) else error
        assert isinstance(what, KafkaError)
        brokers = self.storage.bootstrap_servers
        meant = errors.as_error(what, doing=doing, topic=topic, brokers=brokers)
        if isinstance(meant, UnavailableError) and self._refused is not None:
            refusal, since_s = self._refused
            if time.monotonic() - since_s < _REFUSED_FOR_S:
                return errors.as_error(refusal, doing=doing, topic=topic, brokers=brokers)
        return meant

    async def describe_topic(self, topic: str) -> TopicState | None:
        """The topic; None if there is none. It is not made by asking.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, not authorised.
        """
        return await self.run(
            lambda: self.describe_topic_now(topic),
            doing=f"the topic {topic} cannot be looked at",
            topic=topic,
        )

    def describe_topic_now(self, topic: str) -> TopicState | None:
        """As ``describe_topic``, for threads; raises KafkaException and TimeoutError."""
        return self.topics_now([topic]).get(topic)

    def topics_now(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Those of the topics that exist, for threads; raises KafkaException and TimeoutError."""
        collection = TopicCollection(sorted(topics))
        asked = self._admin.describe_topics(collection, request_timeout=self.timeout_s)
        found = {}
        for topic, future in asked.items():
            try:
                described = self.waited(future)
            except KafkaException as error:
                if error.args[0].code() not in errors.UNKNOWN_TOPIC:
                    raise
            else:
                topic_id = str(described.topic_id).translate(_URL_SAFE)
                found[topic] = TopicState(topic, topic_id, len(described.partitions))
        return found

    def topic_names_now(self) -> list[str]:
        """Every topic but the brokers' own, for threads; raises KafkaException."""
        return sorted(self.partitions_now())

    def partitions_now(self) -> dict[str, list[int]]:
        """As ``topic_names_now``, with the partitions of each topic."""
        found = self._admin.list_topics(timeout=self.timeout_s).topics.items()
        return {name: [*topic.partitions] for name, topic in found if not name.startswith("__")}

    def topic_settings_now(self, topic: str) -> dict[str, str]:
        """The settings that brokers have for a topic, without secrets, for threads; raises
        KafkaException and TimeoutError.
        """
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (asked,) = self._admin.describe_configs([resource], request_timeout=self.timeout_s).values()
        entries = self.waited(asked).values()
        return {
            each.name: each.value
            for each in entries
            if each.value is not None and not each.is_sensitive
        }

    def make_topic_now(self, topic: NewTopic) -> None:
        """Make a topic unless it is there, for threads; raises KafkaException and TimeoutError.

        Brokers learn of it one after the other: look until it is seen.
        """
        (made,) = self._admin.create_topics([topic], request_timeout=self.timeout_s).values()
        try:
            self.waited(made)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    async def stable_offsets(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The last stable offset of each partition: below it no transaction is open.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic, not authorised.
        """
        return await self._offsets(topic, partitions, OffsetSpec.latest())

    async def last_offsets(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The end of each partition, behind transactions that are open: once these are decided, the
        last stable offset is there.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic, not authorised.
        """
        return await self._offsets(
            topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED
        )

    async def first_offsets(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Where each partition begins: above 0 when its oldest records were deleted.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic, not authorised.
        """
        return await self._offsets(topic, partitions, OffsetSpec.earliest())

    async def close(self) -> None:
        """Release the threads; idempotent. Readers and writers are closed by who made them."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)

    def waited(self, future: "Future[T]") -> T:
        """The result of one of the admin client's futures; raises KafkaException, TimeoutError."""
        try:
            result = future.result(timeout=self.timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() in errors.SILENCE:
                self._note_silence()
            else:
                self._silent_since_s = None
            raise
        finally:
            self._admin.poll(0)  # what was told beside it, such as that nobody may log in
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
        give_up_s = time.monotonic() + self.timeout_s
        wanted = [(topic, partition) for partition in partitions]
        doing = f"the end of the topic {topic} cannot be found"
        while True:
            try:
                found = await self.run(
                    lambda: self.offsets_now(wanted, spec, isolation), doing=doing, topic=topic
                )
                if len(found) == len(wanted):
                    return {partition: offset for (_, partition), offset in found.items()}
                unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
                error = self.translated(unknown, doing=doing, topic=topic)
            except UnavailableError as unavailable:
                if errors.is_silence(unavailable):
                    raise
                error = unavailable
            if time.monotonic() >= give_up_s:
                self._check_partitions(topic, partitions, await self.describe_topic(topic))
                raise error
            await asyncio.sleep(RETRY_S)

    def first_offsets_now(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """As ``first_offsets``, for threads; raises KafkaException and TimeoutError."""
        wanted = [(topic, partition) for partition in partitions]
        found = self.offsets_now(wanted, OffsetSpec.earliest())
        return {partition: offset for (_, partition), offset in found.items()}

    def offsets_now(
        self,
        partitions: Collection[tuple[str, int]],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[tuple[str, int], int]:
        """Offsets of committed records by topic and partition, for threads; one request for each
        broker that leads some. Partitions that do not exist are left out.

        Raises KafkaException and TimeoutError.
        """
        try:
            return self._offsets_once(partitions, spec, isolation)
        except KafkaException as error:
            if error.args[0].code() in errors.SILENCE:
                raise
            # Leaders of before a restart stay in the client's mind for minutes, and brokers refuse
            # whoever asks with their epoch. A look at the topics has it learn the new ones.
            topics = self.topics_now({topic for topic, _ in partitions})
            present = [each for each in partitions if each[0] in topics]
            return self._offsets_once(present, spec, isolation) if present else {}

    def _offsets_once(
        self,
        partitions: Collection[tuple[str, int]],
        spec: OffsetSpec,
        isolation: IsolationLevel,
    ) -> dict[tuple[str, int], int]:
        asked = self._admin.list_offsets(
            {TopicPartition(*each): spec for each in partitions},
            isolation_level=isolation,
            request_timeout=self.timeout_s,
        )
        found = {}
        for place, future in asked.items():
            try:
                offset = self.waited(future).offset
            except KafkaException as error:
                if error.args[0].code() not in errors.UNKNOWN_TOPIC:
                    raise
            else:
                if offset < 0:  # librdkafka's answer where a broker's was lost
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
                found[place.topic, place.partition] = offset
        return found

    def _check_partitions(
        self, topic: str, partitions: Collection[int], state: TopicState | None
    ) -> None:
        """Tell partitions that do not exist from brokers that have just come back."""
        count = 0 if state is None else state.partition_count
        if count <= max(partitions):
            raise errors.misconfigured(
                f"the topic {topic} has {count} partitions on {self.storage.bootstrap_servers}, and"
                f" partition {max(partitions)} is needed. Was it removed? Start again to make it",
                {"topic": topic, "brokers": self.storage.bootstrap_servers},
            )

    def _new_admin(self) -> AdminClient:
        defaults = {"topic.metadata.refresh.interval.ms": ADMIN_REFRESH_MS}
        # nobody polls it all the time, and what it would log waits for that
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
            Violation(_SETTING, f"{name} is set by Drover itself; leave it out")
            for name in sorted(self.storage.client_config)
            if name in OWN_SETTINGS
        ]
        if violations:
            raise InvalidArgumentError.listing(violations, reason=Reason.INVALID_CONFIG)
