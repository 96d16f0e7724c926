"""What a connector's config says of records that cannot be handled (KIP-298)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.recommender import visible_with
from drover.config.validators import Check, InRange, OneOf
from drover.dataplane.topics import name_fault
from drover.errors import Violation
from drover.model.dead_letters import DEAD_LETTER_TOPIC

TOLERANCE = "errors.tolerance"
RETRY_TIMEOUT = "errors.retry.timeout"
RETRY_DELAY_MAX_MS = "errors.retry.delay.max.ms"
LOG_ENABLE = "errors.log.enable"
LOG_MESSAGES = "errors.log.include.messages"
MAX_RATE = "errors.max.rate"
MAX_RATE_WINDOW_MS = "errors.max.rate.window.ms"
DEAD_LETTER_REPLICATION = "errors.deadletterqueue.topic.replication.factor"
DEAD_LETTER_CONTEXT = "errors.deadletterqueue.context.headers.enable"

_GROUP = "Errors"


def _topic_fault(topic: str) -> str | None:
    return (name_fault(topic) or None) if topic else None


ERROR_SETTINGS = ConfigDef(
    ConfigKey(
        TOLERANCE,
        ConfigType.STRING,
        default="none",
        group=_GROUP,
        documentation="What a record does that cannot be converted or transformed: fail the task "
        "(none), or be left out (all), and go to the dead letter queue if there is one.",
        validator=OneOf("none", "all"),
    ),
    ConfigKey(
        RETRY_TIMEOUT,
        ConfigType.LONG,
        default=0,
        group=_GROUP,
        documentation="For how many milliseconds a batch is tried again whose failure may pass "
        "(RetriableError); -1 for ever.",
        validator=InRange(-1),
    ),
    ConfigKey(
        RETRY_DELAY_MAX_MS,
        ConfigType.LONG,
        default=60_000,
        group=_GROUP,
        documentation="The longest pause between two such attempts; they begin with 300 ms and "
        "double.",
        validator=InRange(-1),
    ),
    ConfigKey(
        LOG_ENABLE,
        ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        documentation="Whether each record that is left out is logged with its place and cause.",
    ),
    ConfigKey(
        LOG_MESSAGES,
        ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        documentation="Whether the log has the record's key and value as well.",
    ),
    ConfigKey(
        DEAD_LETTER_TOPIC,
        ConfigType.STRING,
        default="",
        group=_GROUP,
        documentation="The topic for records that are left out, as they came, of sources too; "
        "empty for none.",
        validator=Check(_topic_fault),
    ),
    ConfigKey(
        DEAD_LETTER_REPLICATION,
        ConfigType.INT,
        default=3,
        group=_GROUP,
        documentation="The replication factor with which that topic is made, on Kafka.",
        validator=InRange(-1),
        recommender=visible_with(DEAD_LETTER_TOPIC),
    ),
    ConfigKey(
        DEAD_LETTER_CONTEXT,
        ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        documentation="Whether dead letters get headers that say where they come from and what "
        "failed: __connect.errors.topic, .partition, .offset, .stage, .exception.message, ...",
        recommender=visible_with(DEAD_LETTER_TOPIC),
    ),
    ConfigKey(
        MAX_RATE,
        ConfigType.DOUBLE,
        default=1.0,
        group=_GROUP,
        documentation="The share of records that may be left out before the task fails, over "
        "errors.max.rate.window.ms; counted from 100 records on.",
        validator=InRange(0.0, 1.0),
    ),
    ConfigKey(
        MAX_RATE_WINDOW_MS,
        ConfigType.LONG,
        default=60_000,
        group=_GROUP,
        documentation="The time over which errors.max.rate is counted.",
        validator=InRange(1_000, 86_400_000),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSettings:
    """The settings as values; see their documentation."""

    tolerate: bool
    retry_timeout_ms: int
    retry_delay_max_ms: int
    log: bool
    log_records: bool
    dead_letter_topic: str | None
    dead_letter_replication_factor: int
    context_headers: bool
    max_rate: float
    max_rate_window_ms: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ErrorSettings":
        """Those of a parsed config."""
        return cls(
            tolerate=config[TOLERANCE] == "all",
            retry_timeout_ms=config[RETRY_TIMEOUT],
            retry_delay_max_ms=config[RETRY_DELAY_MAX_MS],
            log=config[LOG_ENABLE],
            log_records=config[LOG_MESSAGES],
            dead_letter_topic=config[DEAD_LETTER_TOPIC] or None,
            dead_letter_replication_factor=config[DEAD_LETTER_REPLICATION],
            context_headers=config[DEAD_LETTER_CONTEXT],
            max_rate=config[MAX_RATE],
            max_rate_window_ms=config[MAX_RATE_WINDOW_MS],
        )


def error_faults(config: Mapping[str, Any]) -> list[Violation]:
    """Faults that several settings of a parsed config show together."""
    topic = config.get(DEAD_LETTER_TOPIC)
    if topic and topic in (config.get("topics") or ()):
        return [
            Violation(
                DEAD_LETTER_TOPIC,
                f"must not be a topic that the connector reads itself, as {topic} is",
            )
        ]
    return []
