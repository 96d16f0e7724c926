"""The engine's validation of a config."""

import pytest

from drover.api.engine.v1 import engine_pb2
from drover.config.resolution import Resolution
from drover.connector.catalogue import PluginRegistry
from drover_worker.engine.plugins.validation import validate
from tests.support.plugins_for_tests import UsesBusySystems, plugin

SINK = {"connector.class": "FileStreamSink", "name": "a", "topics": "t", "file": "f"}


def warnings_of(config: dict[str, str]) -> dict[str, str]:
    answer = validate(PluginRegistry(), Resolution(config, config))
    return {value.key.name: warning for value in answer.values for warning in value.warnings}


def test_a_setting_that_the_connector_does_not_know_is_a_warning() -> None:
    found = warnings_of(SINK | {"tasks.maximum": "2"})
    assert list(found) == ["tasks.maximum"]
    assert found["tasks.maximum"].endswith("did you mean tasks.max?")
    assert warnings_of(SINK) == {}


def values_of(connector: str, **config: str) -> dict[str, engine_pb2.ConfigValue]:
    raw = {"name": "a", "connector.class": connector, **config}
    answer = validate(PluginRegistry(), Resolution(raw, raw))
    return {value.key.name: value for value in answer.values}


@pytest.mark.parametrize(
    ("writing", "fitting"),
    [
        ({}, ["none", "kafka", "record_key", "record_value"]),
        ({"insert.mode": "upsert"}, ["kafka", "record_key", "record_value"]),
        ({"insert.mode": "upsert", "delete.enabled": "true"}, ["record_key"]),
    ],
)
def test_a_jdbc_sink_recommends_the_keys_that_fit_to_how_it_writes(
    writing: dict[str, str], fitting: list[str]
) -> None:
    found = values_of("JdbcSink", topics="t", **writing)
    assert found["pk.mode"].recommended_values == fitting
    assert not found["pk.fields"].visible
    assert list(found["insert.mode"].key.dependents) == ["pk.mode"]
    assert values_of("JdbcSink", **{"pk.mode": "kafka"})["pk.fields"].visible


def test_settings_of_another_mode_are_not_visible() -> None:
    jdbc = values_of("JdbcSource", mode="incrementing")
    assert jdbc["incrementing.column.name"].visible
    assert not jdbc["timestamp.column.name"].visible
    http = values_of("HttpSource", **{"paging.mode": "page", "paging.size.parameter": "n"})
    assert http["paging.size"].visible
    assert not http["paging.cursor.pointer"].visible
    dead_letters = "errors.deadletterqueue.topic.replication.factor"
    assert not http[dead_letters].visible
    assert values_of("HttpSource", **{"errors.deadletterqueue.topic.name": "d"})[
        dead_letters
    ].visible


def test_a_setting_says_where_it_stands() -> None:
    key = values_of("JdbcSource")["mode"].key
    assert (key.group, key.order, key.display_name, key.width) == ("Mode", 1, "mode", "NONE")
    assert "timestamp.initial" in key.dependents


def test_without_a_class_nobody_knows_which_settings_there_are() -> None:
    assert warnings_of({"name": "a", "topics": "t", "whatever": "x"}) == {}


def test_a_config_full_of_unknown_settings_gets_a_bounded_answer() -> None:
    found = warnings_of(SINK | {f"unknown.{number}": "x" for number in range(1_000)})
    assert len(found) == 100


def test_the_classes_that_records_go_through_are_told_with_their_versions() -> None:
    config = SINK | {
        "value.converter": "JsonConverter",
        "transforms": "only, gone",
        "transforms.only.type": "Filter",
        "transforms.gone.type": "NoSuchTransform",
        "predicates": "p",
        "predicates.p.type": "RecordIsTombstone",
    }
    components = validate(PluginRegistry(), Resolution(config, config)).components
    assert [each.split()[0] for each in components] == [
        "connector.class", "value.converter", "transforms.only.type", "predicates.p.type",
    ]  # fmt: skip
    assert components[1].startswith("value.converter drover.convert.json_converter.JsonConverter ")


SOURCE = {"connector.class": "FileStreamSource", "name": "a", "topic": "t", "file": "/f"}


def faults_of(config: dict[str, str], why: str = "") -> dict[str, str]:
    answer = validate(PluginRegistry(), Resolution(config, config), not_exactly_once=why)
    return {value.key.name: error for value in answer.values for error in value.errors}


def test_exactly_once_is_refused_where_workers_are_told_to_do_without() -> None:
    required = SOURCE | {"exactly.once.support": "required"}
    assert faults_of(required) == {}
    why = "it is disabled on this worker"
    found = faults_of(required, why)
    assert found == {"exactly.once.support": f"cannot be required: {why}"}
    assert faults_of(SOURCE | {"exactly.once.support": "requested"}, why) == {}


def test_a_topic_for_offsets_needs_them_in_a_transaction() -> None:
    own = SOURCE | {"offsets.storage.topic": "own"}
    assert faults_of(own) == {}
    why = "it is disabled on this worker"
    needs = f"needs records and offsets in one transaction: {why}"
    assert faults_of(own, why) == {"offsets.storage.topic": needs}
    assert "not '+'" in faults_of(own | {"offsets.storage.topic": "+"})["offsets.storage.topic"]


def test_a_boundary_that_the_connector_cannot_keep_is_refused() -> None:
    interval = {"transaction.boundary": "interval"}
    assert faults_of(SOURCE | interval) == {}
    found = faults_of(SOURCE | {"transaction.boundary": "connector"})
    assert list(found) == ["transaction.boundary"]
    page = {"connector.class": "HttpSource", "name": "a", "topic": "t", "url": "http://h/"}
    assert (
        "only after the previous one is committed"
        in faults_of(page | interval)["transaction.boundary"]
    )


def test_a_sink_is_told_that_the_settings_are_for_sources() -> None:
    assert warnings_of(SINK | {"exactly.once.support": "required"}) == {
        "exactly.once.support": "has no effect here: it applies to sources only"
    }


def test_a_check_that_is_not_possible_now_is_listed_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DROVER_PLUGIN_MODULES", "tests.support")
    config = {"connector.class": plugin(UsesBusySystems), "name": "a", "topic": "t"}
    resolved = {**config, "url": "http://secret"}
    for raw, reason in (
        (resolved, "http://secret is busy"),
        ({**config, "url": "${env:URL}"}, "the reason is not shown"),
    ):
        answer = validate(PluginRegistry(), Resolution(resolved, raw))
        assert [each.key.name for each in answer.values if each.errors] == []
        (check,) = answer.skipped_checks
        assert check.setting == "url"
        assert reason in check.reason


@pytest.mark.parametrize("setting", ["transforms", "predicates", "topic.creation.groups"])
def test_names_of_settings_do_not_show_the_value_of_a_provider(setting: str) -> None:
    source = {"connector.class": "DatagenSource", "name": "a", "topic": "t", "quickstart": "orders"}
    raw, resolved = {**source, setting: "${env:A}"}, {**source, setting: "Canary-Of-The-Provider"}
    secrets = {"Canary-Of-The-Provider": "${env:A}"}
    answer = validate(PluginRegistry(), Resolution(resolved, raw, secrets=secrets))
    assert "canary" not in str(answer).lower()
    assert any("${env:A}" in each.key.name for each in answer.values)
