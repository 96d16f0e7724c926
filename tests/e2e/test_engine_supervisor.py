"""The supervisor with an engine without Spark: calls, exits, restarts, stops."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from drover.api.engine.v1 import engine_pb2
from drover.errors import DeadlineExceededError, Reason, UnavailableError
from drover.log.storage import EmbeddedStorage
from drover.model.ids import TaskId
from drover_worker.core.events import EndKind
from drover_worker.engine import process_tree
from drover_worker.engine.process_constants import TREE_VARIABLE, ExitCode
from drover_worker.engine.settings import EngineLimits, EngineSettings
from drover_worker.shell.at_work import Suspects
from drover_worker.shell.engine_supervisor import EngineExit, EngineState, EngineSupervisor
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.e2e

NOWHERE = EmbeddedStorage(Path("/nowhere"))
STAND_IN = Path(__file__).with_name("engine_stand_in.py")


@dataclass
class Supervised:
    """A supervisor, and its reports and exits."""

    supervisor: EngineSupervisor
    reports: list[engine_pb2.EngineReport] = field(default_factory=list)
    exits: list[EngineExit] = field(default_factory=list)

    async def tell(
        self, todo: str, argument: str = "", timeout_s: float = 60.0
    ) -> engine_pb2.EngineReport:
        config = {"do": todo, "with": argument}
        command = engine_pb2.EngineCommand(validate_config=engine_pb2.ValidateConfig(config=config))
        return await self.supervisor.call(command, timeout_s=timeout_s)

    @property
    def tree(self) -> set[int]:
        child = self.supervisor._child
        assert child is not None
        return process_tree.marked(TREE_VARIABLE, child.tree_id)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Supervised]:
    told = Supervised.__new__(Supervised)
    supervisor = EngineSupervisor(
        EngineSettings(storage=NOWHERE, limits=EngineLimits(stop_ms=500)),
        on_report=lambda report: told.reports.append(report),
        on_exit=lambda ended: told.exits.append(ended),
        on_log_line=lambda _line: None,
        engine_command=(sys.executable, str(STAND_IN)),
    )
    told.__init__(supervisor)  # type: ignore[misc]
    await supervisor.start()
    await asyncio.wait_for(supervisor.wait_ready(), 60)
    yield told
    tree = told.tree if supervisor.process_id else set()
    directory = supervisor._child._directory if supervisor._child else None
    assert directory is None or directory.is_dir()
    await supervisor.close()
    assert not {each for each in tree if Path(f"/proc/{each}").exists()}
    assert directory is None or not directory.exists()


def _value(report: engine_pb2.EngineReport) -> str:
    return report.validation.values[0].value


async def test_answers_find_their_calls_also_when_many_are_under_way(engine: Supervised) -> None:
    texts = [f"{number}" * 1000 for number in range(200)]
    answers = await asyncio.gather(*(engine.tell("echo", text) for text in texts))
    assert [_value(answer) for answer in answers] == texts


async def test_a_message_of_megabytes_goes_both_ways(engine: Supervised) -> None:
    text = "ä" * 10_000_000
    assert _value(await engine.tell("echo", text)) == text


async def test_a_command_that_failed_is_answered_by_a_value(engine: Supervised) -> None:
    assert (await engine.tell("fail", "no such luck")).failure.message == "no such luck"


async def test_a_call_without_an_answer_ends_with_its_time_limit(engine: Supervised) -> None:
    with pytest.raises(DeadlineExceededError, match="did not answer validate_config"):
        await engine.tell("ignore", timeout_s=0.05)
    assert _value(await engine.tell("echo", "still there")) == "still there"


async def test_unasked_reports_are_handed_over_even_when_a_handler_raises(
    engine: Supervised,
) -> None:
    def fail(_report: engine_pb2.EngineReport) -> None:
        raise RuntimeError("a defect")

    append = engine.supervisor._on_report
    engine.supervisor._on_report = fail
    await engine.tell("report", "first")
    engine.supervisor._on_report = append
    await engine.tell("report", "second")
    assert [each.connector_failed.connector for each in engine.reports[1:]] == ["second"]
    assert engine.reports[0].ready.spark_version == "none"


async def test_an_end_fails_the_calls_under_way_and_a_new_engine_starts(
    engine: Supervised,
) -> None:
    waiting = asyncio.create_task(engine.tell("ignore"))
    with pytest.raises(UnavailableError) as caught:
        await engine.tell("exit", "my last words")
    assert caught.value.reason is Reason.ENGINE_UNAVAILABLE
    with pytest.raises(UnavailableError):
        await waiting
    await wait_until_async(lambda: engine.exits)
    (ended,) = engine.exits
    assert (ended.exit_code, ended.lasting, ended.requested) == (7, False, False)
    assert ended.stderr_tail.endswith("my last words")
    assert engine.supervisor.state in (EngineState.BACKING_OFF, EngineState.STARTING)
    await asyncio.wait_for(engine.supervisor.wait_ready(), 60)
    assert _value(await engine.tell("echo", "back")) == "back"


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (3, EndKind.CRASH, "the engine ended with exit code 3$"),
        (0, EndKind.CRASH, "the engine ended with exit code 0$"),
        (ExitCode.JAVA_UNUSABLE, EndKind.CRASH, "exit code 81$"),
        (ExitCode.SPARK_LOST, EndKind.CRASH, r"exit code 83 \(SPARK_LOST\)$"),
        (ExitCode.HEAP_USED_UP, EndKind.MEMORY, "ran out of its heap of 1g"),
        (ExitCode.MEMORY_USED_UP, EndKind.MEMORY, "engine ended because the memory .*exhausted"),
        (ExitCode.SPARK_KILLED, EndKind.KILL, "exit code 86"),
    ],
)
async def test_an_end_names_what_was_at_work(
    code: int, kind: EndKind, message: str, engine: Supervised
) -> None:
    with pytest.raises(UnavailableError, match=message):
        await engine.tell("end at work", str(code))
    await wait_until_async(lambda: engine.exits)
    (ended,) = engine.exits
    assert (ended.kind, ended.suspects.at_work, ended.exit_code) == (
        kind,
        (TaskId("bad", 3),),
        code,
    )


async def test_an_end_after_a_call_names_what_was_at_work_shortly_before(
    engine: Supervised,
) -> None:
    with contextlib.suppress(UnavailableError):
        await engine.tell("end after work", "bad")
    await wait_until_async(lambda: engine.exits)
    (ended,) = engine.exits
    assert (ended.kind, ended.suspects) == (EndKind.CRASH, Suspects((), ("bad",)))


async def test_a_kill_by_hand_accuses_nothing_that_was_not_at_work(engine: Supervised) -> None:
    assert engine.supervisor.process_id is not None
    os.kill(engine.supervisor.process_id, signal.SIGKILL)
    await wait_until_async(lambda: engine.exits)
    assert engine.exits[0].exit_code == 128 + signal.SIGKILL
    assert (engine.exits[0].kind, engine.exits[0].suspects) == (EndKind.KILL, Suspects())


async def test_a_restart_by_the_herder_accuses_nothing(engine: Supervised) -> None:
    await engine.tell("hang at work", "bad")
    await engine.supervisor.restart("by a test")
    await wait_until_async(lambda: engine.exits)
    assert (engine.exits[0].requested, engine.exits[0].suspects) == (True, Suspects())
    await asyncio.wait_for(engine.supervisor.wait_ready(), 60)


async def test_a_replacement_for_calls_that_hang_names_them(engine: Supervised) -> None:
    await engine.tell("hang at work", "bad")
    with contextlib.suppress(UnavailableError):
        await engine.tell("replace", "9 plugin calls hang")
    await wait_until_async(lambda: engine.exits)
    (ended,) = engine.exits
    assert (ended.requested, ended.kind, ended.suspects.at_work) == (True, EndKind.CRASH, ("bad",))
    assert ended.message == "9 plugin calls hang; it was replaced"


async def test_without_an_engine_a_call_says_why(engine: Supervised) -> None:
    with contextlib.suppress(UnavailableError):
        await engine.tell("crash")
    await wait_until_async(lambda: engine.supervisor.state is EngineState.BACKING_OFF)
    with pytest.raises(UnavailableError, match="not running: the engine was killed by signal 11"):
        await engine.tell("echo")


async def test_a_stream_of_garbage_ends_the_engine(engine: Supervised) -> None:
    with pytest.raises(UnavailableError):
        await engine.tell("garbage")
    await wait_until_async(lambda: engine.exits)
    await asyncio.wait_for(engine.supervisor.wait_ready(), 60)


async def test_an_engine_that_asks_for_it_is_replaced(engine: Supervised) -> None:
    before = engine.supervisor.process_id
    with pytest.raises(UnavailableError):
        await engine.tell("replace", "nine hung calls")
    await wait_until_async(lambda: engine.exits)
    assert engine.exits[0].requested
    assert engine.reports[-1].replacement_requested.reason == "nine hung calls"
    await asyncio.wait_for(engine.supervisor.wait_ready(), 60)
    assert engine.supervisor.process_id != before


async def test_a_restart_leaves_nothing_of_the_old_engine(engine: Supervised) -> None:
    await engine.tell("ignore SIGTERM")
    await engine.tell("spawn")
    tree = engine.tree
    assert len(tree) >= 3  # guard, engine, and the child that left its session
    child = engine.supervisor._child
    assert child is not None
    await child.stop(0.05)
    await wait_until_async(lambda: engine.exits)
    assert not {each for each in tree if Path(f"/proc/{each}").exists()}
    await asyncio.wait_for(engine.supervisor.wait_ready(), 60)


async def test_a_killed_guard_leaves_nothing_of_its_tree(engine: Supervised) -> None:
    await engine.tell("spawn")
    tree = engine.tree
    assert engine.supervisor.process_id is not None
    os.kill(engine.supervisor.process_id, signal.SIGKILL)
    await wait_until_async(lambda: engine.exits)
    assert engine.exits[0].exit_code == 128 + signal.SIGKILL
    await wait_until_async(
        lambda: not {each for each in tree if Path(f"/proc/{each}").exists()},
        describe="the end of the tree",
    )
    await asyncio.wait_for(engine.supervisor.wait_ready(), 60)


async def test_after_close_nothing_starts_again(engine: Supervised) -> None:
    await engine.supervisor.close()
    (ended,) = engine.exits
    assert ended.requested
    assert engine.supervisor.state is EngineState.STOPPED
    with pytest.raises(UnavailableError):
        await engine.tell("echo")
    await engine.supervisor.close()


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    exits: list[EngineExit] = []
    supervisor = EngineSupervisor(
        EngineSettings(storage=NOWHERE, python_executable=str(tmp_path / "no-python")),
        on_report=lambda _report: None,
        on_exit=exits.append,
    )
    await supervisor.start()
    await wait_until_async(lambda: exits)
    assert "the engine process cannot be started" in exits[0].message
    await supervisor.close()


async def test_an_engine_that_waits_to_start_says_why_until_it_is_ready(
    engine: Supervised,
) -> None:
    await engine.tell("delay", "it waits for an executor")
    assert engine.supervisor.stall == "the Spark engine is up, but it waits for an executor"
    await engine.tell("start")
    assert engine.supervisor.stall == ""


async def test_an_engine_that_does_not_answer_is_told_and_replaced(engine: Supervised) -> None:
    supervisor = engine.supervisor
    supervisor._probe_every_s, supervisor._probe_timeout_s = 0.01, 2.0
    await supervisor.restart("shorter probes")
    await wait_until_async(lambda: len(engine.exits) == 1)
    await asyncio.wait_for(supervisor.wait_ready(), 60)
    await wait_until_async(lambda: supervisor.stall == "")
    await engine.tell("hang at work", "waits")
    freezing = asyncio.create_task(engine.tell("spin at work", "spins"))
    await wait_until_async(lambda: supervisor.stall != "")
    assert "has not answered for" in supervisor.stall
    with pytest.raises(UnavailableError, match="holds its Python interpreter"):
        await freezing
    assert "it was killed" in engine.exits[-1].message
    assert engine.exits[-1].kind is EndKind.CRASH
    assert engine.exits[-1].suspects.at_work == ("spins",), "not what waits for the interpreter"
    await asyncio.wait_for(supervisor.wait_ready(), 60)
    await wait_until_async(lambda: supervisor.stall == "")
    assert _value(await engine.tell("echo", "a new one")) == "a new one"
