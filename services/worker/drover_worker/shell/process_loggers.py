"""The loggers of one process, a herder's or an engine's: shown, and set while it runs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drover.errors import InvalidArgumentError, Violation

ROOT = "root"
_OFF = logging.CRITICAL + 10
#: As they are said here, and as Kafka Connect says them.
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
    """A logger, the level that counts for it, and when that was last set here; None for never."""

    name: str
    level: str
    changed_ms: int | None


class ProcessLoggers:
    """Lists and sets the loggers of this process."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._changed_ms: dict[str, int] = {}
        logging.getLogger("drover")  # so that there is one to set for all of them

    def states(self) -> list[LoggerState]:
        """Every logger there is, by name; the root is "root"."""
        return [
            LoggerState(name, _level_name(logger.getEffectiveLevel()), self._changed_ms.get(name))
            for name, logger in sorted(_loggers().items())
        ]

    def has(self, name: str) -> bool:
        """Whether there is a logger of that name, or one below it."""
        return bool(_named(name))

    def set_level(self, name: str, level: str) -> Sequence[str]:
        """Set the level of a logger and of those below it; returns those that changed.

        One that there is not is made: those that are made below it later follow it.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, there is no such level.
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
    """What is wrong with a level; empty when there is such a one."""
    if level.upper() in LEVELS:
        return []
    return [Violation("level", f"{level!r} is none of {', '.join(LEVELS)}")]


def is_under(name: str, ancestor: str) -> bool:
    """Whether a level that is set for ``ancestor`` is set for ``name`` too; the root is alone."""
    return name == ancestor or (ancestor != ROOT and name.startswith(f"{ancestor}."))


def _loggers() -> dict[str, logging.Logger]:
    root = logging.getLogger()
    named = list(root.manager.loggerDict.items())  # another thread may add one
    return {ROOT: root} | {
        name: logger for name, logger in named if isinstance(logger, logging.Logger)
    }


def _named(name: str) -> list[str]:
    """A logger and those below it; empty when there is none of that name, nor any below it."""
    return sorted(each for each in _loggers() if name and is_under(each, name))


def _level_name(number: int) -> str:
    return "OFF" if number >= _OFF else logging.getLevelName(number)
