"""An engine that can be replaced while its connectors and tasks keep running.

The new engine starts beside the old one. When it is ready it becomes the current engine and
receives all starts. Then a selection of the old engine's connectors and tasks is restarted there,
one after another. The others stay in the old engine until they restart for another reason, at most
for a time; the old engine is stopped when nothing runs in it. Commands for a running connector or
task go to the engine that runs it. There are never more than two engines.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog

from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import Reason, UnavailableError
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.shell.engine_supervisor import EngineExit, ExitHandler, ReportHandler
from drover_worker.shell.engines import Engine, LimitsInForce

#: How long a new engine may take until Spark is ready.
_READY_TIMEOUT_S = 300.0

#: How long an old engine is kept for connectors and tasks that need not move: both engines use
#: memory.
_KEEP_OLD_S = 3_600.0

_log = structlog.get_logger("drover.worker")

MakeEngine = Callable[[ReportHandler, ExitHandler], Engine]
#: Restarts a running connector or task; False when it does not run.
Renew = Callable[[StatusKey], bool]
#: Whether a connector or task moves to the new engine at once.
Moves = Callable[[StatusKey], bool]


def move_all(key: StatusKey) -> bool:
    """Everything moves at once."""
    del key
    return True


@dataclass(eq=False, slots=True)
class _Place:
    """One engine, from its start to its end."""

    engine: Engine | None = None
    #: Its reports before it became the current engine.
    held: list[pb.EngineReport] = field(default_factory=list)
    ready: bool = False
    exit: EngineExit | None = None
    #: It was asked to stop.
    ending: bool = False

    def get(self) -> Engine:
        """The engine.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, there is none yet.
        """
        if self.engine is None:
            raise UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine is not started yet")
        return self.engine


class ReplaceableEngine:
    """See Engine; callers see a single engine with one sequence of reports and exits.

    Args:
        make: Creates an engine.
        on_report: Receives the current engine's reports, and those of work in the old engine.
        on_exit: Called when the current engine ended.
        move_limit_s: How long to wait for the restart of one connector or task.
        call_numbers: The call ids of commits and fetches, shared with other engines.
        keep_old_s: How long an old engine is kept for connectors and tasks that need not move.
    """

    def __init__(
        self,
        make: MakeEngine,
        on_report: ReportHandler,
        on_exit: ExitHandler,
        *,
        move_limit_s: float,
        call_numbers: Iterator[int] | None = None,
        keep_old_s: float = _KEEP_OLD_S,
    ) -> None:
        self._make = make
        self._on_report = on_report
        self._on_exit = on_exit
        self._move_limit_s = move_limit_s
        self._keep_old_s = keep_old_s
        self._present = _Place()
        self._old: _Place | None = None
        #: Ends the old engine when its last connector or task has left it.
        self._leaving: asyncio.Task[None] | None = None
        self._renew: Renew = lambda _key: False
        self._places: dict[StatusKey, _Place] = {}
        self._starting: set[StatusKey] = set()
        #: Commits and fetches in flight: the engine that waits, and its own call id.
        self._calls: dict[int, tuple[_Place, int]] = {}
        self._call_numbers = itertools.count(1) if call_numbers is None else call_numbers
        self._changed = asyncio.Event()
        self._replacement: asyncio.Task[int] | None = None
        self._closing = False

    @property
    def process_id(self) -> int | None:
        """The current engine's process id."""
        return self._present.engine.process_id if self._present.engine is not None else None

    @property
    def limits(self) -> LimitsInForce | None:
        """See Engine."""
        return self._present.engine.limits if self._present.engine is not None else None

    @property
    def stall(self) -> str:
        """See Engine."""
        return self._present.engine.stall if self._present.engine is not None else ""

    async def start(self) -> None:
        """See Engine."""
        self._fill(self._present)
        await self._present.get().start()

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        """See Engine."""
        kind, key = command.WhichOneof("command"), key_of(command)
        if key is None:
            return await self._present.get().call(command, timeout_s)
        if kind in ("start_connector", "start_task"):
            place = self._places[key] = self._present
            self._starting.add(key)
            try:
                return await place.get().call(command, timeout_s)
            finally:
                self._starting.discard(key)
                self._changed.set()
        place = self._places.get(key, self._present)
        try:
            return await place.get().call(command, timeout_s)
        finally:
            if kind in ("stop_connector", "stop_task") and self._places.get(key) is place:
                del self._places[key]
                self._changed.set()

    async def send(self, command: pb.EngineCommand) -> None:
        """See Engine: the answer goes to the engine that made the call.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, that engine has ended.
        """
        call = self._calls.pop(command.call_id, None)
        if call is None:
            raise UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine that asked has ended")
        place, command.call_id = call
        await place.get().send(command)

    def awaits(self, call_id: int) -> bool:
        """Whether an engine waits for the answer to this commit or fetch."""
        return call_id in self._calls

    async def close(self) -> None:
        """See Engine; cancels a replacement."""
        self._closing = True
        for task in (self._replacement, self._leaving):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._old is not None:
            await self._end(self._old)
        if self._present.engine is not None:
            await self._present.engine.close()

    async def replace(
        self, renew: Renew, on_switch: Callable[[], None], moves: Moves = move_all
    ) -> int:
        """Replace the engine by a new one, or wait for the replacement in progress.

        It continues when the caller is cancelled.

        Args:
            renew: Restarts a connector or task.
            on_switch: Called when the new engine has become the current one.
            moves: Which connectors and tasks move at once.

        Returns:
            How many connectors and tasks were moved at once.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, the new engine did not start; the old one
                continues.
        """
        if self._closing:
            raise UnavailableError(Reason.DRAINING, "the worker is shutting down")
        if self._replacement is None or self._replacement.done():
            self._replacement = asyncio.create_task(self._replace(renew, on_switch, moves))
        return await asyncio.shield(self._replacement)

    async def _replace(self, renew: Renew, on_switch: Callable[[], None], moves: Moves) -> int:
        if self._leaving is not None:  # an earlier replacement left work in an older engine
            self._leaving.cancel()
            await asyncio.gather(self._leaving, return_exceptions=True)
            self._leaving = None
        if self._old is not None:
            await self._move_rest(self._old)
        self._renew = renew
        new = await self._started()
        old, self._present = self._present, new
        self._old = old
        moved: list[StatusKey] = []
        try:
            on_switch()
            held, new.held = new.held, []
            for report in held:
                self._on_report(report)
            kept = [key for key in self._in(old) if not moves(key)]
            moving = [key for key in self._in(old) if key not in kept]
            moved = [key for key in moving if await self._move(key, old)]
        except BaseException:
            await self._end(old)
            raise
        kept = [key for key in self._in(old) if key in kept]
        if kept:
            self._leaving = asyncio.create_task(self._let_leave(old))
        else:
            await self._end(old)
        kept_count = len(kept)
        _log.info("the engine was replaced", moved_count=len(moved), kept_count=kept_count)
        return len(moved)

    async def _let_leave(self, old: _Place) -> None:
        """Keep an old engine until nothing runs in it, or its time is over."""
        await self._wait_for(lambda: not self._in(old), self._keep_old_s)
        await self._move_rest(old)

    async def _move_rest(self, old: _Place) -> None:
        """Move all connectors and tasks of an old engine, and stop it."""
        try:
            for key in self._in(old):
                await self._move(key, old)
        finally:
            await self._end(old)
            _log.info("the old engine was stopped")

    async def _end(self, old: _Place) -> None:
        old.ending = True
        await old.get().close()
        self._forget(old)
        if self._old is old:
            self._old = None

    async def _started(self) -> _Place:
        """Start a new engine and wait until it is ready."""
        new = _Place()
        engine = self._fill(new)
        try:
            await engine.start()
            came = await self._wait_for(lambda: new.ready or new.exit is not None, _READY_TIMEOUT_S)
        except BaseException:
            await engine.close()
            raise
        if came and new.exit is None:
            return new
        why = (
            new.exit.message
            if new.exit is not None
            else f"Spark was not ready within {_READY_TIMEOUT_S:g} s"
        )
        await engine.close()
        raise UnavailableError(
            Reason.ENGINE_UNAVAILABLE, f"the new engine did not start; the old one continues: {why}"
        )

    def _in(self, place: _Place) -> list[StatusKey]:
        """The keys that run in that engine, connectors first."""
        found = [key for key, at in self._places.items() if at is place]
        return sorted(found, key=lambda key: (isinstance(key, TaskId), str(key)))

    async def _move(self, key: StatusKey, old: _Place) -> bool:
        """Restart it and wait, within the limit; False when it does not run."""
        if self._places.get(key) is not old or not self._renew(key):
            return False

        def is_there() -> bool:
            return self._places.get(key) is self._present and key not in self._starting

        if not await self._wait_for(is_there, self._move_limit_s):
            _log.warning("a restart in the new engine did not finish in time", what=str(key))
        return True

    async def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _fill(self, place: _Place) -> Engine:
        place.engine = self._make(
            lambda report: self._take_report(place, report),
            lambda ended: self._take_exit(place, ended),
        )
        return place.engine

    def _take_report(self, place: _Place, report: pb.EngineReport) -> None:
        kind = report.WhichOneof("report")
        if kind == "ready":
            place.ready = True
            self._changed.set()
        if kind in ("commit_offsets", "fetch_offsets"):
            number = next(self._call_numbers)
            self._calls[number] = (place, report.call_id)
            report.call_id = number
        if place is self._present:
            self._on_report(report)
        elif place is not self._old:
            place.held.append(report)
        elif kind not in ("started", "ready"):
            self._on_report(report)

    def _take_exit(self, place: _Place, ended: EngineExit) -> None:
        place.exit = ended
        self._changed.set()
        if place is self._present:
            self._forget(place)
            self._on_exit(ended)
        elif place is self._old and not place.ending:
            left = self._in(place)
            self._forget(place)
            _log.warning("the old engine ended", why=ended.message, left_count=len(left))
            for key in left:  # they start in the current engine
                self._renew(key)

    def _forget(self, place: _Place) -> None:
        for key in self._in(place):
            del self._places[key]
        self._calls = {n: each for n, each in self._calls.items() if each[0] is not place}


def key_of(command: pb.EngineCommand) -> StatusKey | None:
    """The connector or task of a command; None for other commands."""
    match command.WhichOneof("command"):
        case "start_connector":
            return command.start_connector.connector
        case "stop_connector":
            return command.stop_connector.connector
        case "generate_task_configs":
            return command.generate_task_configs.connector
        case "start_task":
            return TaskId(command.start_task.task.connector, command.start_task.task.task)
        case "stop_task":
            return TaskId(command.stop_task.task.connector, command.stop_task.task.task)
        case "set_paused" if command.set_paused.HasField("task"):
            return TaskId(command.set_paused.connector, command.set_paused.task)
        case "set_paused":
            return command.set_paused.connector
        case _:
            return None
