"""Which engine of a worker gets each command, and what the end of one engine means for others."""

import asyncio

import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as coordinator_pb
from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import UnavailableError
from drover.model.ids import TaskId
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.shell.engine_group import EngineGroup
from drover_worker.shell.engine_supervisor import EngineExit, ExitHandler, ReportHandler
from drover_worker.shell.engines import LimitsInForce
from tests.support.waiting import wait_until_async

OWN = EngineSlot("own/b")
A0, B0 = TaskId("a", 0), TaskId("b", 0)


class StubEngine:
    """Responds at once; becomes ready or ends when the test calls it."""

    def __init__(self, slot: EngineSlot, on_report: ReportHandler, on_exit: ExitHandler) -> None:
        self.slot, self.on_report, self._on_exit = slot, on_report, on_exit
        self.process_id: int | None = 1
        self.stall = ""
        self.limits: LimitsInForce | None = None
        self.commands: list[str] = []
        self.sent: list[int] = []
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.closed = False

    async def start(self) -> None:
        self.on_report(pb.EngineReport(started=pb.EngineStarted()))

    def come_up(self) -> None:
        self.on_report(pb.EngineReport(ready=pb.EngineReady()))

    def end(self, message: str = "killed") -> None:
        self._on_exit(EngineExit(1, message, "", lasting=False, requested=False))

    def ask(self, call_id: int) -> None:
        offsets = coordinator_pb.TaskOffsets()
        self.on_report(pb.EngineReport(call_id=call_id, commit_offsets=offsets))

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        await asyncio.sleep(0)
        self.commands.append(command.WhichOneof("command") or "")
        return pb.EngineReport(done=pb.Done())

    async def send(self, command: pb.EngineCommand) -> None:
        self.sent.append(command.call_id)

    async def close(self) -> None:
        await self.may_close.wait()
        self.closed = True
        self.end("closed")


class World:
    """A group with a shared engine and one for connector b."""

    def __init__(self) -> None:
        self.made: list[StubEngine] = []
        self.reports: list[tuple[EngineSlot, str | None]] = []
        self.asked: list[int] = []
        self.exits: list[tuple[EngineSlot, str]] = []
        self.group = EngineGroup(self._make, self._report, self._exit, move_limit_s=30.0)

    def _make(self, slot: EngineSlot, on_report: ReportHandler, on_exit: ExitHandler) -> StubEngine:
        self.made.append(StubEngine(slot, on_report, on_exit))
        return self.made[-1]

    def _report(self, slot: EngineSlot, report: pb.EngineReport) -> None:
        self.reports.append((slot, report.WhichOneof("report")))
        if report.call_id:
            self.asked.append(report.call_id)

    def _exit(self, slot: EngineSlot, ended: EngineExit) -> None:
        self.exits.append((slot, ended.message))

    async def begin(self) -> tuple[StubEngine, StubEngine]:
        await self.group.start()
        self.made[0].come_up()
        self.group.start_engine(OWN)
        await wait_until_async(lambda: len(self.made) == 2)
        self.made[1].come_up()
        await self.group.call_in(SHARED, start_task(A0), 1.0)
        await self.group.call_in(OWN, start_task(B0), 1.0)
        return self.made[0], self.made[1]


def ready(world: World) -> list[EngineSlot]:
    return [each.slot for each in world.group.describe() if each.up]


def start_task(task: TaskId) -> pb.EngineCommand:
    command = pb.EngineCommand()
    command.start_task.task.connector, command.start_task.task.task = task.connector, task.task
    return command


def stop_task(task: TaskId) -> pb.EngineCommand:
    command = pb.EngineCommand()
    command.stop_task.task.connector, command.stop_task.task.task = task.connector, task.task
    return command


async def test_commands_go_to_the_engine_of_their_connector() -> None:
    world = World()
    shared, own = await world.begin()
    await world.group.call(pb.EngineCommand(list_plugins=pb.ListPlugins()), 1.0)
    paused = pb.EngineCommand(set_paused=pb.SetPaused(connector="b", task=0, paused=True))
    await world.group.call(paused, 1.0)
    await world.group.call(stop_task(B0), 1.0)
    await world.group.call(stop_task(A0), 1.0)
    assert shared.commands == ["start_task", "list_plugins", "stop_task"]
    assert own.commands == ["start_task", "set_paused", "stop_task"]
    assert ready(world) == [SHARED, OWN]


async def test_the_end_of_one_engine_leaves_the_others_alone() -> None:
    world = World()
    shared, own = await world.begin()
    shared.ask(7)
    own.ask(7)
    of_shared, of_own = world.asked
    own.end()
    assert world.exits == [(OWN, "killed")]
    assert ready(world) == [SHARED]
    assert world.group.awaits(of_shared)
    assert not world.group.awaits(of_own)
    await world.group.send(pb.EngineCommand(call_id=of_shared, commit_result=pb.CommitResult()))
    assert (shared.sent, own.sent) == ([7], [])
    with pytest.raises(UnavailableError, match="has ended"):
        await world.group.send(pb.EngineCommand(call_id=of_own, commit_result=pb.CommitResult()))
    await world.group.call(stop_task(A0), 1.0)
    assert shared.commands[-1] == "stop_task"
    own.come_up()
    assert world.reports[-1] == (OWN, "ready")


async def test_an_engine_that_was_stopped_is_heard_no_more() -> None:
    world = World()
    _, own = await world.begin()
    world.group.stop_engine(OWN)
    count = len(world.reports)
    own.come_up()
    await wait_until_async(lambda: own.closed)
    assert len(world.reports) == count
    assert not world.exits
    with pytest.raises(UnavailableError, match="own/b does not run"):
        await world.group.call_in(OWN, start_task(B0), 1.0)


async def test_the_next_engine_of_a_name_waits_for_the_end_of_the_one_before() -> None:
    world = World()
    _, own = await world.begin()
    own.may_close.clear()
    world.group.stop_engine(OWN)
    world.group.start_engine(OWN)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(world.made) == 2
    own.may_close.set()
    await wait_until_async(lambda: len(world.made) == 3)
    assert own.closed
    world.made[2].come_up()
    await world.group.call_in(OWN, start_task(B0), 1.0)
    assert world.made[2].commands == ["start_task"]


async def test_an_engine_that_is_stopped_before_it_started_never_starts() -> None:
    world = World()
    _, own = await world.begin()
    own.may_close.clear()
    world.group.stop_engine(OWN)
    world.group.start_engine(OWN)
    world.group.stop_engine(OWN)
    own.may_close.set()
    await world.group.close()
    assert len(world.made) == 2


async def test_a_replacement_renews_each_engine() -> None:
    world = World()
    shared, own = await world.begin()
    switches: list[str] = []
    replacing = asyncio.create_task(
        world.group.replace(lambda _: False, lambda: switches.append("shared"))
    )
    for number, old in ((3, shared), (4, own)):
        await wait_until_async(lambda number=number: len(world.made) == number)  # type: ignore[misc]
        assert world.made[-1].slot == old.slot
        world.made[-1].come_up()
        await wait_until_async(lambda old=old: old.closed)  # type: ignore[misc]
    assert await replacing == 0
    assert switches == ["shared"]
    assert not world.exits


async def test_the_end_of_the_worker_stops_all_engines() -> None:
    world = World()
    await world.begin()
    await world.group.close()
    assert all(engine.closed for engine in world.made)


async def test_health_is_that_of_the_shared_engine() -> None:
    world = World()
    shared, own = await world.begin()
    own.stall = "it does not answer"
    assert world.group.stall == ""
    shared.stall = "it does not answer"
    assert world.group.stall == "it does not answer"
