"""Suggestions for unknown names: typing errors get one, other jobs do not."""

import pytest

from drover.config.near_names import did_you_mean, edit_distance, near_classes, near_settings
from drover.connector.settings import full_config_def
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.postgres.source import PostgresCdcSource

_CLASSES = {
    "JdbcSink": "JdbcSink",
    "io.confluent.connect.jdbc.JdbcSinkConnector": "JdbcSink",
    "JdbcSource": "JdbcSource",
    "HttpSink": "HttpSink",
    "S3Sink": "S3Sink",
    "FilesSink": "FilesSink",
    "JsonConverter": "JsonConverter",
    "MaskField$Key": "MaskField$Key",
    "MaskField$Value": "MaskField$Value",
}


@pytest.mark.parametrize(
    ("wanted", "suggested"),
    [
        ("JdbcSnk", ["JdbcSink"]),
        ("JbdcSink", ["JdbcSink"]),
        ("jdbcsink", ["JdbcSink"]),
        ("com.acme.JdbcSinkConnector", ["JdbcSink"]),
        ("Jdbc", ["JdbcSink", "JdbcSource"]),
        ("FileSink", ["FilesSink"]),
        ("JsonConvertor", ["JsonConverter"]),
        ("MaskFeld$Value", ["MaskField$Value"]),
        ("MaskField", ["MaskField$Key", "MaskField$Value"]),
        ("S3snk", ["S3Sink"]),
        # another system, direction or format is another job
        ("FtpSink", []),
        ("SqsSink", []),
        ("S3Source", []),
        ("HttpSource", []),
        ("BsonConverter", []),
        ("", []),
        (".", []),
        ("J" * 200, []),
    ],
)
def test_a_class_is_suggested_for_a_typing_error_only(wanted: str, suggested: list[str]) -> None:
    assert near_classes(wanted, _CLASSES) == suggested


@pytest.mark.parametrize(
    ("wanted", "suggested"),
    [
        ("tabel.include.list", ["table.include.list"]),
        ("table.include", ["table.include.list"]),
        ("database.host", ["database.hostname"]),
        ("tasks.maximum", ["tasks.max"]),
        ("poll.interval", ["poll.interval.ms"]),
        ("value.convertor", ["value.converter"]),
        ("poll_interval_ms", ["poll.interval.ms"]),
        ("interval.ms", ["poll.interval.ms"]),
        ("hostname", ["database.hostname"]),
        # a word of other settings is no typing error
        ("include.schema.changes", []),
        ("column.include.keys", []),
        ("max.batch.size", []),
        ("topic", []),
    ],
)
def test_a_setting_is_suggested_for_a_typing_error_only(wanted: str, suggested: list[str]) -> None:
    names = [key.name for key in full_config_def(PostgresCdcSource)]
    assert near_settings(wanted, names)[:1] == suggested


def test_the_opposite_setting_is_never_suggested() -> None:
    names = ["column.include.list", "table.exclude.list", "header.exclude.list"]
    assert near_settings("column.exclude.list", names) == []
    assert near_settings("table.include.list", names) == []


def test_a_setting_of_a_source_has_its_suggestion() -> None:
    names = [key.name for key in full_config_def(JdbcSource)]
    assert near_settings("connection.usr", names) == ["connection.user"]


@pytest.mark.parametrize("wanted", ["directory", "dir", "folder", "paht"])
def test_another_word_for_a_path_suggests_it(wanted: str) -> None:
    names = [key.name for key in full_config_def(FilesSink)]
    assert near_settings(wanted, names)[:1] == ["path"]


def test_several_names_are_one_question() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean a, b or c?"


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("", "ab", 2),
        ("ab", "", 2),
        ("jdbc", "jbdc", 1),
        ("sink", "snk", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_the_edit_distance_counts_an_exchange_once(one: str, other: str, distance: int) -> None:
    assert edit_distance(one, other) == distance
