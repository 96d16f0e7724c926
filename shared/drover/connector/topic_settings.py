"""The settings with which a source's topics are created: topic.creation.* (KIP-158)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.patterns import Pattern, patterns_fault
from drover.config.validators import Check
from drover.connector.error_settings import REPLICATION, ErrorSettings
from drover.dataplane.topic_creation import TopicCreation, TopicGroup, TopicRule
from drover.dataplane.topic_settings import NAMES
from drover.dataplane.topics import PARTITION_COUNT_MAX
from drover.log.storage import PARTITIONS, REPLICATION_FACTOR

TOPIC_PARTITIONS = "topic.partitions"
PREFIX = "topic.creation."
GROUPS = "topic.creation.groups"
DEFAULT = "default"

_GROUP = "Topic creation"
_INCLUDE, _EXCLUDE = "include", "exclude"
_OWN = (_INCLUDE, _EXCLUDE, PARTITIONS, REPLICATION_FACTOR)


def _count_fault(value: int) -> str | None:
    if value == -1 or 1 <= value <= PARTITION_COUNT_MAX:
        return None
    return f"must be 1 to {PARTITION_COUNT_MAX}, or -1 for the cluster's default, not {value}"


def _groups_fault(names: list[str]) -> str | None:
    if len(set(names)) < len(names):
        return "must not name a group twice"
    return "must not name the group 'default', which always exists" if DEFAULT in names else None


def topic_creation_config_def(raw: Mapping[str, str | None]) -> ConfigDef:
    """The settings for the groups that a config names.

    The settings of the default group are required if any topic.creation setting is set, as in Kafka
    Connect.
    """
    used = any(name.startswith(PREFIX) for name in raw)
    keys = [
        ConfigKey(
            GROUPS,
            ConfigType.LIST,
            default=None,
            group=_GROUP,
            documentation="The names of groups of topics that are created with other settings than "
            "the default's.",
            validator=Check(_groups_fault),
        ),
        *_rule_keys(DEFAULT, required=used),
    ]
    for name in _named_groups(raw):
        keys.append(
            ConfigKey(
                f"{PREFIX}{name}.{_INCLUDE}",
                ConfigType.LIST,
                group=_GROUP,
                documentation="Regular expressions of the topics in the group.",
                validator=Check(patterns_fault),
            )
        )
        keys.append(
            ConfigKey(
                f"{PREFIX}{name}.{_EXCLUDE}",
                ConfigType.LIST,
                default=None,
                group=_GROUP,
                documentation="Regular expressions of topics that are excluded from the group.",
                validator=Check(patterns_fault),
            )
        )
        keys += _rule_keys(name, required=False)
    keys += [
        ConfigKey(
            name,
            ConfigType.STRING,
            default=None,
            group=_GROUP,
            documentation="A topic setting of Kafka, for the topics of the group that the "
            f"connector creates. Embedded storage has {', '.join(NAMES[:-1])} and {NAMES[-1]}.",
        )
        for name, _ in topic_configs(raw)
    ]
    return ConfigDef(*keys)


def topic_creation_of(config: Mapping[str, Any]) -> TopicCreation | None:
    """The rules for new topics in a parsed config; None if it has none."""
    if config.get(f"{PREFIX}{DEFAULT}.{PARTITIONS}") is None:
        return None
    default = _rule(config, DEFAULT, TopicRule())
    return TopicCreation(
        default,
        tuple(
            TopicGroup(
                _rule(config, name, default),
                _patterns(config[f"{PREFIX}{name}.{_INCLUDE}"]),
                _patterns(config[f"{PREFIX}{name}.{_EXCLUDE}"]),
            )
            for name in config[GROUPS] or ()
        ),
    )


def source_topic_creation(config: Mapping[str, Any], errors: ErrorSettings) -> TopicCreation:
    """How the topics of a source and of its dead letters are created."""
    rule = TopicRule(config[TOPIC_PARTITIONS] or 1, settings={PARTITIONS: TOPIC_PARTITIONS})
    creation = topic_creation_of(config) or TopicCreation(rule)
    topic = errors.dead_letter_topic
    return replace(creation, named={topic: errors.dead_letter_rule}) if topic else creation


def _rule_keys(name: str, *, required: bool) -> Iterator[ConfigKey]:
    given: dict[str, Any] = {} if required else {"default": None}
    yield ConfigKey(
        f"{PREFIX}{name}.{REPLICATION_FACTOR}",
        ConfigType.INT,
        group=_GROUP,
        documentation="The replication factor of new topics; -1 for the cluster's default.",
        validator=REPLICATION,
        **given,
    )
    yield ConfigKey(
        f"{PREFIX}{name}.{PARTITIONS}",
        ConfigType.INT,
        group=_GROUP,
        documentation="The partition count of new topics; -1 for the cluster's default.",
        validator=Check(_count_fault),
        **given,
    )


def _named_groups(raw: Mapping[str, str | None]) -> list[str]:
    names = [each.strip() for each in (raw.get(GROUPS) or "").split(",")]
    return [name for name in dict.fromkeys(names) if name and name != DEFAULT]


def topic_configs(raw: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """The names of the settings for topics in a config, each with the topic's setting."""
    for group in (DEFAULT, *_named_groups(raw)):
        prefix = f"{PREFIX}{group}."
        for name in raw:
            if name.startswith(prefix) and name.removeprefix(prefix) not in _OWN:
                yield name, name.removeprefix(prefix)


def _rule(config: Mapping[str, Any], name: str, default: TopicRule) -> TopicRule:
    prefix = f"{PREFIX}{name}."
    partitions = config.get(f"{prefix}{PARTITIONS}")
    replication = config.get(f"{prefix}{REPLICATION_FACTOR}")
    own = {
        key.removeprefix(prefix): value
        for key, value in config.items()
        if key.startswith(prefix) and key.removeprefix(prefix) not in _OWN and value is not None
    }
    given = {
        PARTITIONS: partitions,
        REPLICATION_FACTOR: replication,
        **own,
    }
    settings = {key: f"{prefix}{key}" for key, value in given.items() if value is not None}
    return TopicRule(
        default.partition_count if partitions is None else partitions,
        default.replication_factor if replication is None else replication,
        {**default.config, **own},
        {**default.settings, **settings},
    )


def _patterns(texts: list[str] | None) -> tuple[Pattern, ...]:
    return tuple(Pattern(each) for each in texts or ())
