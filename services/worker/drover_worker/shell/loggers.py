"""The loggers of a worker, of its herder and of its engine: shown, and set while they run.

Levels do not outlive the worker. What was set since it began each of its engines is told, when it
starts and when something changes. The config log holds the levels that were set for the whole
cluster, and is shared with Kafka Connect: its loggers are Java's, and none of ours (KIP-976).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from drover.errors import DroverError, InvalidArgumentError, Violation
from drover.model.config import LoggerLevelSet
from drover_worker.core import events
from drover_worker.shell.process_loggers import (
    LoggerState,
    ProcessLoggers,
    is_under,
    level_violations,
)

#: So many are remembered for the engine; the one that was set first is forgotten first.
REMEMBERED_MAX = 1_000
#: What the config log says, which Kafka Connect has to understand.
_SHARED_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}

_log = structlog.get_logger("drover.worker")


class EngineLoggers(Protocol):
    """What is asked of the engine; EngineLink does it. Each call raises DroverError."""

    async def list_loggers(self) -> Sequence[LoggerState]:
        """The loggers of the engine's process, by name."""

    async def set_logger_levels(self, levels: Mapping[str, str]) -> Sequence[str]:
        """Set levels in order; returns the names of the loggers that changed."""


def shared_level(level: str) -> str:
    """A level as the config log says it."""
    return _SHARED_NAMES.get(level.upper(), level.upper())


class Loggers:
    """Lists and sets the loggers of this worker's two processes."""

    def __init__(self, now_ms: Callable[[], int], engine: EngineLoggers) -> None:
        self._own = ProcessLoggers(now_ms)
        self._engine = engine
        #: What every engine has to hear at its start, in order.
        self._levels: dict[str, str] = {}
        #: What the present one has still to hear.
        self._untold: dict[str, str] = {}
        self._news = asyncio.Event()
        #: What the config log has said so far; None before it was read.
        self._shared: Mapping[str, str] | None = None

    async def states(self) -> list[LoggerState]:
        """The loggers of both processes by name; the herder's where both have one.

        The herder's alone while the engine does not answer.
        """
        found = {state.name: state for state in await self._engine_states()}
        found.update((state.name, state) for state in self._own.states())
        return [found[name] for name in sorted(found)]

    async def check(self, name: str, level: str) -> None:
        """Refuse a logger or level that there is not.

        Raises:
            InvalidArgumentError: INVALID_REQUEST with each violation.
        """
        violations = []
        if not await self._has(name):
            text = f"there is no logger {name!r} here: `drover logger list` shows those there are"
            violations.append(Violation("name", text))
        violations += level_violations(level)
        if violations:
            raise InvalidArgumentError.listing(violations)

    async def set_level(self, name: str, level: str) -> Sequence[str]:
        """Set the level of a logger and of those below it; returns those that changed.

        An engine that does not answer hears of it when it takes commands again.

        Raises:
            InvalidArgumentError: As ``check``.
        """
        await self.check(name, level)
        changed = set(self._apply(name, level))
        with suppress(DroverError):
            changed |= {each for each in await self._tell_engine() if is_under(each, name)}
        return sorted(changed)

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

    def engine_started(self) -> None:
        """There is a new engine, whose loggers are as its settings say."""
        self._untold = dict(self._levels)
        self._news.set()

    async def run(self) -> None:
        """Tell the engine of levels, for ever."""
        while True:
            await self._news.wait()
            try:
                await self._tell_engine()
            except DroverError as error:  # it has them in its queue, or the next one is told all
                _log.info("levels of loggers may have missed the engine", why=error.message)

    def _follow(self, name: str, level: str) -> None:
        if not name or level_violations(level):
            _log.debug("a logger's level is for others", logger_name=name, logger_level=level)
            return
        changed = self._apply(name, level)
        _log.info("loggers were set for the cluster", names=list(changed), logger_level=level)

    def _apply(self, name: str, level: str) -> Sequence[str]:
        """Set it here, where there is such a logger, and have the engine told."""
        for levels in (self._levels, self._untold):
            for each in [known for known in levels if is_under(known, name)]:
                del levels[each]  # the later one counts
            levels[name] = level.upper()
            if len(levels) > REMEMBERED_MAX:
                del levels[next(iter(levels))]
        self._news.set()
        return self._own.set_level(name, level) if self._own.has(name) else ()

    async def _tell_engine(self) -> Sequence[str]:
        """Tell the engine what it has not heard; returns the loggers there that changed."""
        untold, self._untold = self._untold, {}
        self._news.clear()
        return await self._engine.set_logger_levels(untold) if untold else ()

    async def _has(self, name: str) -> bool:
        if self._own.has(name):
            return True
        return any(name and is_under(each.name, name) for each in await self._engine_states())

    async def _engine_states(self) -> Sequence[LoggerState]:
        try:
            return await self._engine.list_loggers()
        except DroverError as error:
            _log.info("the engine's loggers are not known", why=error.message)
            return ()
