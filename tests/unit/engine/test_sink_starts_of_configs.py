"""Where a sink starts to read: consumer.override.auto.offset.reset."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from drover.dataplane.values import ReadPlan
from drover_worker.engine.tasks.sink_runner import SinkRunner
from tests.unit.engine.runner_world import World, WriterSink
from tests.unit.engine.test_far_task_runners import GrowingPlane

RESET = "consumer.override.auto.offset.reset"


class EndedPlane(GrowingPlane):
    """Topics whose records end at some offsets; plans have no records."""

    def __init__(self, counts: Mapping[str, int], ends: Mapping[tuple[str, int], int]) -> None:
        super().__init__(counts, ends)
        self.ends = ends

    def end_offsets(self, partitions: Any) -> Mapping[tuple[str, int], int]:
        return {key: self.ends[key] for key in partitions}

    def current_claim(self, _task: object) -> None:
        return None

    def plan_read(self, starts: Mapping[tuple[str, int], int], **_: object) -> ReadPlan:
        return ReadPlan((), dict(starts))


@pytest.fixture
def counts() -> dict[str, int]:
    return {"t": 2}


@pytest.fixture
def world(world: World, counts: dict[str, int]) -> World:
    ends = {("t", 0): 10, ("t", 1): 0, ("t", 2): 5, ("u", 0): 7}
    world.tools = replace(world.tools, plane=cast("Any", EndedPlane(counts, ends)))
    return world


def committed(world: World) -> list[int]:
    """The offsets of the last commit, in the order of partitions."""
    report = next(each for each in reversed(world.reports) if each.HasField("commit_offsets"))
    found = sorted(
        (each.partition_json, each.offset_json) for each in report.commit_offsets.offsets
    )
    return [json.loads(offset)["kafka_offset"] for _, offset in found]


def test_latest_skips_the_records_of_before_and_commits_its_start(
    world: World, counts: dict[str, int]
) -> None:
    config = {"topics": "t,u", RESET: "latest"}
    sink = cast("SinkRunner", world.runner(SinkRunner, WriterSink, config))
    sink.run_once()
    assert committed(world) == [10, 0]
    world.answer_commit()
    sink.run_once()
    assert world.watched[-1][0] == {("t", 0): 10, ("t", 1): 0}
    # records of later partitions and topics are newer than the sink
    counts.update({"t": 3, "u": 1})
    sink.run_once()
    world.answer_commit()
    sink.run_once()
    assert world.watched[-1][0] == {("t", 0): 10, ("t", 1): 0, ("t", 2): 0, ("u", 0): 0}


def test_none_fails_the_task_with_the_remedy(world: World) -> None:
    sink = world.sink("t", **{RESET: "none"})
    sink.run_once()
    assert world.kinds == ["task_failed"]
    assert "t-0 has no committed offset" in world.reports[0].task_failed.trace
    assert "drover connector offsets" in world.reports[0].task_failed.trace


def test_earliest_is_the_default(world: World) -> None:
    for config in ({}, {RESET: "earliest"}):
        sink = world.sink("t", **config)
        sink.run_once()
        assert world.watched[-1][0] == {("t", 0): 0, ("t", 1): 0}
