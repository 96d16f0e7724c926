"""Which engine gets each command while a new engine replaces the old one."""

import asyncio

import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as coordinator_pb
from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import Reason, UnavailableError
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.shell.engine_supervisor import EngineExit, ExitHandler, ReportHandler
from drover_worker.shell.engines import LimitsInForce
from drover_worker.shell.replaceable_engine import Moves, ReplaceableEngine, move_all
from tests.support.waiting import wait_until_async

TASKS = [TaskId("c", number) for number in range(3)]


class StubEngine:
    """Responds at once; becomes ready or fails when the test calls it."""

    def __init__(self, on_report: ReportHandler, on_exit: ExitHandler) -> None:
        self.on_report, self._on_exit = on_report, on_exit
        self.process_id: int | None = 1
        self.stall = ""
        self.limits: LimitsInForce | None = None
        self.started: list[int] = []
        self.stopped: list[int] = []
        self.sent: list[int] = []
        self.closed = False

    async def start(self) -> None:
        self.on_report(pb.EngineReport(started=pb.EngineStarted()))

    def come_up(self) -> None:
        self.on_report(pb.EngineReport(ready=pb.EngineReady()))

    def fail(self, message: str) -> None:
        self._on_exit(EngineExit(1, message, "", lasting=False, requested=False))

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        await asyncio.sleep(0)
        if command.HasField("start_task"):
            self.started.append(command.start_task.task.task)
        if command.HasField("stop_task"):
            self.stopped.append(command.stop_task.task.task)
        return pb.EngineReport(done=pb.Done())

    async def send(self, command: pb.EngineCommand) -> None:
        self.sent.append(command.call_id)

    async def close(self) -> None:
        self.closed = True
        self.fail("closed")


class World:
    """The engine under test, the processes it started, and its reports and exits."""

    def __init__(
        self, *, move_limit_s: float = 30.0, keep_old_s: float = 60.0, restarts: bool = True
    ) -> None:
        self.restarts = restarts
        self.made: list[StubEngine] = []
        self.reports: list[pb.EngineReport] = []
        self.exits: list[EngineExit] = []
        self.renewed: list[StatusKey] = []
        self.renewals: list[asyncio.Task[None]] = []
        self.engine = ReplaceableEngine(
            self._make,
            self.reports.append,
            self.exits.append,
            move_limit_s=move_limit_s,
            keep_old_s=keep_old_s,
        )

    def _make(self, on_report: ReportHandler, on_exit: ExitHandler) -> StubEngine:
        self.made.append(StubEngine(on_report, on_exit))
        return self.made[-1]

    async def command(self, verb: str, task: TaskId) -> None:
        command = pb.EngineCommand()
        at = getattr(command, verb).task
        at.connector, at.task = task.connector, task.task
        await self.engine.call(command, 1.0)

    def renew(self, key: StatusKey) -> bool:
        """Stop the task and start it again, as the herder does."""
        assert isinstance(key, TaskId)
        if key.task == 1:  # it failed: nothing to restart
            return False
        if not self.restarts:
            return True

        async def restart() -> None:
            await self.command("stop_task", key)
            await self.command("start_task", key)

        self.renewed.append(key)
        self.renewals.append(asyncio.create_task(restart()))
        return True

    async def begin(self, moves: Moves = move_all) -> "asyncio.Task[int]":
        """Start an engine with three tasks, and begin to replace it."""
        await self.engine.start()
        self.made[0].come_up()
        for task in TASKS:
            await self.command("start_task", task)
        return await self.begin_again(moves)

    async def begin_again(self, moves: Moves = move_all) -> "asyncio.Task[int]":
        """Begin a replacement, whose engine is not ready yet."""
        count = len(self.made)
        replacement = asyncio.create_task(self.engine.replace(self.renew, lambda: None, moves))
        await wait_until_async(lambda: len(self.made) == count + 1)
        return replacement


async def test_work_moves_to_the_new_engine_and_the_old_one_ends() -> None:
    world = World()
    replacement = await world.begin()
    old, new = world.made
    assert len(world.reports) == 2, "reports of an engine that is not ready are held back"
    assert not world.renewed
    new.come_up()
    assert await replacement == 2
    assert world.renewed == [TASKS[0], TASKS[2]]
    assert (old.stopped, new.started) == ([0, 2], [0, 2])
    assert old.closed
    assert not new.closed
    assert [report.WhichOneof("report") for report in world.reports] == ["started", "ready"] * 2
    assert world.exits == [], "the end of the old engine is not reported"
    new.fail("killed")
    assert [each.message for each in world.exits] == ["killed"]


async def test_an_engine_that_does_not_start_changes_nothing() -> None:
    world = World()
    replacement = await world.begin()
    world.made[1].fail("no module named x")
    with pytest.raises(
        UnavailableError, match="the old one continues: no module named x"
    ) as caught:
        await replacement
    assert caught.value.reason is Reason.ENGINE_UNAVAILABLE
    assert not world.renewed
    assert not world.exits
    assert not world.made[0].closed
    assert world.made[1].closed
    again = asyncio.create_task(world.engine.replace(world.renew, lambda: None))
    await wait_until_async(lambda: len(world.made) == 3)
    world.made[2].come_up()
    assert await again == 2


async def test_a_second_call_waits_for_the_first_which_survives_its_caller() -> None:
    world = World()
    first = await world.begin()
    second = asyncio.create_task(world.engine.replace(world.renew, lambda: None))
    await asyncio.sleep(0)
    first.cancel()
    world.made[1].come_up()
    assert await second == 2
    assert len(world.made) == 2


async def test_a_task_that_does_not_restart_holds_up_nobody_for_ever() -> None:
    world = World(move_limit_s=0.01, restarts=False)
    replacement = await world.begin()
    world.made[1].come_up()
    assert await replacement == 2
    assert world.made[0].closed


async def test_the_answer_to_a_commit_goes_to_the_engine_that_asked() -> None:
    world = World()
    replacement = await world.begin()
    old, new = world.made
    for engine in (old, new):
        engine.on_report(pb.EngineReport(call_id=7, commit_offsets=coordinator_pb.TaskOffsets()))
    new.come_up()
    await replacement
    numbers = [each.call_id for each in world.reports if each.HasField("commit_offsets")]
    assert len(set(numbers)) == 2
    await world.engine.send(pb.EngineCommand(call_id=numbers[1], commit_result=pb.CommitResult()))
    assert (old.sent, new.sent) == ([], [7])


def only_the_first(key: StatusKey) -> bool:
    return key == TASKS[0]


async def test_work_that_need_not_move_stays_in_the_old_engine_until_it_restarts() -> None:
    world = World()
    replacement = await world.begin(only_the_first)
    old, new = world.made
    new.come_up()
    assert await replacement == 1
    assert (old.stopped, new.started) == ([0], [0])
    assert not old.closed
    old.on_report(pb.EngineReport(task_failed=pb.TaskFailed(run_id=1)))
    assert world.reports[-1].HasField("task_failed"), "its reports still arrive"
    for task in TASKS[1:]:
        await world.command("stop_task", task)
        await world.command("start_task", task)
    await wait_until_async(lambda: old.closed)
    assert (old.stopped, new.started) == ([0, 1, 2], [0, 1, 2])
    assert world.exits == []


async def test_an_old_engine_is_kept_for_a_time_only() -> None:
    world = World(keep_old_s=0.01)
    replacement = await world.begin(only_the_first)
    old, new = world.made
    new.come_up()
    await replacement
    await wait_until_async(lambda: old.closed)
    assert new.started == [0, 2], "the failed task 1 stays failed"


async def test_work_left_in_an_old_engine_restarts_when_that_engine_dies() -> None:
    world = World()
    replacement = await world.begin(only_the_first)
    old, new = world.made
    new.come_up()
    await replacement
    old.fail("killed")
    await wait_until_async(lambda: new.started == [0, 2])
    assert world.exits == [], "the current engine has not ended"
    await wait_until_async(lambda: old.closed)


async def test_there_are_never_more_than_two_engines() -> None:
    world = World()
    replacement = await world.begin(only_the_first)
    oldest, middle = world.made
    middle.come_up()
    await replacement
    again = await world.begin_again(only_the_first)
    assert oldest.closed, "before the third engine starts"
    assert middle.started == [0, 2]
    world.made[2].come_up()
    assert await again == 1
    assert not middle.closed
    await world.engine.close()
    assert all(engine.closed for engine in world.made)


async def test_an_end_gives_a_replacement_up() -> None:
    world = World()
    replacement = await world.begin()
    await world.engine.close()
    assert all(engine.closed for engine in world.made)
    with pytest.raises(asyncio.CancelledError):
        await replacement
    with pytest.raises(UnavailableError):
        await world.engine.replace(world.renew, lambda: None)
