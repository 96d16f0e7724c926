"""The engines of a worker: the shared one, and others while connectors need them.

    group = EngineGroup(make_engine, on_report, on_exit, move_limit_s=40)
    await group.start()                             # the shared engine
    group.start_engine(slot)                        # another one
    await group.call_in(slot, start_task, 35)
    await group.call(stop_task, 35)                 # to the engine that has the task
    group.stop_engine(slot)
    await group.close()

Commands for a running connector or task go to the engine where it was started, and answers to the
engine that asked. Commands for no connector or task go to the shared engine.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import Reason, UnavailableError
from drover.model.status import StatusKey
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.shell.engine_supervisor import EngineExit, ExitHandler, ReportHandler
from drover_worker.shell.engines import Engine, EngineDescription, LimitsInForce
from drover_worker.shell.replaceable_engine import (
    Moves,
    Renew,
    ReplaceableEngine,
    key_of,
    move_all,
)

_STARTS = ("start_connector", "start_task")
_STOPS = ("stop_connector", "stop_task")
#: Reports after which an engine is used.
_OF_STARTS = ("started", "ready")

_log = structlog.get_logger("drover.worker")

#: Creates the engine for a slot.
MakeEngine = Callable[[EngineSlot, ReportHandler, ExitHandler], Engine]
GroupReportHandler = Callable[[EngineSlot, pb.EngineReport], None]
GroupExitHandler = Callable[[EngineSlot, EngineExit], None]


@dataclass(eq=False, slots=True)
class _Member:
    """One engine of the group, from ``start_engine`` to the end of its last process."""

    slot: EngineSlot
    engine: ReplaceableEngine
    stopping: bool = False
    ready: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    starting: "asyncio.Task[None] | None" = None
    ending: "asyncio.Task[None] | None" = None


class EngineGroup:
    """See Engines. For one event loop.

    Args:
        make: Creates the engine for a slot.
        on_report: Receives the reports of all engines.
        on_exit: Called when an engine ended; not for engines that ``stop_engine`` stopped.
        move_limit_s: How long a replacement waits for the restart of one connector or task.
    """

    def __init__(
        self,
        make: MakeEngine,
        on_report: GroupReportHandler,
        on_exit: GroupExitHandler,
        *,
        move_limit_s: float,
    ) -> None:
        self._make = make
        self._on_report = on_report
        self._on_exit = on_exit
        self._move_limit_s = move_limit_s
        #: One sequence for all engines, so that an answer has one recipient.
        self._call_numbers = itertools.count(1)
        self._shared = self._new_member(SHARED)
        self._members = {SHARED: self._shared}
        #: Engines that were asked to stop and have not ended yet.
        self._ending: set[_Member] = set()
        #: Where each connector and task was started.
        self._places: dict[StatusKey, _Member] = {}

    @property
    def process_id(self) -> int | None:
        """The process id of the shared engine."""
        return self._shared.engine.process_id

    @property
    def limits(self) -> LimitsInForce | None:
        """The limits of the shared engine."""
        return self._shared.engine.limits

    @property
    def stall(self) -> str:
        """What is wrong with a shared engine that does not answer; see Engine."""
        return self._shared.engine.stall

    async def start(self) -> None:
        """Start the shared engine, and restart it whenever it ends."""
        await self._shared.engine.start()

    def start_engine(self, slot: EngineSlot) -> None:
        """Start another engine, and restart it whenever it ends.

        It waits for the end of an earlier engine with the same name.
        """
        if slot in self._members:
            return
        member = self._members[slot] = self._new_member(slot)
        member.starting = asyncio.create_task(self._start(member), name=f"start of {slot}")

    def stop_engine(self, slot: EngineSlot) -> None:
        """Stop an engine gracefully, within its limit; nothing may run in it."""
        member = self._members.pop(slot, None)
        if member is not None:
            member.stopping = True
            self._ending.add(member)
            member.ending = asyncio.create_task(self._end(member), name=f"end of {slot}")

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        """Send a command to the engine of its connector or task and wait for its answer."""
        key = key_of(command)
        member = self._shared if key is None else self._places.get(key, self._shared)
        try:
            return await member.engine.call(command, timeout_s)
        finally:
            is_stop = command.WhichOneof("command") in _STOPS
            if key is not None and is_stop and self._places.get(key) is member:
                del self._places[key]

    async def call_in(
        self, slot: EngineSlot, command: pb.EngineCommand, timeout_s: float
    ) -> pb.EngineReport:
        """Send a command to an engine and wait for its answer. The engine then has its work.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, the worker does not have this engine.
        """
        member = self._members.get(slot)
        if member is None:
            raise UnavailableError(Reason.ENGINE_UNAVAILABLE, f"the engine {slot} does not run")
        key = key_of(command)
        if key is not None and command.WhichOneof("command") in _STARTS:
            self._places[key] = member
        return await member.engine.call(command, timeout_s)

    async def send(self, command: pb.EngineCommand) -> None:
        """Send an answer to the engine that asked.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, that engine has ended.
        """
        for member in (*self._members.values(), *self._ending):
            if member.engine.awaits(command.call_id):
                await member.engine.send(command)
                return
        raise UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine that asked has ended")

    def awaits(self, call_id: int) -> bool:
        """Whether an engine waits for the answer to this commit or fetch."""
        members = (*self._members.values(), *self._ending)
        return any(member.engine.awaits(call_id) for member in members)

    def describe(self) -> list[EngineDescription]:
        """The engines that run or have to run, the shared one first."""
        return [
            EngineDescription(slot, member.ready, member.engine.limits)
            for slot, member in self._members.items()
        ]

    async def replace(
        self, renew: Renew, on_switch: Callable[[], None], moves: Moves = move_all
    ) -> int:
        """Replace engines by new ones, one after another, the shared one first.

        Another engine is replaced, with all that it has, if anything in it moves. See
        ``ReplaceableEngine.replace``; ``on_switch`` is called for the shared engine.
        """
        moved_count = await self._shared.engine.replace(renew, on_switch, moves)
        for member in list(self._members.values()):
            if member is not self._shared and member.ready and not member.stopping:
                held = [key for key, at in self._places.items() if at is member]
                if [key for key in held if moves(key)]:
                    moved_count += await member.engine.replace(renew, lambda: None)
        return moved_count

    async def close(self) -> None:
        """Stop all engines gracefully."""
        for slot in [slot for slot in self._members if slot != SHARED]:
            self.stop_engine(slot)
        ends = [member.ending for member in self._ending if member.ending is not None]
        await asyncio.gather(self._shared.engine.close(), *ends)

    def _new_member(self, slot: EngineSlot) -> _Member:
        def report(each: pb.EngineReport) -> None:
            self._take_report(member, each)

        def end(ended: EngineExit) -> None:
            self._take_exit(member, ended)

        engine = ReplaceableEngine(
            lambda on_report, on_exit: self._make(slot, on_report, on_exit),
            report,
            end,
            move_limit_s=self._move_limit_s,
            call_numbers=self._call_numbers,
        )
        member = _Member(slot, engine)
        return member

    async def _start(self, member: _Member) -> None:
        earlier = [
            each
            for each in (*self._members.values(), *self._ending)
            if each is not member and each.slot.name == member.slot.name
        ]
        for each in earlier:
            await each.ended.wait()
        if not member.stopping:
            _log.info("starting an engine", engine=str(member.slot))
            await member.engine.start()

    async def _end(self, member: _Member) -> None:
        try:
            if member.starting is not None:
                await asyncio.gather(member.starting, return_exceptions=True)
            await member.engine.close()
            _log.info("an engine was stopped", engine=str(member.slot))
        finally:
            self._forget(member)
            self._ending.discard(member)
            member.ended.set()

    def _take_report(self, member: _Member, report: pb.EngineReport) -> None:
        kind = report.WhichOneof("report")
        if member.stopping and kind in _OF_STARTS:
            return
        if kind == "ready":
            member.ready = True
        self._on_report(member.slot, report)

    def _take_exit(self, member: _Member, ended: EngineExit) -> None:
        member.ready = False
        self._forget(member)
        if not member.stopping:
            self._on_exit(member.slot, ended)

    def _forget(self, member: _Member) -> None:
        self._places = {key: at for key, at in self._places.items() if at is not member}
