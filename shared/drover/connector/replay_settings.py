"""The settings for the replay of a connector's dead letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import Check
from drover.errors import Violation
from drover.model.dead_letters import (
    DEAD_LETTER_TOPIC,
    REPLAY,
    REPLAY_WHERE,
    ReplayRange,
    parse_ranges,
)
from drover.transform.conditions import Condition


@dataclass(frozen=True, slots=True)
class Replay:
    """The dead letters that a connector processes again: the ones in the ranges that meet the
    conditions.

    A committed offset of the connector records the progress, as for any topic partition. Dead
    letters below it are not read again, whatever the ranges are.
    """

    topic: str
    ranges: Sequence[ReplayRange]
    conditions: Sequence[Condition]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Replay | None":
        """The replay of a parsed config; None if there is none."""
        topic, ranges = config[DEAD_LETTER_TOPIC], parse_ranges(config[REPLAY])
        if not topic or not ranges:
            return None
        return cls(topic, ranges, parse_conditions(config[REPLAY_WHERE]))


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of a setting, one per line.

    Raises:
        ValueError: A line is not a condition.
    """
    return tuple(Condition(line) for line in text.splitlines() if line.strip())


def _fault(parse: Any, text: str) -> str | None:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return None


REPLAY_SETTINGS = ConfigDef(
    ConfigKey(
        REPLAY,
        ConfigType.STRING,
        default="",
        group="Errors",
        documentation="Ranges of dead letters that the connector processes again: "
        "partition:from-to of the dead letter queue, separated by commas. `drover dlq replay` "
        "writes this setting. The progress is committed, and dead letters are not replayed twice.",
        validator=Check(lambda text: _fault(parse_ranges, text)),
    ),
    ConfigKey(
        REPLAY_WHERE,
        ConfigType.STRING,
        default="",
        group="Errors",
        documentation="Conditions that a replayed dead letter has to meet, all of them, one per "
        "line. Other dead letters are skipped.",
        validator=Check(lambda text: _fault(parse_conditions, text)),
    ),
)


def replay_faults(config: Mapping[str, Any]) -> list[Violation]:
    """Violations of rules that involve several settings of a parsed config."""
    if config.get(REPLAY) and not config.get(DEAD_LETTER_TOPIC):
        return [Violation(REPLAY, f"needs {DEAD_LETTER_TOPIC}, which is not set")]
    return []
