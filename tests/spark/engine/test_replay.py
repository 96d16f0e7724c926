"""Dead letters are replayed through their sink on a real engine, each once, with kills at any
step.
"""

import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
from drover.api.engine.v1 import engine_pb2
from drover.model.dead_letters import REPLAY
from tests.spark.engine.harness import CALL_TIMEOUT_S, START_TIMEOUT_S, Harness, connector_config
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

TOLERANT: dict[str, Any] = {
    "plugin": "FileStreamSink",
    "errors_tolerance": "all",
    "errors_deadletterqueue_context_headers_enable": "true",
}
JSON = {"value_converter": "JsonConverter", "value_converter_schemas_enable": "false"}
TEXT = {"value_converter": "StringConverter"}


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def wait_for_lines(path: Path, *wanted: str) -> None:
    await wait_until_async(
        lambda: lines_of(path) == list(wanted),
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: lines_of(path)[-20:],
    )


async def wait_for_count(path: Path, count: int) -> None:
    await wait_until_async(
        lambda: len(lines_of(path)) >= count,
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: len(lines_of(path)),
    )


async def start(engine: Harness, name: str, **config: Any) -> None:
    started = await engine.start_task(name, **TOLERANT, **config)
    assert started.HasField("done"), started


async def test_letters_go_through_their_sink_as_it_is_now_and_once(
    engine: Harness, tmp_path: Path
) -> None:
    file = tmp_path / "out.txt"
    own: dict[str, Any] = {
        "file": str(file),
        "topics": "replayed",
        "errors_deadletterqueue_topic_name": "replayed-dead",
    }
    values = [b"1", b"no json", b"2", b"{", b"3"]
    store_records(engine.store, "replayed", [{"value": each} for each in values])
    await start(engine, "replayer", **own, **JSON)
    await wait_for_lines(file, "1", "2", "3")
    await engine.wait_for_records("replayed-dead", 2)
    await engine.stop_task("replayer")

    config = connector_config("replayer", **TOLERANT, **own, **TEXT) | {REPLAY: "0:0-2"}
    command = engine_pb2.PreviewConnector(config=config, row_count=10, dead_letters=True)
    rows = (await engine.call(preview_connector=command)).preview.rows
    assert [(row.place, row.failed_step) for row in rows] == [
        ("replayed-dead-0@0", ""), ("replayed-dead-0@1", ""),
    ]  # fmt: skip
    assert [row.records[-1].topic for row in rows] == ["replayed", "replayed"]
    assert not rows[0].records[-1].headers

    replay = {"errors_deadletterqueue_replay": "0:0-2"}
    for more in ("4", "5"):
        store_records(engine.store, "replayed", [{"value": more.encode()}])
        await start(engine, "replayer", **own, **TEXT, **replay)
        wanted = ["1", "2", "3", "no json", "{", "4", *(["5"] if more == "5" else [])]
        await wait_for_lines(file, *wanted)
        await engine.stop_task("replayer")
    assert engine.records("replayed-dead") == 2


async def test_an_older_letter_does_not_replace_the_newer_row_of_a_table(
    engine: Harness, tmp_path: Path
) -> None:
    database = tmp_path / "people.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO people VALUES (100, 'NEWER')")
    own: dict[str, Any] = {
        **TOLERANT,
        **JSON,
        "plugin": "JdbcSink",
        "topics": "people",
        "connection_url": f"sqlite:///{database}",
        "table_name_format": "people",
        "insert_mode": "upsert",
        "pk_mode": "record_value",
        "pk_fields": "id",
        "errors_deadletterqueue_topic_name": "people-dead",
    }

    def record(key: int, name: str) -> bytes:
        return json.dumps({"id": key, "name": name}).encode()

    old, alone = record(100, "old"), record(101, "alone")
    store_records(engine.store, "people", [{"value": old}, {"value": alone}])
    store_records(engine.store, "people", [{"value": record(100, "NEWER")}])
    letters = []
    for offset, value in enumerate((old, alone)):
        told = {"topic": "people", "partition": "0", "offset": str(offset)}
        headers = [(f"__connect.errors.{name}", text.encode()) for name, text in told.items()]
        letters.append({"value": value, "headers": headers})
    store_records(engine.store, "people-dead", letters)

    config = connector_config("people-db", **own)
    command = engine_pb2.CheckDeadLetters(config=config, ranges="0:0-2", skip_newer=True)
    checked = (await engine.call(check_dead_letters=command)).checked_dead_letters
    assert checked.ranges == "0:1-2"
    (skipped,) = checked.skipped_letters
    assert (skipped.offset, skipped.newer) == (0, True)
    assert "people-0@2 has the same key and is newer" in skipped.message

    def rows() -> list[tuple[int, str]]:
        with sqlite3.connect(database) as connection:
            return connection.execute("SELECT * FROM people ORDER BY id").fetchall()

    async def replay(
        number: str, ranges: str, *wanted: tuple[int, str], letters: int, **more: str
    ) -> None:
        replayed: dict[str, Any] = {
            "errors_deadletterqueue_replay": ranges,
            "errors_deadletterqueue_replay_id": f"{number * 8}",
            **more,
        }
        started = await engine.start_task("people-db", **own, **replayed)
        assert started.HasField("done"), started
        # a stop within the batch may leave its dead letters to the next task
        await wait_until_async(
            lambda: rows() == list(wanted) and engine.records("people-dead") == letters,
            timeout_s=CALL_TIMEOUT_S,
            describe=lambda: (rows(), engine.records("people-dead")),
        )
        await engine.stop_task("people-db")

    # the task decides too: the old one becomes a dead letter again, with the reason
    await replay("a", "0:0-2", (100, "NEWER"), (101, "alone"), letters=3)
    force = {"errors_deadletterqueue_replay_force": "true"}
    await replay("b", "0:2-3", (100, "old"), (101, "alone"), letters=3, **force)


async def test_a_repaired_letter_is_written_with_its_new_value(
    engine: Harness, tmp_path: Path
) -> None:
    database = tmp_path / "fixed.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE fixed (id INTEGER PRIMARY KEY, name TEXT)")
    own: dict[str, Any] = {
        **TOLERANT,
        **JSON,
        "plugin": "JdbcSink",
        "topics": "fixed",
        "connection_url": f"sqlite:///{database}",
        "table_name_format": "fixed",
        "insert_mode": "upsert",
        "pk_mode": "record_value",
        "pk_fields": "id",
        "errors_deadletterqueue_topic_name": "fixed-dead",
    }
    broken = b'{"id": null, "name": "a"}'
    store_records(engine.store, "fixed", [{"value": broken}])
    about = {"topic": "fixed", "partition": "0", "offset": "0", "connector.name": "fixer"}
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in about.items()]
    store_records(
        engine.store, "fixed-dead", [{"value": broken, "headers": [("own", b"1"), *headers]}]
    )
    config = connector_config("fixer", **own)
    value = '{"id": 7, "name": "repaired"}'
    repairs = [DeadLetterRepair(partition=0, offset=0, value=value)]

    async def checked(ranges: str, repairs: list[DeadLetterRepair]) -> tuple[str, list[str]]:
        command = engine_pb2.CheckDeadLetters(
            config=config, ranges=ranges, skip_newer=True, repairs=repairs
        )
        found = (await engine.call(check_dead_letters=command)).checked_dead_letters
        return found.ranges, [each.message for each in found.skipped_letters]

    async def previewed(ranges: str, repairs: list[DeadLetterRepair]) -> Any:
        command = engine_pb2.PreviewConnector(
            config=config | {REPLAY: ranges}, row_count=10, dead_letters=True, repairs=repairs
        )
        (row,) = (await engine.call(preview_connector=command)).preview.rows
        return row

    # as it is, it has no key
    assert (await checked("0:0-1", []))[0] == ""
    assert await checked("0:0-1", repairs) == ("0:0-1", [])
    assert (await previewed("0:0-1", repairs)).records[-1].value.replace(" ", "") == value.replace(
        " ", ""
    )
    repair = engine_pb2.RepairDeadLetters(
        config=config, repairs=repairs, author="ann", request_id="r", open_ranges="0:0-1"
    )
    for _ in range(2):
        report = await engine.call(repair_dead_letters=repair)
        (place,) = report.repaired_dead_letters.places
        assert (place.offset, place.repaired_offset) == (0, 1)
    # the original record is still compared with the topic, and it is not another one
    assert await checked("0:1-2", []) == ("0:1-2", [])
    row = await previewed("0:1-2", [])
    assert not row.failed_step
    assert [(each.key, each.value) for each in row.records[-1].headers] == [
        ("own", "1"), ("drover.repaired.by", "ann"),
    ]  # fmt: skip

    def rows() -> list[tuple[int, str]]:
        with sqlite3.connect(database) as connection:
            return connection.execute("SELECT * FROM fixed ORDER BY id").fetchall()

    replayed: dict[str, Any] = {
        "errors_deadletterqueue_replay": "0:1-2",
        "errors_deadletterqueue_replay_id": "c" * 8,
    }
    started = await engine.start_task("fixer", **own, **replayed)
    assert started.HasField("done"), started
    await wait_until_async(
        lambda: rows() == [(7, "repaired")], timeout_s=CALL_TIMEOUT_S, describe=rows
    )
    await engine.stop_task("fixer")


@pytest.mark.faults("connectors")
async def test_a_replay_that_is_killed_goes_on_without_doubling(tmp_path: Path) -> None:
    engine = Harness(tmp_path)
    file = tmp_path / "out.txt"
    letters = [f"letter {n}" for n in range(20_000)]
    for part in range(0, len(letters), 1_000):
        records = [{"value": each.encode()} for each in letters[part : part + 1_000]]
        store_records(engine.store, "dead", records)
    replay = {
        "file": str(file),
        "topics": "killed",
        "errors_deadletterqueue_topic_name": "dead",
        "errors_deadletterqueue_replay": "0:0-20000",
        "batch_max_records": "500",
    }
    try:
        await engine.start()
        for kill_at in (2_000, 9_000, len(letters)):
            await start(engine, "killed", **replay, **TEXT)
            await wait_for_count(file, kill_at)
            if kill_at < len(letters):
                process_id = engine.supervisor.process_id
                assert process_id is not None
                os.kill(process_id, signal.SIGKILL)
                engine.ended_by_tests += 1
                await wait_until_async(
                    lambda: len(engine.exits) == engine.ended_by_tests, timeout_s=START_TIMEOUT_S
                )
                await engine.supervisor.wait_ready()
        await engine.stop_task("killed")
    finally:
        await engine.close()
    assert lines_of(file) == letters
