"""Source and sink tasks with claims and offsets at the coordinator, as on Kafka; odd topics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from drover.dataplane.embedded import EmbeddedPlane, EmbeddedWriter
from drover.dataplane.plane import Receipt
from drover.dataplane.values import ReadPlan
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.model.sink_outputs import SinkMetadata
from drover_worker.engine.core import commits
from drover_worker.engine.tasks.sink_runner import SinkRunner
from drover_worker.engine.tasks.task_runner import TaskSpec
from tests.unit.engine.runner_world import Lines, World, Writer, WriterSink, unavailable


class FarWriter(EmbeddedWriter):
    """A writer as on Kafka: it publishes records, and the caller commits their offsets."""

    commits_with_records = False

    def publish(self, staged: Sequence[Any], offsets: Sequence[CommittedOffset]) -> Receipt:
        return replace(super().publish(staged, ()), uncommitted=offsets)


class FarPlane(EmbeddedPlane):
    """As on Kafka: published records are visible at once; claims and offsets are elsewhere."""

    def writer(
        self,
        task: TaskId,
        claim: Term,
        *,
        abandoned: Callable[[], bool],
        check_claim: Callable[[], None] = lambda: None,
        offsets_topic: str = "",
    ) -> FarWriter:
        del check_claim, offsets_topic
        return FarWriter(self.store, task, claim, abandoned)

    def current_claim(self, task: TaskId) -> None:
        return None

    def fetch_offsets(self, connector: str) -> Any:
        return None


@pytest.fixture
def far(world: World) -> World:
    world.tools = replace(world.tools, plane=FarPlane(world.store))
    return world


def test_a_source_whose_offsets_are_elsewhere_waits_for_their_commit(far: World) -> None:
    source = far.source()
    assert not Lines.made[0].context.commits_with_records
    assert source.run_once() is None
    assert (far.record_count, far.woken_readers) == (1, 1)
    assert far.sent_offsets == ['{"next":1}']
    assert source.run_once() is None
    progress = source.progress()
    assert progress is not None
    assert progress.batch_count == 0, "the batch is not done before its commit"
    assert (far.record_count, len(far.reports)) == (1, 1)
    far.answer_commit()
    assert far.scheduler.woken == 1
    assert source.run_once() is None
    assert (far.record_count, far.sent_offsets) == (2, ['{"next":1}', '{"next":2}'])
    progress = source.progress()
    assert progress is not None
    assert (progress.record_count, progress.batch_count) == (1, 1)


def test_such_a_source_starts_again_from_what_it_has_committed_itself(far: World) -> None:
    source = far.source()
    source.run_once()
    far.answer_commit()
    Lines.faults += [unavailable]
    assert source.run_once() == 0.1
    source.run_once()
    assert [each.next for each in Lines.made] == [2, 2]
    assert far.sent_offsets == ['{"next":1}', '{"next":2}']
    assert far.record_count == 2


def test_such_a_source_is_fenced_by_the_answer_to_its_commit(far: World) -> None:
    source = far.source()
    source.run_once()
    far.answer_commit("COMMIT_OUTCOME_STALE_CLAIM", "claimed again")
    assert source.run_once() is None
    assert far.kinds[-1] == "task_fenced"
    assert far.record_count == 1


def test_a_paused_source_takes_up_its_commit_and_goes_on_later(far: World) -> None:
    source = far.source()
    source.run_once()
    source.set_paused(True)
    far.answer_commit()
    assert source.run_once() is None
    assert far.record_count == 1
    assert source.progress() is not None
    source.set_paused(False)
    source.run_once()
    assert far.record_count == 2


def test_the_first_commit_of_a_sink_says_of_all_its_offsets_what_they_mean(far: World) -> None:
    far.store.ensure_topic("u")
    committed = CommittedOffset('{"kafka_topic":"u","kafka_partition":0}', '{"kafka_offset":0}')
    task = TaskId("WriterSink", 0)
    claim = far.store.claim_task(task, generation=1, owner="tests", request_id="")
    far.store.publish(task, claim, [], [committed])
    source = far.source()
    source.run_once()
    far.answer_commit()
    sink = far.sink("t,u")
    sink.run_once()
    offsets = far.reports[-1].commit_offsets.offsets
    assert [(each.offset_json, SinkMetadata.parsed(each.metadata).own) for each in offsets] == [
        ('{"kafka_offset":1}', "note"),
        ('{"kafka_offset":0}', "note"),
    ]
    far.answer_commit()
    source.run_once()
    far.answer_commit()
    sink.run_once()
    assert len(far.reports[-1].commit_offsets.offsets) == 1


def test_partitions_that_a_topic_gets_later_are_taken_on(world: World) -> None:
    counts = {"t": 1}
    ends = {("t", 0): 0, ("t", 1): 0}
    world.tools = replace(world.tools, plane=cast("Any", GrowingPlane(counts, ends)))
    sink = world.sink()
    sink.run_once()
    assert world.watched[-1] == ({("t", 0): 0}, {"t": 1})
    counts["t"] = 2
    sink.run_once()
    assert world.watched[-1] == ({("t", 0): 0, ("t", 1): 0}, {"t": 2})


class GrowingPlane:
    """A plane whose topics have no records."""

    record_bytes_max = None
    takes_frames = False

    def record_bytes_max_of(self, _topic: str) -> None:
        return None

    def reserved_topics(self) -> tuple[str, ...]:
        return ()

    def __init__(self, counts: Mapping[str, int], ends: Mapping[tuple[str, int], int]) -> None:
        self._counts, self._ends = counts, ends

    def partition_counts(self, _topics: object) -> Mapping[str, int]:
        return self._counts

    def topic_ids(self, topics: Iterable[str], **_: object) -> Mapping[str, str]:
        return dict.fromkeys(topics, "id")

    def offsets_retention_ms(self) -> None: ...

    def plan_read(self, starts: Mapping[tuple[str, int], int], **_: object) -> ReadPlan:
        return ReadPlan((), starts)


def test_a_sink_whose_config_does_not_say_how_many_share_is_told(world: World) -> None:
    spec = TaskSpec(
        task=TaskId("WriterSink", 1),
        run_id=1,
        claim=Term(1, 1),
        connector_class=WriterSink,
        connector_config={"name": "c", "connector.class": "WriterSink", "topics": "t"},
        own_config={},
        committed=(),
    )
    with pytest.raises(ValueError, match=r"lacks task\.count, the number of tasks that share"):
        SinkRunner(spec, world.tools, paused=False)


def test_a_sink_that_was_taken_over_writes_nothing(far: World) -> None:
    source = far.source()
    source.run_once()
    far.answer_commit()
    sink = far.sink()
    far.take_over(WriterSink)
    assert sink.run_once() is None
    assert Writer.written == []
    assert far.kinds[-1] == "task_fenced"


def test_a_claim_that_was_acknowledged_a_moment_ago_is_not_asked_about(
    far: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRMED_FOR_MS", 3_600_000)
    source = far.source()
    source.run_once()
    far.answer_commit()
    source.run_once()
    far.answer_commit()
    sink = far.sink(**{"batch.max.records": "1"})
    sink.run_once()
    far.answer_commit()
    far.take_over(WriterSink)
    sink.run_once()
    assert len(Writer.written) == 2, "the offsets of a late write cannot be committed"
