"""What a source's config says of exactly once, under Kafka Connect's names (KIP-618)."""

from collections.abc import Mapping
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import All, Check, InRange, NonEmpty, OneOf
from drover.connector.connector import Connector, Guarantee
from drover.connector.source import SourceConnector
from drover.dataplane.topics import name_fault
from drover.errors import Violation
from drover.model.config import OFFSETS_TOPIC_SETTING

EXACTLY_ONCE_SUPPORT = "exactly.once.support"
TRANSACTION_BOUNDARY = "transaction.boundary"
TRANSACTION_BOUNDARY_INTERVAL_MS = "transaction.boundary.interval.ms"
REQUESTED, REQUIRED = "requested", "required"
POLL, INTERVAL = "poll", "interval"

_GROUP = "Exactly once"
_DAY_MS = 86_400_000

EXACTLY_ONCE_SETTINGS = ConfigDef(
    ConfigKey(
        EXACTLY_ONCE_SUPPORT,
        ConfigType.STRING,
        default=REQUESTED,
        group=_GROUP,
        documentation="With required the config is refused where records would not be delivered "
        "exactly once: by the connector's guarantee, or as workers are told "
        "(DROVER_EXACTLY_ONCE_SOURCE_SUPPORT).",
        validator=OneOf(REQUESTED, REQUIRED),
    ),
    ConfigKey(
        TRANSACTION_BOUNDARY,
        ConfigType.STRING,
        default=POLL,
        group=_GROUP,
        documentation="On Kafka: whether each batch is a transaction (poll), or all that come "
        "within an interval.",
        validator=OneOf(POLL, INTERVAL),
    ),
    ConfigKey(
        TRANSACTION_BOUNDARY_INTERVAL_MS,
        ConfigType.INT,
        default=60_000,
        group=_GROUP,
        documentation="How long a transaction gathers batches with transaction.boundary=interval; "
        "records are seen so much later.",
        validator=InRange(1, _DAY_MS),
    ),
    ConfigKey(
        OFFSETS_TOPIC_SETTING,
        ConfigType.STRING,
        default=None,
        group=_GROUP,
        documentation="On Kafka: a compacted topic in which the source's offsets are as well as in "
        "the workers' topic, in the same transactions, for users who may not read that one. It is "
        "made if it is missing.",
        validator=All(NonEmpty(), Check(lambda topic: name_fault(topic) or None)),
    ),
)


def exactly_once_faults(
    connector_class: type[Connector], config: Mapping[str, Any]
) -> list[Violation]:
    """What the connector's class cannot do of it."""
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
                f"cannot be {REQUIRED}: the connector does not say that it can (its guarantees)",
            )
        )
    task_class = getattr(connector_class, "task_class", None)
    if config.get(TRANSACTION_BOUNDARY) == INTERVAL and not getattr(
        task_class, "reads_ahead", False
    ):
        faults.append(
            Violation(
                TRANSACTION_BOUNDARY,
                f"cannot be {INTERVAL}: the connector gives the next batch only when the one "
                "before is committed",
            )
        )
    return faults
