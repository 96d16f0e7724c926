"""Replay of dead letters: their sink gets each of them exactly once."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from drover.api.common.v1 import topics_pb2
from drover.api.engine.v1 import engine_pb2
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.payload import READ_SCHEMA, decode
from drover.model.dead_letters import ReplayRange, condition_of_connector, parse_ranges, ranges_text
from drover.pipeline.replay import LetterRecords, SourceLetters
from drover_worker.engine.tasks.sink_runner import SinkRunner
from drover_worker.engine.topics.reads import read_topic
from tests.support.stored_topics import store_records
from tests.unit.engine.runner_world import Lines, World, Writer

PREFIX = "__connect.errors."
SETTINGS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
    "errors.deadletterqueue.context.headers.enable": "true",
}


@pytest.fixture(autouse=True)
def nothing_written() -> Iterator[None]:
    Writer.written, Writer.faults = [], []
    yield
    Writer.written, Writer.faults = [], []


def letter(value: bytes, *, topic: str = "t", error: str = "DataError") -> dict[str, Any]:
    told = {
        "topic": topic, "partition": "0", "offset": "77", "exception.class.name": error,
        "exception.message": "bad",
    }  # fmt: skip
    headers = [("mine", b"1"), *((f"{PREFIX}{key}", each.encode()) for key, each in told.items())]
    return {"value": value, "headers": headers}


def store_letters(world: World, *values: bytes, partition: int = 0, **more: Any) -> None:
    letters = [letter(each, **more) for each in values]
    store_records(world.store, "dead", letters, partition=partition, partition_count=2)


def sink(world: World, replay: str, **config: str) -> SinkRunner:
    replaying = {"errors.deadletterqueue.replay": replay} if replay else {}
    return world.sink("t,u", **SETTINGS, **replaying, **config)


def commits(world: World) -> dict[tuple[str, int], int]:
    """The offsets of the last commit, by topic and partition."""
    report = next(each for each in reversed(world.reports) if each.HasField("commit_offsets"))
    return {
        (where["kafka_topic"], where["kafka_partition"]): json.loads(each.offset_json)[
            "kafka_offset"
        ]
        for each in report.commit_offsets.offsets
        for where in [json.loads(each.partition_json)]
    }


def run(world: World, runner: SinkRunner, batches: int = 5) -> None:
    """Run some batches; commit each in the store, as the coordinator does."""
    for _ in range(batches):
        before = len(world.reports)
        runner.run_once()
        if any(each.HasField("commit_offsets") for each in world.reports[before:]):
            world.commit()


def test_letters_are_records_of_their_topics_again(world: World) -> None:
    store_letters(world, b"one")
    store_letters(world, b"two", topic="u")
    sink(world, "0:0-2").run_once()
    assert Writer.written == [("t", 0, b"one"), ("u", 1, b"two")]
    assert commits(world) == {("dead", 0): 2}


def test_only_the_wanted_letters_come_and_records_after_them(world: World) -> None:
    store_letters(world, *(b"%d" % n for n in range(5)))
    store_letters(world, b"other", partition=1)
    store_records(world.store, "t", [{"value": b"record"}])
    run(world, sink(world, "0:1-3"))
    assert Writer.written == [("t", 1, b"1"), ("t", 2, b"2"), ("t", 0, b"record")]


def test_what_was_replayed_is_not_replayed_again(world: World) -> None:
    store_letters(world, b"0", b"1", b"2")
    first = sink(world, "0:0-3", **{"batch.max.records": "2"})
    first.run_once()
    world.commit()
    # the task is killed here, and another one continues
    run(world, sink(world, "0:0-3"))
    assert [value for *_, value in Writer.written] == [b"0", b"1", b"2"]
    run(world, sink(world, "0:0-3"))
    assert len(Writer.written) == 3


def test_letters_whose_commit_is_lost_come_again(world: World) -> None:
    store_letters(world, b"0")
    sink(world, "0:0-1").run_once()
    run(world, sink(world, "0:0-1"))
    assert [value for *_, value in Writer.written] == [b"0", b"0"]


@pytest.mark.parametrize("converter", ["", "JsonConverter"], ids=["guessed", "connector"])
def test_conditions_compare_the_values_of_letters_as_their_list_does(
    world: World, converter: str
) -> None:
    field = {
        "field": "balance", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    }  # fmt: skip
    schema = {"type": "struct", "optional": False, "fields": [field]}
    values = [
        json.dumps({"schema": schema, "payload": {"balance": each}}).encode()
        for each in ("fQ==", "AfQ=")  # 1.25 and 5.00
    ]
    store_letters(world, values[0], b"no json", values[1])
    config = {"value.converter": converter} if converter else {}
    where = {"errors.deadletterqueue.replay.where": "balance>=1.250\nbalance<4"}
    sink(world, "0:0-3", **where, **config).run_once()
    assert len(Writer.written) == 1
    records = read_topic(
        EmbeddedPlane(world.store),
        engine_pb2.ReadTopic(
            query=topics_pb2.RecordQuery(topic="dead", conditions=["balance>=1.250", "balance<4"])
        ),
        config,
    ).records
    assert [each.offset for each in records] == [0]


def test_letters_that_do_not_meet_the_conditions_are_passed_over(world: World) -> None:
    store_letters(world, b"0", error="DataError")
    store_letters(world, b"1", error="JSONDecodeError")
    where = f"headers.{PREFIX}exception.class.name~JSON.*\nvalue!=7"
    runner = sink(world, "0:0-2", **{"errors.deadletterqueue.replay.where": where})
    run(world, runner)
    assert [value for *_, value in Writer.written] == [b"1"]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("id=2", [b'{"id":2}']),
        ("id>=1.5", [b'{"id":2}']),
        ("value~.*text", [b"a text"]),
        ("missing=1", []),
        ("id!=2", [b'{"id":1}', b"a text", b"\xff"]),
        ("value=0xff", [b"\xff"]),
    ],
)
def test_conditions_compare_the_values_that_lists_show(
    world: World, condition: str, wanted: list[bytes]
) -> None:
    store_letters(world, b'{"id":1}', b'{"id":2}', b"a text", b"\xff")
    run(world, sink(world, "0:0-4", **{"errors.deadletterqueue.replay.where": condition}))
    assert [value for *_, value in Writer.written] == wanted


def test_the_letters_of_one_connector_are_told_by_their_header(world: World) -> None:
    own, header = "o'hara's = 7", f"{PREFIX}connector.name"
    letters = [letter(b"%d" % n) for n in range(3)]
    letters[0]["headers"].append((header, own.encode()))
    letters[1]["headers"].append((header, b"other"))
    store_records(world.store, "dead", letters, partition_count=2)
    where = {"errors.deadletterqueue.replay.where": condition_of_connector(own)}
    run(world, sink(world, "0:0-3", **where))
    assert [value for *_, value in Writer.written] == [b"0"]


def test_letters_pass_the_present_transforms_without_their_error_headers(world: World) -> None:
    store_letters(world, b'{"a":1}')
    config = {
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "it",
        "transforms.it.type": "ExtractField$Value",
        "transforms.it.field": "a",
    }
    seen: list[Any] = []
    Writer.faults = [lambda: None]
    runner = sink(world, "0:0-1", **config)
    original = Writer.write

    def write(self: Writer, batch: Any) -> str:
        seen.extend(batch.run_in_arrow(iter))
        return original(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "write", write)
        runner.run_once()
    ((row),) = seen
    assert (row["value"], [each["key"] for each in row["headers"]]) == (b"1", ["mine"])


def test_a_letter_that_fails_again_is_a_letter_again_and_keeps_its_place(world: World) -> None:
    store_letters(world, b"no json")
    config = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
    runner = sink(world, "0:0-1", **config)
    run(world, runner)
    assert Writer.written == []
    (blob,) = world.store.read_blobs("dead", 0, 1, 2)
    stored = world.store.read_blob(blob[2])
    assert stored is not None
    (row,) = [row for batch in decode(stored, 0) for row in batch.to_pylist()]
    headers = [(each["key"].removeprefix(PREFIX), each["value"]) for each in row["headers"]]
    told = dict(headers)
    assert len(told) == len(headers), "each header once"
    assert (told["mine"], told["topic"], told["offset"]) == (b"1", b"t", b"77")
    assert told["stage"] == b"VALUE_CONVERTER"
    assert told["exception.message"] != b"bad"
    assert row["value"] == b"no json"


def test_letters_that_are_gone_do_not_hold_up_the_sink(world: World) -> None:
    store_records(world.store, "t", [{"value": b"record"}])
    run(world, sink(world, "0:0-9,1:0-3"))
    assert [value for *_, value in Writer.written] == [b"record"]


def test_ranges_are_a_text() -> None:
    ranges = (ReplayRange(0, 5, 120), ReplayRange(3, 0, 0))
    assert parse_ranges(ranges_text(ranges)) == ranges
    for text in ("x", "0:5", "0:9-5", "0:1-2,0:2-3", "0:1-2-3", "-1:0-1"):
        with pytest.raises(ValueError, match=r"must|ends"):
            parse_ranges(text)


def test_a_letter_without_a_topic_is_of_the_only_one(world: World) -> None:
    store_records(world.store, "dead", [{"value": b"v"}])
    run(world, world.sink("t", **SETTINGS, **{"errors.deadletterqueue.replay": "0:0-1"}))
    assert Writer.written == [("t", 0, b"v")]


def stored(world: World, topic: str) -> list[dict[str, Any]]:
    """The records of a topic's partition 0."""
    found = []
    for _, _, blob in world.store.read_blobs(topic, 0, 0, 1_000):
        stored = world.store.read_blob(blob)
        assert stored is not None
        found += [row for batch in decode(stored, 0) for row in batch.to_pylist()]
    return found


def test_a_sources_letters_go_into_their_topics_with_the_offset_of_the_letter(
    world: World,
) -> None:
    store_letters(world, b"0", b"1", topic="u")
    source = world.source(
        **SETTINGS, **{"errors.deadletterqueue.replay": "0:0-2", "batch.max.records": "1"}
    )
    source.run_once()
    assert [row["value"] for row in stored(world, "u")] == [b"0"]
    # the task is killed here, and another one continues
    source = world.source(**SETTINGS, **{"errors.deadletterqueue.replay": "0:0-2"})
    for _ in range(4):
        source.run_once()
    assert [row["value"] for row in stored(world, "u")] == [b"0", b"1"]
    assert [[each["key"] for each in row["headers"]] for row in stored(world, "u")] == [
        ["mine"]
    ] * 2
    assert [row["value"] for row in stored(world, "t")] == [b"line 0", b"line 1", b"line 2"]
    offsets = world.store.fetch_offsets("LinesSource")
    assert sorted((each.partition_json, each.offset_json) for each in offsets) == [
        ('{"kafka_topic":"dead","kafka_partition":0}', '{"kafka_offset":2}'),
        ('{"lines":0}', '{"next":3}'),
    ]


def test_a_source_does_not_hear_of_its_letters_offsets(world: World) -> None:
    store_letters(world, b"0", topic="u")
    config = {**SETTINGS, "errors.deadletterqueue.replay": "0:0-1"}
    world.source(**config).run_once()
    Lines.made.clear()
    source = world.source(**config)
    source.run_once()
    (instance,) = Lines.made
    assert list(instance.context.committed) == []


def test_a_sources_letter_that_fails_again_is_a_letter_again(world: World) -> None:
    store_letters(world, b"0", topic="u")
    config = {
        **SETTINGS,
        "errors.deadletterqueue.replay": "0:0-1",
        "transforms": "it",
        "transforms.it.type": "ExtractField$Value",
        "transforms.it.field": "a",
        "value.converter": "StringConverter",
    }
    world.source(**config).run_once()
    assert stored(world, "u") == []
    _, again = stored(world, "dead")
    told = {each["key"].removeprefix(PREFIX): each["value"] for each in again["headers"]}
    assert (told["topic"], told["offset"], told["stage"]) == (b"u", b"77", b"TRANSFORMATION")


def test_structured_letters_are_json() -> None:
    letters = LetterRecords("t")
    batch = pa.RecordBatch.from_pylist(
        [
            {"topic": "dead", "partition": 0, "offset": n, "value": value}
            for n, value in enumerate([b'{"a":1}', b"x,y", None])
        ],
        schema=READ_SCHEMA,
    )
    (records,) = SourceLetters(letters, structured=True)(batch)
    assert records.column("value").to_pylist() == ['{"a":1}', '"x,y"', None]
    assert records.column("partition").null_count == 3
    assert records.column("origin").to_pylist() == ["dead-0@0", "dead-0@1", "dead-0@2"]
    (unknown,) = LetterRecords()(batch)
    assert unknown.column("error").null_count == 0
