"""The settings of KafkaSource: those of MirrorMaker's source connector."""

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
)
from drover.connectors.kafka.cluster import client_settings, cluster_keys
from drover.connectors.kafka.group_offsets import GroupSync
from drover.connectors.patterns import patterns_fault

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
#: Which partitions a task has, as "index/count".
TASK_SHARE = "task.share"

DEFAULT_POLICY, IDENTITY_POLICY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
EARLIEST, LATEST, FAIL = "earliest", "latest", "fail"
_EXCLUDED = [r".*[\-\.]internal", r".*\.replica", "__.*"]
_GROUPS_EXCLUDED = ["console-consumer-.*", "connect-.*", "__.*", "drover.*"]


def group_sync_of(config: Mapping[str, Any]) -> GroupSync:
    """How a parsed config takes groups' offsets over.

    Raises:
        ValueError: a setting cannot be taken over.
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
    """What taking groups' offsets over needs and the settings have not."""
    if not config.get(SYNC):
        return
    if not config.get(TARGET_SERVERS):
        yield Violation(
            TARGET_SERVERS,
            f"is required with {SYNC}: the brokers of the Kafka cluster that has the copies",
        )
    if config.get(KEEP_PARTITIONS) is False:
        yield Violation(KEEP_PARTITIONS, f"must be true with {SYNC}: offsets are of partitions")


def is_wanted(topic: str, config: Mapping[str, Any]) -> bool:
    """Whether a topic is copied: neither an internal one nor what came from here before."""
    if any(re.fullmatch(each, topic) for each in config[EXCLUDE] or ()):
        return False
    if _is_default(config) and topic.startswith(f"{config[ALIAS]}{config[SEPARATOR]}"):
        return False  # a cycle
    return any(re.fullmatch(each, topic) for each in config[TOPICS])


def target_of(topic: str, config: Mapping[str, Any]) -> str:
    """What a topic is called here."""
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
        "What the cluster is called here, before the names of its topics and in offsets.",
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
        "Topics that are not copied, as names or regular expressions; by default internal ones.",
        ConfigType.LIST,
        default=_EXCLUDED,
        validator=Check(patterns_fault),
    ),
    _key(
        POLICY,
        "What copies are called: alias.topic (DefaultReplicationPolicy), or like the original "
        "(IdentityReplicationPolicy).",
        default=f"org.apache.kafka.connect.mirror.{DEFAULT_POLICY}",
        validator=Check(_policy_fault),
    ),
    _key(SEPARATOR, "What is between alias and topic.", default="."),
    _key(
        KEEP_PARTITIONS,
        "Whether records stay in their partitions; else their keys decide.",
        ConfigType.BOOLEAN,
        default=True,
    ),
    _key(
        TOPIC_PARTITIONS,
        "How many partitions a topic gets that the connector creates; by default as many as the "
        "largest that it copies.",
        ConfigType.INT,
        default=None,
        validator=InRange(1),
    ),
    _key(
        REFRESH_S,
        "How often new topics and partitions are looked for; they get tasks by themselves.",
        ConfigType.INT,
        default=600,
        validator=InRange(1),
    ),
    _key(
        RESET,
        "Where a partition is begun: at its earliest record, or at what comes next (latest).",
        default=EARLIEST,
        validator=OneOf(EARLIEST, LATEST),
    ),
    _key(
        LOST,
        "When retention has removed records before they were read: fail, or go on at the earliest "
        "and log how many there were.",
        default=FAIL,
        validator=OneOf(FAIL, EARLIEST),
    ),
    _key(
        SYNC,
        "Whether offsets of consumer groups are taken over: to the groups of the same names of the "
        "target cluster, as long as nobody is in them there, and forward only.",
        ConfigType.BOOLEAN,
        default=False,
    ),
    _key(
        SYNC_S,
        "How often groups' offsets are taken over.",
        ConfigType.INT,
        default=60,
        validator=InRange(1),
    ),
    _key(
        GROUPS,
        "The groups whose offsets are taken over, as names or regular expressions.",
        ConfigType.LIST,
        default=[".*"],
        validator=Check(patterns_fault),
    ),
    _key(
        GROUPS_EXCLUDE,
        "Groups that are left alone, as names or regular expressions.",
        ConfigType.LIST,
        default=_GROUPS_EXCLUDED,
        validator=Check(patterns_fault),
    ),
    *cluster_keys(TARGET_PREFIX, "the target", required=False),
)
