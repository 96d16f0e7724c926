"""Public bug reports of products that move, export or convert configs of Kafka Connect."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from drover.cli.definitions import parse_definition
from drover.migrate.checks import Finished, Kind, Report
from drover.migrate.report import definition_text, secrets_text
from drover.migrate.scripts import Access, scripts_of
from tests.support.http_api import Reply
from tests.support.kafka_connect_api import CONVERTERS, ScriptedConnect
from tests.unit.migrate.test_checks import MIRROR, SINK, SOURCE, WORKER

Check = Callable[..., Report]


def _only(report: Report) -> Finished:
    (found,) = report.connectors
    return found


def _kinds(found: Finished) -> list[tuple[Kind, str]]:
    return [(each.kind, each.setting) for each in found.differences]


def test_connectors_of_the_rest_api_are_not_deleted(script: ScriptedConnect, check: Check) -> None:
    """strimzi/strimzi-kafka-operator#2884."""
    script.add("in", SOURCE)
    texts = scripts_of(check(properties=WORKER), Access())
    assert not [each for each in texts.values() if "-X DELETE" in each]


def test_another_name_in_the_config_is_replaced(script: ScriptedConnect, check: Check) -> None:
    """strimzi/strimzi-kafka-operator#10229: "doesn't match connector name in the URL"."""
    script.add("in", {**SOURCE, "name": "traktor"})
    found = _only(check())
    assert (found.definition["name"], found.can_move) == ("in", True)
    assert parse_definition(definition_text(found), "in.yaml").name == "in"


@pytest.mark.parametrize("mask", ["********", "*********", "[hidden]", "****************"])
def test_masked_secrets_do_not_become_secrets(
    mask: str, script: ScriptedConnect, check: Check
) -> None:
    """vdesabou/kafka-docker-playground#7379, strimzi/strimzi-kafka-operator#6533."""
    script.add("db", {**SOURCE, "connection.password": mask, "sasl.jaas.config": mask})
    report = check()
    found = _only(report)
    assert [each.setting for each in found.secrets] == ["connection.password", "sasl.jaas.config"]
    assert mask not in definition_text(found)
    assert secrets_text(report).count("=\n") == 2


def test_a_provider_that_is_not_known_is_named(script: ScriptedConnect, check: Check) -> None:
    """vdesabou/kafka-docker-playground#7216: the placeholder was taken for a topic."""
    topic = "${securepass:/etc/kafka/secrets/secret.txt:my-config-file.properties/my-topic}"
    script.add("out", {**SINK, "topics": topic}, kind="sink")
    assert (Kind.MEANING, "topics") in _kinds(_only(check()))
    provider = "io.confluent.kafka.security.config.provider.SecurePassConfigProvider"
    properties = (
        f"{WORKER}config.providers=securepass\nconfig.providers.securepass.class={provider}\n"
    )
    found = _only(check(properties=properties))
    assert ((Kind.PROVIDER, "topics") in _kinds(found), found.can_move) == (True, False)


@pytest.mark.parametrize(
    "setting", ["batch.max.records", "poll.interval.ms", "errors.tolerance", "tasks.max.enforce"]
)
def test_placeholders_are_not_checked_before_they_are_replaced(
    setting: str, script: ScriptedConnect, check: Check
) -> None:
    """jcustenborder/kafka-config-provider-aws#11."""
    script.add("in", {**SOURCE, setting: "${env:OF_THE_WORKER}"})
    found = _only(check())
    assert (Kind.FAULT, setting) not in _kinds(found)
    assert found.can_move
    assert found.definition[setting] == "${env:OF_THE_WORKER}"


def test_placeholders_of_converters_are_kept(script: ScriptedConnect, check: Check) -> None:
    """confluentinc/schema-registry#3143."""
    url = "${env:KC_SCHEMA_REGISTRY_URL}"
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": url,
    }
    script.add("in", {**SOURCE, **avro})
    found = _only(check())
    assert found.can_move
    assert found.definition["value.converter.schema.registry.url"] == url


def test_empty_values_are_kept_and_missing_ones_left_out(
    script: ScriptedConnect, check: Check
) -> None:
    """michelin/ns4kafka#157, confluentinc/kafka-connect-jdbc#57."""
    script.add("in", {**SOURCE, "errors.deadletterqueue.topic.name": "", "transforms": None})
    found = _only(check())
    written = parse_definition(definition_text(found), "in.yaml")
    assert written.config["errors.deadletterqueue.topic.name"] == ""
    assert "transforms" not in written.config


@pytest.mark.parametrize("value", ["007", "1e3", "yes", "null", "~", "2026-11-29", "1_000", "0x1f"])
def test_texts_that_look_like_other_types_stay_texts(
    value: str, script: ScriptedConnect, check: Check
) -> None:
    """streamthoughts/jikkou#825: "all values must be strings"."""
    script.add("in", {**SOURCE, "colour": value})
    text = definition_text(_only(check()))
    assert parse_definition(text, "in.yaml").config["colour"] == value


def test_the_offsets_of_tabulars_sink_are_in_another_group(
    script: ScriptedConnect, check: Check
) -> None:
    """apache/iceberg#13236: a move that read the other group lost data."""
    tabular = "io.tabular.iceberg.connect.IcebergSinkConnector"
    config = {
        "connector.class": tabular,
        "topics": "t",
        "iceberg.tables": "db.t",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://127.0.0.1:1",
        **CONVERTERS,
    }
    script.add("lake", config, kind="sink")
    script.add("named", {**config, "iceberg.control.group-id": "cg-mine"}, kind="sink")
    apache = "org.apache.iceberg.connect.IcebergSinkConnector"
    script.add("new", {**config, "connector.class": apache}, kind="sink")
    texts = {
        each.old.name: [found.text for found in each.differences if found.kind is Kind.OFFSETS]
        for each in check().connectors
    }
    assert "cg-control-lake; the group connect-lake" in texts["lake"][0]
    assert "cg-mine; the group connect-named" in texts["named"][0]
    assert texts["new"] == []


def test_a_policy_of_a_mirror_that_is_code_cannot_move(
    script: ScriptedConnect, check: Check
) -> None:
    """aws-samples/mirrormaker2-msk-migration#2 and #3."""
    mirror = {
        "connector.class": MIRROR,
        "clusters": "msksource,mskdest",
        "source.cluster.alias": "msksource",
        "target.cluster.alias": "mskdest",
        "source.cluster.bootstrap.servers": "a:9092",
        "target.cluster.bootstrap.servers": "b:9092",
        "topics": ".*",
        "key.converter": " org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }
    script.add("mm2", mirror)
    custom = "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy"
    script.add("own-policy", {**mirror, "replication.policy.class": custom})
    mm2, own_policy = check().connectors
    assert mm2.can_move
    assert (Kind.FAULT, "replication.policy.class") in _kinds(own_policy)
    assert not own_policy.can_move


def test_the_group_of_a_mirror_is_not_taken_over_silently(
    script: ScriptedConnect, check: Check
) -> None:
    """strimzi/strimzi-kafka-operator#3251."""
    script.add(
        "mirror",
        {
            "connector.class": MIRROR,
            "source.cluster.alias": "aws",
            "source.cluster.bootstrap.servers": "a:9092",
            "source.consumer.group.id": "aws-to-dc",
            "group.id": "aws-to-dc",
            "topics": "mm1-switch-mm2",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        },
    )
    assert {setting for _, setting in _kinds(_only(check()))} == {
        "group.id",
        "source.consumer.group.id",
    }


def test_a_fully_managed_connector_does_not_pass_for_one_of_drover(
    script: ScriptedConnect, check: Check
) -> None:
    """confluentinc/terraform-provider-confluent#71: another API below a path, without a root."""
    script.add(
        "cdc",
        {
            "connector.class": "PostgresCdcSource",
            "kafka.api.key": "****************",
            "kafka.api.secret": "****************",
            "database.hostname": "db",
            "database.password": "****************",
            "output.data.format": "JSON",
            "tasks.max": "1",
        },
    )
    listed: Any = json.loads(json.dumps(script.connectors["cdc"]))
    listed["id"] = {"id": "lcc-1", "id_type": "ID"}
    script.replies["/connectors"] = [Reply({"cdc": listed})]
    script.replies["/"] = [Reply({}, 404)]
    script.replies["/connector-plugins"] = [Reply({}, 404)]
    for part in ("tasks", "topics", "offsets"):
        script.replies[f"/connectors/cdc/{part}"] = [Reply({}, 404)]
    found = _only(check())
    assert not found.can_move
    assert found.differences


@pytest.mark.parametrize("state", ["RESTARTING", "UNASSIGNED", "STOPPED", "DESTROYED", "NEWSTATE"])
def test_any_state_is_shown(state: str, script: ScriptedConnect, check: Check) -> None:
    """provectus/kafka-ui#4430, kafbat/kafka-ui#510: lists failed at states that were new."""
    script.add("in", SOURCE, state=state)
    found = _only(check())
    assert found.old.state == state
    assert found.can_move


def test_a_connector_that_has_no_status_yet_is_shown(script: ScriptedConnect, check: Check) -> None:
    """provectus/kafka-ui#864, confluentinc/ksql#8379: a connector that was just created."""
    script.add("in", SOURCE)
    script.replies["/connectors"] = [Reply({"in": {"info": script.connectors["in"]["info"]}})]
    found = _only(check())
    assert (found.old.state, found.can_move) == ("unknown", True)


def test_large_numbers_in_offsets_are_exact(script: ScriptedConnect, check: Check) -> None:
    """A position beyond 2^53, which floating point rounds."""
    position = 2**63 - 1
    offsets = [{"partition": {"filename": "/in.txt"}, "offset": {"position": position}}]
    script.add("in", SOURCE, offsets=offsets)
    script.add("text", SOURCE, offsets=[{**offsets[0], "offset": {"position": "7"}}])
    number, text = check().connectors
    assert number.old.offsets == (({"filename": "/in.txt"}, {"position": position}),)
    assert (number.offsets_readable, text.offsets_readable) == (True, False)
