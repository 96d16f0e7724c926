"""The settings of KafkaSource, with the names of MirrorMaker's source connector."""

import re
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
#: The partitions of a task, as "topic:partition,partition;topic:partition".
TASK_PARTITIONS = "task.partitions"
TARGET_ALIAS = "target.cluster.alias"
REFRESH = "refresh.topics.enabled"
SYNC_CONFIGS = "sync.topic.configs.enabled"

DEFAULT_POLICY, IDENTITY_POLICY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
_HEARTBEATS = "heartbeats"
_INTERNAL_STARTS, _INTERNAL_ENDS = ("__", "."), ("-internal", ".internal")
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


def is_wanted(topic: str, config: Mapping[str, Any], *, in_own_cluster: bool = False) -> bool:
    """Whether a topic is copied: selected, not internal, and not itself a copy of a topic of the
    target cluster.

    ``in_own_cluster`` means that source and target are the same cluster under two aliases.
    """
    if _is_internal(topic) or any_matches(config[EXCLUDE] or (), topic):
        return False
    targets = {config[TARGET_ALIAS], *([config[ALIAS]] if in_own_cluster else ())}
    if not targets.isdisjoint(origins_of(topic, config)):
        return False
    return any_matches(config[TOPICS], topic)


def target_of(topic: str, config: Mapping[str, Any]) -> str:
    """The name of a topic's copy."""
    if _is_default(config) or _is_heartbeats(topic):
        return f"{config[ALIAS]}{config[SEPARATOR]}{topic}"
    return topic


def origins_of(topic: str, config: Mapping[str, Any]) -> list[str]:
    """The clusters that a topic came through, by their aliases, as its name shows; the last one
    first. As in MirrorMaker each part of the name before a separator may be an alias. Names that
    the identity policy gives show none, except of heartbeats.
    """
    if _is_default(config) or _is_heartbeats(topic):
        return topic.split(config[SEPARATOR])[:-1] if config[SEPARATOR] else []
    return []


def _is_internal(topic: str) -> bool:
    """Whether MirrorMaker never copies a topic: ReplicationPolicy.isInternalTopic."""
    return topic.startswith(_INTERNAL_STARTS) or topic.endswith(_INTERNAL_ENDS)


def _is_heartbeats(topic: str) -> bool:
    """Whether it is a topic with MirrorMaker's heartbeats, which every policy renames."""
    return topic == _HEARTBEATS or topic.endswith(f".{_HEARTBEATS}")


def _is_default(config: Mapping[str, Any]) -> bool:
    return bool(config[POLICY].endswith(DEFAULT_POLICY))


def _separator_fault(text: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9._-]*", text):
        return None
    return "must have the characters of topic names only: A-Z, a-z, 0-9, '.', '_' and '-'"


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
        TARGET_ALIAS,
        "The alias of Drover's cluster in mirrors of the other direction. Topics of the source "
        "cluster that came from there (alias.topic, at any depth) are not copied back.",
        default="target",
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
    _key(
        SEPARATOR,
        "The separator between alias and topic.",
        default=".",
        validator=Check(_separator_fault),
    ),
    _key(
        KEEP_PARTITIONS,
        "Whether records stay in their partitions; otherwise their keys select the partition.",
        ConfigType.BOOLEAN,
        default=True,
    ),
    _key(
        TOPIC_PARTITIONS,
        "The least partition count of topics that the connector creates; a copy has at least the "
        "partitions of its original.",
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
        REFRESH,
        "Whether to check for new topics and partitions.",
        ConfigType.BOOLEAN,
        default=True,
    ),
    _key(
        SYNC_CONFIGS,
        "Whether a new copy gets the topic settings of its original, such as cleanup.policy; later "
        "changes are not copied.",
        ConfigType.BOOLEAN,
        default=True,
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
