"""The topics of a cluster: made if they are missing, refused if they are wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drover.errors import NotImplementedYetError
from drover.log.kafka.client import KafkaClient, TopicState
from drover.log.storage import KafkaStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as it has to be: compacted only.

    ``partition_count`` is for a topic that is made here. One that is there has to have as many if
    ``exact``, and gets those that it lacks if ``may_grow`` (whose records are put into partitions
    by number). ``settings`` are further ones for a topic that is made here.
    """

    name: str
    partition_count: int
    replication_factor: int = -1
    exact: bool = False
    may_grow: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def config_topic(storage: KafkaStorage) -> TopicSpec:
    """The config topic: one partition, as Kafka Connect wants it."""
    raise NotImplementedYetError("Kafka")


def offset_topic(storage: KafkaStorage) -> TopicSpec:
    """The topic of source offsets."""
    raise NotImplementedYetError("Kafka")


def status_topic(storage: KafkaStorage) -> TopicSpec:
    """The topic of statuses."""
    raise NotImplementedYetError("Kafka")


def control_topic(storage: KafkaStorage, group_shards: int | None = None) -> TopicSpec:
    """The control topic: partition 0, then one for each shard of groups, then one for the task
    claims of each. Who does not know how many there are makes partition 0 alone.
    """
    raise NotImplementedYetError("Kafka")


async def ensure_topics(client: KafkaClient, specs: Sequence[TopicSpec]) -> dict[str, TopicState]:
    """Make what is missing and check what is there; the topics by name.

    Safe to repeat, and for several processes at once.

    Raises:
        FailedPreconditionError: STORAGE_MISCONFIGURED, a topic is wrong or may not be made or
            looked at; the message has the command that mends it.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    raise NotImplementedYetError("Kafka")
