"""The way to a Kafka cluster: clients with the right settings, and its errors in our terms."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from drover.errors import DroverError, NotImplementedYetError
from drover.log.storage import KafkaStorage

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 5.0


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

    def producer(self, settings: Mapping[str, object]) -> Producer:
        """A producer; ``settings`` come on top. Use it on one thread, away from the event loop."""
        raise NotImplementedYetError("Kafka")

    def consumer(self, settings: Mapping[str, object]) -> Consumer:
        """A consumer that reads committed records, commits nothing and joins no group."""
        raise NotImplementedYetError("Kafka")

    @property
    def admin(self) -> AdminClient:
        """The admin client; its futures block, so wait for them inside ``run``."""
        raise NotImplementedYetError("Kafka")

    async def run(self, work: Callable[[], T], *, doing: str) -> T:
        """Run a blocking call on a thread; ``doing`` says in messages what it was for.

        Raises:
            DroverError: What ``translated`` makes of a KafkaException.
        """
        raise NotImplementedYetError("Kafka")

    def translated(
        self, error: KafkaException | KafkaError, *, doing: str, topic: str = ""
    ) -> DroverError:
        """What Kafka's error means for a caller.

        UnavailableError STORAGE_UNAVAILABLE for what passes by, InvalidArgumentError TOO_LARGE for
        a record over the limits, FailedPreconditionError STALE_WRITER_EPOCH for a producer that
        was fenced and STORAGE_MISCONFIGURED for what an operator has to mend (a topic that is not
        there, no authorisation), DataLossError LOG_CORRUPT for records that are gone.
        """
        raise NotImplementedYetError("Kafka")

    async def describe_topic(self, topic: str) -> TopicState | None:
        """The topic; None if there is none. It is not made by asking.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, not authorised.
        """
        raise NotImplementedYetError("Kafka")

    async def stable_offsets(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The last stable offset of each partition: below it no transaction is open.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic, not authorised.
        """
        raise NotImplementedYetError("Kafka")

    async def close(self) -> None:
        """Release the threads; idempotent. Readers and writers are closed by who made them."""
