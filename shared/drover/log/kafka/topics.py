"""The topics of a cluster: made if they are missing, refused if they are wrong."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, ResourceType

from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.log.kafka import errors
from drover.log.kafka.client import KafkaClient, TopicState
from drover.log.storage import CLEANUP_POLICY, COMPACT, KafkaStorage

_logger = structlog.get_logger(__name__)

CONTROL_SEGMENT_BYTES = 16 << 20
"""Leases are renewed all the time, and only what is not in the last segment is compacted."""

LOOKS = 50
BETWEEN_LOOKS_S = 0.1
"""Of a topic that was made this moment not every broker knows at once."""


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
    return TopicSpec(
        name=storage.topics.config,
        partition_count=1,
        replication_factor=storage.topics.replication_factor,
        exact=True,
    )


def offset_topic(storage: KafkaStorage) -> TopicSpec:
    """The topic of source offsets."""
    return TopicSpec(
        name=storage.topics.offset,
        partition_count=storage.topics.offset_partitions,
        replication_factor=storage.topics.replication_factor,
    )


def own_offset_topic(storage: KafkaStorage, name: str) -> TopicSpec:
    """The topic in which one connector's source offsets are as well."""
    return replace(offset_topic(storage), name=name)


def status_topic(storage: KafkaStorage) -> TopicSpec:
    """The topic of statuses."""
    return TopicSpec(
        name=storage.topics.status,
        partition_count=storage.topics.status_partitions,
        replication_factor=storage.topics.replication_factor,
    )


def control_topic(storage: KafkaStorage, group_shards: int | None = None) -> TopicSpec:
    """The control topic: partition 0, then one for each shard of groups, then one for the task
    claims of each. Who does not know how many there are makes partition 0 alone.
    """
    return TopicSpec(
        name=storage.topics.control,
        partition_count=1 + 2 * (group_shards or 0),
        replication_factor=storage.topics.replication_factor,
        may_grow=True,
        settings={"segment.bytes": str(CONTROL_SEGMENT_BYTES)},
    )


async def ensure_topics(client: KafkaClient, specs: Sequence[TopicSpec]) -> dict[str, TopicState]:
    """Make what is missing and check what is there; the topics by name.

    Safe to repeat, and for several processes at once.

    Raises:
        FailedPreconditionError: STORAGE_MISCONFIGURED, a topic is wrong or may not be made or
            looked at; the message has the command that mends it, and all wrong topics.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    states = {}
    wrong: list[str] = []
    for spec in specs:
        state = await client.describe_topic(spec.name)
        if state is None:
            await _create(client, spec)
            state = await _seen(client, spec, partition_count=1)
        if spec.may_grow and state.partition_count < spec.partition_count:
            await _grow(client, spec)
            state = await _seen(client, spec, partition_count=spec.partition_count)
        wrong.extend(await _faults(client, spec, state))
        states[spec.name] = state
    if wrong:
        raise errors.misconfigured("; ".join(wrong), {"brokers": client.storage.bootstrap_servers})
    return states


async def _create(client: KafkaClient, spec: TopicSpec) -> None:
    topic = NewTopic(
        spec.name,
        num_partitions=spec.partition_count,
        replication_factor=spec.replication_factor,
        config={CLEANUP_POLICY: COMPACT, **spec.settings},
    )

    await client.run(
        lambda: client.make_topic_now(topic),
        doing=f"the topic {spec.name} cannot be made",
        topic=spec.name,
    )
    _logger.info("made a topic", topic=spec.name, partitions=spec.partition_count)


async def _grow(client: KafkaClient, spec: TopicSpec) -> None:
    def grow() -> None:
        wanted = NewPartitions(spec.name, spec.partition_count)
        asked = client.admin.create_partitions([wanted], request_timeout=client.timeout_s)
        try:
            client.waited(asked[spec.name])
        except KafkaException as error:
            # somebody else has just done it
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise

    doing = f"the topic {spec.name} cannot be given {spec.partition_count} partitions"
    await client.run(grow, doing=doing, topic=spec.name)


async def described_topic(
    client: KafkaClient, topic: str, *, partition_count: int
) -> TopicState | None:
    """The topic once it is seen with so many partitions, or as it was seen last.

    Brokers learn of a new topic one after the other, so that the first one asked may know less.

    Raises:
        DroverError: As ``KafkaClient.describe_topic``.
    """
    state = await client.describe_topic(topic)
    for _ in range(LOOKS):
        if state is not None and state.partition_count >= partition_count:
            break
        await asyncio.sleep(BETWEEN_LOOKS_S)
        state = await client.describe_topic(topic)
    return state


async def _seen(client: KafkaClient, spec: TopicSpec, *, partition_count: int) -> TopicState:
    state = await described_topic(client, spec.name, partition_count=partition_count)
    if state is not None and state.partition_count >= partition_count:
        return state
    raise UnavailableError(
        Reason.STORAGE_UNAVAILABLE,
        f"the topic {spec.name} was made or enlarged, but the brokers"
        f" {client.storage.bootstrap_servers} do not show it; try again in a moment",
        metadata={"topic": spec.name},
    )


async def _faults(client: KafkaClient, spec: TopicSpec, state: TopicState) -> list[str]:
    """What is wrong with a topic that is there, with the command that mends it."""
    brokers = client.storage.bootstrap_servers
    faults = []
    if spec.exact and state.partition_count != spec.partition_count:
        faults.append(
            f"the topic {spec.name} has {state.partition_count} partitions, and must have"
            f" {spec.partition_count}, since its order matters; partitions cannot be taken away, so"
            " name another topic, or remove it if what is in it may go: kafka-topics.sh"
            f" --bootstrap-server {brokers} --delete --topic {spec.name}"
        )
    policy = await _cleanup_policy(client, spec.name)
    if policy is not None and policy != COMPACT:
        faults.append(
            f"the topic {spec.name} has {CLEANUP_POLICY}={policy}, which loses records; it must be"
            f" {COMPACT}: kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type"
            f" topics --entity-name {spec.name} --add-config {CLEANUP_POLICY}={COMPACT}"
        )
    return faults


async def _cleanup_policy(client: KafkaClient, topic: str) -> str | None:
    """None if this user may not know."""
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def describe() -> str | None:
        asked = client.admin.describe_configs([resource], request_timeout=client.timeout_s)
        try:
            entries = client.waited(asked[resource])
        except KafkaException as error:
            if error.args[0].code() not in errors.FORBIDDEN:
                raise
            return None
        policy: str = entries[CLEANUP_POLICY].value
        return policy

    doing = f"the settings of the topic {topic} cannot be read"
    for look in range(LOOKS):
        try:
            policy = await client.run(describe, doing=doing, topic=topic)
            break
        except FailedPreconditionError as error:
            if errors.kafka_code(error) not in errors.UNKNOWN_TOPIC or look == LOOKS - 1:
                raise
        await asyncio.sleep(BETWEEN_LOOKS_S)  # a broker that has not heard of it yet
    if policy is None:
        _logger.warning(
            "the settings of a topic may not be read: see to it that it is compacted only",
            topic=topic,
        )
    return policy
