"""Whatever the code of a plugin raises ends its task with a failure that names it."""

import asyncio

import pytest

from drover.api.engine.v1 import engine_pb2
from tests.unit.engine.runner_world import Lines, World


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
        (StopIteration(), "StopIteration"),
        (MemoryError(), "MemoryError"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (BaseExceptionGroup("two", [SystemExit(1), ValueError("no")]), "BaseExceptionGroup: two"),
        (ConnectionError("\ud800 is no text"), "is no text"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_whatever_a_plugin_raises_fails_its_task_only(
    world: World, error: BaseException, name: str
) -> None:
    def leave() -> None:
        raise error

    Lines.faults.append(leave)
    runner = world.source()
    assert runner.run_once() is None
    assert world.kinds == ["task_failed"]
    told = engine_pb2.EngineReport.FromString(world.reports[0].SerializeToString())
    assert name in told.task_failed.trace
