"""ProtobufConverter against a real schema registry."""

import pickle
import struct
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from drover.convert.converter import Converter
from drover.convert.protobuf.descriptors import parse_proto
from drover.record.errors import PassError, RetriableError, RowsError
from drover.record.schema import schema_of
from tests.support.apicurio import Apicurio
from tests.support.http_gate import HttpGate
from tests.support.registry_converters import converter_at, schema_id_of, topics

pytestmark = pytest.mark.xdist_group("spark")  # the registry runs in that process

_numbers = count(1)
_ROW = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("city", pa.string()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("at", pa.timestamp("ms", tz="UTC")),
    ]
)
_FIELD = pa.field("value", _ROW, nullable=False, metadata={"connect.name": "shop.Row"})
_ROWS = pa.array([{"id": 1, "city": "oslo"}, {"id": 2, "city": "", "price": 5}], _ROW)
_SHOP = """
syntax = "proto3";
package shop;
message First { int32 a = 1; }
message Second { message Within { string b = 1; } int32 c = 1; Within within = 2; }
"""


converter = partial(converter_at, "io.confluent.connect.protobuf.ProtobufConverter")


def a_topic() -> str:
    """A unique topic name."""
    return f"proto-{next(_numbers)}"


def framed(schema_id: int, indexes: bytes, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + indexes + body


def test_records_come_back_with_their_schema(schema_registry: Apicurio) -> None:
    topic = a_topic()
    # executors receive a pickled copy
    proto: Converter = pickle.loads(pickle.dumps(converter(schema_registry.url)))
    raw = proto.encode(_FIELD, _ROWS, topics(topic, topic))
    (found,) = proto.decode(raw, topics(topic, topic))
    assert found.rows is None
    rows = found.values.to_pylist()
    assert [each["city"] for each in rows] == ["oslo", ""]
    assert [str(each["price"]) for each in rows] == ["None", "5.00"]
    schema = schema_of(found.field)
    assert schema is not None
    assert schema.name == "Row"
    (text,) = schema_registry.texts(f"{topic}-value")
    assert "message Row" in text
    # the first message has the short form of its indexes
    assert raw[0].as_py()[5] == 0
    _, message = parse_proto(text).first("shop.Row")
    kind: Any = GetMessageClass(message)
    assert kind.FromString(raw[0].as_py()[6:]).city == "oslo"


def test_keys_of_one_value_are_messages_of_protobufs_own(schema_registry: Apicurio) -> None:
    topic = a_topic()
    keys = converter(schema_registry.url, "key.converter")
    raw = keys.encode(
        pa.field("key", pa.int64(), nullable=False), pa.array([5, 0]), topics(topic, topic)
    )
    # Int64Value is the third message of its file
    assert raw[0].as_py()[5:] == b"\x02\x04\x08\x05"
    (found,) = keys.decode(raw, topics(topic, topic))
    assert found.values.to_pylist() == [5, 0]
    assert schema_registry.texts(f"{topic}-key")


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("io.confluent.kafka.serializers.subject.TopicNameStrategy", "{topic}-value"),
        ("RecordNameStrategy", "shop.{topic}"),
        ("TopicRecordNameStrategy", "{topic}-shop.{topic}"),
    ],
)
def test_subjects_are_called_after_the_topic_or_the_message(
    schema_registry: Apicurio, strategy: str, subject: str
) -> None:
    topic = a_topic().replace("-", "_")
    named = _FIELD.with_metadata({"connect.name": f"shop.{topic}"})
    proto = converter(schema_registry.url, value_subject_name_strategy=strategy)
    proto.encode(named, _ROWS, topics(topic, topic))
    (text,) = schema_registry.texts(subject.format(topic=topic))
    assert f"message {topic} " in text


def test_each_record_says_which_message_of_the_schema_it_is(schema_registry: Apicurio) -> None:
    topic = a_topic()
    schema_id = schema_registry.register_text(f"{topic}-value", _SHOP, "PROTOBUF")
    raw = [
        framed(schema_id, b"\x02\x02", b"\x08\x07"),
        framed(schema_id, b"\x00", b"\x08\x05"),
        None,
        framed(schema_id, b"\x04\x02\x00", b"\x0a\x01x"),
        framed(schema_id, b"\x02\x00", b"\x08\x06"),
    ]
    found = converter(schema_registry.url).decode(pa.array(raw, pa.binary()), topics(*[topic] * 5))
    shown = {each.rows.to_pylist()[0]: each for each in found if each.rows is not None}
    assert {row: each.values.to_pylist() for row, each in shown.items()} == {
        0: [{"c": 7, "within": None}],
        1: [{"a": 5}, {"a": 6}],
        2: [None],
        3: [{"b": "x"}],
    }
    assert shown[1].rows is not None
    assert shown[1].rows.to_pylist() == [1, 4]


def test_a_schema_refers_to_others(schema_registry: Apicurio) -> None:
    inner, outer = a_topic(), a_topic()
    schema_registry.register_text(
        inner, 'syntax = "proto3"; package n; message City { string name = 1; }', "PROTOBUF"
    )
    schema_id = schema_registry.register_text(
        f"{outer}-value",
        'syntax = "proto3"; package n; import "n/city.proto"; message Trip { City end = 1; }',
        "PROTOBUF",
        ("n/city.proto", inner),
    )
    raw = framed(schema_id, b"\x00", b"\x0a\x06\x0a\x04oslo")
    (found,) = converter(schema_registry.url).decode(pa.array([raw]), topics(outer))
    assert found.values.to_pylist() == [{"end": {"name": "oslo"}}]
    # the converter also writes with it
    latest = converter(
        schema_registry.url, auto_register_schemas="false", use_latest_version="true"
    )
    assert latest.encode(found.field, found.values, topics(outer)).to_pylist() == [raw]


def test_the_latest_version_decides_what_is_written(schema_registry: Apicurio) -> None:
    topic = a_topic()
    schema_id = schema_registry.register_text(f"{topic}-value", _SHOP, "PROTOBUF")
    settings = {"auto_register_schemas": "false", "use_latest_version": "true"}
    values = pa.array([{"c": 7}])
    field = pa.field("value", values.type, metadata={"connect.name": "shop.Second"})
    latest = converter(schema_registry.url, **settings)
    assert latest.encode(field, values, topics(topic)).to_pylist() == [
        framed(schema_id, b"\x02\x02", b"\x08\x07")
    ]
    further = pa.array([{"c": 7, "more": 1}])
    wider = pa.field("value", further.type, metadata={"connect.name": "Second"})
    with pytest.raises(ValueError, match="has the field 'more', which the schema"):
        latest.encode(wider, further, topics(topic))
    lenient = converter(schema_registry.url, latest_compatibility_strict="false", **settings)
    assert schema_id_of(lenient.encode(wider, further, topics(topic))[0].as_py()) == schema_id


def test_an_incompatible_schema_is_an_error_of_its_records(schema_registry: Apicurio) -> None:
    topic, other = a_topic(), a_topic()
    proto = converter(schema_registry.url)
    proto.encode(_FIELD, _ROWS, topics(topic, other))
    schema_registry.allow(f"{topic}-value", "BACKWARD")
    changed = pa.array([{"id": "a"}, {"id": "b"}])
    field = pa.field("value", changed.type, metadata={"connect.name": "shop.Row"})
    with pytest.raises(RowsError, match=f"{topic}-value and answered 409.*ncompatible") as raised:
        proto.encode(field, changed, topics(other, topic))
    assert list(raised.value.rows) == [1]


def test_bytes_of_no_schema_and_unknown_ids_are_errors_of_their_rows(
    schema_registry: Apicurio,
) -> None:
    topic = a_topic()
    proto = converter(schema_registry.url)
    good = proto.encode(_FIELD, _ROWS, topics(topic, topic))[0].as_py()
    schema_id = schema_id_of(good)
    raw = [good, framed(999_999, b"\0", b""), b"{}", None]
    with pytest.raises(RowsError) as raised:
        proto.decode(pa.array(raw, pa.binary()), topics(*[topic] * 4))
    told = {row: str(error) for row, error in raised.value.rows.items()}
    assert [*told] == [1, 2]
    assert "id 999999 and answered 404" in told[1]
    assert "those of Protobuf with a registry" in told[2]
    for body, fault in (
        (good[:-1], "ends too early"),
        (framed(schema_id, b"", b""), "ends too early"),
        (framed(schema_id, b"\x02\x0c", b""), r"no message at \[6\]"),
        (framed(schema_id, b"\x01", b""), "no indexes"),
    ):
        with pytest.raises(RowsError, match=fault) as raised:
            proto.decode(pa.array([good, None, body], pa.binary()), topics(*[topic] * 3))
        assert list(raised.value.rows) == [2]


def test_a_schema_of_another_kind_is_told(schema_registry: Apicurio) -> None:
    topic = a_topic()
    schema_id = schema_registry.register(f"{topic}-value", "string")
    with pytest.raises(RowsError, match="is one of AVRO, not of PROTOBUF"):
        converter(schema_registry.url).decode(
            pa.array([framed(schema_id, b"\0", b"")]), topics(topic)
        )


def test_what_the_registry_said_is_not_asked_again(gate: HttpGate) -> None:
    topic = a_topic()
    proto = converter(gate.address)
    for _ in range(3):
        raw = proto.encode(_FIELD, _ROWS, topics(topic, topic))
        proto.decode(raw, topics(topic, topic))
    assert [each.method for each in gate.seen] == ["POST", "GET"]


def test_a_registry_that_is_away_or_locked_fails_the_pass(gate: HttpGate) -> None:
    proto = converter(gate.address)
    raw = pa.array([framed(1, b"\0", b"")])
    gate.rule = lambda _: 503
    with pytest.raises(RetriableError, match="answered 503"):
        proto.decode(raw, topics("t"))
    gate.rule = lambda _: 401
    with pytest.raises(PassError, match="answered 401"):
        proto.decode(raw, topics("t"))
