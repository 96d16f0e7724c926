"""The loggers of one process, herder or engine: lists them and sets their levels."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drover.errors import InvalidArgumentError, Violation

ROOT = "root"
_OFF = logging.CRITICAL + 10
#: Level names of Python and of Kafka Connect.
LEVELS: Mapping[str, int] = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "OFF": _OFF,
}


@dataclass(frozen=True, slots=True)
class LoggerState:
    """A logger, its effective level, and when that was last set here; None for never."""

    name: str
    level: str
    changed_ms: int | None


class ProcessLoggers:
    """Lists and sets the loggers of this process."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._changed_ms: dict[str, int] = {}
        logging.getLogger("drover")  # creates a common ancestor to set

    def states(self) -> list[LoggerState]:
        """All loggers, sorted by name; the root logger is "root"."""
        return [
            LoggerState(name, _level_name(logger.getEffectiveLevel()), self._changed_ms.get(name))
            for name, logger in sorted(_loggers().items())
        ]

    def has(self, name: str) -> bool:
        """Whether the logger or a descendant exists."""
        return bool(_named(name))

    def set_level(self, name: str, level: str) -> Sequence[str]:
        """Set the level of a logger and of its descendants; returns those that changed.

        A missing logger is created; descendants created later inherit its level.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, the level is unknown.
        """
        violations = level_violations(level)
        if violations:
            raise InvalidArgumentError.listing(violations)
        changed = []
        number = LEVELS[level.upper()]
        if name not in ("", ROOT):
            logging.getLogger(name)
        for each in _named(name):
            logger = logging.getLogger(None if each == ROOT else each)
            if logger.level != number:
                logger.setLevel(number)
                self._changed_ms[each] = self._now_ms()
                changed.append(each)
        return changed


def level_violations(level: str) -> list[Violation]:
    """The violation of an unknown level; empty for a valid one."""
    if level.upper() in LEVELS:
        return []
    return [Violation("level", f"{level!r} must be one of {', '.join(LEVELS)}")]


def is_under(name: str, ancestor: str) -> bool:
    """Whether setting ``ancestor`` also sets ``name``; the root has no descendants here."""
    return name == ancestor or (ancestor != ROOT and name.startswith(f"{ancestor}."))


def _loggers() -> dict[str, logging.Logger]:
    root = logging.getLogger()
    named = list(root.manager.loggerDict.items())  # another thread may add one
    return {ROOT: root} | {
        name: logger for name, logger in named if isinstance(logger, logging.Logger)
    }


def _named(name: str) -> list[str]:
    """The logger and its descendants, as far as they exist."""
    return sorted(each for each in _loggers() if name and is_under(each, name))


def _level_name(number: int) -> str:
    return "OFF" if number >= _OFF else logging.getLevelName(number)
