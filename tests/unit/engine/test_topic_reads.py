"""Reads of an embedded store's topics: bounded, decoded, without Spark."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from drover.api.common.v1 import topics_pb2
from drover.api.engine.v1 import engine_pb2
from drover.dataplane.compaction import Compactor
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.values import ReadPlan
from drover.errors import InvalidArgumentError, NotFoundError, Reason
from drover_worker.engine.topics import reads as topic_reads
from drover_worker.engine.topics.reads import describe_topic, list_topics, read_topic
from tests.support.http_api import Reply, running_api
from tests.support.stored_topics import delete_topic, store_records


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[EmbeddedPlane]:
    plane = EmbeddedPlane.open(tmp_path)
    yield plane
    plane.store.close()


def query(**terms: Any) -> topics_pb2.RecordQuery:
    return topics_pb2.RecordQuery(topic="t", **terms)


def read(
    plane: EmbeddedPlane,
    wanted: topics_pb2.RecordQuery | None = None,
    connector_config: Mapping[str, str] | None = None,
    **command: Any,
) -> engine_pb2.TopicRecords:
    asked = engine_pb2.ReadTopic(query=wanted or query(), **command)
    return read_topic(plane, asked, connector_config or {})


def offsets(found: engine_pb2.TopicRecords) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in found.records]


def values(found: engine_pb2.TopicRecords) -> list[Any]:
    return [json.loads(each.value) if each.HasField("value") else None for each in found.records]


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"value": b'{"n":%d}' % n, "timestamp_ms": n} for n in numbers]


def test_topics_are_listed_by_name_a_page_at_a_time(plane: EmbeddedPlane) -> None:
    for name in ("b", "a", "c"):
        plane.store.ensure_topic(name, 2)
    first = list_topics(plane, "", 2)
    assert [(each.name, each.partition_count) for each in first.topics] == [("a", 2), ("b", 2)]
    assert first.more
    rest = list_topics(plane, "b", 2)
    assert ([each.name for each in rest.topics], rest.more) == (["c"], False)


def test_a_topic_is_described_by_its_partitions(plane: EmbeddedPlane) -> None:
    store_records(plane.store, "t", numbered(1, 2), partition=1, partition_count=2)
    found = describe_topic(plane, "t")
    assert [(each.start_offset, each.end_offset) for each in found.partitions] == [(0, 0), (0, 2)]
    assert not found.HasField("retention")


def test_a_description_shows_each_setting_and_where_it_comes_from(plane: EmbeddedPlane) -> None:
    plane.store.set_default_settings({"retention.ms": "604800000", "retention.bytes": "-1"})
    plane.store.ensure_topic("t", settings={"retention.bytes": "1000"})
    found = describe_topic(plane, "t")
    assert found.config["retention.ms"] == "604800000"
    origins = {each.name: each.origin for each in found.settings}
    assert origins["retention.ms"] == topics_pb2.SETTING_ORIGIN_COORDINATOR
    assert origins["retention.bytes"] == topics_pb2.SETTING_ORIGIN_TOPIC
    assert origins["cleanup.policy"] == topics_pb2.SETTING_ORIGIN_DEFAULT
    assert {each.name: each.value for each in found.settings} == found.config
    assert (found.retention.ToSeconds(), found.retention_bytes) == (604_800, 1_000)


def test_a_topic_that_is_only_compacted_has_no_retention(plane: EmbeddedPlane) -> None:
    plane.store.set_default_settings({"retention.ms": "604800000", "retention.bytes": "5"})
    plane.store.ensure_topic("t", settings={"cleanup.policy": "compact"})
    found = describe_topic(plane, "t")
    assert not found.HasField("retention")
    assert not found.HasField("retention_bytes")
    assert found.config["cleanup.policy"] == "compact"


def test_an_age_beyond_the_limit_of_a_duration_is_shown_as_a_setting(
    plane: EmbeddedPlane,
) -> None:
    plane.store.ensure_topic("t", settings={"retention.ms": "9223372036854775807"})
    found = describe_topic(plane, "t")
    assert not found.HasField("retention")
    assert found.config["retention.ms"] == "9223372036854775807"


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250, "__consumer_offsets"])
def test_what_is_no_topic_of_connectors_is_refused(plane: EmbeddedPlane, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        describe_topic(plane, name)
    with pytest.raises(InvalidArgumentError):
        read(plane, topics_pb2.RecordQuery(topic=name))


@pytest.mark.parametrize("name", ["__debezium-heartbeat.shop", "__own", "_schemas", "orders-dlq"])
def test_every_listed_topic_can_be_described_and_read(plane: EmbeddedPlane, name: str) -> None:
    store_records(plane.store, name, numbered(1, 2))
    assert [each.name for each in list_topics(plane, "", 10).topics] == [name]
    assert describe_topic(plane, name).partitions[0].end_offset == 2
    wanted = topics_pb2.RecordQuery(topic=name)
    assert values(read(plane, wanted)) == [{"n": 1}, {"n": 2}]
    assert values(read(plane, wanted, last_count=1)) == [{"n": 2}]
    assert read(plane, wanted, count_only=True).record_count == 2


@pytest.mark.parametrize("again", [1, 2, 5])
def test_a_topic_that_is_created_again_while_it_is_read_ends_the_read(
    plane: EmbeddedPlane, again: int
) -> None:
    store_records(plane.store, "t", numbered(1, 2))
    found = read(plane, record_count_max=1)
    delete_topic(plane.store, "t")
    store_records(plane.store, "t", numbered(*range(again)))
    for command in ({}, {"count_only": True}, {"record_count_max": 1}):
        with pytest.raises(NotFoundError, match="deleted and created again") as told:
            read(plane, positions=found.positions, **command)
        assert told.value.reason is Reason.TOPIC_NOT_FOUND
    assert len(values(read(plane))) == again


def test_a_topic_that_is_created_again_within_a_request_ends_it(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_records(plane.store, "t", numbered(1, 2))
    whole = plane.read_here

    def recreated(plan: ReadPlan) -> Iterator[Any]:
        yield from whole(plan)
        delete_topic(plane.store, "t")
        plane.store.ensure_topic("t")

    monkeypatch.setattr(plane, "read_here", recreated)
    with pytest.raises(NotFoundError, match="deleted and created again"):
        read(plane)


def test_a_topic_that_is_not_there_is_told(plane: EmbeddedPlane) -> None:
    with pytest.raises(NotFoundError) as told:
        read(plane)
    assert told.value.reason is Reason.TOPIC_NOT_FOUND


def test_keys_and_values_are_shown_as_what_they_look_like(plane: EmbeddedPlane) -> None:
    envelope = b'{"schema":{"type":"int32"},"payload":7}'
    raw = [b'{"a":1}', b"12", "text é".encode(), b"\x00\xff", b"a\x00", envelope, None]
    headers = [("h", b"v"), ("h", None)]
    store_records(
        plane.store, "t", [{"key": b"k", "value": each, "headers": headers} for each in raw]
    )
    found = read(plane)
    assert values(found) == [{"a": 1}, 12, "text é", "0x00ff", "0x6100", 7, None]
    assert found.records[0].key == '"k"'
    first, second = found.records[0].headers
    assert (first.key, first.value, second.HasField("value")) == ("h", "v", False)
    assert found.at_end
    hexed = read(plane, query(value_converter="hex", key_converter="hex"), record_count_max=1)
    assert (values(hexed), hexed.records[0].key) == (["0x7b2261223a317d"], '"0x6b"')


def test_what_a_named_converter_cannot_decode_is_guessed_and_says_so(
    plane: EmbeddedPlane,
) -> None:
    store_records(plane.store, "t", [{"value": each} for each in (b'{"a":1}', b"no", b"[2]")])
    found = read(plane, query(value_converter="json"))
    assert values(found) == [{"a": 1}, "no", [2]]
    assert [bool(each.error) for each in found.records] == [False, True, False]


def test_a_connectors_converters_count_where_the_query_names_none(plane: EmbeddedPlane) -> None:
    store_records(plane.store, "t", [{"value": b"\x00\x00\x00\x07", "key": b"\x00\x00\x00\x01"}])
    config = {"value.converter": "IntegerConverter", "key.converter": "IntegerConverter"}
    (record,) = read(plane, query(key_converter="hex"), config).records
    assert (record.key, record.value) == ('"0x00000001"', "7")


def test_every_fault_of_a_query_is_told_at_once(plane: EmbeddedPlane) -> None:
    plane.store.ensure_topic("t")
    wanted = query(
        key_converter="Nope",
        value_converter="json",
        config={"value.converter.schemas.enable": "perhaps"},
        conditions=["n=1", "n"],
        paths=["a..b"],
    )
    with pytest.raises(InvalidArgumentError) as told:
        read(plane, wanted)
    assert [each.field for each in told.value.violations] == [
        "query.key_converter",
        'query.config["value.converter.schemas.enable"]',
        "query.conditions[1]",
        "query.paths[0]",
    ]
    with pytest.raises(InvalidArgumentError, match="0 to 0, not 1"):
        read(plane, query(partitions=[0, 1]))


def test_where_and_select_pick_records_and_their_parts(plane: EmbeddedPlane) -> None:
    store_records(plane.store, "t", numbered(*range(10)))
    found = read(
        plane, query(conditions=["n>=3", "n<6", "offset!=4"], paths=["n", "offset", "gone"])
    )
    assert values(found) == [
        {"n": 3, "offset": 3, "gone": None}, {"n": 5, "offset": 5, "gone": None},
    ]  # fmt: skip
    assert (found.scanned_count, found.record_count) == (10, 2)


def envelope(payload: object, *fields: dict[str, Any]) -> bytes:
    schema = {
        "type": "struct",
        "optional": True,
        "fields": [{"optional": True, **f} for f in fields],
    }
    return json.dumps({"schema": schema, "payload": payload}).encode()


BALANCE = {
    "field": "balance", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2"},
}  # fmt: skip
AT = {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}
ON = {"field": "on", "type": "int32", "name": "io.debezium.time.Date"}
WITH_SCHEMAS = {"value_converter": "json", "config": {"value.converter.schemas.enable": "true"}}


@pytest.mark.parametrize("converters", [{}, WITH_SCHEMAS], ids=["guessed", "named"])
def test_a_record_with_its_schema_is_shown_and_compared_by_its_values(
    plane: EmbeddedPlane, converters: dict[str, Any]
) -> None:
    rows = [
        {"balance": "fQ==", "at": 1_704_060_060_000, "on": 19_000},
        {"balance": "AfQ=", "at": 0, "on": 0},
        {"balance": None, "at": None, "on": None},
        None,
    ]
    store_records(plane.store, "t", [{"value": envelope(each, BALANCE, AT, ON)} for each in rows])
    found = read(plane, query(**converters))
    assert [each.value for each in found.records][:2] == [
        '{"balance":1.25,"at":"2023-12-31T22:01:00.000Z","on":"2022-01-08"}',
        '{"balance":5.00,"at":"1970-01-01T00:00:00.000Z","on":"1970-01-01"}',
    ]
    for condition, expected in (
        ("balance>=1.250", [0, 1]),
        ("balance=5", [1]),
        ("balance>=90000", []),
        ("balance!=5", [0, 2, 3]),
        ("at>=2023-12-31T23:01:00+01:00", [0]),
        ("at<1970-01-02", [1]),
        ("on=2022-01-08", [0]),
    ):
        wanted = query(conditions=[condition], **converters)
        assert [each for _, each in offsets(read(plane, wanted))] == expected
        assert read(plane, wanted, count_only=True).record_count == len(expected)
        assert read(plane, wanted, last_count=9).record_count == len(expected)
    selected = read(plane, query(paths=["at", "balance"], **converters), record_count_max=1)
    assert selected.records[0].value == '{"at":"2023-12-31T22:01:00.000Z","balance":1.25}'


def test_what_only_resembles_an_envelope_is_shown_as_it_is(plane: EmbeddedPlane) -> None:
    texts = [
        '{"schema":{"type":"int32"},"payload":7}', '{"schema": "s", "payload": 7}',
        '{"payload":true,"schema":{"type":"boolean"}}', '{"schema":{"type":"int32"},"payload":"x"}',
        '{"schema":null,"payload":[1.0000000000000000001]}', '{"schema":1}', "7",
    ]  # fmt: skip
    store_records(plane.store, "t", [{"value": each.encode()} for each in texts])
    assert [each.value for each in read(plane).records] == [
        "7", texts[1], "true", texts[3], "[1.0000000000000000001]", texts[5], "7",
    ]  # fmt: skip


def test_reading_goes_on_where_an_answer_ended(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in (0, 1):
        store_records(plane.store, "t", numbered(*range(5)), partition=partition, partition_count=2)
    monkeypatch.setattr(topic_reads, "_ANSWER_BYTES_MAX", 40)
    seen = []
    answers = 0
    found = read(plane)
    while True:
        seen += offsets(found)
        answers += 1
        if found.at_end:
            break
        found = read(plane, positions=found.positions)
    assert sorted(seen) == [(p, n) for p in (0, 1) for n in range(5)]
    assert answers > 3
    store_records(plane.store, "t", numbered(5), partition=1)
    assert offsets(read(plane, positions=found.positions)) == [(1, 5)]


def test_reading_begins_at_an_offset(plane: EmbeddedPlane) -> None:
    store_records(plane.store, "t", numbered(*range(5)))
    assert offsets(read(plane, start_offset=3)) == [(0, 3), (0, 4)]
    assert offsets(read(plane, start_offset=9)) == []


def test_the_last_records_are_those_of_all_partitions_in_time(plane: EmbeddedPlane) -> None:
    store_records(plane.store, "t", numbered(1, 2, 9), partition=0, partition_count=2)
    store_records(plane.store, "t", numbered(3, 4), partition=1)
    found = read(plane, last_count=3)
    assert values(found) == [{"n": 3}, {"n": 4}, {"n": 9}]
    assert found.at_end
    assert read(plane, positions=found.positions).record_count == 0


def test_the_last_records_that_meet_a_condition_are_looked_for_further_back(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reads, "_PLAN_RECORDS", 4)
    store_records(plane.store, "t", numbered(*range(100)))
    assert values(read(plane, query(conditions=["n<=50"]), last_count=2)) == [{"n": 49}, {"n": 50}]
    assert values(read(plane, query(conditions=["n=-1"]), last_count=2)) == []


def test_counting_leaves_the_records_out(plane: EmbeddedPlane) -> None:
    store_records(plane.store, "t", numbered(*range(10)))
    found = read(plane, query(conditions=["n>6"]), count_only=True)
    assert (found.record_count, found.scanned_count, len(found.records)) == (3, 10, 0)
    assert found.at_end


def counted(plane: EmbeddedPlane, wanted: topics_pb2.RecordQuery) -> tuple[int, int, int]:
    """Matching records, records read and answers of a whole count."""
    command = engine_pb2.ReadTopic(query=wanted, count_only=True)
    totals, answer_count = [0, 0], 0
    while True:
        found = read_topic(plane, command, {})
        totals = [totals[0] + found.record_count, totals[1] + found.scanned_count]
        answer_count += 1
        for field in ("positions", "end_positions"):
            command.ClearField(field)
        command.positions.extend(found.positions)
        command.end_positions.extend(found.end_positions)
        if found.at_end:
            return totals[0], totals[1], answer_count


@pytest.mark.parametrize("terms", [{}, {"conditions": ["n>=0"]}, {"conditions": ["n>=0", "n!=7"]}])
def test_a_count_that_takes_several_answers_counts_each_record_once(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any]
) -> None:
    for partition in (0, 1):
        for _ in range(3):
            store_records(
                plane.store, "t", numbered(*range(5)), partition=partition, partition_count=2
            )
    monkeypatch.setattr(topic_reads, "_TIME_S", 0.0)
    matching, scanned, answer_count = counted(plane, query(**terms))
    assert (matching, scanned) == (30, 30)
    assert answer_count == 6
    assert counted(plane, query(partitions=[1], **terms))[0] == 15


def test_a_count_ends_where_the_topic_ended_when_it_began(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_records(plane.store, "t", numbered(1, 2, 3))
    monkeypatch.setattr(topic_reads, "_TIME_S", 0.0)
    first = read(plane, count_only=True)
    store_records(plane.store, "t", numbered(4, 5))
    again = read(
        plane, count_only=True, positions=first.positions, end_positions=first.end_positions
    )
    assert (first.record_count, again.record_count, again.at_end) == (3, 0, True)
    command: dict[str, Any] = {"count_only": True, "positions": [position(1)]}
    assert read(plane, end_positions=[position(2)], **command).record_count == 1


def position(offset: int) -> topics_pb2.ReadPosition:
    return topics_pb2.ReadPosition(partition=0, offset=offset)


def test_a_topic_that_is_gone_or_another_one_is_told_while_it_is_read(
    plane: EmbeddedPlane,
) -> None:
    store_records(plane.store, "t", numbered(1, 2))
    place = [topics_pb2.ReadPosition(partition=0, offset=2)]
    assert read(plane, positions=place).at_end
    for wrong in (3, 0):
        position = topics_pb2.ReadPosition(partition=0 if wrong else 1, offset=wrong)
        with pytest.raises(NotFoundError, match="was deleted, or deleted and created again"):
            read(plane, positions=[position])


def test_a_value_that_is_too_large_for_an_answer_is_cut(plane: EmbeddedPlane) -> None:
    store_records(plane.store, "t", [{"value": b"x" * 200_000}])
    (record,) = read(plane).records
    assert record.truncated
    assert len(record.value) == 64 * 1024


def test_a_query_cannot_change_the_converter_settings_of_a_connector(plane: EmbeddedPlane) -> None:
    """Its passwords would be sent to the URL of the query."""
    store_records(plane.store, "t", numbered(1))
    registry = "value.converter.schema.registry.url"
    own = {
        "value.converter": "AvroConverter",
        registry: "http://127.0.0.1:1",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.basic.auth.user.info": "me:hidden",
    }
    with running_api(lambda _: Reply()) as stranger:
        for name, value in ((registry, stranger.url), ("key.converter.x", "y")):
            with pytest.raises(InvalidArgumentError) as caught:
                read(plane, query(config={name: value}), own)
            (fault,) = caught.value.violations
            assert fault.field == f'query.config["{name}"]'
            assert "must not be set together with connector" in fault.description
        assert values(read(plane, query(value_converter="json"), own)) == [{"n": 1}]
        assert values(read(plane, query(config={"value.converter": "hex"}), own)) == [
            "0x7b226e223a317d"
        ]
    assert not stranger.requests


def test_the_last_record_is_found_before_a_removed_tombstone(plane: EmbeddedPlane) -> None:
    plane.store.ensure_topic(
        "t", settings={"cleanup.policy": "compact", "delete.retention.ms": "0"}
    )
    rows: list[dict[str, Any]] = [{"key": b"a", "value": b"1"}]
    rows += [{"key": b"b", "value": None}] * 9
    store_records(plane.store, "t", rows)
    compactor = Compactor(plane.store, "test", lambda _: False)
    while compactor.run().record_count:
        pass
    found = read(plane, last_count=1)
    assert (values(found), found.at_end) == ([1], True)
    assert read(plane, positions=found.positions).at_end
    assert read(plane, count_only=True).record_count == 1
    assert read(plane, start_offset=5).at_end
