"""Records of an operator's input, written to an embedded store's topic without Spark."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from drover.api.common.v1 import topics_pb2
from drover.api.engine.v1 import engine_pb2
from drover.dataplane.embedded import EmbeddedPlane
from drover.errors import InvalidArgumentError, NotFoundError, Reason
from drover.model import produce_input
from drover_worker.engine.topics import produced_records
from drover_worker.engine.topics.reads import read_topic
from drover_worker.engine.topics.writes import produce_records
from tests.support.http_api import Reply, Request, running_api

JSON, LINES = topics_pb2.PRODUCE_FORMAT_JSON, topics_pb2.PRODUCE_FORMAT_LINES
Produce = Callable[..., engine_pb2.ProducedRecords]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[EmbeddedPlane]:
    plane = EmbeddedPlane.open(tmp_path)
    plane.store.ensure_topic("t", 2)
    yield plane
    plane.store.close()


@pytest.fixture
def produce(plane: EmbeddedPlane, tmp_path: Path) -> Produce:
    numbers = iter(range(1_000))

    def run(
        data: str | bytes,
        connector_config: Mapping[str, str] | None = None,
        **terms: Any,
    ) -> engine_pb2.ProducedRecords:
        file = tmp_path / "input"
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        options = {"topic": "t", "format": JSON, "request_id": f"call {next(numbers)}", **terms}
        command = engine_pb2.ProduceRecords(
            options=topics_pb2.ProduceOptions(**options), path=str(file)
        )
        return produce_records(plane, command, connector_config or {})

    return run


def stored(plane: EmbeddedPlane) -> list[dict[str, Any]]:
    """Keys, values and headers of all records."""
    starts = {("t", 0): 0, ("t", 1): 0}
    plan = plane.plan_read(starts, max_records=10**6, max_bytes=10**9)
    return [row for batch in plane.read_here(plan) for row in batch.to_pylist()]


def faults(produce: Produce, data: str | bytes, **terms: Any) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as told:
        produce(data, **terms)
    return {each.field: each.description for each in told.value.violations}


def test_lines_of_json_become_records_with_all_their_parts(
    plane: EmbeddedPlane, produce: Produce
) -> None:
    lines = [
        {"key": "k", "value": {"a": 1}, "partition": 1, "timestamp": "2026-01-01T01:00:00.5+01:00",
         "headers": {"h": "v", "none": None, "raw": {"bytes": "AP8="}}},
        {"value": None, "key": {"id": 1}, "partition": 0, "timestamp": 7,
         "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": "2"}]},
    ]  # fmt: skip
    found = produce("\n\n".join(json.dumps(each) for each in lines))
    assert (found.record_count, found.repeated_call) == (2, False)
    second, first = stored(plane)
    assert (first["key"], first["value"], first["partition"]) == (b"k", b'{"a":1}', 1)
    assert first["timestamp"].isoformat() == "2026-01-01T00:00:00.500000+00:00"
    assert [(each["key"], each["value"]) for each in first["headers"]] == [
        ("h", b"v"), ("none", None), ("raw", b"\x00\xff"),
    ]  # fmt: skip
    assert (second["key"], second["value"]) == (b'{"id":1}', None)
    assert [each["value"] for each in second["headers"]] == [b"1", b"2"]
    assert second["timestamp"].timestamp() == 0.007


def test_plain_lines_become_values_or_keys_and_values(
    plane: EmbeddedPlane, produce: Produce
) -> None:
    terms = {"format": LINES, "key_separator": "=>", "null_marker": "NULL"}
    produce("a=>1\r\nb=>NULL\nNULL=>x=>y\n=>\n", **terms)
    produce("no key, 1=>2\n\nlast", format=LINES)
    found = sorted((row["key"] or b"-", row["value"] or b"-") for row in stored(plane))
    assert found == sorted(
        [(b"a", b"1"), (b"b", b"-"), (b"-", b"x=>y"), (b"-", b"-"), (b"-", b"no key, 1=>2"),
         (b"-", b"-"), (b"-", b"last")]
    )  # fmt: skip


def test_keys_go_to_the_partition_of_kafkas_clients(plane: EmbeddedPlane, produce: Produce) -> None:
    produce("".join(f'{{"key":"{n}","value":{n}}}\n' for n in range(20)))
    places = {row["key"]: row["partition"] for row in stored(plane)}
    assert set(places.values()) == {0, 1}
    produce("".join(f'{{"key":"{n}","value":{n}}}\n' for n in range(20)))
    assert all(places[row["key"]] == row["partition"] for row in stored(plane))


def test_numbers_and_texts_keep_every_digit_and_character(
    plane: EmbeddedPlane, produce: Produce
) -> None:
    texts = ["0.10000000000000000001", "1e400", str(10**40), '"\\u00fc\\u0000"', "[true,null]"]
    produce("".join(f'{{"value":{each},"partition":0}}\n' for each in texts))
    assert [row["value"].decode() for row in stored(plane)] == [
        *texts[:3], '"ü\\u0000"', "[true,null]",
    ]  # fmt: skip


def test_every_malformed_line_is_reported_and_nothing_is_written(
    plane: EmbeddedPlane, produce: Produce
) -> None:
    lines = [
        b'{"value":1}', b"nope", b'{"value":1,"offsett":2}', b"[1]", b'{"key":1}',
        b'{"value":{"a":1,"a":2}}', b'{"value":NaN}', b'{"value":1,"partition":2}',
        b'{"value":1,"timestamp":"soon"}', b'{"value":1,"headers":{"h":5}}', b'{"value":"\xff"}',
        b'{"value":"\\ud800"}', b"[" * 100_000, b'{"value":1,"timestamp":-1}',
        b'{"value":1,"timestamp":"2026-01-01T00:00:00.0001"}', b'{"value":1,"partition":true}',
        b'{"value":1,"headers":{"h":{"bytes":"no base64"}}}', b'{"value":{"\\u0000drover":[]}}',
        b'{"value":' + b"9" * 5_000 + b"}",
    ]  # fmt: skip
    found = faults(produce, b"\n".join(lines))
    assert list(found) == [f"line {number}" for number in range(2, len(lines) + 1)]
    assert found["line 6"] == "has the field 'a' twice in one object"
    assert found["line 11"] == "is not UTF-8 at byte 11"
    assert stored(plane) == []
    many = faults(produce, b"nope\n" * 1_000)
    assert len(many) == produced_records.FAULTS_MAX
    assert faults(produce, "a\n", format=LINES, key_separator="\t") == {
        "line 1": "has no key separator"
    }


def test_a_value_that_the_converter_cannot_write_is_reported_with_its_line(
    plane: EmbeddedPlane, produce: Produce
) -> None:
    integers = {"value_converter": "IntegerConverter"}
    found = faults(produce, '{"value":1}\n\n{"value":"x"}\n{"value":3000000000}\n', **integers)
    assert sorted(found) == ["line 3", "line 4"]
    assert found["line 3"] == "value: IntegerConverter does not write 'x'"
    assert faults(produce, b"\xff\n", format=LINES).keys() == {"line 1"}
    assert faults(produce, "no json", format=LINES, value_converter="json").keys() == {"line 1"}
    assert faults(produce, '{"value":"0xz"}', value_converter="hex").keys() == {"line 1"}
    wrong = '{"value":{"schema":{"type":"int32"},"payload":"x"}}'
    assert faults(produce, wrong, value_converter="JsonConverter") == {
        "line 1": "value: 'x' is no value of type int32"
    }
    assert stored(plane) == []


def test_a_converter_writes_what_the_viewer_shows(plane: EmbeddedPlane, produce: Produce) -> None:
    schema = {"type": "struct", "optional": False, "fields": [
        {"field": "p", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2"}},
    ]}  # fmt: skip
    envelope = json.dumps({"value": {"schema": schema, "payload": {"p": 1.25}}, "partition": 0})
    produce(envelope, value_converter="JsonConverter")
    produce('{"value":{"bytes":"AP8="},"partition":0}', value_converter="ByteArrayConverter")
    produce('{"value":"0x00ff","partition":0}', value_converter="hex")
    produce('{"value":{"a":"b"},"partition":0}', value_converter="string")
    own = {"value.converter": "LongConverter", "key.converter": "JsonConverter"}
    produce('{"key":"k","value":7,"partition":0}', own)
    payload, *others = [row["value"] for row in stored(plane)]
    assert json.loads(payload)["payload"] == {"p": base64.b64encode(b"\x7d").decode()}
    assert others == [b"\x00\xff", b"\x00\xff", b'{"a":"b"}', b"\0\0\0\0\0\0\0\7"]
    assert stored(plane)[-1]["key"] == b'{"schema":null,"payload":"k"}'
    command = engine_pb2.ReadTopic(query=topics_pb2.RecordQuery(topic="t"), record_count_max=1)
    assert read_topic(plane, command, {}).records[0].value == '{"p":1.25}'


def test_a_repeated_call_writes_nothing_again(plane: EmbeddedPlane, produce: Produce) -> None:
    assert produce('{"value":1}', request_id="one").record_count == 1
    for number in range(produced_records.HEADERS_MAX // 10):
        produce('{"value":2}', request_id=f"other {number}")
    again = produce('{"value":1}', request_id="one")
    assert (again.record_count, again.repeated_call) == (1, True)
    assert len(stored(plane)) == 11


def test_an_empty_input_writes_nothing(plane: EmbeddedPlane, produce: Produce) -> None:
    for data in ("", "\n \r\n", b"\xef\xbb\xbf"):
        assert produce(data).record_count == 0
    assert produce("", format=LINES).record_count == 0
    assert stored(plane) == []


def test_topics_that_are_missing_or_internal_are_refused(produce: Produce) -> None:
    with pytest.raises(NotFoundError) as told:
        produce('{"value":1}', topic="gone")
    assert told.value.reason is Reason.TOPIC_NOT_FOUND
    for name in ("__consumer_offsets", "a b", "."):
        assert faults(produce, '{"value":1}', topic=name).keys() == {"topic"}


def test_every_fault_of_the_options_is_told_at_once(produce: Produce) -> None:
    found = faults(
        produce,
        '{"value":1}',
        key_converter="Nope",
        value_converter="auto",
        config={"key.converter.x": "y"},
        connector_config={"topics": "t"},
    )
    assert found.keys() == {
        'options.config["key.converter.x"]', "options.key_converter", "options.value_converter",
    }  # fmt: skip


def test_an_input_beyond_the_limits_is_refused(
    plane: EmbeddedPlane, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {str(number): "" for number in range(produced_records.HEADERS_MAX + 1)}
    many = json.dumps({"value": 1, "headers": headers})
    assert "101 headers" in faults(produce, many)["line 1"]
    monkeypatch.setattr(produced_records, "RECORDS_MAX", 2)
    monkeypatch.setattr(produce_input, "INPUT_BYTES_MAX", 10)
    for data in (b"\n" * 3, b"x" * 11):
        with pytest.raises(InvalidArgumentError) as told:
            produce(data, format=LINES)
        assert told.value.reason is Reason.TOO_LARGE
    monkeypatch.setattr(EmbeddedPlane, "record_bytes_max_of", lambda *_: 3)
    assert "takes 3" in faults(produce, "abc\nabcd", format=LINES)["line 2"]
    assert stored(plane) == []


def registry(request: Request) -> Reply:
    """One schema, which the first record registers."""
    if request.method == "POST":
        schemas.append(json.loads(request.body)["schema"])
    if not request.path.startswith("/schemas/ids/"):
        return Reply({"id": 1, "subject": "t-value", "version": 1})
    return Reply({"schema": schemas[-1]})


schemas: list[str] = []


def test_avro_is_written_with_its_schema_shown_and_compared_by_value(
    plane: EmbeddedPlane, produce: Produce
) -> None:
    nested = {"type": "struct", "optional": False, "field": "inner", "name": "Inner", "fields": [
        {"field": "price", "type": "bytes", "optional": True,
         "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
         "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp",
         "version": 1},
    ]}  # fmt: skip
    schema = {"type": "struct", "optional": False, "name": "Outer", "fields": [nested]}
    lines = [
        {"value": {"schema": schema, "payload": {"inner": {"price": price, "at": at}}}}
        for price, at in ((2.10, 0), (None, 1_704_060_060_000))
    ]
    with running_api(registry) as api:
        config = {
            "value.converter": "AvroConverter",
            "value.converter.schema.registry.url": api.url,
            "value.converter.max.retries": "0",
        }
        produce("\n".join(json.dumps({**each, "partition": 0}) for each in lines), config)

        def found(*conditions: str) -> list[str]:
            query = topics_pb2.RecordQuery(topic="t", conditions=conditions)
            records = read_topic(plane, engine_pb2.ReadTopic(query=query), config).records
            return [each.value for each in records]

        first = '{"inner":{"price":2.10,"at":"1970-01-01T00:00:00.000Z"}}'
        second = '{"inner":{"price":null,"at":"2023-12-31T22:01:00.000Z"}}'
        assert found() == [first, second]
        assert found("inner.price=2.1") == [first]
        assert found("inner.price!=2.1") == [second]
        assert found("inner.at>=2024-01-01T00:00:00+02:00") == [second]
        assert faults(produce, '{"value":{"a":1}}', connector_config=config).keys() == {"line 1"}
