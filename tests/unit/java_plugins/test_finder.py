"""The Java class that a config names: its version, whether it is allowed, its client settings."""

from pathlib import Path

import pytest

from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover.connector.settings import CONFIG_TEXTS
from drover.connectors.java.connectors import JavaSource
from drover.connectors.java.finder import find_connector
from drover.connectors.postgres.source import PostgresCdcSource
from drover.java_plugins import install
from drover.java_plugins.allowed import is_preferred
from tests.support.compiled_plugins import compiled, jar, source_code

_NAME = "org.acme.Orders"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("found")
    classes = compiled(folder, {_NAME: source_code("Orders")})
    for version in ("1.0", "1.1"):
        path = jar(folder / f"acme-{version}.jar", classes, text=version)
        install.add(str(path), folder / "home", host=None)
    return folder / "home"


@pytest.fixture
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> PluginRegistry:
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(home))
    monkeypatch.delenv("DROVER_JAVA_PLUGINS", raising=False)
    return PluginRegistry(lambda: (), find_other=find_connector)


@pytest.mark.parametrize(
    ("version", "found"), [(None, "1.1"), ("1.0", "1.0"), ("[1.0,1.1)", "1.0"), ("latest", "1.1")]
)
@pytest.mark.parametrize("name", [_NAME, f"java:{_NAME}", "Orders"])
def test_a_config_names_a_class_and_its_version(
    registry: PluginRegistry, name: str, version: str | None, found: str
) -> None:
    config = {"connector.class": name, "connector.plugin.version": version}
    assert registry.find_of(config).version == found


def test_a_preferred_connector_is_the_java_class_although_drover_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, name = "io.debezium.connector.postgresql", "PostgresConnector"
    code = source_code(name).replace("package org.acme;", f"package {package};")
    classes = compiled(tmp_path / "code", {f"{package}.{name}": code})
    install.add(str(jar(tmp_path / "debezium.jar", classes)), tmp_path / "home", host=None)
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(tmp_path / "home"))
    registry = PluginRegistry(find_other=find_connector, prefers_other=is_preferred)
    config = {"connector.class": f"{package}.{name}"}
    assert registry.find_of(config) is PostgresCdcSource
    assert registry.built_in_module(f"{package}.{name}")
    monkeypatch.setenv("DROVER_JAVA_PREFERRED", "org.acme.Orders, io.debezium.*")
    assert issubclass(registry.find_of(config), JavaSource)
    # the process that validates would start its JVM itself, without a limit
    assert registry.built_in_module(f"{package}.{name}") is None
    assert registry.find("PostgresCdcSource") is PostgresCdcSource


def test_a_version_that_is_not_installed_is_named_with_those_that_are(
    registry: PluginRegistry,
) -> None:
    config = {"connector.class": _NAME, "connector.plugin.version": "2.0"}
    with pytest.raises(PluginNotFoundError, match=r"in a version 2\.0, but in 1\.0, 1\.1"):
        registry.find_of(config)


def test_a_class_that_the_worker_does_not_allow_is_refused(
    registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_JAVA_PLUGINS", "org.other.*")
    with pytest.raises(PluginNotFoundError, match=r"is not allowed.*DROVER_JAVA_PLUGINS"):
        registry.find(_NAME)


def test_a_worker_without_the_host_or_java_names_the_plugin_and_the_remedy(
    registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as context:
        context.setenv("DROVER_JAVA_HOST", str(tmp_path))
        with pytest.raises(PluginNotFoundError, match=r"acme@1\.1 cannot run .*`make java-host`"):
            registry.find(_NAME)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PluginNotFoundError, match=r"acme@1\.1 cannot run .*Java 17 or newer"):
        registry.find(_NAME)


def test_a_class_that_no_plugin_has_is_unknown(registry: PluginRegistry) -> None:
    with pytest.raises(PluginNotFoundError, match="drover plugin add"):
        registry.find("java:org.acme.None")
    with pytest.raises(PluginNotFoundError, match="is installed"):
        registry.find("org.acme.None")


def test_a_login_module_that_runs_code_is_a_violation(registry: PluginRegistry) -> None:
    module = "com.sun.security.auth.module.JndiLoginModule required;"
    texts = {"history.producer.sasl.jaas.config": module, "url": "a"}
    (violation,) = registry.find(_NAME).validate({CONFIG_TEXTS: texts})
    assert violation.field == "history.producer.sasl.jaas.config"
    assert "JndiLoginModule" in violation.description
