"""The settings of KafkaSource, with the names of MirrorMaker's source connector."""

from collections.abc import Iterator, Mapping
from typing import Any

from drover.connector import (
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    NonEmpty,
    OneOf,
    Violation,
    any_matches,
    patterns_fault,
)
from drover.connectors.kafka.cluster import client_settings, cluster_keys
from drover.connectors.kafka.group_offsets import GroupSync

PREFIX, CONSUMER_PREFIX = "source.cluster.", "source.consumer."
TARGET_PREFIX = "target.cluster."
SERVERS, TARGET_SERVERS = f"{PREFIX}bootstrap.servers", f"{TARGET_PREFIX}bootstrap.servers"
ALIAS = "source.cluster.alias"
TOPICS, EXCLUDE = "topics", "topics.exclude"
POLICY, SEPARATOR = "replication.policy.class", "replication.policy.separator"
REFRESH_S = "refresh.topics.interval.seconds"
SYNC, SYNC_S = "sync.group.offsets.enabled", "sync.group.offsets.interval.seconds"
GROUPS, GROUPS_EXCLUDE = "groups", "groups.exclude"
RESET = "consumer.auto.offset.reset"
LOST = "lost.records"
KEEP_PARTITIONS = "partitions.keep"
TOPIC_PARTITIONS = "topic.partitions"
#: The partitions of a task, as "index/count".
TASK_SHARE = "task.share"

DEFAULT_POLICY, IDENTITY_POLICY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
EARLIEST, LATEST, FAIL = "earliest", "latest", "fail"
_EXCLUDED = [r".*[\-\.]internal", r".*\.replica", "__.*"]
_GROUPS_EXCLUDED = ["console-consumer-.*", "connect-.*", "__.*", "drover.*"]


def group_sync_of(config: Mapping[str, Any]) -> GroupSync:
    """The translation of groups' offsets, from a parsed config.

    Raises:
        ValueError: A setting has no counterpart.
    """
    quiet = {"client.id": "drover", "log_level": 0}
    return GroupSync(
        {**client_settings(config, PREFIX), **quiet},
        {**client_settings(config, TARGET_PREFIX), **quiet},
        groups=config[GROUPS],
        excluded=config[GROUPS_EXCLUDE] or (),
        copy_of=lambda topic: target_of(topic, config),
    )


def sync_faults(config: Mapping[str, Any]) -> Iterator[Violation]:
    """Settings that the translation of groups' offsets lacks."""
    if not config.get(SYNC):
        return
    if not config.get(TARGET_SERVERS):
        yield Violation(
            TARGET_SERVERS,
            f"is required with {SYNC}: the brokers of the Kafka cluster that has the copies",
        )
    if config.get(KEEP_PARTITIONS) is False:
        yield Violation(KEEP_PARTITIONS, f"must be true with {SYNC}: offsets belong to partitions")


def is_wanted(topic: str, config: Mapping[str, Any]) -> bool:
    """Whether a topic is copied: not excluded, not internal, not a copy of a local topic."""
    if any_matches(config[EXCLUDE] or (), topic):
        return False
    if _is_default(config) and topic.startswith(f"{config[ALIAS]}{config[SEPARATOR]}"):
        return False  # a cycle
    return any_matches(config[TOPICS], topic)


def target_of(topic: str, config: Mapping[str, Any]) -> str:
    """The name of a topic's copy."""
    return f"{config[ALIAS]}{config[SEPARATOR]}{topic}" if _is_default(config) else topic


def _is_default(config: Mapping[str, Any]) -> bool:
    return bool(config[POLICY].endswith(DEFAULT_POLICY))


def _policy_fault(name: str) -> str | None:
    if name.rpartition(".")[2] in (DEFAULT_POLICY, IDENTITY_POLICY):
        return None
    return f"must be {DEFAULT_POLICY} or {IDENTITY_POLICY}, not {name[:80]!r}"


def _key(
    name: str, documentation: str, kind: ConfigType = ConfigType.STRING, **more: Any
) -> ConfigKey:
    return ConfigKey(
        name,
        kind,
        documentation=documentation,
        group="Topics",
        **{"importance": Importance.MEDIUM, **more},
    )


SETTINGS = ConfigDef(
    *cluster_keys(PREFIX, "the source"),
    _key(
        ALIAS,
        "The name of the cluster, for the names of copies and for offsets.",
        default="source",
        importance=Importance.HIGH,
        validator=NonEmpty(),
    ),
    _key(
        TOPICS,
        "The topics to copy, as names or regular expressions.",
        ConfigType.LIST,
        default=[".*"],
        importance=Importance.HIGH,
        validator=Check(patterns_fault),
    ),
    _key(
        EXCLUDE,
        "Topics to exclude, as names or regular expressions; by default internal ones.",
        ConfigType.LIST,
        default=_EXCLUDED,
        validator=Check(patterns_fault),
    ),
    _key(
        POLICY,
        "The names of copies: alias.topic (DefaultReplicationPolicy), or the original name "
        "(IdentityReplicationPolicy).",
        default=f"org.apache.kafka.connect.mirror.{DEFAULT_POLICY}",
        validator=Check(_policy_fault),
    ),
    _key(SEPARATOR, "The separator between alias and topic.", default="."),
    _key(
        KEEP_PARTITIONS,
        "Whether records stay in their partitions; otherwise their keys select the partition.",
        ConfigType.BOOLEAN,
        default=True,
    ),
    _key(
        TOPIC_PARTITIONS,
        "The partition count of topics that the connector creates; by default that of the largest "
        "topic that it copies.",
        ConfigType.INT,
        default=None,
        validator=InRange(1),
    ),
    _key(
        REFRESH_S,
        "How often to check for new topics and partitions, which are assigned to tasks "
        "automatically.",
        ConfigType.INT,
        default=600,
        validator=InRange(1),
    ),
    _key(
        RESET,
        "Where to start reading a partition: at its earliest record, or after its latest one.",
        default=EARLIEST,
        validator=OneOf(EARLIEST, LATEST),
    ),
    _key(
        LOST,
        "When retention removed unread records: fail, or continue at the earliest record and log "
        "the number of lost ones.",
        default=FAIL,
        validator=OneOf(FAIL, EARLIEST),
    ),
    _key(
        SYNC,
        "Whether to translate committed offsets of consumer groups to groups with the same names "
        "in the target cluster, only while those have no members, and only forward.",
        ConfigType.BOOLEAN,
        default=False,
    ),
    _key(
        SYNC_S,
        "How often groups' offsets are translated.",
        ConfigType.INT,
        default=60,
        validator=InRange(1),
    ),
    _key(
        GROUPS,
        "The groups whose offsets are translated, as names or regular expressions.",
        ConfigType.LIST,
        default=[".*"],
        validator=Check(patterns_fault),
    ),
    _key(
        GROUPS_EXCLUDE,
        "Groups to exclude, as names or regular expressions.",
        ConfigType.LIST,
        default=_GROUPS_EXCLUDED,
        validator=Check(patterns_fault),
    ),
    *cluster_keys(TARGET_PREFIX, "the target", required=False),
)
