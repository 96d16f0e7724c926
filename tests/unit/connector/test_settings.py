from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    SinkConnector,
    SourceConnector,
    Violation,
)
from drover.connector.record_settings import with_worker_converters
from drover.connector.settings import (
    connector_name_fault,
    full_config_def,
    parse_config,
    task_config,
    validate_config,
)
from drover.errors import InvalidArgumentError


class Source(SourceConnector):
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("low", ConfigType.INT, default=0), ConfigKey("high", ConfigType.INT)
        )

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        if config.get("low", 0) > config.get("high", 0):
            return [
                Violation("high", f"must be at least low ({config['low']})"),
                Violation("also", "something that no key defines"),
            ]
        return []

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}] * max_tasks


class Sink(SinkConnector):
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}] * max_tasks


SINK = {"name": "s", "connector.class": "Sink", "topics": "a"}
SOURCE = {"name": "s", "connector.class": "Source", "high": "9"}


def fields(raw: Mapping[str, str], of: type[SourceConnector] | type[SinkConnector]) -> list[str]:
    return [each.field for each in parse_config(of, raw).violations]


def test_a_config_without_faults() -> None:
    values = parse_config(Sink, SINK).require_valid()
    assert values["topics"] == ["a"]
    assert values["tasks.max"] == 1
    assert parse_config(Source, SOURCE).violations == ()


@pytest.mark.parametrize("tasks", ["0", "-1", "many", "", "1.5", "99999999999"])
def test_tasks_max_is_a_count(tasks: str) -> None:
    assert fields({**SINK, "tasks.max": tasks}, Sink) == ["tasks.max"]


@pytest.mark.parametrize("topics", ["", " ", ",", "a,,b", "a b", "a,a", "..", "a/b"])
def test_a_sink_needs_topics(topics: str) -> None:
    assert set(fields({**SINK, "topics": topics}, Sink)) == {"topics"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "empty"),
        ("  ", "empty"),
        (" a", "white space"),
        ("a\nb", "control"),
        ("a\x00", "control"),
        ("a\x7fb", "control"),
        ("a\u202eb", "control"),
        ("\ud800", "control"),
        ("a" * 256, "255"),
    ],
)
def test_names_that_would_hurt_are_refused(name: str, message: str) -> None:
    fault = connector_name_fault(name)
    assert fault is not None
    assert message in fault


@pytest.mark.parametrize("name", ["a", "flights sink", "Größe-1.2_3", "連結", "a" * 255])
def test_other_names_are_fine(name: str) -> None:
    assert connector_name_fault(name) is None


def test_three_faults_are_three_violations() -> None:
    raw = {"name": "a\nb", "tasks.max": "many", "low": "x"}
    assert fields(raw, Source) == ["name", "connector.class", "tasks.max", "low", "high"]


def test_faults_across_settings_are_found_beside_others() -> None:
    raw = {**SOURCE, "low": "5", "high": "1", "tasks.max": "0"}
    assert fields(raw, Source) == ["tasks.max", "high", "also"]
    found = {each.key.name: each.errors for each in validate_config(Source, raw)}
    assert found["high"] == ("must be at least low (5)",)
    assert found["also"] == ("something that no key defines",)
    assert found["tasks.max"] == ("must be at least 1, not 0",)


def test_sources_and_sinks_have_settings_of_their_own() -> None:
    assert "topics" in full_config_def(Sink)
    assert "topics" not in full_config_def(Source)
    assert "partitioner.keyless" in full_config_def(Source)


def test_a_task_sees_its_connectors_config_overlaid_by_its_own() -> None:
    config = task_config(Source, SOURCE, {"high": "11", "files": "[]"})
    assert (config["high"], config["files"], config["name"]) == (11, "[]", "s")
    with pytest.raises(InvalidArgumentError, match="high"):
        task_config(Source, SOURCE, {"high": "x"})


@pytest.mark.parametrize("kind", [Source, Sink])
@pytest.mark.parametrize(
    "converter",
    [
        "StringConverter",
        "String",
        "ByteArrayConverter",
        "org.apache.kafka.connect.storage.StringConverter",
        " org.apache.kafka.connect.converters.ByteArrayConverter",
    ],
)
def test_converters_that_leave_bytes_alone_are_fine(
    kind: type[SourceConnector] | type[SinkConnector], converter: str
) -> None:
    raw = {"name": "c", "connector.class": "C", "topics": "t", "high": "1"}
    converters = dict.fromkeys(("key.converter", "value.converter", "header.converter"), converter)
    assert fields({**raw, **converters, "transforms": ""}, of=kind) == []


@pytest.mark.parametrize("kind", [Source, Sink])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value.converter", "XmlConverter"),
        ("value.converter", "com.example.StringConverter"),
        ("transforms.mask.type", "MakeField$Value"),
        ("predicates.none.type", "IsNone"),
        ("errors.tolerance", "some"),
        ("errors.deadletterqueue.topic.name", "no topic"),
    ],
)
def test_what_nobody_has_is_refused_by_name(
    kind: type[SourceConnector] | type[SinkConnector], name: str, value: str
) -> None:
    chain = {"transforms": "mask", "transforms.mask.type": "Filter", "predicates": "none"}
    chain["predicates.none.type"] = "RecordIsTombstone"
    raw = {"name": "c", "connector.class": "C", "topics": "t", "high": "1", **chain, name: value}
    (violation,) = parse_config(kind, raw).violations
    assert violation.field == name
    assert value in violation.description
    with pytest.raises(InvalidArgumentError, match=name):  # a task does not start either
        task_config(kind, raw, {})


@pytest.mark.parametrize(
    ("raw", "field", "fault"),
    [
        ({}, "topics", "is required, unless topics.regex is set"),
        ({"topics": "a", "topics.regex": "b"}, "topics.regex", "together with topics"),
        ({"topics.regex": "a("}, "topics.regex", "a("),
        (
            {"topics": "a", "errors.deadletterqueue.topic.name": "a"},
            "errors.deadletterqueue.topic.name",
            "must not be a, which the connector reads itself",
        ),
        (
            {"topics.regex": "a.*", "errors.deadletterqueue.topic.name": "abc"},
            "errors.deadletterqueue.topic.name",
            "must not match topics.regex",
        ),
        (
            {
                "topics.regex": "(a|aa)+(?=x|y)",
                "errors.deadletterqueue.topic.name": "a" * 45,
            },
            "topics.regex",
            "the pattern '(a|aa)+(?=x|y)' did not match within 1 s",
        ),
    ],
)
def test_a_sink_reads_topics_by_name_or_by_pattern_but_not_its_own_dead_letters(
    raw: dict[str, str], field: str, fault: str
) -> None:
    (violation,) = parse_config(Sink, {"name": "c", "connector.class": "C", **raw}).violations
    assert violation.field == field
    assert fault in violation.description


def test_a_workers_converters_are_for_connectors_that_name_none() -> None:
    worker = {
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter": "StringConverter",
    }
    own = {"value.converter": "StringConverter", "name": "c"}
    assert with_worker_converters(own, worker) == {**own, "key.converter": "StringConverter"}
    assert with_worker_converters({"name": "c"}, worker) == {**worker, "name": "c"}
