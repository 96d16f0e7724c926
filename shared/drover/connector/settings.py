"""The settings that all connectors have, and the validation of a whole config."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from drover.config.config_def import (
    UNDEFINED_GROUP,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    ParsedConfig,
)
from drover.config.configurable import using_systems
from drover.config.patterns import PatternTimeoutError, compiled_pattern, pattern_fault
from drover.config.url_passwords import has_url_password, url_password_fault
from drover.config.validators import All, Check, InRange, Matches, NonEmpty, OneOf
from drover.connector.connector import Connector
from drover.connector.engine_settings import ENGINE_SETTINGS
from drover.connector.error_settings import ERROR_SETTINGS, error_faults
from drover.connector.exactly_once_settings import (
    EXACTLY_ONCE_SETTINGS,
    EXACTLY_ONCE_SUPPORT,
    TRANSACTION_BOUNDARY,
    TRANSACTION_BOUNDARY_INTERVAL_MS,
    exactly_once_faults,
)
from drover.connector.other_settings import OtherSettings, RawConfig, Refused, Translation
from drover.connector.record_settings import CONVERTER_SETTINGS, record_config_def
from drover.connector.replay_settings import REPLAY_SETTINGS, replay_faults
from drover.connector.restart_settings import RESTART_SETTINGS
from drover.connector.sink import SinkConnector
from drover.connector.topic_settings import TOPIC_PARTITIONS, topic_creation_config_def
from drover.convert.registry import converter_config_def
from drover.dataplane.topics import PARTITION_COUNT_MAX, name_fault
from drover.errors import Caution, SkippedCheck, Violation
from drover.model.config import CONSUMER_GROUP_SETTING, OFFSETS_TOPIC_SETTING
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.names import connector_name_violations
from drover.model.times import DAY_MS

NAME = "name"
CONNECTOR_CLASS = "connector.class"
TASKS_MAX = "tasks.max"
TOPICS = "topics"
TOPICS_REGEX = "topics.regex"
BATCH_MAX_RECORDS = "batch.max.records"
BATCH_MAX_BYTES = "batch.max.bytes"
BATCH_WAIT_MS = "batch.wait.ms"
POLL_INTERVAL_MS = "poll.interval.ms"
RATE_MAX_RECORDS = "rate.max.records"
RATE_MAX_BYTES = "rate.max.bytes"
PARTITIONER_KEYLESS = "partitioner.keyless"
#: A value of partitioner.keyless.
SPREAD = "spread"
#: In the parsed config of a connector that needs it: the config as it was written.
CONFIG_TEXTS = "drover.config.texts"
JAVA_ISOLATION = "java.isolation"
#: Values of ``JAVA_ISOLATION``.
OF_PLUGIN, OF_TASK = "plugin", "task"
AUTO_OFFSET_RESET = "consumer.override.auto.offset.reset"
EARLIEST, LATEST, NONE = "earliest", "latest", "none"

_MIB = 1024 * 1024


def connector_name_fault(name: str) -> str | None:
    """Why a connector's name is invalid; None if it is valid."""
    return "; ".join(each.description for each in connector_name_violations(name)) or None


def _topic_fault(topic: str) -> str | None:
    return name_fault(topic) or None


def _topics_fault(topics: list[str]) -> str | None:
    faults = [fault for topic in topics if topic for fault in [name_fault(topic)] if fault]
    if len(set(topics)) < len(topics):
        faults.append("must not name a topic twice")
    return "; ".join(faults) or None


#: Validator for a setting that names a topic.
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
        documentation="The maximum number of tasks for the connector's work.",
        validator=InRange(1),
    ),
    ConfigKey(
        BATCH_MAX_RECORDS,
        ConfigType.INT,
        default=2_000_000,
        importance=Importance.LOW,
        group="Batches",
        documentation="The approximate maximum number of records in a batch.",
        validator=InRange(1),
    ),
    ConfigKey(
        BATCH_MAX_BYTES,
        ConfigType.INT,
        default=64 * _MIB,
        importance=Importance.LOW,
        group="Batches",
        documentation="The approximate maximum size of a batch; a larger record is still "
        "processed, alone. Sources that limit batches by size start with 8 MiB, and use smaller "
        "batches if a batch takes long.",
        validator=InRange(1024),
    ),
    ConfigKey(
        RATE_MAX_RECORDS,
        ConfigType.INT,
        default=0,
        importance=Importance.LOW,
        group="Batches",
        documentation="The maximum average rate of each task, in records per second; 0 for no "
        "limit.",
        validator=InRange(0),
    ),
    ConfigKey(
        RATE_MAX_BYTES,
        ConfigType.LONG,
        default=0,
        importance=Importance.LOW,
        group="Batches",
        documentation="The maximum average rate of each task, in bytes per second; 0 for no limit. "
        "A single record above the limit is still processed.",
        validator=InRange(0),
    ),
    ConfigKey(
        POLL_INTERVAL_MS,
        ConfigType.INT,
        default=200,
        importance=Importance.LOW,
        group="Batches",
        documentation="How long an idle task waits before it polls for new data.",
        validator=InRange(1, 3_600_000),
    ),
    ConfigKey(
        JAVA_ISOLATION,
        ConfigType.STRING,
        default=OF_PLUGIN,
        importance=Importance.LOW,
        group="Java",
        documentation="Which tasks share a JVM for their Java classes: all tasks of a plugin on a "
        "worker (plugin), or none (task), so that a task which uses up its memory ends no other.",
        validator=OneOf(OF_PLUGIN, OF_TASK),
    ),
)

_SOURCE = ConfigDef(
    ConfigKey(
        TOPIC_PARTITIONS,
        ConfigType.INT,
        default=1,
        group="Topic",
        documentation="The number of partitions of topics that the connector creates.",
        validator=InRange(1, PARTITION_COUNT_MAX),
    ),
    ConfigKey(
        PARTITIONER_KEYLESS,
        ConfigType.STRING,
        default="first",
        group="Topic",
        documentation="The partition of records without a key: partition 0, which keeps their "
        "order (first), or evenly distributed over all partitions (spread).",
        validator=OneOf("first", SPREAD),
    ),
)

_SINK = ConfigDef(
    ConfigKey(
        BATCH_WAIT_MS,
        ConfigType.INT,
        default=0,
        group="Batches",
        documentation="How long a batch that is not full (batch.max.*) waits for more records. A "
        "longer wait means fewer and larger files and transactions, and a higher latency.",
        validator=InRange(0, DAY_MS),
    ),
    ConfigKey(
        CONSUMER_GROUP_SETTING,
        ConfigType.STRING,
        default=None,
        group="Topic",
        documentation="The consumer group that stores the sink's positions on Kafka; by default "
        "connect- and the connector's name. In embedded storage positions are stored per "
        "connector.",
        validator=All(NonEmpty(), Matches(r"[^\x00-\x1f\x7f]{1,255}", "a group's id")),
    ),
    ConfigKey(
        AUTO_OFFSET_RESET,
        ConfigType.STRING,
        default=EARLIEST,
        group="Topic",
        documentation="Where to start to read a topic without committed offsets: at its earliest "
        "record, or after its latest one; none fails the task. Partitions that appear later are "
        "read from their earliest record.",
        validator=OneOf(EARLIEST, LATEST, NONE),
    ),
    ConfigKey(
        TOPICS,
        ConfigType.LIST,
        default=None,
        importance=Importance.HIGH,
        group="Topic",
        documentation="The topics to read, separated by commas. Set either this or topics.regex.",
        validator=All(NonEmpty(), Check(_topics_fault)),
    ),
    ConfigKey(
        TOPICS_REGEX,
        ConfigType.STRING,
        default=None,
        importance=Importance.HIGH,
        group="Topic",
        documentation="A regular expression (Java syntax) that matches the whole names of the "
        "topics to read, including topics that are created later.",
        validator=All(NonEmpty(), Check(pattern_fault)),
        trimmed=False,  # as in Kafka Connect, which subscribes to the text as it is
    ),
)

_ON_KAFKA = "if it is a setting of connections, set it on the worker (DROVER_KAFKA_CONFIG)"
_SERVERS = "connectors use the topics of Drover's own cluster: copy with KafkaSource or KafkaSink"
_AS_BYTES = "converters make the bytes of records (key.converter, value.converter)"
_INTERCEPTORS = "use a transform"
_VERSIONS = "only Java classes have several versions: write java: before the name of the Java class"
_FOR_SOURCES = "it applies to sources only"
_BYTES_READER = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_BYTES_WRITER = "org.apache.kafka.common.serialization.ByteArraySerializer"
_TYPE_SETTING = re.compile(r"(transforms|predicates)\.[^.]+\.type")
#: Settings that every connector of Kafka Connect has and Drover does not.
OF_ALL_CONNECTORS = OtherSettings(
    refused={
        "connector.plugin.version": Refused("latest", remedy=_VERSIONS),
        **dict.fromkeys(
            (f"{each}.override.bootstrap.servers" for each in ("admin", "consumer", "producer")),
            Refused(remedy=_SERVERS),
        ),
        **dict.fromkeys(
            (f"{each}.override.interceptor.classes" for each in ("consumer", "producer")),
            Refused("", remedy=_INTERCEPTORS),
        ),
        "consumer.override.key.deserializer": Refused(_BYTES_READER, remedy=_AS_BYTES),
        "consumer.override.value.deserializer": Refused(_BYTES_READER, remedy=_AS_BYTES),
        "producer.override.key.serializer": Refused(_BYTES_WRITER, remedy=_AS_BYTES),
        "producer.override.value.serializer": Refused(_BYTES_WRITER, remedy=_AS_BYTES),
        "consumer.override.isolation.level": Refused(
            "read_committed", remedy="records of open and aborted transactions are never read"
        ),
        "consumer.override.exclude.internal.topics": ("true",),
        "producer.override.transactional.id": Refused(
            remedy="each task has its own, which fences the task's earlier processes"
        ),
        "producer.override.partitioner.class": Refused(
            "",
            "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
            remedy="keys choose partitions as in Kafka; for other records use partitioner.keyless",
        ),
        "producer.override.partitioner.ignore.keys": ("false",),
    },
    without_effect={
        "producer.override.*": _ON_KAFKA,
        "consumer.override.*": _ON_KAFKA,
        "admin.override.*": _ON_KAFKA,
        "tasks.max.enforce": "more tasks than tasks.max are always an error",
        EXACTLY_ONCE_SUPPORT: _FOR_SOURCES,
        TRANSACTION_BOUNDARY: _FOR_SOURCES,
        TRANSACTION_BOUNDARY_INTERVAL_MS: _FOR_SOURCES,
        OFFSETS_TOPIC_SETTING: _FOR_SOURCES,
    },
)


def _which_topics(connector_class: type[Connector], config: Mapping[str, Any]) -> list[Violation]:
    """Check that a sink has either topics or a pattern."""
    if not issubclass(connector_class, SinkConnector):
        return []
    if TOPICS not in config or TOPICS_REGEX not in config:
        return []  # one of them is invalid itself
    named, pattern = config[TOPICS], config[TOPICS_REGEX]
    if named is None and pattern is None:
        return [Violation(TOPICS, "is required, unless topics.regex is set")]
    if named is not None and pattern is not None:
        return [Violation(TOPICS_REGEX, "must not be set together with topics")]
    dead_letters = config.get(DEAD_LETTER_TOPIC)
    if pattern is not None and dead_letters and compiled_pattern(pattern).matches(dead_letters):
        return [
            Violation(DEAD_LETTER_TOPIC, f"must not match topics.regex, as {dead_letters} does")
        ]
    return []


def full_config_def(connector_class: type[Connector], raw: RawConfig | None = None) -> ConfigDef:
    """All settings of a connector: its own, the common ones of its kind, and the settings of the
    converters and transforms that the config ``raw`` names.

    A connector's own definition of a common setting replaces it (to allow only one task, for
    example).
    """
    if issubclass(connector_class, SinkConnector):
        kind = _SINK
    else:
        kind = _SOURCE | EXACTLY_ONCE_SETTINGS | topic_creation_config_def(raw or {})
    common = (
        _COMMON
        | record_config_def(raw or {})
        | ERROR_SETTINGS
        | REPLAY_SETTINGS
        | RESTART_SETTINGS
        | ENGINE_SETTINGS
    )
    return common | kind | connector_class.config_def_for(raw or {})


def _translated(connector_class: type[Connector], raw: RawConfig) -> Translation:
    """A config with the connector's own names of settings."""
    own = {key.name for key in full_config_def(connector_class, raw)}
    return connector_class.other_settings.translated(raw, own)


def _faults_together(
    connector_class: type[Connector],
    raw: RawConfig,
    own: Collection[str],
    config: Mapping[str, Any],
    translated: RawConfig,
    *,
    use_systems: bool,
) -> list[Violation]:
    """Violations of rules that involve several settings of a parsed config, and violations by
    settings that the connector does not have. For the latter, violations that the connector itself
    reports take precedence.
    """
    faults = [
        *error_faults(config),
        *replay_faults(config),
        *exactly_once_faults(connector_class, config),
    ]
    of_urls = list(_url_faults(connector_class, translated, config))
    try:
        faults += _which_topics(connector_class, config)
        of_settings = list(connector_class.validate(config))
        own_are_valid = all(key.name in config for key in connector_class.config_def())
        if use_systems and own_are_valid and not (of_settings or of_urls):
            of_settings += connector_class.check_systems(config)
        faults += of_settings
    except PatternTimeoutError as error:
        named = next(
            (name for name, text in raw.items() if error.pattern in (text or "")), CONNECTOR_CLASS
        )
        faults.append(Violation(named, str(error)))
    reported = {each.field for each in faults}
    others = (
        OF_ALL_CONNECTORS.faults_of(raw, own),
        connector_class.other_settings.faults_of(raw, own),
        of_urls,
    )
    return [*faults, *(each for found in others for each in found if each.field not in reported)]


def _url_faults(
    connector_class: type[Connector], translated: RawConfig, config: Mapping[str, Any]
) -> Iterator[Violation]:
    """Violations of settings with a password in a URL, where the connector or its converter has a
    setting for it. Settings that are invalid themselves are skipped.
    """
    for name, text in translated.items():
        if text is None or name not in config or not has_url_password(text):
            continue
        converter = next((each for each in CONVERTER_SETTINGS if name.startswith(f"{each}.")), None)
        keys = connector_class.config_def()
        if converter is not None:
            keys = converter_config_def(converter, translated)
        fault = url_password_fault(name, keys)
        if fault is not None:
            yield Violation(name, fault)


def parse_config(
    connector_class: type[Connector], raw: RawConfig, *, use_systems: bool = True
) -> ParsedConfig:
    """The parsed values and all violations, including violations of rules across settings.

    Args:
        connector_class: The connector.
        raw: The config.
        use_systems: Check the settings with the systems that they name, if they are valid.
    """
    with using_systems(use_systems):
        translation = _translated(connector_class, raw)
        definition = full_config_def(connector_class, translation.config)
        parsed = _parsed(connector_class, definition, translation.config)
    own = {key.name for key in definition}
    together = _faults_together(
        connector_class, raw, own, parsed.values, translation.config, use_systems=use_systems
    )
    faults = tuple(
        replace(each, field=translation.name_of(each.field))
        for each in (*parsed.violations, *together)
        if not isinstance(each, Caution | SkippedCheck)
    )
    return ParsedConfig(parsed.values, faults)


def undefined_settings(connector_class: type[Connector], raw: RawConfig) -> frozenset[str]:
    """The settings of a config that no plugin defines, so that nothing reads them."""
    values = validate_config(connector_class, raw, use_systems=False)
    return frozenset(each.key.name for each in values if each.key.group == UNDEFINED_GROUP)


def validate_config(
    connector_class: type[Connector], raw: RawConfig, *, use_systems: bool = True
) -> list[ConfigValue]:
    """All settings with their errors, including errors across settings; unknown settings last.

    ``use_systems``: as of ``parse_config``.
    """
    with using_systems(use_systems):
        translation = _translated(connector_class, raw)
        definition = full_config_def(connector_class, translation.config)
        parsing = _parsed(connector_class, definition, translation.config)
    own = {key.name for key in definition}
    faults: dict[str, list[str]] = {}
    cautions: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    for violation in _faults_together(
        connector_class, raw, own, parsing.values, translation.config, use_systems=use_systems
    ):
        found = faults
        if isinstance(violation, Caution):
            found = cautions
        elif isinstance(violation, SkippedCheck):
            found = skipped
        found.setdefault(violation.field, []).append(violation.description)
    values = [
        replace(
            each,
            errors=each.errors + tuple(faults.pop(each.key.name, ())),
            skipped_checks=tuple(skipped.pop(each.key.name, ())),
        )
        if each.key.name in faults or each.key.name in skipped
        else each
        for each in definition.validate(translation.config)
    ]
    for name, errors in faults.items():
        key = ConfigKey(name, ConfigType.STRING, default=None, group=UNDEFINED_GROUP)
        values.append(ConfigValue(key, raw.get(name), tuple(errors)))
    values = _as_named(values, translation, raw)
    unknown = _settings_of_unknown_classes(values)
    values = [
        _with_warning(each, connector_class, unknown) if each.warnings else each for each in values
    ]
    return [
        replace(each, warnings=(*each.warnings, *cautions[each.key.name]))
        if each.key.name in cautions
        else each
        for each in values
    ]


def _as_named(
    values: Sequence[ConfigValue], translation: Translation, raw: RawConfig
) -> list[ConfigValue]:
    """Values with the names under which the settings were given."""
    others: dict[str, ConfigValue] = {}
    for value in values:
        name = translation.name_of(value.key.name)
        if name != value.key.name:
            before = others[name].errors if name in others else ()
            key = replace(value.key, name=name)
            others[name] = replace(
                value,
                key=key,
                text=raw.get(name, value.text),
                errors=(*before, *value.errors),
                warnings=(),
            )
    named = []
    for value in values:
        name = value.key.name
        if name in others:
            others[name] = replace(others[name], errors=(*others[name].errors, *value.errors))
        elif translation.name_of(name) == name:
            named.append(value)
    return [*named, *others.values()]


def _settings_of_unknown_classes(values: Sequence[ConfigValue]) -> tuple[str, ...]:
    """The prefixes of the settings of transforms, predicates and converters that do not exist."""
    names = [each.key.name for each in values if each.errors]
    return tuple(
        f"{name}." if name in CONVERTER_SETTINGS else name.removesuffix("type")
        for name in names
        if name in CONVERTER_SETTINGS or _TYPE_SETTING.fullmatch(name)
    )


def _with_warning(
    value: ConfigValue, connector_class: type[Connector], unknown: tuple[str, ...]
) -> ConfigValue:
    """A value with the warning about a setting that the connector does not have.

    Settings with a prefix in ``unknown`` get none: the fault of their class is enough.
    """
    if value.key.name.startswith(unknown):
        return replace(value, warnings=())
    for others in (connector_class.other_settings, OF_ALL_CONNECTORS):
        warning = others.warning_of(value.key.name)
        if warning is not None:
            return replace(value, warnings=(warning,) if warning else ())
    return value


def task_config(
    connector_class: type[Connector],
    connector_config: Mapping[str, str],
    own_config: Mapping[str, str],
) -> Mapping[str, Any]:
    """The config that a task receives: the connector's, overridden by the task's own.

    Raises:
        InvalidArgumentError: INVALID_CONFIG with every violation.
    """
    merged = _translated(connector_class, {**connector_config, **own_config}).config
    definition = full_config_def(connector_class, merged)
    parsed = _parsed(connector_class, definition, merged)
    return parsed.require_valid(merged.get(NAME) or "")


def _parsed(
    connector_class: type[Connector], definition: ConfigDef, config: RawConfig
) -> ParsedConfig:
    parsed = definition.parse(config)
    if not connector_class.needs_config_texts:
        return parsed
    texts = {name: text for name, text in config.items() if text is not None}
    return replace(parsed, values={**parsed.values, CONFIG_TEXTS: texts})


__all__ = [
    "BATCH_MAX_BYTES",
    "BATCH_MAX_RECORDS",
    "BATCH_WAIT_MS",
    "CONFIG_TEXTS",
    "CONNECTOR_CLASS",
    "NAME",
    "PARTITIONER_KEYLESS",
    "POLL_INTERVAL_MS",
    "RATE_MAX_BYTES",
    "RATE_MAX_RECORDS",
    "SPREAD",
    "TASKS_MAX",
    "TOPICS",
    "TOPICS_REGEX",
    "TOPIC_NAME",
    "TOPIC_PARTITIONS",
    "connector_name_fault",
    "full_config_def",
    "parse_config",
    "task_config",
    "validate_config",
]
