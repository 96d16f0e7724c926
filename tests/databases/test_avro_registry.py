"""AvroConverter against a real schema registry."""

import base64
import pickle
import socket
import struct
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from drover.convert.converter import Converter, Decoded
from drover.convert.registry import converter_config_def
from drover.record.errors import PassError, RetriableError, RowsError
from drover.record.schema import is_schemaless, schema_of
from tests.support.apicurio import Apicurio
from tests.support.http_gate import HttpGate, http_gate
from tests.support.pem import make_pem
from tests.support.registry_converters import converter_at, schema_id_of, topics

pytestmark = pytest.mark.xdist_group("spark")  # the registry runs in that process

_numbers = count(1)
_ROW = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])
_FIELD = pa.field("value", _ROW, nullable=False)
_ROWS = pa.array([{"id": 1, "city": "oslo"}, {"id": 2, "city": None}], _ROW)


converter = partial(converter_at, "io.confluent.connect.avro.AvroConverter")


def faults(**settings: str) -> dict[str, str]:
    """The faults of settings."""
    raw: dict[str, str | None] = {"value.converter": "AvroConverter"}
    raw |= {f"value.converter.{name.replace('_', '.')}": each for name, each in settings.items()}
    parsed = converter_config_def("value.converter", raw).parse(raw)
    return {each.field.removeprefix("value.converter."): each.description
            for each in parsed.violations}  # fmt: skip


def a_topic() -> str:
    """A unique topic name."""
    return f"avro-{next(_numbers)}"


def _rows(found: Decoded) -> list[int]:
    assert found.rows is not None
    return list(found.rows.to_pylist())


def test_records_come_back_with_their_schema(schema_registry: Apicurio) -> None:
    topic = a_topic()
    # executors receive a pickled copy
    avro: Converter = pickle.loads(pickle.dumps(converter(schema_registry.url)))
    raw = avro.encode(_FIELD, _ROWS, topics(topic, topic))
    (found,) = avro.decode(raw, topics(topic, topic))
    assert found.values.equals(_ROWS)
    assert schema_of(found.field) == schema_of(_FIELD)
    # the subject's schema has the id that the records contain
    (registered,) = schema_registry.schemas(f"{topic}-value")
    assert registered["name"] == "ConnectDefault"
    assert schema_id_of(raw[0].as_py()) == schema_id_of(raw[1].as_py())
    assert fastavro.parse_schema(registered)


def test_keys_have_subjects_of_their_own(schema_registry: Apicurio) -> None:
    topic = a_topic()
    avro = converter(schema_registry.url, "key.converter")
    raw = avro.encode(pa.field("key", pa.string(), nullable=False), topics("a"), topics(topic))
    assert schema_registry.schemas(f"{topic}-key") == ["string"]
    (found,) = avro.decode(raw, topics(topic))
    assert found.values.to_pylist() == ["a"]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("io.confluent.kafka.serializers.subject.TopicNameStrategy", "{topic}-value"),
        ("RecordNameStrategy", "shop.Row{topic}"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
         "{topic}-shop.Row{topic}"),
    ],
)  # fmt: skip
def test_subjects_are_called_after_the_topic_or_the_record(
    schema_registry: Apicurio, strategy: str, subject: str
) -> None:
    topic = a_topic().replace("-", "_")
    named = _FIELD.with_metadata({"connect.name": f"shop.Row{topic}"})
    avro = converter(schema_registry.url, value_subject_name_strategy=strategy)
    avro.encode(named, _ROWS, topics(topic, topic))
    (found,) = schema_registry.schemas(subject.format(topic=topic))
    assert found["connect.name"] == f"shop.Row{topic}"


def test_a_batch_of_several_topics_and_schemas_keeps_its_order(schema_registry: Apicurio) -> None:
    one, other = a_topic(), a_topic()
    avro = converter(schema_registry.url)
    raw = avro.encode(_FIELD, _ROWS, topics(one, other))
    text = avro.encode(pa.field("value", pa.string()), topics("x", None), topics(one + "t", other))
    mixed = pa.concat_arrays([text, pa.array([None], pa.binary()), raw])
    found = {_rows(each)[0]: each for each in avro.decode(mixed, topics(*[one] * 5))}
    assert [_rows(found[first]) for first in (0, 2, 3)] == [[0, 1], [2], [3, 4]]
    assert found[0].values.to_pylist() == ["x", None]
    assert is_schemaless(found[2].field)
    assert found[3].values.equals(_ROWS)


def test_a_schema_refers_to_others(schema_registry: Apicurio) -> None:
    inner, middle, outer = a_topic(), a_topic(), a_topic()
    schema_registry.register(inner, _record("n.City", name="string"))
    schema_registry.register(middle, _record("n.Place", city="n.City"), ("n.City", inner))
    number = schema_registry.register(
        f"{outer}-value",
        _record("n.Trip", start="n.Place", end="n.City"),
        *(("n.Place", middle), ("n.City", inner)),
    )
    avro = converter(schema_registry.url)
    raw = struct.pack(">bI", 0, number) + b"\x08oslo\x0cbergen"
    (found,) = avro.decode(pa.array([raw]), topics(outer))
    assert found.values.to_pylist() == [{"start": {"city": {"name": "oslo"}},
                                         "end": {"name": "bergen"}}]  # fmt: skip
    # the converter also writes with it
    latest = converter(
        schema_registry.url, auto_register_schemas="false", use_latest_version="true"
    )
    assert latest.encode(found.field, found.values, topics(outer)).to_pylist() == [raw]


def _record(full_name: str, **fields: Any) -> Any:
    return {
        "type": "record",
        "name": full_name,
        "fields": [{"name": key, "type": each} for key, each in fields.items()],
    }


@pytest.mark.parametrize("support", ["false", "true"])
def test_a_union_of_another_writer_comes_back_and_goes_on(
    schema_registry: Apicurio, support: str
) -> None:
    """The first writer and the last reader are fastavro's."""
    topic, onward = a_topic(), a_topic()
    wanted = _record("n.Row", choice=["null", "int", "string"])
    number = schema_registry.register(f"{topic}-value", wanted)
    rows = [{"choice": 7}, {"choice": "oslo"}, {"choice": None}]
    avro = converter(schema_registry.url, generalized_sum_type_support=support)
    (found,) = avro.decode(
        pa.array([_written(number, wanted, row) for row in rows]), topics(*[topic] * 3)
    )
    names = (
        ("connect_union_field_1", "connect_union_field_2")
        if support == "true"
        else ("int", "string")
    )
    assert [row["choice"] for row in found.values.to_pylist()] == [
        dict(zip(names, (7, None), strict=True)),
        dict(zip(names, (None, "oslo"), strict=True)),
        None,
    ]
    raw = avro.encode(found.field, found.values, topics(*[onward] * 3)).to_pylist()
    (registered,) = schema_registry.schemas(f"{onward}-value")
    assert registered["fields"][0]["type"] == ["null", "int", "string"]
    parsed = fastavro.parse_schema(registered)
    assert [fastavro.schemaless_reader(BytesIO(each[5:]), parsed, None) for each in raw] == rows


def _written(number: int, schema: Any, row: Any) -> bytes:
    out = BytesIO(struct.pack(">bI", 0, number))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def test_the_latest_version_decides_what_is_written(schema_registry: Apicurio) -> None:
    topic = a_topic()
    wanted = _record("n.Row", city=["null", "string"], id="double")
    wanted["fields"].append(
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 5}
    )
    number = schema_registry.register(f"{topic}-value", wanted)
    settings = {"auto_register_schemas": "false", "use_latest_version": "true"}
    avro = converter(schema_registry.url, **settings)
    raw = avro.encode(_FIELD, _ROWS, topics(topic, topic))
    assert schema_id_of(raw[0].as_py()) == number
    (found,) = avro.decode(raw, topics(topic, topic))
    rows = found.values.to_pylist()
    assert [(each["city"], each["id"]) for each in rows] == [("oslo", 1.0), (None, 2.0)]
    assert rows[0]["at"].timestamp() == 0.005

    further = pa.array([{"id": 1, "city": "", "more": 2}])
    field = pa.field("value", further.type)
    with pytest.raises(ValueError, match="has the field 'more', which the schema"):
        avro.encode(field, further, topics(topic))
    lenient = converter(schema_registry.url, latest_compatibility_strict="false", **settings)
    (found,) = lenient.decode(lenient.encode(field, further, topics(topic)), topics(topic))
    assert found.values.type.get_field_index("more") == -1


def test_a_schema_that_is_not_registered_is_an_error_of_its_records(
    schema_registry: Apicurio,
) -> None:
    known, other = a_topic(), a_topic()
    converter(schema_registry.url).encode(_FIELD, _ROWS, topics(known, known))
    avro = converter(schema_registry.url, auto_register_schemas="false")
    assert len(avro.encode(_FIELD, _ROWS, topics(known, known))) == 2
    with pytest.raises(RowsError, match=f"{other}-value and answered 404") as raised:
        avro.encode(_FIELD, _ROWS, topics(known, other))
    assert list(raised.value.rows) == [1]
    assert schema_registry.schemas(f"{known}-value")


def test_an_incompatible_schema_is_an_error_of_its_records(schema_registry: Apicurio) -> None:
    topic, other = a_topic(), a_topic()
    avro = converter(schema_registry.url)
    avro.encode(_FIELD, _ROWS, topics(topic, other))
    schema_registry.allow(f"{topic}-value", "BACKWARD")
    more = pa.array([{"id": 1, "city": "", "new": 2}] * 2)
    required = pa.field("new", pa.int64(), nullable=False)
    field = pa.field("value", pa.struct([*_ROW, required]), nullable=False)
    with pytest.raises(RowsError, match=f"{topic}-value and answered 409.*ncompatible") as raised:
        avro.encode(field, more.cast(field.type), topics(other, topic))
    assert list(raised.value.rows) == [1]


def test_bytes_of_no_schema_and_unknown_ids_are_errors_of_their_rows(
    schema_registry: Apicurio,
) -> None:
    topic = a_topic()
    avro = converter(schema_registry.url)
    good = avro.encode(_FIELD, _ROWS, topics(topic, topic))[0].as_py()
    unknown = struct.pack(">bI", 0, 999_999)
    raw = [good, unknown, b"{}", b"", None, good[:-1], unknown, b'{"a":1}']
    with pytest.raises(RowsError) as raised:
        avro.decode(pa.array(raw, pa.binary()), topics(*[topic] * 8))
    told = {row: str(error) for row, error in raised.value.rows.items()}
    assert [*told] == [1, 2, 3, 6, 7]
    assert "id 999999 and answered 404" in told[1]
    assert "do not begin with 0" in told[7]
    with pytest.raises(RowsError, match="ends too early") as raised:
        avro.decode(pa.array([good, None, good[:-1]], pa.binary()), topics(*[topic] * 3))
    assert list(raised.value.rows) == [2]


def test_what_the_registry_said_is_not_asked_again(gate: HttpGate) -> None:
    topic = a_topic()
    avro = converter(gate.address)
    for _ in range(3):
        raw = avro.encode(_FIELD, _ROWS, topics(topic, topic))
        avro.decode(raw, topics(topic, topic))
    # a second converter with the same settings in the same process
    converter(gate.address).decode(raw, topics(topic, topic))
    assert [each.method for each in gate.seen] == ["POST", "GET"]


def test_a_registry_that_is_down_is_asked_again_later(gate: HttpGate) -> None:
    avro = converter(gate.address)
    raw = pa.array([struct.pack(">bI", 0, 1)])
    gate.rule = lambda _: 503
    with pytest.raises(RetriableError, match="answered 503"):
        avro.decode(raw, topics("t"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        nobody = f"http://127.0.0.1:{port}"
        with pytest.raises(RetriableError, match="does not answer for the schema with id 1"):
            converter(nobody).decode(raw, topics("t"))
        # the client tries the next URL
        gate.rule = lambda _: None
        topic = a_topic()
        both = converter(f"{nobody},{gate.address}")
        (found,) = both.decode(both.encode(_FIELD, _ROWS, topics(topic, topic)), topics("t", "t"))
        assert found.values.equals(_ROWS)


def test_a_registry_that_says_nothing_is_not_waited_for_without_end() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RetriableError, match="the request timed out"):
            converter(url, http_read_timeout_ms="50").decode(
                pa.array([struct.pack(">bI", 0, 1)]), topics("t")
            )


def test_whoever_is_not_let_in_fails_as_a_whole(gate: HttpGate) -> None:
    wanted = "Basic " + base64.b64encode(b"ann:s3cret").decode()
    gate.rule = lambda request: (
        None if {wanted, "Bearer tok3n"} & {*request.headers.values()} else 401
    )
    topic = a_topic()
    with pytest.raises(PassError, match=r"answered 401.*basic\.auth"):
        converter(gate.address).encode(_FIELD, _ROWS, topics(topic, topic))
    basic = converter(
        gate.address, basic_auth_credentials_source="USER_INFO", basic_auth_user_info="ann:s3cret"
    )
    basic.encode(_FIELD, _ROWS, topics(topic, topic))
    bearer = converter(
        gate.address, bearer_auth_credentials_source="STATIC_TOKEN", bearer_auth_token="tok3n"
    )
    bearer.encode(_FIELD, _ROWS, topics(topic, topic))
    wrong = converter(
        gate.address, basic_auth_credentials_source="USER_INFO", basic_auth_user_info="ann:wr0ng"
    )
    with pytest.raises(PassError) as raised:
        wrong.encode(_FIELD, _ROWS, topics(topic, topic))
    assert "wr0ng" not in str(raised.value)
    assert "s3cret" not in repr(vars(basic))


def test_a_registry_with_tls_is_trusted_and_told_who_asks(
    schema_registry: Apicurio, tmp_path: Path
) -> None:
    server, client = (make_pem(tmp_path, name) for name in ("server", "client"))
    topic = a_topic()
    with http_gate(schema_registry.port, server.server_context(client)) as gate:
        url = f"{gate.address}/apis/ccompat/v7"
        trusting = {"schema_registry_ssl_truststore_location": str(server.certificate)}
        known = trusting | {
            "schema_registry_ssl_keystore_location": str(client.both),
            "schema_registry_ssl_key_password": client.password,
        }
        assert len(converter(url, **known).encode(_FIELD, _ROWS, topics(topic, topic))) == 2
        with pytest.raises(RetriableError):
            converter(url, **trusting).encode(_FIELD, _ROWS, topics(topic, topic))
        with pytest.raises(PassError, match=r"not who it should be.*truststore"):
            converter(url).encode(_FIELD, _ROWS, topics(topic, topic))
        wrong = known | {"schema_registry_ssl_key_password": "wr0ng"}
        with pytest.raises(PassError, match="cannot be asked") as raised:
            converter(url, **wrong).encode(_FIELD, _ROWS, topics(topic, topic))
        assert "wr0ng" not in str(raised.value)


def test_a_server_that_is_no_registry_is_told(schema_registry: Apicurio) -> None:
    elsewhere = schema_registry.url.replace("/apis/ccompat/v7", "/nowhere")
    with pytest.raises(PassError, match=r"Check schema.registry.url"):
        converter(elsewhere).decode(pa.array([struct.pack(">bI", 0, 1)]), topics("t"))


@pytest.mark.parametrize(
    ("settings", "setting", "fault"),
    [
        ({}, "schema.registry.url", "is required"),
        ({"url": ""}, "schema.registry.url", "at least one item"),
        ({"url": "registry:8081"}, "schema.registry.url", "must be URLs"),
        ({"url": "http://ann:pw@registry"}, "schema.registry.url", "set basic.auth.user.info"),
        ({"basic_auth_credentials_source": "USER_INFO"}, "basic.auth.user.info", "is needed"),
        ({"basic_auth_user_info": "ann:pw"}, "basic.auth.credentials.source", "USER_INFO"),
        ({"basic_auth_user_info": "ann"}, "basic.auth.user.info", "name:password"),
        ({"bearer_auth_credentials_source": "STATIC_TOKEN"}, "bearer.auth.token", "is needed"),
        ({"bearer_auth_credentials_source": "OAUTHBEARER"},
         "bearer.auth.issuer.endpoint.url", "is needed"),
        ({"value_subject_name_strategy": "MyStrategy"}, "value.subject.name.strategy",
         "must be one of TopicNameStrategy"),
        ({"schema_registry_ssl_truststore_location": "/no/such.pem"},
         "schema.registry.ssl.truststore.location", "is no file"),
        ({"schema_registry_ssl_truststore_type": "JKS"},
         "schema.registry.ssl.truststore.type", "must be one of PEM"),
        ({"schema_registry_ssl_key_password": "pw"},
         "schema.registry.ssl.keystore.location", "is needed"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_told(
    settings: dict[str, str], setting: str, fault: str
) -> None:
    given = dict(settings)
    if setting != "schema.registry.url":
        given["url"] = "http://registry:8081"
    if "url" in given:
        given["schema_registry_url"] = given.pop("url")
    assert fault in faults(**given)[setting]
