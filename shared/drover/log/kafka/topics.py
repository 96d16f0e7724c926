"""Creates the topics of a cluster and checks existing ones."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, ResourceType

from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.log.kafka import errors
from drover.log.kafka.client import KafkaClient, TopicState
from drover.log.kafka.new_topics import make_topic
from drover.log.storage import CLEANUP_POLICY, COMPACT, REPLICATION_FACTOR, KafkaStorage

_logger = structlog.get_logger(__name__)

CONTROL_SEGMENT_BYTES = 16 << 20
"""Small, since leases are renewed often and brokers never compact the active segment."""

_CREATE_SETTING = "DROVER_STORAGE_CREATE_TOPICS"
#: The settings of new topics of the cluster, for messages.
OF_STORAGE = {REPLICATION_FACTOR: "DROVER_STORAGE_REPLICATION_FACTOR"}

LOOKS = 50
BETWEEN_LOOKS_S = 0.1
"""Brokers learn of a new topic one after another, so it is polled until all show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A required topic; its cleanup.policy must be ``compact``.

    Attributes:
        name: The topic's name.
        partition_count: The number of partitions of a new topic.
        replication_factor: The replication factor of a new topic; -1 for the brokers' default.
        exact: Whether an existing topic must have exactly ``partition_count`` partitions.
        may_grow: Whether to add missing partitions to an existing topic. Only for topics whose
            records are written to a partition by number, not by hash of the key.
        settings: Further topic settings of a new topic.
    """

    name: str
    partition_count: int
    replication_factor: int = -1
    exact: bool = False
    may_grow: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def config_topic(storage: KafkaStorage) -> TopicSpec:
    """The config topic: one partition, as in Kafka Connect."""
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
    """The additional offset topic of one connector, set by ``offsets.storage.topic``."""
    return replace(offset_topic(storage), name=name)


def status_topic(storage: KafkaStorage) -> TopicSpec:
    """The topic of statuses."""
    return TopicSpec(
        name=storage.topics.status,
        partition_count=storage.topics.status_partitions,
        replication_factor=storage.topics.replication_factor,
    )


def control_topic(storage: KafkaStorage, group_shards: int | None = None) -> TopicSpec:
    """The control topic: partition 0, one partition per shard of groups, and one per shard for its
    task claims.

    Without ``group_shards``, the specification has partition 0 only.
    """
    return TopicSpec(
        name=storage.topics.control,
        partition_count=1 + 2 * (group_shards or 0),
        replication_factor=storage.topics.replication_factor,
        may_grow=True,
        settings={"segment.bytes": str(CONTROL_SEGMENT_BYTES)},
    )


async def ensure_topics(client: KafkaClient, specs: Sequence[TopicSpec]) -> dict[str, TopicState]:
    """Create missing topics and check existing ones; returns the topics by name.

    Idempotent, and safe if several processes call it at the same time.

    Raises:
        FailedPreconditionError: STORAGE_MISCONFIGURED, a topic has wrong settings or is missing and
            must not be created, or the user is not authorised to create or describe it. The message
            lists all wrong topics, with the commands to correct them.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    states = {}
    wrong: list[str] = []
    for spec in specs:
        state = await client.describe_topic(spec.name)
        if client.storage.topics.create:
            state = await _complete(client, spec, state)
        elif (missing := missing_part(spec, state, client.storage.bootstrap_servers)) is not None:
            wrong.append(missing)
        if state is not None:
            wrong.extend(await _faults(client, spec, state))
            states[spec.name] = state
    if wrong:
        raise errors.misconfigured("; ".join(wrong), {"brokers": client.storage.bootstrap_servers})
    return states


async def _complete(client: KafkaClient, spec: TopicSpec, state: TopicState | None) -> TopicState:
    """Create what is missing of a topic."""
    if state is None:
        await _create(client, spec)
        state = await _wait_for_topic(client, spec, partition_count=1)
    if spec.may_grow and state.partition_count < spec.partition_count:
        await _grow(client, spec)
        state = await _wait_for_topic(client, spec, partition_count=spec.partition_count)
    return state


def missing_part(spec: TopicSpec, state: TopicState | None, brokers: str) -> str | None:
    """What an operator has to create of a topic; None if nothing is missing."""
    tool = f"kafka-topics.sh --bootstrap-server {brokers}"
    if state is None:
        settings = {CLEANUP_POLICY: COMPACT, **spec.settings}
        configs = " ".join(f"--config {name}={value}" for name, value in settings.items())
        factor = (
            f" --replication-factor {spec.replication_factor}"
            if spec.replication_factor > 0
            else ""
        )
        return (
            f"the topic {spec.name} is missing, and {_CREATE_SETTING}=false forbids to create it:"
            f" {tool} --create --topic {spec.name} --partitions {spec.partition_count}{factor}"
            f" {configs}"
        )
    if spec.may_grow and state.partition_count < spec.partition_count:
        return (
            f"the topic {spec.name} has {state.partition_count} partitions of"
            f" {spec.partition_count}, and {_CREATE_SETTING}=false forbids to add them:"
            f" {tool} --alter --topic {spec.name} --partitions {spec.partition_count}"
        )
    return None


def new_topic(spec: TopicSpec) -> NewTopic:
    """The request for a topic."""
    return NewTopic(
        spec.name,
        num_partitions=spec.partition_count,
        replication_factor=spec.replication_factor,
        config={CLEANUP_POLICY: COMPACT, **spec.settings},
    )


async def _create(client: KafkaClient, spec: TopicSpec) -> None:
    topic = new_topic(spec)
    await client.run(
        lambda: make_topic(client, topic, OF_STORAGE),
        doing=f"the topic {spec.name} cannot be created",
        topic=spec.name,
    )
    _logger.info("created a topic", topic=spec.name, partitions=spec.partition_count)


async def _grow(client: KafkaClient, spec: TopicSpec) -> None:
    def grow() -> None:
        partitions = NewPartitions(spec.name, spec.partition_count)
        futures = client.admin.create_partitions([partitions], request_timeout=client.timeout_s)
        try:
            client.waited(futures[spec.name])
        except KafkaException as error:
            # another process has just added them
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise

    doing = f"the topic {spec.name} cannot be enlarged to {spec.partition_count} partitions"
    await client.run(grow, doing=doing, topic=spec.name)


async def described_topic(
    client: KafkaClient, topic: str, *, partition_count: int
) -> TopicState | None:
    """Describe a topic, and poll until it has at least ``partition_count`` partitions.

    Brokers learn of a new topic one after another, so the first response may be stale. Returns the
    last response if the partitions stay missing, None if the topic does.

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


async def _wait_for_topic(
    client: KafkaClient, spec: TopicSpec, *, partition_count: int
) -> TopicState:
    state = await described_topic(client, spec.name, partition_count=partition_count)
    if state is not None and state.partition_count >= partition_count:
        return state
    raise UnavailableError(
        Reason.STORAGE_UNAVAILABLE,
        f"the topic {spec.name} was created or enlarged, but the brokers"
        f" {client.storage.bootstrap_servers} do not show it yet: retry",
        metadata={"topic": spec.name},
    )


async def _faults(client: KafkaClient, spec: TopicSpec, state: TopicState) -> list[str]:
    """The faults of an existing topic, each with the command to correct it."""
    brokers = client.storage.bootstrap_servers
    faults = []
    if spec.exact and state.partition_count != spec.partition_count:
        faults.append(
            f"the topic {spec.name} has {state.partition_count} partitions, but must have"
            f" {spec.partition_count} to keep its records in order. Kafka cannot remove partitions:"
            " configure another topic, or delete this one if its records are not needed:"
            f" kafka-topics.sh --bootstrap-server {brokers} --delete --topic {spec.name}"
        )
    policy = await _cleanup_policy(client, spec.name)
    if policy is not None and policy != COMPACT:
        faults.append(
            f"the topic {spec.name} has {CLEANUP_POLICY}={policy}, which loses records. Set it to"
            f" {COMPACT}: kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type"
            f" topics --entity-name {spec.name} --add-config {CLEANUP_POLICY}={COMPACT}"
        )
    return faults


async def _cleanup_policy(client: KafkaClient, topic: str) -> str | None:
    """The topic's cleanup.policy; None if this user may not describe the topic's settings."""
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def describe() -> str | None:
        futures = client.admin.describe_configs([resource], request_timeout=client.timeout_s)
        try:
            entries = client.waited(futures[resource])
        except KafkaException as error:
            if error.args[0].code() not in errors.FORBIDDEN:
                raise
            return None
        policy: str = entries[CLEANUP_POLICY].value
        return policy

    doing = f"the settings of the topic {topic} cannot be read"
    for attempt in range(LOOKS):
        try:
            policy = await client.run(describe, doing=doing, topic=topic)
            break
        except FailedPreconditionError as error:
            if errors.kafka_code(error) not in errors.UNKNOWN_TOPIC or attempt == LOOKS - 1:
                raise
        await asyncio.sleep(BETWEEN_LOOKS_S)  # this broker does not know the topic yet
    if policy is None:
        _logger.warning(
            "not authorised to read the settings of a topic: check that cleanup.policy is compact",
            topic=topic,
        )
    return policy
