"""The settings of embedded topics: some of Kafka's, with the same syntax and meaning."""

from collections.abc import Mapping
from dataclasses import dataclass

from drover.errors import InvalidArgumentError, Violation
from drover.model.times import DAY_MS

CLEANUP_POLICY = "cleanup.policy"
DELETE_RETENTION_MS = "delete.retention.ms"
MIN_COMPACTION_LAG_MS = "min.compaction.lag.ms"
RETENTION_BYTES = "retention.bytes"
RETENTION_MS = "retention.ms"

COMPACT, DELETE = "compact", "delete"
#: Kafka's defaults.
_DEFAULTS = {CLEANUP_POLICY: DELETE, DELETE_RETENTION_MS: str(DAY_MS), MIN_COMPACTION_LAG_MS: "0"}
#: The least value of each number; -1 is no limit.
_LEAST = {DELETE_RETENTION_MS: 0, MIN_COMPACTION_LAG_MS: 0, RETENTION_BYTES: -1, RETENTION_MS: -1}
NAMES = (CLEANUP_POLICY, *sorted(_LEAST))
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic.

    Attributes:
        deletes: Whether old records are deleted; ``retention_ms`` and ``retention_bytes`` have no
            effect otherwise.
        compacts: Whether only the latest record of each key is kept.
        retention_ms: The age at which records are deleted; None for no limit.
        retention_bytes: The size of a partition above which its oldest records are deleted; None
            for no limit.
        delete_retention_ms: How long compaction keeps a tombstone after the first pass that has
            seen it.
        min_compaction_lag_ms: The age that a record has to reach before it is compacted.
    """

    deletes: bool
    compacts: bool
    retention_ms: int | None
    retention_bytes: int | None
    delete_retention_ms: int
    min_compaction_lag_ms: int

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "TopicSettings":
        """Parse valid settings."""
        values = {**_DEFAULTS, **settings}
        policies = _policies(values[CLEANUP_POLICY])
        return cls(
            deletes=DELETE in policies,
            compacts=COMPACT in policies,
            retention_ms=_limit(values.get(RETENTION_MS)),
            retention_bytes=_limit(values.get(RETENTION_BYTES)),
            delete_retention_ms=int(values[DELETE_RETENTION_MS]),
            min_compaction_lag_ms=int(values[MIN_COMPACTION_LAG_MS]),
        )


def compacts(settings: Mapping[str, str]) -> bool:
    """Whether a topic with these settings, of Kafka or embedded, keeps the latest record of each
    key, so that every record needs a key.
    """
    return COMPACT in _policies(settings.get(CLEANUP_POLICY, DELETE))


def setting_fault(name: str, value: str) -> str:
    """The violation by a setting of an embedded topic; empty for a valid one."""
    if name == CLEANUP_POLICY:
        policies = _policies(value)
        if policies and policies <= {COMPACT, DELETE}:
            return ""
        return f"must be {DELETE}, {COMPACT} or {COMPACT},{DELETE}, not {value[:80]!r}"
    least = _LEAST.get(name)
    if least is None:
        return (
            f"is not possible in embedded storage, whose topics have the settings "
            f"{', '.join(NAMES[:-1])} and {NAMES[-1]}: remove it"
        )
    unit = "bytes" if name == RETENTION_BYTES else "milliseconds"
    try:
        number = int(value)
    except ValueError:
        number = _MOST + 1
    if least <= number <= _MOST and value.isascii() and "_" not in value:
        return ""
    unlimited = ", or -1 for no limit" if least < 0 else ""
    return f"must be a whole number of {unit} from 0 to {_MOST}{unlimited}, not {value[:80]!r}"


def require_valid(topic: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new topic, without blanks around the values.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault.
    """
    stripped = {name: value.strip() for name, value in settings.items()}
    faults = [
        Violation(name, f"{fault} (topic {topic})")
        for name, value in sorted(stripped.items())
        if (fault := setting_fault(name, value))
    ]
    if faults:
        raise InvalidArgumentError.listing(faults)
    return stripped


def with_defaults(own: Mapping[str, str], cluster: Mapping[str, str]) -> dict[str, str]:
    """Every setting of a topic: its own, else the cluster's, else Kafka's default."""
    unlimited = {RETENTION_BYTES: "-1", RETENTION_MS: "-1"}
    return dict(sorted({**unlimited, **_DEFAULTS, **cluster, **own}.items()))


def _policies(text: str) -> set[str]:
    return {each.strip() for each in text.split(",") if each.strip()}


def _limit(text: str | None) -> int | None:
    return None if text is None or int(text) < 0 else int(text)
