"""Commands that arrive while a task starts, and the last report of a task that stops."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drover.api.engine.v1 import engine_pb2
from drover.codec.common import encode_task_id
from drover.model.ids import TaskId
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks import task_table as tasks
from tests.support.waiting import wait_until

TASK = TaskId("c", 0)


class Runner:
    """A fake runner that gets a pause command just while it begins."""

    over = False

    name = str(TASK)
    spec = SimpleNamespace(task=TASK, log_fields={"connector": "c"})

    def __init__(self, _spec: object, _tools: object, *, paused: bool) -> None:
        self.untold = [["b"], ["a"]]
        self.paused = paused
        self.begun = threading.Event()
        self.pause = threading.Thread(target=lambda: registry.set_paused(2, TASK, True))
        made.append(self)

    def prepare(self) -> None: ...

    def begin(self, *, paused: bool) -> None:
        self.pause.start()
        self.pause.join(timeout=0.2)  # the pause waits for the end of this method
        self.paused = paused
        self.begun.set()

    def set_paused(self, paused: bool) -> None:
        self.paused = paused

    def stop(self, limit_s: float) -> None: ...

    def progress(self) -> engine_pb2.TaskProgress.Entry | None:
        return engine_pb2.TaskProgress.Entry(topics=self.untold.pop()) if self.untold else None


made: list[Runner] = []
registry: tasks.TaskRegistry


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[engine_pb2.EngineReport]:
    """The reports of a registry that starts the task."""
    global registry
    made.clear()
    monkeypatch.setattr(tasks, "SourceRunner", Runner)
    monkeypatch.setattr(tasks, "connector_type", lambda _: "source")
    reports: list[engine_pb2.EngineReport] = []
    registry = tasks.TaskRegistry(
        cast("Any", type("Plugins", (), {"find_of": lambda *_: object})()),
        PluginThreads(abandoned_max=8, on_exhausted=lambda _: None),
        EngineLimits(),
        reports.append,
        lambda: cast("Any", None),
    )
    registry.start(1, engine_pb2.StartTask(task=encode_task_id(TASK)))
    return reports


def test_a_pause_at_the_moment_of_the_start_is_not_lost(
    reports: list[engine_pb2.EngineReport],
) -> None:
    wait_until(lambda: len(reports) == 2)
    (runner,) = made
    assert runner.begun.is_set()
    assert runner.paused
    assert [each.call_id for each in reports] == [1, 2]


@pytest.mark.parametrize("failed_before", [False, True])
def test_what_a_task_moved_last_is_told_before_it_is_stopped(
    reports: list[engine_pb2.EngineReport], failed_before: bool
) -> None:
    wait_until(lambda: len(reports) == 2)
    made[0].over = failed_before
    registry.stop(3, TASK)
    wait_until(lambda: len(reports) == 5)
    assert [list(entry.topics) for r in reports for entry in r.task_progress.entries] == [
        ["a"],
        ["b"],
    ]
    assert reports[-1].call_id == 3
    assert reports[-1].HasField("done")


def test_a_task_whose_start_returns_after_its_limit_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_start, disowned = threading.Event(), list[bool]()

    class SlowRunner(Runner):
        def prepare(self) -> None:
            may_start.wait(60)

        def disown(self, *, in_use: bool) -> None:
            disowned.append(in_use)

    monkeypatch.setattr(tasks, "SourceRunner", SlowRunner)
    monkeypatch.setattr(tasks, "connector_type", lambda _: "source")
    reports: list[engine_pb2.EngineReport] = []
    slow = tasks.TaskRegistry(
        cast("Any", type("Plugins", (), {"find_of": lambda *_: object})()),
        PluginThreads(abandoned_max=8, on_exhausted=lambda _: None),
        EngineLimits(start_ms=200),
        reports.append,
        lambda: cast("Any", None),
    )
    slow.start(1, engine_pb2.StartTask(task=encode_task_id(TASK)))
    wait_until(lambda: disowned)
    assert reports[0].HasField("failure"), reports[0]
    may_start.set()
    wait_until(lambda: disowned == [True, False])
