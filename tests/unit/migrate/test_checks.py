"""The verdicts about connectors of Kafka Connect."""

from collections.abc import Callable
from typing import Any

import pytest

from drover.migrate.checks import Finished, Kind, Report, Verdict
from tests.support.kafka_connect_api import (
    CONVERTERS,
    FILE_SINK,
    FILE_SOURCE,
    STRING,
    ScriptedConnect,
)

Check = Callable[..., Report]

JSON = "org.apache.kafka.connect.json.JsonConverter"
JDBC_SOURCE = "io.confluent.connect.jdbc.JdbcSourceConnector"
MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
SOURCE = {"connector.class": FILE_SOURCE, "file": "/in.txt", "topic": "lines", **CONVERTERS}
SINK = {"connector.class": FILE_SINK, "file": "/out.txt", "topics": "lines", **CONVERTERS}
WORKER = """
bootstrap.servers=a:9092, b:9092
group.id=connect
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""


def _only(report: Report) -> Finished:
    (found,) = report.connectors
    return found


def _kinds(found: Finished) -> list[tuple[Kind, str]]:
    return [(each.kind, each.setting) for each in found.differences]


def test_file_stream_connectors_are_unchanged(script: ScriptedConnect, check: Check) -> None:
    script.add("in", SOURCE, offsets=[_at("/in.txt", 7)])
    script.add("out", SINK, kind="sink")
    report = check()
    assert [each.verdict for each in report.connectors] == [Verdict.UNCHANGED] * 2
    assert [each.runs_as for each in report.connectors] == ["FileStreamSource", "FileStreamSink"]
    assert [each.offsets_place for each in report.connectors] == [
        "the workers' offsets topic",
        "consumer group connect-out",
    ]
    assert all(each.can_move and each.offsets_readable for each in report.connectors)
    assert report.is_complete


def _at(file: str, position: int) -> dict[str, Any]:
    return {"partition": {"filename": file}, "offset": {"position": position}}


def test_an_alias_names_the_connector_here(script: ScriptedConnect, check: Check) -> None:
    script.add(
        "mirror",
        {
            "connector.class": MIRROR,
            "source.cluster.alias": "a",
            "source.cluster.bootstrap.servers": "a:9092",
            "topics": "t.*",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        },
        offsets=[
            {
                "partition": {"cluster": "a", "partition": 0, "topic": "t"},
                "offset": {"offset": 3},
            }
        ],
    )
    found = _only(check())
    assert (found.runs_as, found.offsets_readable) == ("KafkaSource", True)
    assert found.can_move


def test_a_setting_without_effect_differs(script: ScriptedConnect, check: Check) -> None:
    script.add("in", {**SOURCE, "producer.override.linger.ms": "5", "colour": "red"})
    found = _only(check())
    assert found.verdict is Verdict.DIFFERS
    assert sorted(_kinds(found)) == [
        (Kind.WARNING, "colour"),
        (Kind.WARNING, "producer.override.linger.ms"),
    ]
    assert all(each.text and each.action for each in found.differences)
    assert found.can_move


def test_a_setting_that_would_change_the_data_has_to_be_changed(
    script: ScriptedConnect, check: Check
) -> None:
    script.add("in", {**SOURCE, "producer.override.bootstrap.servers": "other:9092"})
    found = _only(check())
    assert _kinds(found) == [(Kind.FAULT, "producer.override.bootstrap.servers")]
    assert (found.verdict, found.can_move) == (Verdict.DIFFERS, False)
    assert "KafkaSource" in found.differences[0].text


def test_a_class_without_an_equivalent_needs_the_java_host(
    script: ScriptedConnect, check: Check
) -> None:
    mysql = "io.debezium.connector.mysql.MySqlConnector"
    script.plugins[mysql] = "source"
    script.add("shop", {"connector.class": mysql, "database.password": "pa55-word"})
    report = check()
    found = _only(report)
    assert found.verdict is Verdict.NEEDS_JAVA_HOST
    assert "JdbcSource" in found.differences[0].text
    assert "this version does not have" in found.differences[0].action
    assert not found.can_move
    assert not report.is_complete


def test_a_class_that_kafka_connect_has_not_either_is_missing(
    script: ScriptedConnect, check: Check
) -> None:
    script.add("a", {"connector.class": "com.example.Gone"})
    script.add("b", {})
    assert [each.verdict for each in check().connectors] == [Verdict.MISSING] * 2


def test_without_a_list_of_plugins_a_class_counts_as_installed(
    script: ScriptedConnect, check: Check
) -> None:
    from tests.support.http_api import Reply

    script.replies["/connector-plugins"] = [Reply({}, 404)]
    script.add("a", {"connector.class": "com.example.Own"})
    assert _only(check()).verdict is Verdict.NEEDS_JAVA_HOST


@pytest.mark.parametrize(
    "setting",
    ["value.converter", "key.converter", "header.converter", "transforms.t.type"],
)
@pytest.mark.parametrize("has_jar", [True, False])
def test_a_class_of_a_step_without_an_equivalent_is_found(
    setting: str, *, has_jar: bool, script: ScriptedConnect, check: Check
) -> None:
    if has_jar:
        script.plugins["com.example.Step"] = "converter"
    script.add(
        "in",
        {**SOURCE, "transforms": "t", "transforms.t.type": "TopicName"}
        | {
            "transforms.t.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.t.field": "f",
            setting: "com.example.Step",
        },
    )
    found = _only(check())
    expected = Verdict.NEEDS_JAVA_HOST if has_jar else Verdict.MISSING
    assert found.verdict is expected
    assert (Kind.CLASS, setting) in _kinds(found)


def test_an_unknown_predicate_is_found(script: ScriptedConnect, check: Check) -> None:
    script.add(
        "in",
        {
            **SOURCE,
            "transforms": "t",
            "transforms.t.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.t.field": "f",
            "transforms.t.predicate": "p",
            "predicates": "p",
            "predicates.p.type": "com.example.Own",
        },
    )
    assert _only(check()).verdict is Verdict.MISSING


def test_converters_of_an_unknown_worker_are_a_difference(
    script: ScriptedConnect, check: Check
) -> None:
    script.add("in", {"connector.class": FILE_SOURCE, "file": "/in", "topic": "t"})
    found = _only(check())
    assert _kinds(found) == [(Kind.MEANING, "key.converter")]
    assert "--worker-properties" in found.differences[0].action


def test_the_workers_converters_are_written_into_the_definition(
    script: ScriptedConnect, check: Check
) -> None:
    script.add(
        "in",
        {"connector.class": FILE_SOURCE, "file": "/in", "topic": "t", "key.converter": JSON},
    )
    found = _only(check(properties=WORKER))
    assert found.verdict is Verdict.UNCHANGED
    assert found.definition["key.converter"] == JSON
    assert found.definition["value.converter"] == JSON
    assert found.definition["value.converter.schemas.enable"] == "false"


@pytest.mark.parametrize(
    ("support", "before", "after"),
    [
        ("disabled", "at least once", "at least once over the same topics"),
        ("preparing", "at least once", "at least once over the same topics"),
        ("enabled", "exactly once, if its connector supports it", "exactly once"),
    ],
)
def test_delivery_before_and_after(
    support: str, before: str, after: str, script: ScriptedConnect, check: Check
) -> None:
    script.add("in", SOURCE)
    found = _only(check(properties=f"{WORKER}exactly.once.source.support={support}\n"))
    assert found.delivery_before == before
    assert found.delivery_after.startswith(after)
    assert "not known" in _only(check()).delivery_before


def test_offsets_that_the_connector_cannot_read_are_a_difference(
    script: ScriptedConnect, check: Check
) -> None:
    script.add("in", SOURCE, offsets=[_at("/in.txt", 7), {"partition": {"x": 1}, "offset": {}}])
    found = _only(check())
    assert _kinds(found) == [(Kind.OFFSETS, "")]
    assert found.offsets_readable is False


@pytest.mark.parametrize(
    ("name", "config", "fault"),
    [
        ("out", {}, ""),
        ("a b'c", {}, ""),
        ("näme", {}, "name"),
        ("näme", {"consumer.override.group.id": "name"}, ""),
        ("out", {"consumer.override.group.id": "日本"}, "consumer.override.group.id"),
    ],
)
def test_a_consumer_group_has_to_be_ascii(
    name: str, config: dict[str, str], fault: str, script: ScriptedConnect, check: Check
) -> None:
    script.add(name, {**SINK, **config}, kind="sink")
    script.add("source-näme", SOURCE)
    sink, source = check().connectors
    assert _kinds(sink) == ([(Kind.FAULT, fault)] if fault else [])
    assert sink.can_move == (not fault)
    assert all("kafka-consumer-groups.sh" in each.action for each in sink.differences)
    assert source.can_move


def test_a_name_that_exists_in_the_target_cannot_move(
    script: ScriptedConnect, check: Check
) -> None:
    script.add("in", SOURCE)
    found = _only(check(names=frozenset({"in"})))
    assert _kinds(found) == [(Kind.NAME, "name")]
    assert not found.can_move


def test_secrets_in_clear_are_named_and_never_shown(script: ScriptedConnect, check: Check) -> None:
    script.plugins[JDBC_SOURCE] = "source"
    script.settings[JDBC_SOURCE] = [{"name": "vendor.pass", "type": "PASSWORD"}]
    secrets = {
        "connection.password": "pa55-word",
        "vendor.pass": "vendor-0ne",
        "producer.override.sasl.jaas.config": 'x required password="jaas-0ne";',
        "value.converter.basic.auth.user.info": "me:user-inf0",
    }
    script.add(
        "db/1",
        {
            "connector.class": JDBC_SOURCE,
            "connection.url": "jdbc:postgresql://db/shop",
            "mode": "bulk",
            "topic.prefix": "p-",
            **CONVERTERS,
            **secrets,
        },
        task_traces=("ConnectException: login with pa55-word failed",),
    )
    report = check()
    found = _only(report)
    assert {each.setting for each in found.secrets} == secrets.keys()
    assert found.definition["connection.password"] == (
        "${file:/move/secrets.properties:db%2F1.connection.password}"
    )
    assert found.tasks[0].cause == "ConnectException: login with ******** failed"
    shown = f"{found.differences} {found.notes} {dict(found.definition)} {found.secrets} {report}"
    assert not [each for each in secrets.values() if each in shown]


@pytest.mark.parametrize(
    "value",
    ["${file:/run/s.properties:p}", "${env:DB_PASSWORD}", "${directory:/run:p}", "", "  "],
)
def test_a_placeholder_is_no_secret_in_clear(
    value: str, script: ScriptedConnect, check: Check
) -> None:
    script.add("a", {**SOURCE, "some.password": value})
    assert _only(check()).secrets == ()


def test_a_password_in_a_url_and_beside_a_placeholder_is_a_secret(
    script: ScriptedConnect, check: Check
) -> None:
    script.add(
        "a",
        {
            **SOURCE,
            "registry.url": "https://me:pa55@registry",
            "sasl.jaas.config": 'x username="${env:U}" password="in-clear";',
        },
    )
    assert {each.setting for each in _only(check()).secrets} == {
        "registry.url",
        "sasl.jaas.config",
    }


def test_a_provider_without_an_equivalent_cannot_move(
    script: ScriptedConnect, check: Check
) -> None:
    script.add("a", {**SOURCE, "some.password": "${vault:db/creds:password}"})
    provider = "com.github.jcustenborder.kafka.config.vault.VaultConfigProvider"
    properties = f"{WORKER}config.providers=vault\nconfig.providers.vault.class={provider}\n"
    found = _only(check(properties=properties))
    assert (Kind.PROVIDER, "some.password") in _kinds(found)
    assert not found.can_move
    unknown = _only(check())
    assert (Kind.MEANING, "some.password") in _kinds(unknown)


def test_states_and_topics_are_kept(script: ScriptedConnect, check: Check) -> None:
    script.add(
        "in",
        {**SOURCE, "topic.creation.default.partitions": "3"}
        | {"topic.creation.default.replication.factor": "1"},
        state="PAUSED",
        topics=("lines",),
        task_traces=("", "Error: x"),
    )
    found = _only(check())
    assert (found.old.state, found.old.topics) == ("PAUSED", ("lines",))
    assert found.topic_creation == {
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
    }
    assert [(each.state, each.cause) for each in found.tasks] == [
        ("PAUSED", ""),
        ("FAILED", "Error: x"),
    ]


def test_the_name_outside_of_a_config_counts(script: ScriptedConnect, check: Check) -> None:
    script.add("in", SOURCE)
    del script.connectors["in"]["info"]["config"]["name"]
    found = _only(check())
    assert found.verdict is Verdict.UNCHANGED
    assert found.definition["name"] == "in"
    assert STRING in found.definition.values()
