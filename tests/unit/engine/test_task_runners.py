"""Source and sink tasks, run by run, on a real store and without Spark: outages, restarts, ends.

Fake frames run the executors' functions in this process.
"""

import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from drover.codec.common import decode_figures
from drover.codec.failures import decode_cause
from drover.connector import (
    ForeignOffsetsError,
    OffsetForm,
    RetriableError,
)
from drover.connector.error_settings import ErrorSettings
from drover.dataplane import embedded
from drover.dataplane.answers import PassLostError
from drover.errors import DataLossError, InvalidArgumentError, Reason
from drover.model.failures import FailureCause
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover.model.sink_outputs import SinkMetadata
from drover.pipeline import PassReport
from drover_worker.engine.core.error_rate import ErrorRate, TooManyErrorsError
from drover_worker.engine.tasks import progress
from drover_worker.engine.tasks.source_runner import SourceRunner
from tests.unit.engine.runner_world import (
    Lines,
    LinesSource,
    World,
    Writer,
    WriterSink,
    unavailable,
)


def test_a_source_publishes_batch_after_batch_and_then_waits(world: World) -> None:
    runner = world.source()
    assert [runner.run_once() for _ in range(3)] == [0, 0, 0]
    assert world.record_count == 3
    assert world.woken_readers == 3
    pauses_s = [runner.run_once() for _ in range(5)]
    assert all(pause_s and 0.2 <= pause_s <= 1.0 for pause_s in pauses_s)
    assert world.reports == []


def topics_of_a_run(runner: SourceRunner) -> list[str]:
    """The topics, sorted by name, that it reports after its next run."""
    runner.run_once()
    progress = runner.progress()
    assert progress is not None
    return sorted(progress.topics)


def test_a_source_tells_the_topics_of_records_that_moved_since_the_last_time(
    world: World,
) -> None:
    runner = world.source()
    assert [topics_of_a_run(runner) for _ in range(2)] == [["t"], ["t"]]
    assert runner.progress() is None


def test_a_source_tells_the_topics_that_its_records_name(world: World) -> None:
    runner = world.spreader(["b", "a", "b"], ["c", "a"])
    assert [runner.run_once() for _ in range(2)] == [0, 0]
    progress = runner.progress()
    assert progress is not None
    assert sorted(progress.topics) == ["a", "b", "c"]
    assert progress.record_count == 5


def test_topics_over_a_reports_bound_follow_in_the_next_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_REPORT_TOPICS_MAX", 2)
    monkeypatch.setattr(progress, "_WAITING_TOPICS_MAX", 5)
    runner = world.spreader("abcdefg")
    runner.run_once()
    told = [list(found.topics) for found in iter(runner.progress, None)]
    assert told == [["a", "b"], ["c", "d"], ["e"]]


def test_a_batch_names_so_many_topics_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "BATCH_TOPICS_MAX", 2)
    runner = world.spreader("abc", "cd")
    assert [topics_of_a_run(runner) for _ in range(2)] == [["a", "b"], ["c", "d"]]


def test_a_source_whose_staging_meets_a_busy_store_starts_again_from_the_offsets(
    world: World,
) -> None:
    runner = world.source()
    runner.run_once()
    Lines.faults += [unavailable, unavailable]
    pauses = [runner.run_once() for _ in range(2)]
    assert pauses == [0.1, 0.2]
    assert [runner.run_once() for _ in range(2)] == [0, 0]
    assert world.record_count == 3
    assert [each.stopped for each in Lines.made] == [True, True, False]
    assert world.reports == []


def lost() -> None:
    raise PassLostError("Python worker exited unexpectedly (crashed)")


def test_a_batch_that_is_lost_with_a_process_of_spark_is_done_again(world: World) -> None:
    runner = world.source()
    runner.run_once()
    Lines.faults += [lost] * 4
    assert [runner.run_once() for _ in range(4)] == [0.1, 0.2, 0.4, 0.8]
    assert [runner.run_once() for _ in range(2)] == [0, 0]
    assert world.record_count == 3
    assert world.reports == []


def test_a_task_under_which_spark_loses_a_process_each_time_fails(world: World) -> None:
    Lines.faults += [lost] * 5
    runner = world.source()
    assert [runner.run_once() for _ in range(5)] == [0.1, 0.2, 0.4, 0.8, None]
    (report,) = world.reports
    assert "ended during 5 batches in a row" in report.task_failed.trace


def test_only_losses_in_a_row_count(world: World) -> None:
    runner = world.source()
    for _ in range(3):
        Lines.faults += [lost] * 4
        assert [runner.run_once() for _ in range(5)][-1] == 0
    assert world.reports == []


def test_a_failure_tells_its_cause(world: World) -> None:
    def too_many() -> None:
        raise TooManyErrorsError("99 of 100")

    def wrong() -> None:
        raise ValueError("no such city")

    for fault in (too_many, wrong):
        Lines.faults.append(fault)
        assert world.source().run_once() is None
    causes = [decode_cause(report.task_failed.cause) for report in world.reports]
    assert causes == [FailureCause.LIMIT, FailureCause.PLUGIN]


def test_a_start_that_fails_with_the_jvm_is_the_engines_fault(world: World) -> None:
    runner, refused = world.source(), ConnectionRefusedError("[Errno 111] Connection refused")
    assert runner.cause_of_failed_start(refused) is FailureCause.OUTAGE
    assert runner.cause_of_failed_start(ValueError("no")) is FailureCause.PLUGIN
    assert runner.cause_of_failed_start(PassLostError("lost")) is FailureCause.ENGINE
    world.is_spark_running = False
    assert runner.cause_of_failed_start(refused) is FailureCause.ENGINE


def test_nothing_is_a_tasks_fault_once_the_jvm_is_gone(world: World) -> None:
    def refused() -> None:
        raise ConnectionRefusedError("[Errno 111] Connection refused")

    Lines.faults += [refused] * 7
    runner = world.source()
    world.is_spark_running = False
    assert [runner.run_once() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert world.reports == []
    world.is_spark_running = True
    assert runner.run_once() is None
    assert world.kinds == ["task_failed"]


def test_a_source_that_cannot_publish_publishes_the_same_batch_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    Lines.faults.append(lambda: runs.append("no fault"))
    runner = world.source()
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "publish", lambda *_: unavailable())
        assert [runner.run_once() for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert runner.run_once() == 0
    assert (world.record_count, len(Lines.made)) == (1, 1)
    assert len(runs) == 1, "the batch is not computed again"


def test_a_source_that_was_taken_over_is_fenced_and_its_task_stopped(world: World) -> None:
    runner = world.source()
    runner.run_once()
    world.take_over(LinesSource)
    assert runner.run_once() is None
    assert world.kinds == ["task_fenced"]
    assert (runner.over, world.record_count) == (True, 1)
    assert world.scheduler.removed == [runner]
    assert runner.run_once() is None


def test_a_source_does_not_start_on_offsets_that_another_connector_wrote(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.source().run_once()
    made = len(Lines.made)
    monkeypatch.setattr(LinesSource, "offset_forms", (OffsetForm({"table": str}),))
    with pytest.raises(ForeignOffsetsError, match="offsets LinesSource --reset"):
        world.source()
    assert len(Lines.made) == made


def test_a_task_whose_store_is_corrupt_fails_and_does_not_fall_silent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corrupt(*_: object) -> None:
        raise DataLossError(Reason.LOG_CORRUPT, "data.db cannot be read")

    source, sink = world.source(), world.sink()
    source.run_once()
    Lines.faults.append(corrupt)
    monkeypatch.setattr(world.store, "current_claim", corrupt)
    assert source.run_once() is None
    assert sink.run_once() is None
    failures = [each.task_failed for each in world.reports]
    assert [each.task.connector for each in failures] == ["LinesSource", "WriterSink"]
    assert all("data.db cannot be read" in each.trace for each in failures)


def test_a_failure_that_cannot_be_put_into_words_is_a_failure_all_the_same(world: World) -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def wordless() -> None:
        raise WordlessError

    Lines.faults.append(wordless)
    assert world.source().run_once() is None
    assert world.kinds == ["task_failed"]
    assert "WordlessError" in world.reports[0].task_failed.trace


def test_a_stopped_source_does_not_run(world: World) -> None:
    runner = world.source()
    runner.stop(1)
    assert runner.run_once() is None
    assert Lines.made[0].stopped
    assert world.record_count == 0


def test_a_sink_writes_and_waits_for_its_commit_before_it_reads_on(world: World) -> None:
    sink = world.sink()
    assert sink.run_once() is None
    assert world.watched == [({}, {"t": 0})]
    world.fill()
    assert sink.run_once() is None
    assert [offset for _, offset, _ in Writer.written] == [0, 1, 2]
    (offset,) = world.reports[0].commit_offsets.offsets
    assert (
        offset.partition_json,
        offset.offset_json,
        SinkMetadata.parsed(offset.metadata).own,
    ) == (
        '{"kafka_topic":"t","kafka_partition":0}',
        '{"kafka_offset":3}',
        "note",
    )
    assert sink.run_once() is None
    assert len(world.reports) == 1
    world.answer_commit()
    assert world.scheduler.woken == 2
    sink.run_once()
    assert world.watched[-1] == ({("t", 0): 3}, {"t": 1})
    progress = sink.progress()
    assert progress is not None
    assert (progress.record_count, progress.batch_count) == (3, 1)
    assert list(progress.topics) == ["t"]
    assert sink.progress() is None


def test_a_sink_reads_on_where_the_commits_say(world: World) -> None:
    world.fill()
    committed = CommittedOffset('{"kafka_topic":"t","kafka_partition":0}', '{"kafka_offset":2}')
    task = TaskId("WriterSink", 0)
    claim = world.store.claim_task(task, generation=1, owner="tests", request_id="")
    world.store.publish(task, claim, [], [committed])
    world.sink().run_once()
    assert Writer.written == [("t", 2, b"line 2")]


def test_every_batch_passes_the_transforms(world: World) -> None:
    masked = {
        "transforms": "hoist,only",
        "transforms.hoist.type": "HoistField$Value",
        "transforms.hoist.field": "line",
        "transforms.only.type": "ExtractField$Value",
        "transforms.only.field": "line",
    }
    world.source(**masked).run_once()
    assert world.record_count == 1
    world.sink(**masked).run_once()
    assert [value for _, _, value in Writer.written] == [b"line 0"]


def test_a_source_counts_what_its_transforms_drop(world: World) -> None:
    runner = world.source(**{"transforms": "none", "transforms.none.type": "Filter"})
    runner.run_once()
    progress = runner.progress()
    assert progress is not None
    assert (progress.counts.read_count, progress.counts.filtered_count) == (1, 1)
    assert world.record_count == 0


def test_figures_of_a_plugin_are_reported_once_they_change(world: World) -> None:
    runner = world.source()
    while runner.run_once() == 0:
        pass
    runner.progress()
    assert runner.progress() is None, "an idle task reports nothing"
    context = Lines.made[-1].context
    context.report("lag_bytes", 5)
    context.report("lag_bytes", 7)
    progress = runner.progress()
    assert progress is not None
    assert decode_figures(progress.figures) == {"lag_bytes": 7}
    assert progress.counts.read_count == 3
    context.report("lag_bytes", 7)
    assert runner.progress() is None


def test_a_sink_tells_how_many_records_it_has_left_to_write(world: World) -> None:
    source = world.source()
    while source.run_once() == 0:
        pass
    sink = world.sink(**{"batch.max.records": "1"})
    lags = []
    for _ in range(4):
        sink._lag._measured_s = 0.0  # a second has passed
        sink.run_once()
        progress = sink.progress()
        assert progress is not None
        lags.append(decode_figures(progress.figures)["lag_count"])
        if world.tools.commits:
            world.answer_commit()
    assert lags == [3, 2, 1, 0]


def test_a_batch_that_waits_for_the_store_is_counted_once_it_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source(**{"transforms": "none", "transforms.none.type": "Filter"})
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "publish", lambda *_: unavailable())
        assert runner.run_once() == 0.1
    runner.run_once()
    progress = runner.progress()
    assert progress is not None
    assert (progress.counts.read_count, progress.counts.filtered_count) == (1, 1)


def test_a_task_that_loses_too_many_records_fails(world: World) -> None:
    rate = ErrorRate(ErrorSettings.of(world.parsed(**{"errors.max.rate": "0.1"})))
    rate.add(PassReport(read_count=99, skipped_count=99), 0.0)  # too few records for an error rate
    with pytest.raises(TooManyErrorsError, match=r"99 of the last 500 records .* allows 0\.1"):
        rate.add(PassReport(read_count=401), 1.0)
    rate.add(
        PassReport(read_count=500, skipped_count=50), 100.0
    )  # the first records no longer count


def _remove_everything(world: World) -> None:
    while world.store.apply_retention(retention_ms=None, retention_bytes=0).batch_count:
        pass


@pytest.mark.parametrize(("committed", "removed"), [(None, 3), (2, 1)])
def test_a_sink_goes_on_at_the_log_start_when_retention_was_faster(
    world: World, committed: int | None, removed: int
) -> None:
    world.fill()
    _remove_everything(world)
    task = TaskId("WriterSink", 0)
    if committed is not None:
        claim = world.store.claim_task(task, generation=1, owner="tests", request_id="")
        offset = CommittedOffset(
            '{"kafka_topic":"t","kafka_partition":0}', f'{{"kafka_offset":{committed}}}'
        )
        world.store.publish(task, claim, [], [offset])
    sink = world.sink()
    with capture_logs() as logs:
        sink.run_once()  # retention has removed every record
        assert world.watched[-1] == ({("t", 0): 3}, {"t": 1})
        Writer.faults.append(unavailable)
        world.store.publish(  # resets the source, which then reads its three lines again
            TaskId("LinesSource", 0),
            world.store.claim_task(
                TaskId("LinesSource", 0), generation=1, owner="tests", request_id=""
            ),
            [],
            [CommittedOffset('{"lines":0}', None)],
        )
        world.fill()
        assert sink.run_once() == 0.1  # fails, and restarts at the committed offset
        sink.run_once()
        world.answer_commit()
        sink.run_once()
    assert [offset for _, offset, _ in Writer.written] == [3, 4, 5]
    assert "task_failed" not in world.kinds
    warnings = [each for each in logs if "retention" in each["event"]]
    assert [(each["record_count"], each["log_starts"]) for each in warnings] == [
        (removed, {"t-0": 3})
    ]


def test_a_sink_whose_read_meets_a_busy_store_starts_again(world: World) -> None:
    world.fill()
    Writer.faults.append(unavailable)
    sink = world.sink()
    assert sink.run_once() == 0.1
    assert world.reports == []
    sink.run_once()
    assert [offset for _, offset, _ in Writer.written] == [0, 1, 2]
    assert world.kinds == ["commit_offsets"]


def test_a_sink_that_was_taken_over_does_not_write(world: World) -> None:
    world.fill()
    sink = world.sink()
    world.take_over(WriterSink)
    sink.run_once()
    assert Writer.written == []
    assert world.kinds == ["task_fenced"]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("COMMIT_OUTCOME_STALE_CLAIM", "task_fenced"),
        ("COMMIT_OUTCOME_INVALID", "task_failed"),
    ],
)
def test_a_refused_commit_ends_the_sink(world: World, outcome: str, kind: str) -> None:
    world.fill()
    sink = world.sink()
    sink.run_once()
    world.answer_commit(outcome, "that is why")
    sink.run_once()
    assert world.kinds == ["commit_offsets", kind]
    if kind == "task_failed":
        assert "that is why" in world.reports[-1].task_failed.trace


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (None, "write() must return text or Written, not NoneType"),
        ("x" * 4097, "4097 bytes of metadata"),
    ],
)
def test_metadata_that_cannot_be_committed_fails_the_sink(
    world: World, metadata: Any, why: str
) -> None:
    world.fill()
    Writer.metadata = metadata
    world.sink().run_once()
    assert world.kinds == ["task_failed"]
    assert why in world.reports[0].task_failed.trace


def test_a_stop_waits_for_the_commit_under_way_but_not_for_ever(world: World) -> None:
    world.fill()
    sink = world.sink()
    sink.run_once()
    sink.stop(0.05)
    world.answer_commit()
    assert sink.run_once() is None
    assert world.kinds == ["commit_offsets"]


def test_a_paused_task_runs_without_work(world: World) -> None:
    runner = world.runner(SourceRunner, LinesSource, paused=True)
    assert runner.run_once() is None
    runner.set_paused(False)
    assert world.scheduler.woken == 1
    assert runner.run_once() == 0
    assert world.record_count == 1


def test_a_retriable_write_is_made_again_for_the_same_batch(world: World) -> None:
    world.fill()

    def refuse() -> None:
        raise RetriableError("the other side is busy")

    Writer.faults[:] = [refuse, refuse]
    runner = world.sink(**{"errors.retry.timeout": "60000"})
    assert [runner.run_once() for _ in range(2)] == [0.3, 0.6]
    assert world.kinds == []
    assert runner.run_once() is None
    assert [offset for _, offset, _ in Writer.written] == [0, 1, 2]
    assert world.kinds == ["commit_offsets"]


def test_without_a_time_to_retry_it_fails_the_task(world: World) -> None:
    world.fill()

    def refuse() -> None:
        raise RetriableError("the other side is busy")

    Writer.faults[:] = [refuse]
    assert world.sink().run_once() is None
    assert world.kinds == ["task_failed"]


def test_a_batch_waits_for_more_records_as_long_as_it_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    source, sink = world.source(), world.sink(**{"batch.wait.ms": "1500"})
    assert sink.run_once() is None, "there is no wait without records"
    source.run_once()
    now_s[0] = 500.0
    assert sink.run_once() == 1.0
    source.run_once()
    now_s[0] = 501.0
    assert sink.run_once() == 0.5
    assert Writer.written == []
    now_s[0] = 501.5
    assert sink.run_once() is None
    assert [value for _, _, value in Writer.written] == [b"line 0", b"line 1"]
    world.answer_commit()
    source.run_once()
    assert sink.run_once() == 1.0, "the wait of the next batch starts at its first record"


def test_a_full_batch_does_not_wait(world: World) -> None:
    source = world.source()
    sink = world.sink(**{"batch.wait.ms": "60000", "batch.max.records": "2"})
    for _ in range(3):
        source.run_once()
    assert sink.run_once() is None
    assert [value for _, _, value in Writer.written] == [b"line 0", b"line 1"]
    world.answer_commit()
    assert sink.run_once() == 1.0


def test_a_record_without_a_key_for_a_compacted_topic_fails_the_task(world: World) -> None:
    world.store.ensure_topic("t", settings={"cleanup.policy": "compact"})
    world.source().run_once()
    assert world.kinds[-1] == "task_failed"
    trace = world.reports[-1].task_failed.trace
    assert "no key, but the topic t has cleanup.policy=compact" in trace
    assert world.record_count == 0


def test_a_source_with_a_setting_that_embedded_topics_lack_does_not_start(world: World) -> None:
    creation = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.segment.bytes": "1",
    }
    with pytest.raises(InvalidArgumentError, match=r"segment\.bytes: is not possible"):
        world.source(**creation)
