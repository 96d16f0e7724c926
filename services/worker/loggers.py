"""The loggers of a worker's process: shown, and set while it runs, alone or on every worker.

Levels do not outlive the process. The config log holds those that were set for the whole cluster,
and is shared with Kafka Connect: its loggers are Java's, and none of ours (KIP-976).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from drover.errors import InvalidArgumentError, Violation
from drover.model.config import LoggerLevelSet
from services.worker.core import events

ROOT = "root"
_OFF = logging.CRITICAL + 10
#: As they are said here, and as Kafka Connect says them.
_LEVELS: Mapping[str, int] = {
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
#: What the config log says, which Kafka Connect has to understand.
_SHARED_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}

_log = structlog.get_logger("drover.worker")


@dataclass(frozen=True, slots=True)
class LoggerState:
    """A logger, the level that counts for it, and when that was last set here; None for never."""

    name: str
    level: str
    changed_ms: int | None


def shared_level(level: str) -> str:
    """A level as the config log says it."""
    return _SHARED_NAMES.get(level.upper(), level.upper())


class Loggers:
    """Lists and sets the loggers of this process."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._changed_ms: dict[str, int] = {}
        #: What the config log has said so far; None before it was read.
        self._shared: Mapping[str, str] | None = None
        logging.getLogger("drover")  # so that there is one to set for all of them

    def states(self) -> list[LoggerState]:
        """Every logger there is, by name; the root is "root"."""
        return [
            LoggerState(name, _level_name(logger.getEffectiveLevel()), self._changed_ms.get(name))
            for name, logger in sorted(_loggers().items())
        ]

    def check(self, name: str, level: str) -> None:
        """Refuse a logger or level that there is not.

        Raises:
            InvalidArgumentError: INVALID_REQUEST with each violation.
        """
        violations = []
        if not _named(name):
            text = f"there is no logger {name!r} here: `drover logger list` shows those there are"
            violations.append(Violation("name", text))
        if level.upper() not in _LEVELS:
            violations.append(Violation("level", f"{level!r} is none of {', '.join(_LEVELS)}"))
        if violations:
            raise InvalidArgumentError.listing(violations)

    def set_level(self, name: str, level: str) -> Sequence[str]:
        """Set the level of a logger and of those below it; returns those that changed.

        Raises:
            InvalidArgumentError: As ``check``.
        """
        self.check(name, level)
        changed = []
        number = _LEVELS[level.upper()]
        for each in _named(name):
            logger = logging.getLogger(None if each == ROOT else each)
            if logger.level != number:
                logger.setLevel(number)
                self._changed_ms[each] = self._now_ms()
                changed.append(each)
        return changed

    def observe(self, event: events.HerderEvent) -> None:
        """Follow what the config log says of loggers, from when this process began on."""
        match event:
            case events.ConfigsLoaded(snapshot):
                known, self._shared = self._shared, dict(snapshot.logger_levels)
                if known is not None:  # the watch was away for long: what it missed
                    for name, level in self._shared.items():
                        if known.get(name) != level:
                            self._follow(name, level)
            case events.ConfigsChanged(changes):
                for each in changes:
                    if isinstance(each.change, LoggerLevelSet):
                        self._shared = {
                            **(self._shared or {}),
                            each.change.logger: each.change.level,
                        }
                        self._follow(each.change.logger, each.change.level)
            case _:
                pass

    def _follow(self, name: str, level: str) -> None:
        if not _named(name) or level.upper() not in _LEVELS:
            _log.debug("a logger's level is for others", logger_name=name, logger_level=level)
            return
        changed = self.set_level(name, level)
        _log.info("loggers were set for the cluster", names=list(changed), logger_level=level)


def _loggers() -> dict[str, logging.Logger]:
    root = logging.getLogger()
    named = list(root.manager.loggerDict.items())  # another thread may add one
    return {ROOT: root} | {
        name: logger for name, logger in named if isinstance(logger, logging.Logger)
    }


def _named(name: str) -> list[str]:
    """A logger and those below it; empty when there is none of that name, nor any below it."""
    if name == ROOT:
        return [ROOT]
    return sorted(
        each for each in _loggers() if name and (each == name or each.startswith(f"{name}."))
    )


def _level_name(number: int) -> str:
    return "OFF" if number >= _OFF else logging.getLevelName(number)
