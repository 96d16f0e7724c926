"""A source's exactly-once settings, with Kafka Connect's names (KIP-618)."""

from collections.abc import Mapping
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import All, Check, InRange, NonEmpty, OneOf
from drover.connector.connector import Connector, Guarantee
from drover.connector.source import SourceConnector
from drover.dataplane.topics import name_fault
from drover.errors import Violation
from drover.model.config import OFFSETS_TOPIC_SETTING
from drover.model.times import DAY_MS

EXACTLY_ONCE_SUPPORT = "exactly.once.support"
TRANSACTION_BOUNDARY = "transaction.boundary"
TRANSACTION_BOUNDARY_INTERVAL_MS = "transaction.boundary.interval.ms"
REQUESTED, REQUIRED = "requested", "required"
POLL, INTERVAL = "poll", "interval"

_GROUP = "Exactly once"

EXACTLY_ONCE_SETTINGS = ConfigDef(
    ConfigKey(
        EXACTLY_ONCE_SUPPORT,
        ConfigType.STRING,
        default=REQUESTED,
        group=_GROUP,
        documentation="With required, validation rejects the config if records would not be "
        "delivered exactly once: because of the connector's guarantee, or of the worker's setting "
        "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT.",
        validator=OneOf(REQUESTED, REQUIRED),
    ),
    ConfigKey(
        TRANSACTION_BOUNDARY,
        ConfigType.STRING,
        default=POLL,
        group=_GROUP,
        documentation="On Kafka: whether each batch is a transaction (poll), or all batches within "
        "an interval are one (interval).",
        validator=OneOf(POLL, INTERVAL),
    ),
    ConfigKey(
        TRANSACTION_BOUNDARY_INTERVAL_MS,
        ConfigType.INT,
        default=60_000,
        group=_GROUP,
        documentation="The duration of a transaction with transaction.boundary=interval. Readers "
        "see records up to this much later.",
        validator=InRange(1, DAY_MS),
    ),
    ConfigKey(
        OFFSETS_TOPIC_SETTING,
        ConfigType.STRING,
        default=None,
        group=_GROUP,
        documentation="On Kafka: a compacted topic that also stores the source's offsets, in the "
        "same transactions as the workers' offsets topic, for users without access to that one. "
        "Drover creates it if it does not exist.",
        validator=All(NonEmpty(), Check(lambda topic: name_fault(topic) or None)),
    ),
)


def exactly_once_faults(
    connector_class: type[Connector], config: Mapping[str, Any]
) -> list[Violation]:
    """Violations by exactly-once settings that the connector's class does not support."""
    if not issubclass(connector_class, SourceConnector):
        return []
    faults = []
    guarantees = connector_class.guarantees
    if config.get(EXACTLY_ONCE_SUPPORT) == REQUIRED and (
        guarantees is None or guarantees.kafka is not Guarantee.EXACTLY_ONCE
    ):
        faults.append(
            Violation(
                EXACTLY_ONCE_SUPPORT,
                f"cannot be {REQUIRED}: the connector does not declare exactly once (guarantees)",
            )
        )
    task_class = getattr(connector_class, "task_class", None)
    if config.get(TRANSACTION_BOUNDARY) == INTERVAL and not getattr(
        task_class, "reads_ahead", False
    ):
        faults.append(
            Violation(
                TRANSACTION_BOUNDARY,
                f"cannot be {INTERVAL}: the connector returns the next batch only after the "
                "previous one is committed",
            )
        )
    return faults
