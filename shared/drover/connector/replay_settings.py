"""Which dead letters of a connector are to go through it once more."""

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
    """Letters that go through a connector once more: those of the ranges that meet the conditions.

    How far it came is a committed offset of the connector, as of any topic partition: what is below
    it is not read again, whatever the ranges say.
    """

    topic: str
    ranges: Sequence[ReplayRange]
    conditions: Sequence[Condition]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Replay | None":
        """That of a parsed config; None for none."""
        topic, ranges = config[DEAD_LETTER_TOPIC], parse_ranges(config[REPLAY])
        if not topic or not ranges:
            return None
        return cls(topic, ranges, parse_conditions(config[REPLAY_WHERE]))


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of a setting, one a line.

    Raises:
        ValueError: one is none.
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
        documentation="Dead letters that go through the connector once more: partition:from-to of "
        "their topic, with commas between. `drover dlq replay` writes it; what was replayed is "
        "committed and is not replayed again.",
        validator=Check(lambda text: _fault(parse_ranges, text)),
    ),
    ConfigKey(
        REPLAY_WHERE,
        ConfigType.STRING,
        default="",
        group="Errors",
        documentation="Conditions on those letters, one a line, which all have to hold; others are "
        "passed over.",
        validator=Check(lambda text: _fault(parse_conditions, text)),
    ),
)


def replay_faults(config: Mapping[str, Any]) -> list[Violation]:
    """Faults that several settings of a parsed config show together."""
    if config.get(REPLAY) and not config.get(DEAD_LETTER_TOPIC):
        return [Violation(REPLAY, f"needs {DEAD_LETTER_TOPIC}, which is not set")]
    return []
