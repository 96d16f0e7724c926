"""The settings for the replay of a connector's dead letters."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import Check
from drover.errors import Violation
from drover.model.dead_letters import (
    DEAD_LETTER_TOPIC,
    REPLAY,
    REPLAY_FORCE,
    REPLAY_ID,
    REPLAY_WHERE,
    ReplayRange,
    parse_ranges,
)
from drover.transform.conditions import Condition

_ID = re.compile(r"[0-9a-f]{8}(:[A-Za-z0-9_-]{0,22})?")


@dataclass(frozen=True, slots=True)
class Replay:
    """The dead letters that a connector processes again: the ones in the ranges that meet the
    conditions.

    A committed offset of the connector records the progress, as for any topic partition.

    Attributes:
        topic: The dead letter queue.
        ranges: The dead letters.
        conditions: Conditions for them.
        id: Identifies the replay: the progress of another replay does not count. Empty for ranges
            that were written by hand, which are checked for nothing.
        topic_id: The id of the queue with these dead letters; empty if unknown.
        skips_newer: Whether dead letters that would overwrite newer data are not written.
    """

    topic: str
    ranges: Sequence[ReplayRange]
    conditions: Sequence[Condition]
    id: str = ""
    topic_id: str = ""
    skips_newer: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Replay | None":
        """The replay of a parsed config; None if there is none."""
        topic, ranges = config[DEAD_LETTER_TOPIC], parse_ranges(config[REPLAY])
        if not topic or not ranges:
            return None
        replay_id, _, topic_id = config[REPLAY_ID].partition(":")
        return cls(
            topic,
            ranges,
            parse_conditions(config[REPLAY_WHERE]),
            replay_id,
            topic_id,
            skips_newer=bool(replay_id) and not config[REPLAY_FORCE],
        )


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of a setting, one per line.

    Raises:
        ValueError: A line is not a condition.
    """
    return tuple(Condition(line) for line in text.splitlines() if line.strip())


def _id_fault(text: str) -> str | None:
    if not text or _ID.fullmatch(text):
        return None
    return "must have 8 hexadecimal digits and optionally the id of the dead letter queue"


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
        "partition:from-to of the dead letter queue, without the one at the offset `to`, separated "
        "by commas. `drover dlq replay` "
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
    ConfigKey(
        REPLAY_ID,
        ConfigType.STRING,
        default="",
        group="Errors",
        documentation="Identifies the replay and its dead letter queue. `drover dlq replay` writes "
        "this setting. Empty for ranges that were set by hand: they are replayed unchecked.",
        validator=Check(_id_fault),
    ),
    ConfigKey(
        REPLAY_FORCE,
        ConfigType.BOOLEAN,
        default=False,
        group="Errors",
        documentation="Whether dead letters are replayed even if they overwrite newer data. "
        "`drover dlq replay --force` writes this setting.",
    ),
)


def replay_faults(config: Mapping[str, Any]) -> list[Violation]:
    """Violations of rules that involve several settings of a parsed config."""
    if config.get(REPLAY) and not config.get(DEAD_LETTER_TOPIC):
        return [Violation(REPLAY, f"needs {DEAD_LETTER_TOPIC}, which is not set")]
    return []
