"""Records, offsets and task configs of Java plugins in a real JVM, without Spark, in the forms that
other hosts of Kafka Connect's plugins have lost or refused.
"""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.config.config_def import ConfigType
from drover.connector import ConnectorContext, TopicPartition
from drover.connector.settings import CONFIG_TEXTS, parse_config, validate_config
from drover.connectors.java import step_finder
from drover.connectors.java.connectors import connector_of
from drover.connectors.java.finder import find_connector
from drover.connectors.java.settings import TASK_CLASS, TASK_LACKS
from drover.connectors.java.tasks import JavaTaskError, _put_columns
from drover.java_plugins import install
from drover.java_plugins.catalogue import JavaClass, Kind
from drover.java_plugins.host import JavaHostError
from drover.java_plugins.wire import JavaHostEndedError
from tests.support import compiled_plugins
from tests.support.compiled_plugins import compiled, jar, source_code
from tests.support.java_plugins import compiled_plugin
from tests.support.waiting import wait_until
from tests.unit.java_plugins.host_tasks import (
    TIMEOUT_S,
    Make,
    class_of,
    feed,
    lines,
    polled,
    rows,
)

_MEGABYTES_100 = 100_000_000

_CONVERTER = """package org.acme;
import java.util.Map;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.storage.Converter;
public class Marked implements Converter, Versioned {
    public String version() { return "VERSION"; }
    public void configure(Map<String, ?> config, boolean isKey) {}
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        return ("VERSION " + value).getBytes();
    }
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        return new SchemaAndValue(Schema.STRING_SCHEMA, new String(value));
    }
}
"""

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("hosts", "limits")]


@pytest.fixture
def java_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(tmp_path / "home"))
    step_finder.use_java_steps(in_engine=False)
    yield
    step_finder.use_no_java_steps()


def finished(task: Any) -> Any:
    """What a sink's plugin did with all records that it was fed."""
    return wait_until(lambda: task._progress(None, 200), timeout_s=TIMEOUT_S)


# --- offsets --------------------------------------------------------------------------------------


def test_records_without_a_source_partition_are_stored_without_a_position(make: Make) -> None:
    """As in https://github.com/apache/pulsar/pull/14916."""
    task, context = make("Source", "no positions")
    task.start(context)
    batch = polled(task)
    assert [each["key"] for each in rows(batch)] == [b"a", b"b", b"c"]
    assert batch.offsets == [({}, {})]
    task.committed(batch.offsets)


def test_a_sink_continues_at_an_offset_beyond_its_first_batch(make: Make, tmp_path: Path) -> None:
    """As in https://github.com/confluentinc/kafka-connect-hdfs/issues/314."""
    task, context = make("Sink", "seek")
    context.config[CONFIG_TEXTS]["target"] = "15"
    task.start(context)
    feed(task, 10)
    assert finished(task).up_to in ({}, {("numbers", 0): 10})
    assert context.control.take_rewinds() == {}
    feed(task, 10, start=10)
    done = finished(task)
    trace = tmp_path / "trace-0"
    assert [int(each.split()[1]) for each in lines(trace, "put")] == list(range(15, 20))
    wait_until(lambda: (done.up_to or finished(task).up_to) == {("numbers", 0): 20})


def test_a_sink_that_continues_beyond_the_end_of_its_topic_gets_the_records_there_are(
    make: Make, tmp_path: Path
) -> None:
    """As in https://github.com/confluentinc/kafka-connect-hdfs/issues/206."""
    task, context = make("Sink", "seek")
    context.config[CONFIG_TEXTS]["target"] = "1000"
    task.start(context)
    feed(task, 10)
    found = wait_until(
        lambda: finished(task) and context.control.take_rewinds(), timeout_s=TIMEOUT_S
    )
    assert found == {("numbers", 0): 0}
    feed(task, 10)
    finished(task)
    trace = tmp_path / "trace-0"
    assert [int(each.split()[1]) for each in lines(trace, "put")] == list(range(10))


# --- topics ---------------------------------------------------------------------------------------


def test_a_sink_gets_the_topic_that_a_transform_of_drover_gave_a_record(
    make: Make, tmp_path: Path
) -> None:
    """As in https://github.com/StarRocks/starrocks-connector-for-kafka/pull/34."""
    task, context = make("Sink", "topics")
    task.start(context)
    given = {
        "topic": ["all", "numbers"],
        "original_topic": ["numbers", "numbers"],
        "partition": pa.array([0, 0], pa.int32()),
        "offset": pa.array([0, 1]),
        "key": pa.array([b"k", b"k"]),
        "value": pa.array([b"v", b"v"]),
        "headers": pa.nulls(2, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "timestamp": pa.array([0, 0], pa.timestamp("us", tz="UTC")),
    }
    batch = _put_columns(pa.RecordBatch.from_pydict(given))
    task._address.put(task._run, 1, [("numbers", 0, 0, 2)], [batch])
    assert finished(task).up_to == {("numbers", 0): 2}
    assert lines(tmp_path / "trace-0", "topic") == [
        "topic all of numbers",
        "topic numbers of numbers",
    ]


def test_an_errant_record_that_the_sink_did_not_receive_is_an_error_with_its_place(
    make: Make,
) -> None:
    """As in https://github.com/ClickHouse/clickhouse-kafka-connect/issues/777."""
    task, context = make("Sink", "errant of another topic")
    context.config[CONFIG_TEXTS]["errors.tolerance"] = "all"
    task.start(context)
    feed(task, 3)
    words = r"put\(\) of .*Sink .* that the task did not receive: elsewhere-0@0"
    with pytest.raises(JavaTaskError, match=words):
        finished(task)


# --- offsets of sinks -----------------------------------------------------------------------------


@pytest.mark.parametrize("given", [0, 3, 10])
def test_a_sink_commits_the_offsets_of_records_that_drover_dropped(
    make: Make, tmp_path: Path, given: int
) -> None:
    """As in https://github.com/snowflakedb/snowflake-kafka-connector/issues/798."""
    task, context = make("Sink", "")
    task.start(context)
    feed(task, given, end=10)
    assert finished(task).up_to == {("numbers", 0): 10}
    feed(task, 2, 10, end=15)
    assert finished(task).up_to == {("numbers", 0): 15}
    assert len(lines(tmp_path / "trace-0", "put")) == given + 2


@pytest.mark.parametrize(("mode", "offsets"), [("lower", {("numbers", 0): 8}), ("never", {})])
def test_a_plugin_decides_about_the_offsets_of_dropped_records(
    make: Make, mode: str, offsets: dict[tuple[str, int], int]
) -> None:
    task, context = make("Sink", mode)
    task.start(context)
    feed(task, 3, end=10)
    assert finished(task).up_to == offsets


def test_a_sink_is_told_its_partitions_before_they_have_records(make: Make, tmp_path: Path) -> None:
    """As in https://github.com/apache/iceberg/issues/17811."""
    task, context = make("Sink", "note empty puts")
    positions = {TopicPartition("numbers", number): 5 for number in range(2)}
    task.start(replace(context, assigned=lambda: positions))
    task.idle()
    trace = tmp_path / "trace-0"
    wait_until(lambda: lines(trace, "empty put"), timeout_s=TIMEOUT_S)
    positions[TopicPartition("numbers", 2)] = 0
    task.idle()
    wait_until(lambda: len(lines(trace, "open")) == 2, timeout_s=TIMEOUT_S)
    assert lines(trace, "open") == ["open [numbers-0, numbers-1]", "open [numbers-2]"]
    assert trace.read_text().splitlines()[:3] == [
        "start",
        "open [numbers-0, numbers-1]",
        "empty put 2",
    ]


# --- configs --------------------------------------------------------------------------------------


def test_a_task_gets_the_config_that_its_connector_returned(
    make: Make,
    behaviours: Path,
    tmp_path: Path,
) -> None:
    """Also a setting that is empty, and none that the connector removed: as in
    https://github.com/confluentinc/kafka-connect-jdbc/pull/1178.
    """
    texts = {
        "mode": "other task config",
        "trace": str(tmp_path / "trace"),
        "secret": "s3cret",
        "connector.class": "x",
    }
    connector: Any = class_of(behaviours, "Source")()
    connector.start(ConnectorContext("x", config_texts=texts), {})
    try:
        (changes,) = connector.task_configs(1)
    finally:
        connector.stop()
    assert changes == {
        "tables": "",
        TASK_LACKS: json.dumps(["secret"]),
        TASK_CLASS: "org.acme.Behaviours$Numbers",
    }
    task, context = make("Source", "other task config")
    context.config[CONFIG_TEXTS].update({"secret": "s3cret", **changes})
    task.start(context)
    assert lines(tmp_path / "trace-0", "settings") == ["settings {tables=}"]


def test_a_task_has_the_class_that_its_started_connector_chose(
    make: Make, behaviours: Path, tmp_path: Path
) -> None:
    """As in https://github.com/neo4j/neo4j-kafka-connector/pull/149."""
    texts = {"mode": "lean", "trace": str(tmp_path / "trace"), "connector.class": "x"}
    connector: Any = class_of(behaviours, "Chooser")()
    connector.start(ConnectorContext("x", config_texts=texts), {})
    try:
        (changes,) = connector.task_configs(1)
    finally:
        connector.stop()
    task, context = make("Chooser", "lean")
    context.config[CONFIG_TEXTS].update(changes)
    task.start(context)
    batch = polled(task)
    task.committed(batch.offsets)
    assert not lines(tmp_path / "trace-0", "commit")


def test_a_task_whose_class_names_a_missing_library_runs(
    make: Make, behaviours: Path, tmp_path: Path
) -> None:
    """As in https://github.com/Kotlin/kotlinx.coroutines/pull/4677."""
    plugin = tmp_path / "incomplete"
    plugin.mkdir()
    with (
        zipfile.ZipFile(behaviours / "plugin.jar") as complete,
        zipfile.ZipFile(plugin / "plugin.jar", "w") as archive,
    ):
        for each in complete.namelist():
            if not each.endswith("$Library.class"):
                archive.writestr(each, complete.read(each))
    task, context = make("WithLibrary", "", plugin=plugin)
    task.start(context)
    assert rows(polled(task))[0]["key"] == b"k0"


def test_a_version_is_found_that_only_the_name_of_the_plugin_has(
    make: Make, behaviours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in https://github.com/splunk/kafka-connect-splunk/issues/219."""
    home = tmp_path / "home"
    code = {
        "old": ("org.acme.Old", source_code("Old", version="v1.0.0")),
        "marked": ("org.acme.Marked", _CONVERTER.replace("VERSION", "v1.0.0")),
    }
    for name, (java_class, text) in code.items():
        classes = compiled(tmp_path / f"build-{name}", {java_class: text})
        install.add(str(jar(tmp_path / f"{name}-2.0.1.jar", classes)), home, host=None)
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(home))
    texts = {"connector.class": "org.acme.Old", "connector.plugin.version": "2.0.1", "url": "u"}
    found: Any = find_connector("org.acme.Old", "2.0.1", in_engine=True)
    connector = found()
    connector.start(ConnectorContext("x", config_texts=texts), {})
    connector.stop()
    task, context = make("Source", "")
    context.config[CONFIG_TEXTS] |= {
        "java.host.value.converter": "org.acme.Marked",
        "java.host.value.converter.plugin.version": "2.0.1",
    }
    task.start(context)
    assert rows(polled(task))[0]["value"] == b"v1.0.0 v0"


def test_a_step_without_a_service_manifest_is_chosen_by_its_version(
    make: Make, behaviours: Path, tmp_path: Path
) -> None:
    """As in https://github.com/apache/iceberg/pull/13531."""
    plugin = tmp_path / "acme"
    shutil.copytree(behaviours, plugin)
    with zipfile.ZipFile(plugin / "plugin.jar", "a") as archive:
        service = "META-INF/services/org.apache.kafka.connect.source.SourceConnector"
        archive.writestr(service, "org.acme.Behaviours$Source\n")
    task, context = make("Source", "", plugin=plugin)
    context.config[CONFIG_TEXTS] |= {
        "java.host.transforms": "t",
        "java.host.transforms.t.type": "org.acme.Behaviours$Closing",
        "java.host.transforms.t.trace": str(tmp_path / "trace"),
        "java.host.transforms.t.plugin.version": "1.0",
    }
    task.start(context)
    assert rows(polled(task))[0]["key"] == b"k0"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (
            {
                "transforms": "c",
                "transforms.c.type": "java:org.apache.kafka.connect.transforms.Cast$Value",
            },
            "transforms.c.spec",
        ),
        (
            {"value.converter": "JsonConverter", "value.converter.schemas.enable": "maybe"},
            "value.converter.schemas.enable",
        ),
        (
            {
                "transforms": "c",
                "transforms.c.type": "java:org.apache.kafka.connect.transforms.RegexRouter",
                "transforms.c.regex": "a",
                "transforms.c.replacement": "b",
                "transforms.c.predicate": "tombstone",
            },
            "transforms.c.predicate",
        ),
        (
            {"value.converter": "StringConverter", "value.converter.plugin.version": "1.0"},
            "value.converter.plugin.version",
        ),
    ],
)
def test_the_settings_of_classes_in_the_host_are_validated(
    behaviours: Path, java_steps: None, settings: dict[str, str], field: str
) -> None:
    """As in https://github.com/apache/kafka/pull/14309."""
    java_class = JavaClass("org.acme.Behaviours$Source", Kind.SOURCE, "2.5", "x", behaviours)
    kind = connector_of(java_class, in_engine=False)
    config = {"name": "x", "connector.class": java_class.name, "trace": "/tmp/x", **settings}
    assert [each.field for each in parse_config(kind, config).violations] == [field]
    faulty = [each for each in validate_config(kind, config) if each.errors]
    assert [each.key.name for each in faulty] == [field]


def test_secret_settings_of_classes_in_the_host_are_known(
    behaviours: Path, java_steps: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(behaviours, tmp_path / "plugins" / "acme")
    monkeypatch.setenv("DROVER_PLUGIN_PATH", str(tmp_path / "plugins"))
    java_class = JavaClass("org.acme.Behaviours$Source", Kind.SOURCE, "2.5", "acme", behaviours)
    config = {
        "name": "x",
        "connector.class": java_class.name,
        "trace": "/tmp/x",
        "transforms": "c",
        "transforms.c.type": "org.acme.Behaviours$Closing",
        "transforms.c.trace": str(tmp_path / "trace"),
        "transforms.c.code": "s3cret",
    }
    values = validate_config(connector_of(java_class, in_engine=False), config)
    types = {each.key.name: each.key.type for each in values}
    assert types["transforms.c.code"] is ConfigType.PASSWORD
    assert not [each for each in values if each.errors or each.key.name.startswith("java.host.")]


def test_a_transform_of_another_plugin_without_service_manifests_is_found(
    make: Make,
    behaviours: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in https://github.com/Apicurio/apicurio-registry/issues/4179."""
    plugin = tmp_path / "plugins" / "acme"
    shutil.copytree(behaviours, plugin)
    with zipfile.ZipFile(plugin / "plugin.jar", "a") as archive:
        service = "META-INF/services/org.apache.kafka.connect.source.SourceConnector"
        archive.writestr(service, "# the connector\norg.acme.Behaviours$Source\n")
    code = (Path(compiled_plugins.__file__).parent / "java_sources" / "Steps.java").read_text()
    steps = compiled_plugin(tmp_path / "build", {"org.acme.Steps": code})
    shutil.copytree(steps, tmp_path / "plugins" / "steps")
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DROVER_PLUGIN_PATH", str(tmp_path / "plugins"))
    task, context = make("Source", "", plugin=plugin)
    context.config[CONFIG_TEXTS].update(
        {
            "java.host.transforms": "named",
            "java.host.transforms.named.type": "org.acme.Steps$Named",
            "java.host.transforms.named.suffix": "-x",
        }
    )
    task.start(context)
    assert rows(polled(task))[0]["topic"] == "numbers-x"


def test_a_connector_uses_two_versions_of_one_converter(
    make: Make, behaviours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in https://github.com/apache/kafka/pull/18325."""
    plugins = tmp_path / "plugins"
    shutil.copytree(behaviours, plugins / "acme")
    for version in ("1.0", "2.0"):
        code = {"org.acme.Marked": _CONVERTER.replace("VERSION", version)}
        jar(
            plugins / f"marked-{version}" / f"marked-{version}.jar",
            compiled(tmp_path / f"build-{version}", code),
        )
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DROVER_PLUGIN_PATH", str(plugins))
    task, context = make("Source", "", plugin=plugins / "acme")
    for part, version in (("key", "1.0"), ("value", "2.0")):
        converter = f"java.host.{part}.converter"
        context.config[CONFIG_TEXTS][converter] = "org.acme.Marked"
        context.config[CONFIG_TEXTS][f"{converter}.plugin.version"] = version
    task.start(context)
    first = rows(polled(task))[0]
    assert (first["key"], first["value"]) == (b"1.0 k0", b"2.0 v0")


# --- errors ---------------------------------------------------------------------------------------


def test_an_error_whose_causes_form_a_circle_is_reported(make: Make) -> None:
    """As in https://github.com/google/guava/issues/1173."""
    task, context = make("Source", "circular error")
    task.start(context)
    words = r"poll\(\) of .*no luck; caused by IllegalStateException: none at all"
    with pytest.raises(JavaTaskError, match=words):
        polled(task)


# --- large records --------------------------------------------------------------------------------


def test_a_record_of_100_mb_of_a_source_arrives(make: Make) -> None:
    task, context = make("Source", "large", **{"java.isolation": "task"})
    context.config[CONFIG_TEXTS]["size"] = str(_MEGABYTES_100)
    task.start(context)
    batch = polled(task)
    (record,) = rows(batch)
    assert record["value"] == b"x" * _MEGABYTES_100
    task.committed(batch.offsets)


def test_a_record_of_100_mb_reaches_a_sink(make: Make, tmp_path: Path) -> None:
    task, context = make("Sink", "large", **{"java.isolation": "task"})
    task.start(context)
    feed(task, 1, value=b"x" * _MEGABYTES_100)
    assert finished(task).up_to == {("numbers", 0): 1}
    assert lines(tmp_path / "trace-0", "large") == [f"large {_MEGABYTES_100}"]


@pytest.mark.parametrize("name", ["Source", "Sink"])
def test_a_record_too_large_for_the_heap_is_an_error_with_the_plugin_size_and_limit(
    make: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DROVER_JAVA_HEAP_MIB", "256")
    task, context = make(name, "large", **{"java.isolation": "task"})
    context.config[CONFIG_TEXTS]["size"] = str(_MEGABYTES_100)
    task.start(context)
    if name == "Sink":
        feed(task, 1, value=b"x" * _MEGABYTES_100)
    words = (
        r"plugin test-plugin used up its heap of 256 MiB \(raise DROVER_JAVA_HEAP_MIB(?s:.*)"
        rf"a record of numbers.* has {_MEGABYTES_100} bytes"
    )
    go_on = polled if name == "Source" else finished
    with pytest.raises(JavaHostEndedError, match=words):
        go_on(task)


# --- full disks -----------------------------------------------------------------------------------


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "full").open("wb", 0) as stream:
        while True:
            stream.write(bytes(1024))


def test_a_jvm_that_ends_on_a_full_disk_still_tells_why(
    make: Make, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    task, context = make("Lean", "exit in commitRecord", **{"java.isolation": "task"})
    task.start(context)
    batch = polled(task)
    fill(small_disk)
    words = "ended with exit code 7(?s:.*)the plugin ends in commitRecord"
    with pytest.raises(JavaHostEndedError, match=words):
        task.committed(batch.offsets)


def test_a_jvm_that_cannot_start_on_a_full_disk_names_the_disk(
    make: Make, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    fill(small_disk)
    task, context = make("Source", "", **{"java.isolation": "task"})
    words = rf"temporary files {small_disk} cannot be used \(No space left .*set TMPDIR"
    with pytest.raises(JavaHostError, match=words):
        task.start(context)
    assert [each.name for each in small_disk.iterdir()] == ["full"]


def test_a_plugin_whose_disk_is_full_is_named_with_its_method(make: Make, small_disk: Path) -> None:
    task, context = make("Sink", "")
    trace = small_disk / "trace"
    context.config[CONFIG_TEXTS]["trace"] = str(trace)
    task.start(context)
    fill(small_disk)
    feed(task, 5_000)
    words = r"put\(\) of .*Sink \(test-plugin\) failed: .*No space left on device"
    with pytest.raises(JavaTaskError, match=words):
        finished(task)
