"""The loggers of a worker's two processes, herder and engine: lists them and sets their levels.

Levels do not survive the worker. Each new engine receives all levels set since the worker started;
a running one receives each change. The config log has the levels for the whole cluster; Kafka
Connect shares it, and its logger names are those of Java classes (KIP-976).
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

#: How many levels are kept for the engine; the oldest is dropped first.
REMEMBERED_MAX = 1_000
#: Level names in the config log, which Kafka Connect must understand.
_SHARED_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}

_log = structlog.get_logger("drover.worker")


class EngineLoggers(Protocol):
    """The engine's loggers; EngineLink implements it. Each call raises DroverError."""

    async def list_loggers(self) -> Sequence[LoggerState]:
        """The loggers of the engine's process, by name."""

    async def set_logger_levels(self, levels: Mapping[str, str]) -> Sequence[str]:
        """Set levels in order; returns the names of the loggers that changed."""


def shared_level(level: str) -> str:
    """The level's name in the config log."""
    return _SHARED_NAMES.get(level.upper(), level.upper())


class Loggers:
    """Lists and sets the loggers of this worker's two processes."""

    def __init__(self, now_ms: Callable[[], int], engine: EngineLoggers) -> None:
        self._own = ProcessLoggers(now_ms)
        self._engine = engine
        #: Levels for every new engine, in order.
        self._levels: dict[str, str] = {}
        #: Levels to send to the current engine.
        self._unsent: dict[str, str] = {}
        self._changed = asyncio.Event()
        #: The levels in the config log; None before it was read.
        self._shared: Mapping[str, str] | None = None

    async def states(self) -> list[LoggerState]:
        """The loggers of both processes, sorted by name; the herder's if both have one.

        Only the herder's while the engine does not answer.
        """
        found = {state.name: state for state in await self._engine_states()}
        found.update((state.name, state) for state in self._own.states())
        return [found[name] for name in sorted(found)]

    async def check(self, name: str, level: str, elsewhere: Sequence[str] = ()) -> None:
        """Reject an unknown logger or level; ``elsewhere`` has the loggers of other workers.

        Raises:
            InvalidArgumentError: INVALID_REQUEST with each violation.
        """
        violations = []
        known = name and any(is_under(each, name) for each in elsewhere)
        if not known and not await self.has(name):
            where = "any worker" if elsewhere else "this worker"
            text = f"no logger {name!r} exists on {where}: `drover logger list` shows the loggers"
            violations.append(Violation("name", text))
        violations += level_violations(level)
        if violations:
            raise InvalidArgumentError.listing(violations)

    async def set_level(self, name: str, level: str) -> Sequence[str]:
        """Set the level of a logger and of its descendants; returns those that changed.

        An engine that does not answer receives the level when it takes commands again.

        Raises:
            InvalidArgumentError: As ``check``.
        """
        await self.check(name, level)
        changed = set(self._apply(name, level))
        with suppress(DroverError):
            changed |= {each for each in await self._send_levels() if is_under(each, name)}
        return sorted(changed)

    def observe(self, event: events.HerderEvent) -> None:
        """Apply logger levels from the config log that are set after this process started."""
        match event:
            case events.ConfigsLoaded(snapshot):
                known, self._shared = self._shared, dict(snapshot.logger_levels)
                if known is not None:  # apply the changes missed since the last snapshot
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
        """A new engine started; its loggers have the levels of its settings."""
        self._unsent = dict(self._levels)
        self._changed.set()

    async def run(self) -> None:
        """Send levels to the engine, until cancelled."""
        while True:
            await self._changed.wait()
            try:
                await self._send_levels()
            except DroverError as error:  # the levels are queued, or the next engine gets all
                _log.info("logger levels may not have reached the engine", why=error.message)

    def _follow(self, name: str, level: str) -> None:
        if not name or level_violations(level):
            _log.debug(
                "a logger's level is not for this worker", logger_name=name, logger_level=level
            )
            return
        changed = self._apply(name, level)
        _log.info("logger levels were set for the cluster", names=list(changed), logger_level=level)

    def _apply(self, name: str, level: str) -> Sequence[str]:
        """Set a level in this process, if it has the logger, and queue it for the engine."""
        for levels in (self._levels, self._unsent):
            for each in [known for known in levels if is_under(known, name)]:
                del levels[each]  # the later level replaces it
            levels[name] = level.upper()
            if len(levels) > REMEMBERED_MAX:
                del levels[next(iter(levels))]
        self._changed.set()
        return self._own.set_level(name, level) if self._own.has(name) else ()

    async def _send_levels(self) -> Sequence[str]:
        """Send the queued levels to the engine; returns its loggers that changed."""
        unsent, self._unsent = self._unsent, {}
        self._changed.clear()
        return await self._engine.set_logger_levels(unsent) if unsent else ()

    async def has(self, name: str) -> bool:
        """Whether this worker has the logger or a descendant of it."""
        if self._own.has(name):
            return True
        return any(name and is_under(each.name, name) for each in await self._engine_states())

    async def _engine_states(self) -> Sequence[LoggerState]:
        try:
            return await self._engine.list_loggers()
        except DroverError as error:
            _log.info("the engine's loggers are not available", why=error.message)
            return ()
