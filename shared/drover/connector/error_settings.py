"""The settings for records that fail (KIP-298)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.recommender import visible_with
from drover.config.validators import Check, InRange, OneOf
from drover.dataplane.topic_creation import TopicRule
from drover.dataplane.topics import name_fault
from drover.errors import Violation
from drover.log.storage import REPLICATION_FACTOR
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.times import DAY_MS

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
#: Kafka's protocol has 16 bits for it.
_REPLICATION_MAX = 32_767


def _topic_fault(topic: str) -> str | None:
    return (name_fault(topic) or None) if topic else None


def _replication_fault(factor: int) -> str | None:
    if factor == -1 or 1 <= factor <= _REPLICATION_MAX:
        return None
    return f"must be 1 to {_REPLICATION_MAX}, or -1 for the cluster's default, not {factor}"


#: Validator for a replication factor.
REPLICATION = Check(_replication_fault)

ERROR_SETTINGS = ConfigDef(
    ConfigKey(
        TOLERANCE,
        ConfigType.STRING,
        default="none",
        group=_GROUP,
        documentation="What happens if a record cannot be converted or transformed: the task fails "
        "(none), or the record is dropped and written to the dead letter queue, if there is one "
        "(all).",
        validator=OneOf("none", "all"),
    ),
    ConfigKey(
        RETRY_TIMEOUT,
        ConfigType.LONG,
        default=0,
        group=_GROUP,
        documentation="For how many milliseconds a batch is retried after a transient error "
        "(RetriableError); -1 for no limit.",
        validator=InRange(-1),
    ),
    ConfigKey(
        RETRY_DELAY_MAX_MS,
        ConfigType.LONG,
        default=60_000,
        group=_GROUP,
        documentation="The maximum back-off between two retries of a batch; it starts at 300 ms "
        "and doubles.",
        validator=InRange(-1),
    ),
    ConfigKey(
        LOG_ENABLE,
        ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        documentation="Whether each dropped record is logged with its position and the error.",
    ),
    ConfigKey(
        LOG_MESSAGES,
        ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        documentation="Whether the log includes the record's key and value.",
    ),
    ConfigKey(
        DEAD_LETTER_TOPIC,
        ConfigType.STRING,
        default="",
        group=_GROUP,
        documentation="The dead letter queue: the topic for the original dropped records, of sinks "
        "and of sources; empty for none.",
        validator=Check(_topic_fault),
    ),
    ConfigKey(
        DEAD_LETTER_REPLICATION,
        ConfigType.INT,
        default=3,
        group=_GROUP,
        documentation="The replication factor with which Drover creates the dead letter queue on "
        "Kafka; -1 for the cluster's default.",
        validator=REPLICATION,
        recommender=visible_with(DEAD_LETTER_TOPIC),
    ),
    ConfigKey(
        DEAD_LETTER_CONTEXT,
        ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        documentation="Whether dead letters get headers with their origin and the error: "
        "__connect.errors.topic, .partition, .offset, .stage, .exception.message, ...",
        recommender=visible_with(DEAD_LETTER_TOPIC),
    ),
    ConfigKey(
        MAX_RATE,
        ConfigType.DOUBLE,
        default=1.0,
        group=_GROUP,
        documentation="The maximum fraction of dropped records over errors.max.rate.window.ms; "
        "above it the task fails. Checked from 100 records on.",
        validator=InRange(0.0, 1.0),
    ),
    ConfigKey(
        MAX_RATE_WINDOW_MS,
        ConfigType.LONG,
        default=60_000,
        group=_GROUP,
        documentation="The window over which errors.max.rate is measured.",
        validator=InRange(1_000, DAY_MS),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSettings:
    """The parsed settings; see their documentation."""

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

    @property
    def dead_letter_rule(self) -> TopicRule:
        """How the topic of dead letters is created."""
        settings = {REPLICATION_FACTOR: DEAD_LETTER_REPLICATION}
        return TopicRule(1, self.dead_letter_replication_factor, settings=settings)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ErrorSettings":
        """The settings in a parsed config."""
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
    """Violations of rules that involve several settings of a parsed config."""
    topic = config.get(DEAD_LETTER_TOPIC)
    if topic and topic in (config.get("topics") or ()):
        return [
            Violation(
                DEAD_LETTER_TOPIC,
                f"must not be {topic}, which the connector reads itself",
            )
        ]
    return []
