"""Runs of tasks that return after they were given up."""

import threading
from typing import Any

import pytest

from drover.connector import SinkTask, SourceBatch
from tests.support.waiting import wait_until
from tests.unit.engine.runner_world import Lines, World, Writer


def test_a_poll_that_comes_back_after_it_was_given_up_publishes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source()
    poll = Lines.poll

    def late_poll(task: Lines) -> SourceBatch | None:
        assert runner.run_deadline is not None
        runner.run_overdue()
        return poll(task)

    monkeypatch.setattr(Lines, "poll", late_poll)
    runner.run_once()
    assert world.record_count == 0
    assert world.kinds == ["task_failed"]
    assert "poll() of task LinesSource-0 did not return" in world.reports[0].task_failed.trace


def test_a_poll_that_returns_after_it_was_given_up_stops_its_task_object_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source()
    stop_count = 0

    def late_poll(task: Lines) -> SourceBatch | None:
        runner.run_overdue()
        assert not stop_count, "a poll uses the task object"
        return None

    def stop(_task: Lines) -> None:
        nonlocal stop_count
        stop_count += 1

    monkeypatch.setattr(Lines, "poll", late_poll)
    monkeypatch.setattr(Lines, "stop", stop)
    assert runner.run_once() is None
    wait_until(lambda: stop_count)
    assert runner.run_once() is None
    runner.disown(in_use=False)
    assert stop_count == 1


def test_a_write_that_returns_after_its_stop_ended_stops_its_task_object_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill()
    writes, may_return, stopped = threading.Event(), threading.Event(), list[SinkTask]()

    def hang(*_: Any) -> str:
        writes.set()
        assert may_return.wait(60)
        return ""

    monkeypatch.setattr(Writer, "write", hang)
    monkeypatch.setattr(Writer, "stop", lambda task: stopped.append(task))
    sink = world.sink()
    given_up = world.scheduler.given_up
    world.scheduler.ended = threading.Event()
    thread = threading.Thread(target=sink.run_once)
    thread.start()
    assert writes.wait(60)
    sink.stop(0.01)
    assert given_up == [sink]
    assert stopped == []
    may_return.set()
    thread.join(60)
    wait_until(lambda: len(stopped) == 1)
    assert [each for each in world.reports if each.HasField("commit_offsets")] == []


def test_a_batch_that_is_staged_after_its_task_was_abandoned_is_not_published(
    world: World,
) -> None:
    runner = world.source()
    Lines.faults.append(runner.run_overdue)
    runner.run_once()
    assert (world.record_count, world.kinds) == (0, ["task_failed"])
    assert runner.run_once() is None
    assert world.record_count == 0
