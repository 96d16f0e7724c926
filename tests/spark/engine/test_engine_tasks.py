"""Tasks on a real engine: data flow, failures, and isolation of other tasks."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from drover.api.engine.v1 import engine_pb2
from drover.dataplane.reading import read_range
from drover.model.ids import TaskId
from tests.spark.engine.harness import CALL_TIMEOUT_S, PLUGINS, Harness
from tests.spark.engine.plugins import CHATTER_COUNT, LONG
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


def _files(directory: Path, topic: str) -> list[str]:
    return [path.read_text() for path in sorted(directory.glob(f"{topic}-*"))]


async def test_a_source_publishes_every_record_once_and_goes_on_where_it_was(
    engine: Harness,
) -> None:
    config: dict[str, Any] = {"plugin": "Counter", "topic": "once"}
    assert (await engine.start_task("once", limit="120", **config)).HasField("done")
    await engine.wait_for_records("once", 120)
    assert (await engine.stop_task("once")).HasField("done")
    offsets = engine.store.fetch_offsets("once")
    assert [each.offset_json for each in offsets] == ['{"next":120}']
    assert (await engine.start_task("once", limit="300", **config)).HasField("done")
    await engine.wait_for_records("once", 300)
    await engine.stop_task("once")


async def test_a_sink_writes_what_a_source_published_and_commits_it(
    engine: Harness, tmp_path: Path
) -> None:
    await engine.start_task("flow-in", plugin="Counter", topic="flow", limit="30", step="7")
    sink: dict[str, Any] = {"plugin": "Collect", "topics": "flow", "directory": str(tmp_path)}
    await engine.start_task("flow-out", **sink)
    await wait_until_async(
        lambda: _files(tmp_path, "flow") == [str(number) for number in range(30)],
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: _files(tmp_path, "flow"),
    )
    await wait_until_async(
        lambda: (
            [
                (each.partition_json, each.offset_json, each.metadata.partition(";")[2])
                for each in engine.store.fetch_offsets("flow-out")
            ]
            == [('{"kafka_topic":"flow","kafka_partition":0}', '{"kafka_offset":30}', "up to 30")]
        ),
        describe="the committed offset",
    )
    assert await engine.end_offsets(("flow", 0), ("flow", 9), ("nothing", 0)) == {("flow", 0): 30}
    await engine.stop_task("flow-out")
    assert (tmp_path / "stopped-0").exists()
    await engine.start_task("flow-out", **sink)
    assert (tmp_path / "started-0").read_text() == '{"flow-0": [30, "up to 30"]}'
    await engine.stop_task("flow-out")
    await engine.stop_task("flow-in")


async def test_a_frame_gets_records_of_one_schema_at_a_time(
    engine: Harness, tmp_path: Path
) -> None:
    rows: list[dict[str, object]] = [
        {"id": number, **({"city": "oslo"} if number in (3, 4, 6) else {})} for number in range(8)
    ]
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{_enveloped(row)}\n" for row in rows))
    await engine.start_task("mixed-in", plugin="FileStreamSource", topic="mixed", file=str(lines))
    await engine.start_task(
        "mixed-out",
        plugin="CollectRows",
        topics="mixed",
        directory=str(tmp_path),
        value_converter="JsonConverter",
    )
    await wait_until_async(
        lambda: [json.loads(each) for each in _files(tmp_path, "mixed")] == rows,
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: _files(tmp_path, "mixed"),
    )
    assert not engine.reports_of("task_failed", "mixed-out")
    await engine.stop_task("mixed-out")
    await engine.stop_task("mixed-in")


async def test_a_task_goes_on_when_python_workers_die_under_it(
    engine: Harness, tmp_path: Path
) -> None:
    config: dict[str, Any] = {
        "plugin": "Deadly",
        "topic": "deadly",
        "directory": str(tmp_path),
        "deaths": "2",
    }
    await engine.start_task("deadly", **config)
    await engine.wait_for_records("deadly", 1)
    assert len(list(tmp_path.glob("*.death"))) == 2
    assert engine.reports_of("task_failed", "deadly") == []
    await engine.stop_task("deadly")


async def test_a_task_that_kills_every_python_worker_fails_in_the_end(
    engine: Harness, tmp_path: Path
) -> None:
    config: dict[str, Any] = {
        "plugin": "Deadly",
        "topic": "fatal",
        "directory": str(tmp_path),
        "deaths": "99",
    }
    await engine.start_task("fatal", **config)
    failed = await engine.wait_for_report("task_failed", "fatal")
    assert failed.task_failed.trace.startswith("a Spark process ended during 5 batches in a row")
    assert "Python worker exited unexpectedly" in failed.task_failed.trace
    assert engine.records("fatal") == 0


def _enveloped(row: dict[str, object]) -> str:
    fields = [
        {"field": name, "type": "string" if isinstance(value, str) else "int32"}
        for name, value in row.items()
    ]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": row})


async def test_a_sink_waits_for_its_topic_and_for_a_coordinator_that_is_away(
    engine: Harness, tmp_path: Path
) -> None:
    await engine.start_task(
        "patient", plugin="Collect", topics="later,never", directory=str(tmp_path)
    )
    engine.coordinator_there = False
    await engine.start_task("late", plugin="Counter", topic="later", limit="10", step="5")
    await engine.wait_for_records("later", 10)
    await wait_until_async(lambda: engine.waiting_commit_count, describe="a commit")
    engine.coordinator_returns()
    await wait_until_async(lambda: len(_files(tmp_path, "later")) == 10, timeout_s=CALL_TIMEOUT_S)
    assert engine.reports_of("task_failed", "patient") == []
    await engine.stop_task("patient")
    await engine.stop_task("late")


async def test_tasks_of_a_sink_share_its_partitions(engine: Harness, tmp_path: Path) -> None:
    engine.store.ensure_topic("shared", 3)
    for number in range(2):
        await engine.start_task(
            "sharing",
            number,
            own_config={"task.count": "2"},
            plugin="Collect",
            topics="shared",
            directory=str(tmp_path),
            tasks_max="2",
        )
    await engine.start_task(
        "spreading",
        plugin="Counter",
        topic="shared",
        limit="60",
        step="30",
        partitioner_keyless="spread",
    )
    await wait_until_async(lambda: len(_files(tmp_path, "shared")) == 60, timeout_s=CALL_TIMEOUT_S)
    await wait_until_async(
        lambda: (
            sum(
                int(each.offset_json.split(":")[1][:-1])
                for each in engine.store.fetch_offsets("sharing")
                if each.offset_json
            )
            == 60
        ),
        describe="all offsets committed",
    )
    partitions = {each.partition_json for each in engine.store.fetch_offsets("sharing")}
    assert len(partitions) == 3
    for number in range(2):
        await engine.stop_task("sharing", number)
    await engine.stop_task("spreading")


async def test_one_task_fails_with_its_trace_and_its_neighbour_goes_on(engine: Harness) -> None:
    await engine.start_task(
        "pair", 0, plugin="Counter", topic="pair-bad", limit="100", step="10", fail_at="20"
    )
    await engine.start_task("pair", 1, plugin="Counter", topic="pair-good", limit="100", step="10")
    await engine.wait_for_records("pair-good", 100)
    report = await engine.wait_for_report("task_failed", "pair")
    assert report.task_failed.task.task == 0
    assert report.task_failed.trace.startswith("Traceback")
    assert "RuntimeError: poll is tired" in report.task_failed.trace
    assert engine.records("pair-bad") == 20
    assert (await engine.stop_task("pair", 0)).HasField("done")
    await engine.stop_task("pair", 1)


async def test_a_fault_on_the_executors_fails_the_task_and_publishes_nothing(
    engine: Harness,
) -> None:
    await engine.start_task(
        "rows", plugin="Counter", topic="rows", fail_at="50", misbehave="raise on executors"
    )
    report = await engine.wait_for_report("task_failed", "rows")
    assert "bad row" in report.task_failed.trace
    assert engine.records("rows") == 50
    await engine.stop_task("rows")


async def test_a_task_that_hangs_in_start_is_abandoned_and_blocks_nobody(
    engine: Harness,
) -> None:
    hung = asyncio.create_task(
        engine.start_task("hung", plugin="Counter", topic="hung", misbehave="hang in start")
    )
    await engine.start_task("free", plugin="Counter", topic="free", limit="50")
    await engine.wait_for_records("free", 50)
    failure = (await hung).failure
    assert failure.timed_out
    assert failure.message == "start() of task hung-0 did not return within 10 s and was abandoned"
    assert (await engine.stop_task("hung")).HasField("done")
    await engine.stop_task("free")


async def test_a_task_that_hangs_in_poll_fails_and_its_thread_is_replaced(
    engine: Harness,
) -> None:
    await engine.start_task(
        "stuck", plugin="Counter", topic="stuck", fail_at="50", misbehave="hang in poll"
    )
    report = await engine.wait_for_report("task_failed", "stuck")
    assert "poll() of task stuck-0 did not return within 2 s" in report.task_failed.trace
    assert engine.records("stuck") == 50
    assert (await engine.stop_task("stuck")).HasField("done")


async def test_a_task_that_raises_in_start_answers_with_its_trace(engine: Harness) -> None:
    answer = await engine.start_task(
        "bad", plugin="Counter", topic="bad", misbehave="raise in start"
    )
    assert answer.failure.message == "start() of task bad-0 raised RuntimeError: no start today"
    assert "in start" in answer.failure.trace
    answer = await engine.start_task("bad", plugin="Counter", topic="bad", limit="many")
    assert "limit must be a whole number" in answer.failure.message
    answer = await engine.start_task("bad", plugin="not.there.AtAll", topic="bad")
    assert answer.failure.plugin_not_found


async def test_a_source_whose_claim_was_taken_is_fenced_and_publishes_no_more(
    engine: Harness,
) -> None:
    config: dict[str, Any] = {
        "plugin": "Counter",
        "topic": "fenced",
        "limit": "1000000",
        "step": "5",
    }
    await engine.start_task("fenced", **config)
    await wait_until_async(lambda: engine.records("fenced") > 0, timeout_s=CALL_TIMEOUT_S)
    engine.claim(TaskId("fenced", 0))
    at_the_claim = engine.records("fenced")
    report = await engine.wait_for_report("task_fenced", "fenced")
    assert report.task_fenced.task.connector == "fenced"
    assert engine.records("fenced") == at_the_claim
    assert engine.reports_of("task_failed", "fenced") == []
    assert (await engine.start_task("fenced", **config)).HasField("done")
    await wait_until_async(
        lambda: engine.records("fenced") > at_the_claim, timeout_s=CALL_TIMEOUT_S
    )
    await engine.stop_task("fenced")


async def test_a_sink_whose_commit_is_refused_is_fenced(engine: Harness, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    await engine.start_task("in", plugin="Counter", topic="zombie", limit="5", step="5")
    await engine.start_task("zombie", plugin="Collect", topics="zombie", directory=str(tmp_path))
    await wait_until_async((tmp_path / "writing").exists, timeout_s=CALL_TIMEOUT_S)
    engine.claim(TaskId("zombie", 0))
    (tmp_path / "gate").unlink()
    await engine.wait_for_report("task_fenced", "zombie")
    (start,) = engine.store.fetch_offsets("zombie")
    assert start.offset_json == '{"kafka_offset":0}'
    await engine.stop_task("zombie")
    await engine.stop_task("in")


async def test_a_paused_task_does_nothing_until_it_is_resumed(
    engine: Harness, tmp_path: Path
) -> None:
    await engine.start_task("held", plugin="Counter", topic="held", limit="40", paused=True)
    await engine.start_task(
        "held-sink", plugin="Collect", topics="held", directory=str(tmp_path), paused=True
    )
    # the engine also scheduled a task beside them
    await engine.start_task("beside", plugin="Counter", topic="beside", limit="40")
    await engine.wait_for_records("beside", 40)
    assert engine.records("held") == 0
    await engine.set_paused("held", False)
    await engine.wait_for_records("held", 40)
    assert _files(tmp_path, "held") == []
    await engine.set_paused("held-sink", False)
    await wait_until_async(lambda: len(_files(tmp_path, "held")) == 40, timeout_s=CALL_TIMEOUT_S)
    for name in ("held", "held-sink", "beside"):
        await engine.stop_task(name)
    assert (await engine.set_paused("held", True)).HasField("failure")


async def test_a_stop_waits_for_the_batch_in_flight(engine: Harness, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    await engine.start_task("gated-in", plugin="Counter", topic="gated", limit="5", step="5")
    await engine.start_task("gated", plugin="Collect", topics="gated", directory=str(tmp_path))
    await wait_until_async((tmp_path / "writing").exists, timeout_s=CALL_TIMEOUT_S)
    assert (await engine.stop_task("gated")).HasField("done")
    assert len(_files(tmp_path, "gated")) == 5
    assert (tmp_path / "stopped-0").exists()
    (committed,) = engine.store.fetch_offsets("gated")
    assert committed.offset_json == '{"kafka_offset":5}'
    await engine.stop_task("gated-in")


async def test_a_task_cannot_be_started_twice(engine: Harness) -> None:
    await engine.start_task("twice", plugin="Counter", topic="twice")
    answer = await engine.start_task("twice", plugin="Counter", topic="twice")
    assert answer.failure.message == "task twice-0 is already running: stop it first"
    await engine.stop_task("twice")
    assert (await engine.stop_task("twice")).HasField("done")


async def test_progress_is_told(engine: Harness) -> None:
    await engine.start_task("told", plugin="Counter", topic="told", limit="20", step="10")

    def told() -> list[tuple[int, int]]:
        return [
            (entry.record_count, entry.batch_count)
            for report in engine.reports
            for entry in report.task_progress.entries
            if entry.task.connector == "told"
        ]

    await wait_until_async(
        lambda: told() and told()[-1] == (20, 2), timeout_s=CALL_TIMEOUT_S, describe=told
    )
    await engine.stop_task("told")


async def test_what_plugins_print_and_log_is_in_the_log_line_by_line(engine: Harness) -> None:
    await engine.start_task("chatty", plugin="Chatty", topic="chat")
    await engine.wait_for_records("chat", 1)
    said = {"the task prints", "the task logs"} | {
        f"the executor {does} {LONG} {times}"
        for does in ("prints", "logs")
        for times in range(CHATTER_COUNT)
    }

    def heard() -> set[str]:
        return {json.loads(line)["event"] for line in engine.log}

    await wait_until_async(lambda: said <= heard(), describe=lambda: said - heard())
    await engine.stop_task("chatty")


async def test_an_engine_says_first_of_all_that_it_takes_commands(engine: Harness) -> None:
    assert engine.reports[0].HasField("started")


async def test_a_task_logs_at_the_level_that_its_connectors_module_is_given(
    engine: Harness,
) -> None:
    def heard() -> int:
        return sum(b"the task logs in detail" in line for line in engine.log)

    async def set_level(level: str) -> list[str]:
        entry = engine_pb2.SetLoggerLevels.Entry(name=PLUGINS, level=level)
        command = engine_pb2.SetLoggerLevels(levels=[entry])
        return [
            each.name for each in (await engine.call(set_logger_levels=command)).loggers.loggers
        ]

    await engine.start_task("terse", plugin="Chatty", topic="terse")
    await engine.wait_for_records("terse", 1)
    await engine.stop_task("terse")
    listed = (await engine.call(list_loggers=engine_pb2.ListLoggers())).loggers.loggers
    assert {each.name: each.level for each in listed}[PLUGINS] == "INFO"
    assert heard() == 0
    assert await set_level("DEBUG") == [PLUGINS, f"{PLUGINS}.chatty"]
    await engine.start_task("wordy", plugin="Chatty", topic="wordy")
    await engine.wait_for_records("wordy", 1)
    await wait_until_async(heard)
    await engine.stop_task("wordy")
    await set_level("INFO")


async def test_records_without_keys_for_a_compacted_topic_become_dead_letters(
    engine: Harness, tmp_path: Path
) -> None:
    lines = tmp_path / "keyed-lines"
    lines.write_text("k1\nnone\nk2\nk1\nno more\n")
    config: dict[str, Any] = {
        "plugin": "FileStreamSource",
        "topic": "keyed",
        "file": str(lines),
        "topic_creation_default_partitions": "1",
        "topic_creation_default_replication_factor": "-1",
        "topic_creation_default_cleanup_policy": "compact",
        "transforms": "row,key",
        "transforms_row_type": "HoistField$Value",
        "transforms_row_field": "line",
        "transforms_key_type": "ValueToKey",
        "transforms_key_fields": "line",
        "transforms_key_predicate": "keyed",
        "predicates": "keyed",
        "predicates_keyed_type": "FieldMatches",
        "predicates_keyed_field": "line",
        "predicates_keyed_pattern": "k.*",
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": "keyed-dead",
        "key_converter": "JsonConverter",
        "value_converter": "JsonConverter",
    }
    await engine.start_task("keyed", **config)
    await engine.wait_for_records("keyed-dead", 2)
    await engine.wait_for_records("keyed", 3)
    await engine.stop_task("keyed")
    assert engine.store.topic_settings("keyed") == {"cleanup.policy": "compact"}
    assert engine.store.topic_settings("keyed-dead") == {}
    await wait_until_async(
        lambda: (
            engine.store.compaction_work("keyed", 0) is not None
            and not engine.store.due_compactions()
        ),
        timeout_s=CALL_TIMEOUT_S,
        describe=engine.store.due_compactions,
    )
    starts = {("keyed", 0): 0}
    read = [
        offset
        for each in engine.store.plan_read(starts).ranges
        for batch in read_range(engine.store, each)
        for offset in batch.column("offset").to_pylist()
    ]
    assert read == [1, 2], "the engine compacts in the background"
