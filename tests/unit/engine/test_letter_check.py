"""A replay writes no older data over newer data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.api.engine.v1 import engine_pb2
from drover.connector import OverwriteKey
from drover.connector.settings import task_config
from drover.errors import InvalidArgumentError
from drover.model.dead_letters import parse_ranges, ranges_text
from drover.model.ids import TaskId
from drover.model.letter_states import OffsetSet, count_of, offsets_of_ranges, ranges_of
from drover_worker.engine.letter_requests import check_dead_letters
from drover_worker.engine.tasks import letter_check
from drover_worker.engine.tasks.letter_check import Checked, LetterCheck
from drover_worker.engine.tasks.record_path import RecordPath
from tests.support.stored_topics import delete_topic, store_records
from tests.unit.engine.runner_world import LinesSource, StartedSink, World, Writer, WriterSink

PREFIX = "__connect.errors."
SETTINGS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
    "errors.deadletterqueue.context.headers.enable": "true",
}
REPLAY = {"errors.deadletterqueue.replay.id": "0a1b2c3d"}


class UpsertSink(WriterSink):
    """Overwrites by the key, or as its setting ``by`` has it."""

    @classmethod
    def overwrite_keys(cls, config: Any) -> Sequence[OverwriteKey]:
        return (OverwriteKey(),)


class ByValueSink(WriterSink):
    structured = True

    @classmethod
    def overwrite_keys(cls, config: Any) -> Sequence[OverwriteKey]:
        return (OverwriteKey("value", ("id",)),)


class AppendSink(WriterSink):
    @classmethod
    def overwrite_keys(cls, config: Any) -> Sequence[OverwriteKey]:
        return ()


@pytest.fixture(autouse=True)
def nothing_written() -> Iterator[None]:
    Writer.written, Writer.faults = [], []
    yield
    Writer.written, Writer.faults = [], []


def letter(
    value: bytes | None, *, key: bytes | None, offset: int | None, **more: Any
) -> dict[str, Any]:
    told = {"topic": "t", "partition": "0", "connector.name": "me", **more}
    if offset is not None:
        told["offset"] = str(offset)
    headers = [(f"{PREFIX}{name}", each.encode()) for name, each in told.items() if each]
    return {"key": key, "value": value, "headers": headers}


def records(*pairs: tuple[bytes | None, bytes | None]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def check(
    world: World,
    kind: type[Any] = UpsertSink,
    *,
    topics: str = "t",
    replayed: str = "",
    skips_newer: bool = True,
    wanted: str = "0:0-1000",
    **config: Any,
) -> Checked:
    texts = {"name": "me", "connector.class": kind.__name__, **SETTINGS, **config}
    if kind is not LinesSource:
        texts["topics"] = topics
    parsed = task_config(kind, texts, {})
    path = RecordPath(kind, parsed, TaskId("me", 0), world.tools.spark)
    made = LetterCheck(kind, parsed, "me", path, world.tools.plane, world.tools.spark)
    decisions = made.begin(
        "dead",
        offsets_of_ranges(parse_ranges(wanted)),
        replayed=offsets_of_ranges(parse_ranges(replayed)),
        skips_newer=skips_newer,
    )
    return decisions.now()


def selected(found: Checked) -> str:
    return ranges_text(ranges_of(found.selected))


def reasons(found: Checked) -> dict[int, str]:
    return {offset: each.message for (_, offset), each in found.refused.items()}


def test_an_older_letter_is_left_out_and_the_newer_record_is_named(world: World) -> None:
    store_records(world.store, "t", records((b"1", b"old"), (b"2", b"x"), (b"1", b"NEWER")))
    store_records(world.store, "dead", [letter(b"old", key=b"1", offset=0)])
    found = check(world)
    assert selected(found) == ""
    assert found.refused[0, 0].is_newer
    assert "t-0@2 has the same key and is newer" in reasons(found)[0]
    assert selected(check(world, skips_newer=False)) == "0:0-1"
    assert selected(check(world, AppendSink)) == "0:0-1"


def test_a_tombstone_is_newer(world: World) -> None:
    store_records(world.store, "t", records((b"1", b"old"), (b"1", None)))
    store_records(world.store, "dead", [letter(b"old", key=b"1", offset=0)])
    assert "t-0@1" in reasons(check(world))[0]


def test_records_before_it_and_of_other_keys_do_not_matter(world: World) -> None:
    store_records(world.store, "t", records((b"1", b"older"), (b"1", b"mine"), (b"2", b"other")))
    store_records(world.store, "dead", [letter(b"mine", key=b"1", offset=1)])
    assert selected(check(world)) == "0:0-1"


def test_a_newer_record_that_is_a_letter_too_was_not_delivered(world: World) -> None:
    store_records(world.store, "t", records((b"1", b"a"), (b"1", b"b")))
    store_records(
        world.store,
        "dead",
        [letter(b"a", key=b"1", offset=0), letter(b"b", key=b"1", offset=1)],
    )
    assert selected(check(world)) == "0:0-2", "the older, then the newer"
    assert selected(check(world, replayed="0:1-2", wanted="0:0-1")) == "", "b was replayed"


def test_an_older_letter_behind_a_newer_one_of_its_key_is_left_out(world: World) -> None:
    store_records(world.store, "t", records((b"1", b"a"), (b"1", b"b"), (b"2", b"c")))
    letters = [(b"b", b"1", 1), (b"c", b"2", 2), (b"a", b"1", 0)]
    store_records(
        world.store, "dead", [letter(value, key=key, offset=at) for value, key, at in letters]
    )
    for skips_newer in (True, False):
        found = check(world, skips_newer=skips_newer)
        assert selected(found) == "0:0-2"
        assert "dead-0@0 has the same key" in reasons(found)[2]


def test_a_letter_without_a_key_is_undetermined(world: World) -> None:
    store_records(world.store, "t", records((None, b"a")))
    store_records(world.store, "dead", [letter(b"a", key=None, offset=0)])
    found = check(world, WriterSink)
    assert not found.refused[0, 0].is_newer
    assert "it has no key" in reasons(found)[0]


@pytest.mark.parametrize("lacking", ["offset", "partition", "topic"])
def test_a_letter_without_its_place_is_undetermined(world: World, lacking: str) -> None:
    store_records(world.store, "t", records((b"1", b"a")))
    made = letter(b"a", key=b"1", offset=0)
    made["headers"] = [each for each in made["headers"] if each[0] != f"{PREFIX}{lacking}"]
    store_records(world.store, "dead", [made])
    found = check(world, topics="t,u")
    assert selected(found) == ""
    assert reasons(found)[0]


def test_letters_of_deleted_recreated_and_shortened_topics_are_undetermined(world: World) -> None:
    store_records(world.store, "dead", [letter(b"a", key=b"1", offset=0)])
    assert "does not exist" in reasons(check(world))[0]
    store_records(world.store, "t", records((b"9", b"other")))
    assert "is another record" in reasons(check(world))[0]
    delete_topic(world.store, "dead")
    store_records(world.store, "dead", [letter(b"a", key=b"1", offset=7)])
    assert "created again" in reasons(check(world))[0]


def test_a_letter_whose_record_retention_removed_is_undetermined(world: World) -> None:
    for n in range(3):
        store_records(world.store, "t", records((b"1" if n == 0 else b"2", b"%d" % n)))
    world.store.apply_retention(retention_ms=None, retention_bytes=1)
    store_records(world.store, "t", records((b"2", b"later")))
    store_records(world.store, "dead", [letter(b"0", key=b"1", offset=0)])
    assert "no longer in the topic" in reasons(check(world))[0]


def test_letters_of_another_connector_are_left_out(world: World) -> None:
    store_records(world.store, "t", records((b"1", b"a")))
    made = letter(b"a", key=b"1", offset=0, **{"connector.name": "other"})
    store_records(world.store, "dead", [made])
    assert "of the connector other" in reasons(check(world))[0]
    assert selected(check(world, skips_newer=False)) == "0:0-1"


JSON: dict[str, Any] = {
    "key.converter": "StringConverter",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}


def test_the_key_is_what_the_sink_sees_after_the_transforms(world: World) -> None:
    rename: dict[str, Any] = {
        "transforms": "it",
        "transforms.it.type": "ReplaceField$Value",
        "transforms.it.renames": "code:id",
    }
    store_records(
        world.store,
        "t",
        records((b"a", b'{"code":1,"v":"old"}'), (b"b", b'{"code":1.0,"v":"new"}')),
    )
    store_records(world.store, "dead", [letter(b'{"code":1,"v":"old"}', key=b"a", offset=0)])
    assert "t-0@1" in reasons(check(world, ByValueSink, **JSON, **rename))[0]
    assert "its value has no id" in reasons(check(world, ByValueSink, **JSON))[0]


def test_a_letter_that_cannot_be_read_is_undetermined(world: World) -> None:
    store_records(world.store, "t", records((b"a", b"no json")))
    store_records(world.store, "dead", [letter(b"no json", key=b"a", offset=0)])
    assert "its key cannot be determined" in reasons(check(world, ByValueSink, **JSON))[0]


def test_a_search_that_ends_at_its_limit_leaves_letters_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_check, "SEARCHED_MAX", 2)
    monkeypatch.setattr(letter_check, "_PLAN_RECORDS", 2)
    for _ in range(3):
        store_records(world.store, "t", records((b"1", b"a"), (b"2", b"b")))
    store_records(
        world.store, "dead", [letter(b"b", key=b"9", offset=0), letter(b"b", key=b"2", offset=5)]
    )
    store_records(world.store, "u", records((b"1", b"a")))
    found = reasons(check(world))
    assert "is another record" in found[0]
    assert 1 not in found or "ended at its limit" in found[1]


def test_a_sources_letter_is_older_than_a_later_record_of_its_key_in_the_topic(
    world: World,
) -> None:
    store_records(world.store, "dead", [letter(b"a", key=b"1", offset=None)])
    assert selected(check(world, LinesSource)) == "0:0-1"
    store_records(world.store, "t", records((b"2", b"other")))
    assert selected(check(world, LinesSource)) == "0:0-1"
    store_records(world.store, "t", records((b"1", b"new")))
    assert "t-0@1 has the same key and is newer" in reasons(check(world, LinesSource))[0]


def test_a_sources_letter_without_a_key_overwrites_nothing(world: World) -> None:
    store_records(world.store, "dead", [letter(b"a", key=None, offset=None)])
    store_records(world.store, "t", records((None, b"other")))
    assert selected(check(world, LinesSource)) == "0:0-1"
    store_records(world.store, "t", records((b"1", b"keyed")))
    assert "other records of t have one" in reasons(check(world, LinesSource))[0]


def run(world: World, runner: Any, batches: int = 6) -> None:
    for _ in range(batches):
        before = len(world.reports)
        runner.run_once()
        if any(each.HasField("commit_offsets") for each in world.reports[before:]):
            world.commit()


def sink(world: World, replay: str, **config: str) -> Any:
    replaying = {"errors.deadletterqueue.replay": replay, **REPLAY}
    more = {"topics": "t", **SETTINGS, **replaying, **config}
    return world.runner(StartedSink, UpsertSink, more)


def test_the_task_checks_again_before_it_writes(world: World) -> None:
    store_records(world.store, "t", records((b"1", b"old"), (b"2", b"x")))
    made = letter(b"old", key=b"1", offset=0, **{"connector.name": "UpsertSink"})
    store_records(world.store, "dead", [made])
    found = check(world)
    assert "of the connector UpsertSink" in reasons(found)[0]
    store_records(world.store, "t", records((b"1", b"NEWER")))  # after the request
    run(world, sink(world, "0:0-1"))
    assert [value for *_, value in Writer.written] == [b"old", b"x", b"NEWER"], "of the topic"
    bounds = world.tools.plane.topic_bounds("dead")
    assert bounds[0][1] == 2, "it is a dead letter again"


def test_a_new_replay_may_go_back_to_letters_that_an_earlier_one_left_out(world: World) -> None:
    made = [letter(b"%d" % n, key=b"%d" % n, offset=n, **{"connector.name": ""}) for n in range(4)]
    store_records(world.store, "dead", made)
    force = {"errors.deadletterqueue.replay.force": "true"}
    run(world, sink(world, "0:2-4", **force))
    assert [offset for _, offset, _ in Writer.written] == [2, 3]
    again = {**force, "errors.deadletterqueue.replay.id": "ffffffff"}
    for _ in range(2):
        run(world, sink(world, "0:0-2", **again))
        assert [offset for _, offset, _ in Writer.written] == [2, 3, 0, 1]


def test_only_the_ranges_are_replayed_across_gaps(world: World) -> None:
    made = [letter(b"%d" % n, key=None, offset=n) for n in range(6)]
    store_records(world.store, "dead", made)
    force = {"errors.deadletterqueue.replay.force": "true", "batch.max.records": "1"}
    run(world, sink(world, "0:0-1,0:2-3,0:4-6", **force), 10)
    assert [offset for _, offset, _ in Writer.written] == [0, 2, 4, 5]


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_sets_of_offsets_are_as_sets(first: set[int], second: set[int]) -> None:
    one, two = (OffsetSet.of((n, n + 1) for n in numbers) for numbers in (first, second))
    for made, expected in ((one - two, first - second), (one | two, first | second)):
        assert {n for n in range(40) if n in made} == expected
        assert made.count == len(expected)


def test_offsets_are_ranges() -> None:
    found = OffsetSet.of([(5, 7), (0, 2), (2, 3), (6, 9)])
    assert found.ranges == ((0, 3), (5, 9))
    assert [each in found for each in (0, 2, 3, 4, 5, 8, 9)] == [
        True, True, False, False, True, True, False,
    ]  # fmt: skip
    assert (found - OffsetSet.of([(1, 6)])).ranges == ((0, 1), (6, 9))
    assert found.below(6).ranges == ((0, 3), (5, 6))
    assert found.count == 7


def test_of_ten_thousand_letters_those_with_a_newer_record_are_left_out(world: World) -> None:
    count = 10_000
    store_records(world.store, "t", records(*((b"%d" % n, b"old") for n in range(count))))
    store_records(world.store, "t", records(*((b"%d" % n, b"new") for n in range(0, count, 4))))
    store_records(
        world.store, "dead", [letter(b"old", key=b"%d" % n, offset=n) for n in range(count)]
    )
    found = check(world, wanted=f"0:0-{count}")
    assert sorted(found.refused) == [(0, n) for n in range(0, count, 4)]
    assert count_of(found.selected) == 7_500


def test_a_request_takes_a_thousand_ranges_and_names_the_rest(world: World) -> None:
    count = 2_400
    letters = [
        letter(b"v", key=b"%d" % (n // 2), offset=n, **({"stage": "X"} if n % 2 else {}))
        for n in range(count)
    ]
    store_records(world.store, "t", records(*((b"%d" % (n // 2), b"v") for n in range(count))))
    store_records(world.store, "dead", letters)
    config = {"name": "me", "connector.class": "UpsertSink", "topics": "t", **SETTINGS}

    class Plugins:
        def find_of(self, _config: Mapping[str, str]) -> type[Any]:
            return UpsertSink

    command = engine_pb2.CheckDeadLetters(
        ranges=f"0:0-{count}", conditions=[f"headers.{PREFIX}stage=X"], select_only=True
    )
    answer = check_dead_letters(cast("Any", Plugins()), world.tools, config, command)
    assert len(answer.ranges.split(",")) == 1_000
    assert answer.ranges.startswith("0:1-2,0:3-4,")
    assert "only the first 1000 of 1200" in answer.notes[0]
    command = engine_pb2.CheckDeadLetters(ranges="0:0-1", conditions=["a=1", "b"])
    with pytest.raises(InvalidArgumentError) as refused:
        check_dead_letters(cast("Any", Plugins()), world.tools, config, command)
    assert [each.field for each in refused.value.violations] == ["conditions[1]"]
