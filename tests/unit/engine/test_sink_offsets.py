"""Sinks whose topics are deleted and created again, and whose committed offsets are missing."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from drover.connector import SinkBatch, SinkTaskContext, TopicPartition
from drover.connector.offsets import parse_sink_offsets, sink_offset
from drover.dataplane.embedded import EmbeddedPlane
from drover.model.claims import TaskSet
from drover.model.offsets import CommittedOffset, OffsetsChange
from drover.model.sink_outputs import OutputMark, SinkMetadata, SinkOutput, encode_mark
from drover_worker.engine.tasks.sink_runner import SinkRunner
from tests.support.stored_topics import delete_topic, store_records
from tests.support.waiting import wait_until
from tests.unit.engine.runner_world import World, Writer, WriterSink

T0 = TopicPartition("t", 0)


class Keeper(Writer):
    """Keeps the output id and the committed offset of each write."""

    outputs: list[tuple[str, int, str]] = []  # noqa: RUF012 (each test has its own)
    starts: list[dict[TopicPartition, int]] = []  # noqa: RUF012
    own: Mapping[TopicPartition, int] = {}

    def start(self, context: SinkTaskContext) -> None:
        super().start(context)
        self.context = context
        self.starts.append({key: each.offset for key, each in context.committed.items()})

    def positions(self) -> Mapping[TopicPartition, int]:
        return self.own

    def first_metadata(self) -> str:
        return "first"

    def write(self, batch: SinkBatch) -> str:
        for each in batch.ranges:
            key = TopicPartition(each.topic, each.partition)
            assert key in self.context.committed, "there is output, so there is an offset"
            output_id = self.context.output_ids.get(key, "")
            self.outputs.append((each.topic, each.end_offset - each.start_offset, output_id))
        return super().write(batch)


class KeeperSink(WriterSink):
    task_class = Keeper
    traced: Mapping[TopicPartition, int] = {}

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        assert connector == config["name"] == "KeeperSink"
        return {key: at for key, at in cls.traced.items() if key in partitions}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("outputs", "starts"):
        monkeypatch.setattr(Keeper, name, [])


def sink(world: World, **config: str) -> SinkRunner:
    common = config if "topics.regex" in config else {"topics": "t", **config}
    return cast("SinkRunner", world.runner(SinkRunner, KeeperSink, common))


def run(world: World, runner: SinkRunner, runs: int = 6) -> None:
    """Run the sink; its commits are durable at once."""
    for _ in range(runs):
        sent = len(world.sent_offsets)
        runner.run_once()
        if len(world.sent_offsets) > sent:
            world.commit()


def fill(world: World, count: int = 3, topic: str = "t") -> None:
    """Write records to a topic, as another producer does."""
    store_records(world.store, topic, [{"value": b"%d" % number} for number in range(count)])


def stored(world: World) -> dict[TopicPartition, tuple[int, str]]:
    """The committed offsets, with the output ids."""
    found = parse_sink_offsets(world.store.fetch_offsets("KeeperSink"))
    return {
        key: (each.offset, SinkMetadata.parsed(each.metadata).output.output_id)
        for key, each in found.items()
    }


def test_the_start_is_committed_before_the_first_write(world: World) -> None:
    runner = sink(world)
    runner.run_once()
    assert not world.sent_offsets, "an idle sink commits nothing"
    fill(world)
    assert runner.run_once() is None
    assert world.sent_offsets == ['{"kafka_offset":0}']
    (first,) = world.reports[-1].commit_offsets.offsets
    assert SinkMetadata.parsed(first.metadata).own == "first"
    assert runner.run_once() is None, "it waits for the answer"
    assert not Keeper.outputs
    world.commit()
    run(world, runner)
    assert Keeper.outputs == [("t", 3, "")]
    assert stored(world) == {T0: (3, "")}


def test_a_sink_killed_during_its_first_batch_repeats_it(world: World) -> None:
    fill(world)
    runner = sink(world)
    runner.run_once()
    world.commit()
    runner.run_once()
    assert len(Keeper.outputs) == 1
    KeeperSink.traced = {T0: 3}
    try:
        run(world, sink(world))
    finally:
        KeeperSink.traced = {}
    assert Keeper.outputs == [("t", 3, "")] * 2


@pytest.mark.parametrize("count", [3, 6, 9], ids=["fewer", "equal", "more"])
@pytest.mark.parametrize("restarts", [False, True], ids=["while it runs", "before its start"])
@pytest.mark.parametrize("config", [{}, {"topics.regex": "t|u"}], ids=["named", "regex"])
def test_a_recreated_topic_is_read_from_its_start_into_another_output(
    world: World, count: int, restarts: bool, config: dict[str, str]
) -> None:
    fill(world, 6)
    runner = sink(world, **config)
    run(world, runner)
    assert stored(world) == {T0: (6, "")}
    if restarts:
        runner.stop(1)
    delete_topic(world.store, "t")
    fill(world, count)
    if restarts:
        runner = sink(world, **config)
    run(world, runner)
    (old, new) = Keeper.outputs
    assert old == ("t", 6, "")
    assert new[:2] == ("t", count)
    assert len(new[2]) == 8
    assert stored(world) == {T0: (count, new[2])}
    assert Keeper.starts[-1] == {}
    run(world, sink(world, **config))
    assert Keeper.outputs == [old, new], "nothing is written again"
    assert Keeper.starts[-1] == {T0: count}


def test_of_two_topics_only_the_recreated_one_begins_another_output(world: World) -> None:
    fill(world)
    fill(world, 2, "u")
    runner = sink(world, topics="t,u")
    run(world, runner)
    before = stored(world)
    assert before == {T0: (3, ""), TopicPartition("u", 0): (2, "")}
    delete_topic(world.store, "t")
    fill(world)
    run(world, runner)
    after = stored(world)
    assert after[TopicPartition("u", 0)] == (2, "")
    assert after[T0][0] == 3
    assert len(after[T0][1]) == 8
    assert Keeper.outputs == [("t", 3, ""), ("u", 2, ""), ("t", 3, after[T0][1])]


def test_a_topic_that_is_recreated_twice_has_three_outputs(world: World) -> None:
    runner = sink(world)
    for _ in range(3):
        fill(world)
        run(world, runner)
        delete_topic(world.store, "t")
        run(world, runner)
    assert len({output_id for _, _, output_id in Keeper.outputs}) == 3


@pytest.mark.parametrize("restarts", [1, 3])
def test_output_without_a_committed_offset_stops_the_sink(
    world: World, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    fill(world)
    monkeypatch.setattr(KeeperSink, "traced", {T0: 2})
    for _ in range(restarts):
        run(world, sink(world))
        assert world.kinds[-1] == "task_failed"
        trace = world.reports[-1].task_failed.trace
        assert trace.startswith("committed offsets of KeeperSink were lost (t-0: ")
        assert "t-0: no committed offset, the output goes up to 2" in trace
    assert not Keeper.outputs
    assert stored(world) == {}


def test_a_position_in_the_output_itself_needs_no_committed_offset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world)
    monkeypatch.setattr(KeeperSink, "traced", {T0: 2})
    monkeypatch.setattr(Keeper, "own", {T0: 2})
    run(world, sink(world))
    assert Keeper.outputs == [("t", 1, "")]
    assert stored(world) == {T0: (3, "")}


class ExpiringPlane(EmbeddedPlane):
    """As on Kafka: offsets expire, and only the coordinator has them."""

    def fetch_offsets(self, connector: str) -> Any:
        del connector

    def offsets_retention_ms(self) -> Any:
        return 4


@pytest.mark.parametrize("paused", [False, True])
def test_offsets_are_committed_again_at_the_start_and_before_they_expire(
    world: World, paused: bool
) -> None:
    fill(world)
    fill(world, 2, "u")
    run(world, sink(world, topics="t,u"))
    world.tools = replace(world.tools, plane=ExpiringPlane(world.store))
    runner = world.runner(SinkRunner, KeeperSink, {"topics": "t,u"}, paused=paused)
    before = stored(world)
    for restored in (False, True, True):
        if restored:
            wait_until(lambda: time.monotonic() * 1000 > runner._core._next_recommit_ms + 1)
            with world.store._database.write() as connection:
                connection.execute("DELETE FROM offsets WHERE connector = 'KeeperSink'")
        sent = len(world.sent_offsets)
        assert runner.run_once() is None, "it waits for the answer"
        assert len(world.sent_offsets) == sent + 2
        assert world.reports[-1].commit_offsets.refresh_marks
        world.commit()
        assert stored(world) == before
    assert runner._figures.values()["restored_offset_count"] == 4
    assert len(Keeper.outputs) == 2


def test_an_offset_of_kafka_connect_gets_the_id_of_its_topic(world: World) -> None:
    fill(world)
    runner = sink(world)
    run(world, runner)
    with world.store._database.write() as connection:
        connection.execute("UPDATE offsets SET metadata = '' WHERE connector = 'KeeperSink'")
    world.tools = replace(world.tools, plane=ExpiringPlane(world.store))
    run(world, sink(world), 1)
    (offset,) = world.store.fetch_offsets("KeeperSink")
    assert SinkMetadata.parsed(offset.metadata).output.topic_id == world.store.topic_ids()["t"]


def test_a_lost_offset_that_a_mark_shows_stops_the_sink(world: World) -> None:
    fill(world)
    run(world, sink(world))
    key = '{"kafka_topic":"t","kafka_partition":0}'
    mark = OutputMark(SinkOutput(world.store.topic_ids()["t"]), 2)
    runner = sink(world)
    runner.spec = replace(runner.spec, committed=[CommittedOffset(key, None, encode_mark(mark))])
    runner.prepare()
    run(world, runner)
    assert world.kinds[-1] == "task_failed"
    trace = world.reports[-1].task_failed.trace
    assert "t-0: no committed offset, the last known one is 2 or higher" in trace
    assert len(Keeper.outputs) == 1


def test_after_a_reset_another_output_begins_with_the_first_record(world: World) -> None:
    fill(world)
    run(world, sink(world))
    for _ in range(2):  # the second one changes nothing
        world.store.change_offsets(OffsetsChange("KeeperSink", TaskSet(1, -1), None))
    run(world, sink(world), 1)  # killed before the first commit
    run(world, sink(world))
    assert len({output_id for _, _, output_id in Keeper.outputs}) == 2
    assert stored(world) == {T0: (3, Keeper.outputs[1][2])}
    assert world.store.marks("KeeperSink") == []
    run(world, sink(world))
    assert len(Keeper.outputs) == 2


def test_altered_offsets_keep_their_output(world: World) -> None:
    fill(world)
    run(world, sink(world))
    delete_topic(world.store, "t")
    fill(world)
    run(world, sink(world))
    output_id = Keeper.outputs[-1][2]
    altered = sink_offset("t", 0, 1)
    world.store.change_offsets(OffsetsChange("KeeperSink", TaskSet(1, -1), [altered]))
    run(world, sink(world))
    assert Keeper.outputs[-1] == ("t", 2, output_id)


def test_an_offset_of_an_earlier_version_is_taken_over(world: World) -> None:
    fill(world)
    runner = sink(world)
    run(world, runner)
    with world.store._database.write() as connection:
        connection.execute("UPDATE offsets SET metadata = 'old' WHERE connector = 'KeeperSink'")
    fill(world)
    again = sink(world)
    assert cast("Any", again._instance).committed[T0].metadata == "old"
    run(world, again)
    assert Keeper.outputs == [("t", 3, ""), ("t", 3, "")]
    (offset,) = world.store.fetch_offsets("KeeperSink")
    assert SinkMetadata.parsed(offset.metadata).output.topic_id == world.store.topic_ids()["t"]
