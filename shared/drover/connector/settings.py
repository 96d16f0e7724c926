"""The settings that every connector has, and the whole check of a config."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drover.config.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    ParsedConfig,
    quote,
)
from drover.config.validators import All, Check, InRange, NonEmpty, OneOf
from drover.connector.connector import Connector
from drover.connector.sink import SinkConnector
from drover.dataplane.topics import PARTITION_COUNT_MAX, name_fault
from drover.model.names import connector_name_violations

NAME = "name"
CONNECTOR_CLASS = "connector.class"
TASKS_MAX = "tasks.max"
TOPICS = "topics"
TOPIC_PARTITIONS = "topic.partitions"
BATCH_MAX_RECORDS = "batch.max.records"
BATCH_MAX_BYTES = "batch.max.bytes"
POLL_INTERVAL_MS = "poll.interval.ms"
PARTITIONER_KEYLESS = "partitioner.keyless"

_MIB = 1024 * 1024


def connector_name_fault(name: str) -> str | None:
    """What is wrong with a connector's name, or None."""
    return "; ".join(each.description for each in connector_name_violations(name)) or None


def _topic_fault(topic: str) -> str | None:
    return name_fault(topic) or None


def _topics_fault(topics: list[str]) -> str | None:
    faults = [fault for topic in topics if topic for fault in [name_fault(topic)] if fault]
    if len(set(topics)) < len(topics):
        faults.append("must not name a topic twice")
    return "; ".join(faults) or None


#: Converters that leave bytes as they are, and where Kafka Connect has them.
_RAW_CONVERTERS = {
    "StringConverter": "org.apache.kafka.connect.storage",
    "ByteArrayConverter": "org.apache.kafka.connect.converters",
}
#: Kafka Connect's default for headers, whose values are bytes here.
_HEADER_CONVERTERS = {"SimpleHeaderConverter": "org.apache.kafka.connect.storage"}


def _converter_check(packages: Mapping[str, str]) -> Check:
    """Refuses a converter that is not known, for it would make other bytes."""
    allowed = {
        name
        for simple_name, package in packages.items()
        for name in (simple_name, simple_name.removesuffix("Converter"), f"{package}.{simple_name}")
    }

    def fault(converter: str) -> str | None:
        if converter.strip() in allowed:
            return None
        return (
            f"must be {' or '.join(packages)} or left out, not {quote(converter)}: records are "
            "written and read as the bytes that they are"
        )

    return Check(fault)


def _no_changes_fault(names: list[str]) -> str | None:
    if not any(names):
        return None
    return f"must be empty, as records are not changed on their way here, not {','.join(names)}"


#: For a setting of your own that names a topic.
TOPIC_NAME = Check(_topic_fault)

_COMMON = ConfigDef(
    ConfigKey(
        NAME,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group="Common",
        documentation="The connector's name, unique in the cluster.",
        validator=Check(connector_name_fault),
    ),
    ConfigKey(
        CONNECTOR_CLASS,
        ConfigType.CLASS,
        importance=Importance.HIGH,
        group="Common",
        documentation="The connector's class, by its full name or an alias.",
    ),
    ConfigKey(
        TASKS_MAX,
        ConfigType.INT,
        default=1,
        importance=Importance.HIGH,
        group="Common",
        documentation="At most this many tasks share the connector's work.",
        validator=InRange(1),
    ),
    ConfigKey(
        BATCH_MAX_RECORDS,
        ConfigType.INT,
        default=2_000_000,
        importance=Importance.LOW,
        group="Batches",
        documentation="About how many records one batch carries at most.",
        validator=InRange(1),
    ),
    ConfigKey(
        BATCH_MAX_BYTES,
        ConfigType.INT,
        default=64 * _MIB,
        importance=Importance.LOW,
        group="Batches",
        documentation="About how many bytes one batch carries at most; one record always fits.",
        validator=InRange(1024),
    ),
    ConfigKey(
        POLL_INTERVAL_MS,
        ConfigType.INT,
        default=200,
        importance=Importance.LOW,
        group="Batches",
        documentation="How long an idle task waits before it looks for new data.",
        validator=InRange(1, 3_600_000),
    ),
)

_CONVERSION = ConfigDef(
    *(
        ConfigKey(
            name,
            ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            group="Kafka Connect",
            documentation="As configs of Kafka Connect have it: StringConverter and "
            "ByteArrayConverter mean the bytes as they are, as does no converter.",
            validator=_converter_check(packages),
        )
        for name, packages in (
            ("key.converter", _RAW_CONVERTERS),
            ("value.converter", _RAW_CONVERTERS),
            ("header.converter", _RAW_CONVERTERS | _HEADER_CONVERTERS),
        )
    ),
    *(
        ConfigKey(
            name,
            ConfigType.LIST,
            default=None,
            importance=Importance.LOW,
            group="Kafka Connect",
            documentation="As configs of Kafka Connect have it, where it is empty.",
            validator=Check(_no_changes_fault),
        )
        for name in ("transforms", "predicates")
    ),
)

_SOURCE = ConfigDef(
    ConfigKey(
        TOPIC_PARTITIONS,
        ConfigType.INT,
        default=1,
        group="Topic",
        documentation="How many partitions a topic gets that the connector creates.",
        validator=InRange(1, PARTITION_COUNT_MAX),
    ),
    ConfigKey(
        PARTITIONER_KEYLESS,
        ConfigType.STRING,
        default="first",
        group="Topic",
        documentation="Where records without a key go: to partition 0, which keeps their order "
        "(first), or evenly to all partitions (spread).",
        validator=OneOf("first", "spread"),
    ),
)

_SINK = ConfigDef(
    ConfigKey(
        TOPICS,
        ConfigType.LIST,
        importance=Importance.HIGH,
        group="Topic",
        documentation="The topics to read, separated by commas.",
        validator=All(NonEmpty(), Check(_topics_fault)),
    ),
)


def full_config_def(connector_class: type[Connector]) -> ConfigDef:
    """A connector's own settings and those that every connector of its kind has.

    A connector that defines a common setting itself replaces it (to forbid several tasks, say).
    """
    kind = _SINK if issubclass(connector_class, SinkConnector) else _SOURCE
    return _COMMON | _CONVERSION | kind | connector_class.config_def()


def parse_config(connector_class: type[Connector], raw: Mapping[str, str | None]) -> ParsedConfig:
    """The values and every fault, those across settings included."""
    parsed = full_config_def(connector_class).parse(raw)
    faults = tuple(connector_class.validate(parsed.values))
    return ParsedConfig(parsed.values, parsed.violations + faults)


def validate_config(
    connector_class: type[Connector], raw: Mapping[str, str | None]
) -> list[ConfigValue]:
    """Every setting with its faults, those across settings included; unknown settings last."""
    definition = full_config_def(connector_class)
    faults: dict[str, list[str]] = {}
    for violation in connector_class.validate(definition.parse(raw).values):
        faults.setdefault(violation.field, []).append(violation.description)
    values = [
        replace(each, errors=each.errors + tuple(faults.pop(each.key.name, ())))
        for each in definition.validate(raw)
    ]
    for name, errors in faults.items():
        key = ConfigKey(name, ConfigType.STRING, default=None, group="Unknown")
        values.append(ConfigValue(key, raw.get(name), tuple(errors)))
    return values


def task_config(
    connector_class: type[Connector],
    connector_config: Mapping[str, str],
    own_config: Mapping[str, str],
) -> Mapping[str, Any]:
    """What a task sees as its config: the connector's, overlaid by its own.

    Raises:
        InvalidArgumentError: INVALID_CONFIG with every fault.
    """
    merged = dict(connector_config) | dict(own_config)
    return full_config_def(connector_class).parse(merged).require_valid(merged.get(NAME, ""))


__all__ = [
    "BATCH_MAX_BYTES",
    "BATCH_MAX_RECORDS",
    "CONNECTOR_CLASS",
    "NAME",
    "PARTITIONER_KEYLESS",
    "POLL_INTERVAL_MS",
    "TASKS_MAX",
    "TOPICS",
    "TOPIC_NAME",
    "TOPIC_PARTITIONS",
    "connector_name_fault",
    "full_config_def",
    "parse_config",
    "task_config",
    "validate_config",
]
