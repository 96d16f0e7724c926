"""Java classes are asked for their settings in a JVM that is limited and knows no secrets."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from drover.config.config_def import REQUIRED, ConfigType, Importance, places
from drover.java_plugins import class_settings
from drover.java_plugins.catalogue import JavaClass, Kind
from drover.java_plugins.describe import (
    Description,
    JavaHost,
    config_def,
    describe,
    from_document,
    to_document,
    validate,
)
from drover.java_plugins.values import JavaPluginError
from tests.support.compiled_plugins import compiled, jar, java_host, source_code
from tests.support.waiting import wait_until

_CONFIG = """
definition
    .define("rows", ConfigDef.Type.INT, 10, ConfigDef.Range.atLeast(1), ConfigDef.Importance.LOW,
        "Rows", "Reads", 2, ConfigDef.Width.SHORT, "Rows of a poll")
    .define("mode", ConfigDef.Type.STRING, "all", ConfigDef.Importance.MEDIUM, "What is read",
        "Reads", 1, ConfigDef.Width.LONG, "Mode", List.of("column"), new ConfigDef.Recommender() {
            public List<Object> validValues(String name, Map<String, Object> all) {
                return List.of("all", "newer"); }
            public boolean visible(String name, Map<String, Object> all) { return true; }
        })
    .define("column", ConfigDef.Type.STRING, null, ConfigDef.Importance.LOW, "A column",
        "Reads", 3, ConfigDef.Width.NONE, "Column")
    .define("password", ConfigDef.Type.PASSWORD, "built-in-secret",
        ConfigDef.Importance.HIGH, "A secret")
    .define("short", ConfigDef.Type.SHORT, (short) 7, ConfigDef.Importance.LOW, "A short")
    .define("names", ConfigDef.Type.LIST, List.of("a", "b"), ConfigDef.Importance.LOW, "Names");
"""
_SPY = """
try (var file = new java.io.PrintWriter("FILE")) {
    file.println(System.getenv().keySet());
    file.println(Thread.currentThread().getContextClassLoader() == getClass().getClassLoader());
} catch (java.io.IOException error) { throw new RuntimeException(error); }
System.out.println("a line on standard output");
"""
_ENDLESS = """
while (System.nanoTime() != 0) {
    try { Thread.sleep(1000); } catch (InterruptedException ignored) {}
}
"""
_SOURCES: Mapping[str, str] = {
    f"org.acme.{name}": source_code(name, **parts)
    for name, parts in {
        "Orders": {"config": _CONFIG, "version": "2.5"},
        "StaticThrows": {"static": 'if (true) throw new IllegalStateException("no licence");'},
        "ConfigThrows": {"config": 'if (true) throw new IllegalStateException("no database");'},
        "ConfigHangs": {"config": _ENDLESS},
        "ConstructorHangs": {"constructor": _ENDLESS},
        "Exits": {"static": "System.exit(9);"},
        "NeedsAbsent": {"config": "new Absent();"},
        "UsesBroken": {"config": "Broken.use();"},
        "UsesBrokenToo": {"config": "Broken.use();"},
        "FillsHeap": {
            "config": "var all = new ArrayList<Object>(); "
            "while (System.nanoTime() != 0) all.add(new byte[1 << 20]);"
        },
        "Talks": {
            "config": 'String line = "x".repeat(1 << 20); '
            "while (System.nanoTime() != 0) { System.out.println(line); System.err.println(line); }"
        },
        "LongText": {
            "config": 'for (int i = 0; i < 3000; i++) definition.define("s" + i, '
            'ConfigDef.Type.STRING, ConfigDef.Importance.LOW, "x".repeat(1000));'
        },
        "BuiltWithOlderKafka": {
            "config": "definition.define(org.apache.kafka.common.utils.Sanitizer.sanitize("
            '"a b"), ConfigDef.Type.LONG, '
            "new org.apache.kafka.common.utils.ExponentialBackoff(100, 2, 1000, 0).backoff(1), "
            "ConfigDef.Importance.LOW, org.apache.kafka.common.utils.AppInfoParser.getVersion());"
        },
        "ConfigNull": {"config": "if (true) return null;"},
    }.items()
} | {
    "org.acme.Absent": "package org.acme; public class Absent {}",
    "org.acme.Broken": """package org.acme; class Broken {
        static { if (true) throw new IllegalStateException("no driver"); }
        static void use() {} }""",
}


_BAD = {
    "org.acme.StaticThrows": "failed in loading the class: IllegalStateException: no licence",
    "org.acme.ConfigThrows": "failed in config(): IllegalStateException: no database",
    "org.acme.ConfigNull": "failed in config(): IllegalStateException: config() returned null",
    "org.acme.ConfigHangs": "failed in config(): it did not return within 5 s",
    "org.acme.ConstructorHangs": "failed in the constructor: it did not return within 5 s",
    "org.acme.Talks": "failed in config(): it did not return within 5 s",
    "org.acme.Exits": "failed in loading the class: it ended its process (exit code 9)",
    "org.acme.FillsHeap": "failed in config(): it needs more than 64 MiB of memory",
    "org.acme.NeedsAbsent": "needs the class org.acme.Absent, which is in none of the plugin's",
    "org.acme.UsesBroken": "failed in config(): IllegalStateException: no driver",
    # as in https://github.com/Aiven-Open/opensearch-connector-for-apache-kafka/issues/186
    "org.acme.UsesBrokenToo": (
        "failed in config(): NoClassDefFoundError: Could not initialize class org.acme.Broken; "
        "caused by ExceptionInInitializerError: Exception java.lang.IllegalStateException: "
        "no driver"
    ),
    "org.acme.NoSuchClass": "needs the class org.acme.NoSuchClass, which is in none",
}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("described"), _SOURCES)


@pytest.fixture(scope="module")
def plugin(classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugin") / "acme.jar"
    return jar(path, classes, without="/Absent.class")


def test_settings_have_the_groups_orders_and_dependents_of_the_class(plugin: Path) -> None:
    description = describe(java_host(), plugin, ["org.acme.Orders"])["org.acme.Orders"]
    assert isinstance(description, Description)
    assert description.version == "2.5"
    definition = config_def(description)
    keys = {each.name: each for each in definition}
    assert keys["url"].default is REQUIRED
    assert (keys["rows"].default, keys["rows"].type) == (10, ConfigType.INT)
    assert keys["rows"].display_name == "Rows of a poll"
    assert (keys["short"].default, keys["short"].type) == (7, ConfigType.INT)
    assert keys["names"].default == ["a", "b"]
    assert keys["mode"].importance is Importance.MEDIUM
    assert (keys["password"].default, keys["password"].type) == (None, ConfigType.PASSWORD)
    assert "built-in-secret" not in json.dumps(to_document(description))
    assert [each.name for each in definition if each.group == "Reads"] == ["mode", "rows", "column"]
    at = dict(zip(keys, places(keys.values()), strict=True))
    assert at["mode"].dependents == ("column",)
    (mode,) = [each for each in definition.validate({}) if each.key.name == "mode"]
    assert mode.recommended_values == ("all", "newer")
    assert from_document(json.loads(json.dumps(to_document(description)))) == description


def test_a_plugin_that_was_built_with_kafka_4_3_finds_the_classes_that_4_4_moved(
    plugin: Path,
) -> None:
    name = "org.acme.BuiltWithOlderKafka"
    description = describe(java_host(), plugin, [name])[name]
    assert isinstance(description, Description), description
    (key,) = (each for each in config_def(description) if each.name != "url")
    assert (key.name, key.default, key.documentation) == ("a%20b", 200, "4.4.0")


def test_a_class_validates_a_config_and_masks_its_passwords(plugin: Path) -> None:
    config = {"rows": "0", "password": "p4ss", "mode": "newer", "short": None}
    answer = validate(java_host(), plugin, "org.acme.Orders", config)
    values = {each.name: each for each in answer.values}
    assert values["rows"].errors == (
        "Invalid value 0 for configuration rows: Value must be at least 1",
    )
    assert "Missing required configuration" in values["url"].errors[0]
    assert values["password"].value == "[hidden]"
    assert values["mode"].recommended_values == ("all", "newer")
    assert "p4ss" not in repr(answer)


def test_a_plugin_of_the_path_is_asked_once_until_its_jars_change(
    classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, path = tmp_path / "home", tmp_path / "plugins" / "acme.jar"
    jar(path, classes, without="/Absent.class")
    asked: list[str] = []

    def counted(host: JavaHost, plugin: Path, names: Sequence[str]) -> Any:
        asked.extend(names)
        return describe(host, plugin, names)

    monkeypatch.setattr(class_settings, "describe", counted)
    orders = JavaClass("org.acme.Orders", Kind.SOURCE, "2.5", "acme", path)
    found = [class_settings.settings_of(orders, java_host(), home) for _ in range(2)]
    assert found[0] == found[1]
    assert len(asked) == 1
    other = replace(orders, name="org.acme.ConfigThrows")
    for _ in range(2):  # the plugin may work the next time
        with pytest.raises(JavaPluginError, match="no database"):
            class_settings.settings_of(other, java_host(), home)
    jar(path, classes, without="/Broken.class")
    assert class_settings.settings_of(orders, java_host(), home) == found[0]
    assert asked == ["org.acme.Orders", *["org.acme.ConfigThrows"] * 2, "org.acme.Orders"]


def test_the_jvm_has_no_environment_and_the_plugins_class_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dx=y")
    seen = tmp_path / "seen"
    spy = source_code("Spy", config=_SPY.replace("FILE", str(seen)))
    path = jar(tmp_path / "spy.jar", compiled(tmp_path / "spy", {"org.acme.Spy": spy}))
    assert isinstance(describe(java_host(), path, ["org.acme.Spy"])["org.acme.Spy"], Description)
    names, own_loader = seen.read_text().splitlines()
    assert names == "[LANG]"
    assert own_loader == "true"


@pytest.fixture(scope="module")
def bad(plugin: Path) -> Mapping[str, Description | JavaPluginError]:
    """The results of bad classes, asked for together with a good one at the end."""
    return describe(java_host(memory_mib=64, limit_s=5), plugin, [*_BAD, "org.acme.Orders"])


@pytest.mark.parametrize("name", _BAD)
def test_a_class_that_fails_is_named_with_the_phase(
    bad: Mapping[str, Description | JavaPluginError], name: str
) -> None:
    error = bad[name]
    assert isinstance(error, JavaPluginError)
    assert str(error).startswith(f"{name} {_BAD[name]}")


def test_a_class_that_fails_affects_no_other(
    bad: Mapping[str, Description | JavaPluginError],
) -> None:
    assert isinstance(bad["org.acme.Orders"], Description)


def test_an_answer_is_bounded(plugin: Path) -> None:
    host = java_host(output_bytes_max=1_000_000)
    found = describe(host, plugin, ["org.acme.LongText"])
    assert "its answer is larger than 1000000 bytes" in str(found["org.acme.LongText"])


def test_a_class_for_a_newer_java_names_the_java(classes: Path, tmp_path: Path) -> None:
    data = bytearray((classes / "org/acme/Orders.class").read_bytes())
    data[7] = 99
    newer = tmp_path / "newer" / "org" / "acme"
    newer.mkdir(parents=True)
    (newer / "Orders.class").write_bytes(data)
    path = jar(tmp_path / "newer.jar", tmp_path / "newer")
    found = describe(java_host(), path, ["org.acme.Orders"])["org.acme.Orders"]
    assert "org.acme.Orders needs Java 55 or newer" in str(found)


def test_a_java_that_does_not_start_is_an_error(plugin: Path, tmp_path: Path) -> None:
    host = java_host()
    bad = tmp_path / "java"
    bad.write_text("#!/bin/sh\necho no memory >&2\nexit 1\n")
    bad.chmod(0o700)
    for java, message in ((bad, "exit code 1: no memory"), (tmp_path / "none", "does not start")):
        with pytest.raises(JavaPluginError, match=message):
            describe(type(host)(java, host.jars), plugin, ["org.acme.Orders"])


def test_the_jvm_of_a_class_that_hangs_ends_with_its_caller(plugin: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from drover.java_plugins.describe import *;"
        "java, jars, plugin = map(Path, sys.argv[1:]);"
        "describe(JavaHost(java, jars), plugin, ['org.acme.ConfigHangs'])"
    )
    host = java_host()
    arguments = map(str, (host.java, host.jars, plugin))
    with subprocess.Popen([sys.executable, "-c", code, *arguments]) as caller:
        try:
            (jvm,) = wait_until(lambda: psutil.Process(caller.pid).children())
            wait_until(lambda: jvm.num_threads() > 1 and "describe" in jvm.cmdline())
        finally:
            caller.kill()
    wait_until(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE)
