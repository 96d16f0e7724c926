"""Sinks that write a batch while the previous one is being committed."""

import threading
import time
from typing import Any, cast

import pytest

from drover.connector import SinkBatch, SinkTaskContext, TopicPartition
from drover_worker.engine.core import commits
from drover_worker.engine.core.failures import Fault
from drover_worker.engine.tasks.sink_runner import SinkRunner
from tests.unit.engine.runner_world import StartedSink, World, Writer, WriterSink

_REFUSED = "COMMIT_OUTCOME_INVALID"
_STALE = "COMMIT_OUTCOME_STALE_CLAIM"


class Ahead(Writer):
    """A sink task that may write before the previous batch is committed."""

    writes_ahead = True
    rewinds_to: int | None = None
    starts: list[int] = []  # noqa: RUF012 (each test has its own)

    def start(self, context: SinkTaskContext) -> None:
        super().start(context)
        self.context = context
        self.starts.append(max((each.offset for each in context.committed.values()), default=0))

    def write(self, batch: SinkBatch) -> str:
        metadata = super().write(batch)
        if self.rewinds_to is not None:
            self.context.rewind({TopicPartition("t", 0): self.rewinds_to})
            type(self).rewinds_to = None
        return metadata


class AheadSink(WriterSink):
    task_class = Ahead


@pytest.fixture
def sink(world: World, monkeypatch: pytest.MonkeyPatch) -> SinkRunner:
    """A sink with three records, one per batch, and a claim that was just confirmed."""
    monkeypatch.setattr(commits, "CONFIRMED_FOR_MS", 3_600_000)
    Ahead.starts, Ahead.rewinds_to = [], None
    world.fill()
    return _sink(world)


def _sink(world: World, **config: str) -> SinkRunner:
    common = {"topics": "t", "batch.max.records": "1"}
    found = cast("SinkRunner", world.runner(StartedSink, AheadSink, common | config))
    found._core.commits.confirmed(round(time.monotonic() * 1000))
    return found


def _written() -> list[int]:
    return [offset for _, offset, _ in Writer.written]


def _at(*offsets: int) -> list[str]:
    return [f'{{"kafka_offset":{each}}}' for each in offsets]


def test_the_next_batch_is_written_while_one_is_committed(world: World, sink: SinkRunner) -> None:
    assert sink.run_once() == 0
    assert sink.run_once() is None
    assert _written() == [0, 1]
    assert sink.run_once() is None
    assert _written() == [0, 1], "one batch ahead, not two"


def test_commits_are_sent_one_after_the_other(world: World, sink: SinkRunner) -> None:
    sink.run_once()
    sink.run_once()
    assert world.sent_offsets == _at(1)
    world.answer_commit()
    assert world.sent_offsets == _at(1, 2)
    assert sink.run_once() is None
    assert _written() == [0, 1, 2]
    world.answer_commit()
    world.answer_commit()
    sink.run_once()
    assert world.sent_offsets == _at(1, 2, 3)
    progress = sink.progress()
    assert progress is not None
    assert (progress.record_count, progress.batch_count) == (3, 3)


def test_what_the_task_is_told_to_be_committed_is(world: World, sink: SinkRunner) -> None:
    sink.run_once()
    sink.run_once()
    told = cast("Any", sink._instance).committed
    assert not told
    world.answer_commit()
    sink.run_once()
    assert told["t", 0].offset == 1


@pytest.mark.parametrize(("outcome", "kind"), [(_REFUSED, "task_failed"), (_STALE, "task_fenced")])
def test_nothing_is_committed_after_a_commit_that_was_refused(
    world: World, sink: SinkRunner, outcome: str, kind: str
) -> None:
    sink.run_once()
    sink.run_once()
    world.answer_commit(outcome)
    assert sink.run_once() is None
    assert world.kinds[-1] == kind
    assert world.sent_offsets == _at(1)


def test_a_batch_that_ends_after_the_one_before_was_refused_is_not_committed(
    world: World, sink: SinkRunner
) -> None:
    sink.run_once()
    Writer.faults = [lambda: world.answer_commit(_STALE)]
    sink.run_once()
    assert world.sent_offsets == _at(1)
    sink.run_once()
    assert world.kinds[-1] == "task_fenced"


def test_a_stop_waits_for_all_that_was_written(world: World, sink: SinkRunner) -> None:
    sink.run_once()
    sink.run_once()
    stop = threading.Thread(target=sink.stop, args=(60.0,))
    stop.start()
    world.commit()
    assert world.sent_offsets == _at(1, 2)
    assert sink._core.commits.is_in_flight, "the second one is not committed yet"
    world.commit()
    stop.join()
    (offset,) = world.store.fetch_offsets("AheadSink")
    assert offset.offset_json == _at(2)[0]


def test_a_batch_that_is_lost_is_done_again_behind_the_one_that_is_being_committed(
    world: World, sink: SinkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.run_once()

    def lose() -> None:
        raise OSError

    monkeypatch.setattr("drover_worker.engine.tasks.faults.fault_of", _lost_by(OSError))
    Writer.faults = [lose]
    assert cast("float", sink.run_once()) > 0
    assert sink.run_once() is None
    assert Ahead.starts == [0], "the start offset is unknown before the commit"
    world.commit()
    sink.run_once()
    assert Ahead.starts == [0, 1]
    assert _written() == [0, 1]


def _lost_by(kind: type[Exception]) -> Any:
    return lambda error: Fault.LOST if isinstance(error, kind) else None


def test_a_rewind_takes_back_no_offset_that_is_being_committed(
    world: World, sink: SinkRunner
) -> None:
    sink.run_once()
    Ahead.rewinds_to = 0
    sink.run_once()
    world.answer_commit()
    sink.run_once()
    assert _written() == [0, 1, 0]
    assert world.sent_offsets == _at(1, 1)


def test_without_more_to_read_it_waits_for_the_commit(world: World, sink: SinkRunner) -> None:
    last = _sink(world, **{"batch.max.records": "100"})
    assert last.run_once() is None
    assert _written() == [0, 1, 2]
    assert not world.watched


def test_a_rate_is_kept_to(world: World, sink: SinkRunner) -> None:
    assert _sink(world, **{"rate.max.records": "1"}).run_once() is None


def test_while_only_the_coordinator_knows_whose_the_task_is_it_waits_for_the_commit(
    world: World, sink: SinkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRMED_FOR_MS", 0)
    assert sink.run_once() is None
    assert sink.run_once() is None
    assert _written() == [0]
