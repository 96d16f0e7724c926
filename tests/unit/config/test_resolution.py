"""Placeholders in configs: which are replaced, which stay, and the errors."""

from collections.abc import Collection, Mapping

import pytest

from drover.config.providers import ConfigData, ConfigProvider, ConfigProviderError
from drover.config.resolution import (
    ConfigResolver,
    only_placeholder_of,
    placeholder_providers,
    with_placeholders,
)
from drover.errors import InvalidArgumentError


class Vault(ConfigProvider):
    """Has some secrets; the path "broken" raises, "short" has a TTL of one second."""

    values: Mapping[str, str] = {"password": "hunter22", "user": "ann", "empty": "", "p": "x1"}

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        (key,) = keys
        self.asked.append((path, key))
        if path == "broken":
            raise RuntimeError("the password is hunter22")
        if path == "refused":
            raise ConfigProviderError("not for you")
        ttl_ms = {"short": 1_000, "long": 9_000}.get(path)
        return ConfigData({k: v for k, v in self.values.items() if k == key}, ttl_ms)


@pytest.fixture
def vault() -> Vault:
    return Vault()


@pytest.fixture
def resolver(vault: Vault) -> ConfigResolver:
    return ConfigResolver({"vault": {}}, make=lambda _name, _settings: vault)


def test_placeholders_become_values_wherever_they_stand(resolver: ConfigResolver) -> None:
    config = {
        "a": "${vault:/kv/db:password}",
        "b": "jdbc://${vault:user}:${vault:/kv/db:password}@db",
        "c": "${vault::empty}!",
        "d": "plain",
    }
    resolution = resolver.resolve(config, "c")
    assert not resolution.faults
    assert resolution.config == {
        "a": "hunter22",
        "b": "jdbc://ann:hunter22@db",
        "c": "!",
        "d": "plain",
    }
    assert resolution.raw == config
    assert resolution.secrets["hunter22"] == "${vault:/kv/db:password}"


def test_the_path_ends_at_the_last_colon(resolver: ConfigResolver, vault: Vault) -> None:
    resolver.resolve({"a": "${vault:arn:aws:secret:password}"}, "c")
    assert vault.asked == [("arn:aws:secret", "password")]


@pytest.mark.parametrize(
    "text",
    [
        *("${topic}-${timestamp}", "$1", "${", "${vault", "$ {vault:a}", "${}", "${:key}"),
        *("${vault", "a ${1:b}", "{vault:a}", "$vault:a", "%{vault:a}"),
    ],
)
def test_what_is_no_placeholder_stays(resolver: ConfigResolver, text: str) -> None:
    resolution = resolver.resolve({"a": text}, "c")
    assert (resolution.config, resolution.faults) == ({"a": text}, ())


def test_a_value_is_looked_up_once_and_never_resolved_again(
    resolver: ConfigResolver, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Vault, "values", {"nested": "${vault:nested}"})
    resolution = resolver.resolve({"a": "${vault:nested}", "b": "${vault:nested}"}, "c")
    assert set(resolution.config.values()) == {"${vault:nested}"}
    assert vault.asked == [("", "nested")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${vault:missing}", "the provider has no such value"),
        ("${vault:refused:password}", "not for you"),
        ("${vault:broken:password}", "the provider raised RuntimeError"),
        ("${file:/x:y}", "this worker has no config provider 'file'"),
        ("${env:HOME}", "this worker has no config provider 'env'"),
        ("a ${secrets-2:kv/x:y}", "this worker has no config provider 'secrets-2'"),
        ("${timestamp:yyyy}", "this worker has no config provider 'timestamp'"),
    ],
)
def test_faults_name_the_setting_and_the_placeholder_and_no_value(
    resolver: ConfigResolver, text: str, told: str
) -> None:
    resolution = resolver.resolve({"a": text, "b": "${vault:user}", "c": "${vault:missing}"}, "c")
    fault, *_, last = resolution.faults
    assert (fault.field, last.field) == ('config["a"]', 'config["c"]')
    assert text.removeprefix("a ") in fault.description
    assert told in fault.description
    assert "hunter22" not in fault.description
    assert resolution.config == {"a": text, "b": "ann", "c": "${vault:missing}"}
    with pytest.raises(InvalidArgumentError) as caught:
        resolution.require_whole()
    assert len(caught.value.violations) == 2


def test_placeholders_of_unknown_providers_stay_text_where_nothing_reads_them(
    resolver: ConfigResolver,
) -> None:
    resolution = resolver.resolve({"note": "${nope:a}", "b": "${vault:user}"}, "c")
    assert resolution.require_whole({"note"}).config == {"note": "${nope:a}", "b": "ann"}
    for undefined in ((), ("b",)):
        with pytest.raises(InvalidArgumentError):
            resolution.require_whole(undefined)
    missing = resolver.resolve({"note": "${vault:missing}"}, "c")
    with pytest.raises(InvalidArgumentError):
        missing.require_whole({"note"})


def test_a_provider_that_cannot_be_set_up_is_told_and_tried_again() -> None:
    attempts: list[str] = []

    def make(name: str, settings: Mapping[str, str]) -> ConfigProvider:
        attempts.append(name)
        if len(attempts) == 1:
            raise ConfigProviderError("no address")
        return Vault()

    resolver = ConfigResolver({"vault": {}}, make=make)
    (fault,) = resolver.resolve({"a": "${vault:user}"}, "c").faults
    assert "the setup of config provider 'vault' failed: no address" in fault.description
    assert resolver.resolve({"a": "${vault:user}"}, "c").config == {"a": "ann"}


@pytest.mark.parametrize(
    "setting", ["tasks.max", "connector.class", "name", "consumer.override.group.id", "restart.x"]
)
def test_what_workers_read_themselves_cannot_come_from_a_provider(
    resolver: ConfigResolver, setting: str
) -> None:
    (fault,) = resolver.resolve({setting: "${vault:p}"}, "c").faults
    assert "write its value" in fault.description


@pytest.mark.parametrize(
    "text", ["${" * 150_000, "${" * 150_000 + "}", "${vault" * 50_000, "${vault:" * 50_000]
)
def test_texts_that_only_begin_like_placeholders_stay(resolver: ConfigResolver, text: str) -> None:
    assert resolver.resolve({"a": text}, "c").config == {"a": text}
    assert placeholder_providers(text) == set()


def test_a_placeholder_may_follow_a_text_that_only_begins_like_one(
    resolver: ConfigResolver,
) -> None:
    found = resolver.resolve({"a": "${b} ${vault:db:user} ${vault"}, "c").config["a"]
    assert found.startswith("${b} ")
    assert "vault:db" not in found


def test_the_shortest_time_counts(resolver: ConfigResolver) -> None:
    assert resolver.resolve({"a": "${vault:user}"}, "c").ttl_ms is None
    both = {"a": "${vault:long:user}", "b": "${vault:short:user}", "c": "${vault:user}"}
    assert resolver.resolve(both, "c").ttl_ms == 1_000


def test_task_configs_get_their_placeholders_back(resolver: ConfigResolver) -> None:
    resolution = resolver.resolve(
        {"url": "jdbc://${vault:user}:${vault:password}@db", "port": "${vault:p}", "topic": "t"},
        "c",
    )
    made = {"url": "jdbc://ann:hunter22@db", "port": "x1", "topic": "x1", "query": "a hunter22 b"}
    assert resolution.unresolved(made) == {
        "url": "jdbc://${vault:user}:${vault:password}@db",
        "port": "${vault:p}",
        "topic": "x1",
        "query": "a ${vault:password} b",
    }


def test_longer_values_are_hidden_first() -> None:
    secrets = {"hunter": "${a:b}", "hunter22": "${a:c}", "ann": "${a:d}"}
    assert with_placeholders("ann: hunter22, hunter", secrets) == "ann: ${a:c}, ${a:b}"


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("${vault:/kv:key}", True),
        ("${vault:key}", True),
        ("x${vault:key}", False),
        ("${other:key}", False),
        ("${vault:a}${vault:b}", False),
        ("s3cret", False),
    ],
)
def test_what_is_a_placeholder_and_nothing_else(text: str, only: bool) -> None:
    assert only_placeholder_of(text, {"vault"}) is only


@pytest.mark.parametrize(
    ("patterns", "connector", "allowed"),
    [
        (None, "anything", True),
        ("*", "anything", True),
        ("orders-*", "orders-1", True),
        ("orders-*", "my-orders-1", False),
        ("orders-*, b?", "b1", True),
        ("orders-*", "", False),
        ("orders-*", "Orders-1", False),
    ],
)
def test_a_provider_is_limited_to_connectors(
    vault: Vault, patterns: str | None, connector: str, allowed: bool
) -> None:
    settings = {} if patterns is None else {"connectors": patterns}
    resolver = ConfigResolver({"vault": settings}, make=lambda _name, _settings: vault)
    resolution = resolver.resolve({"a": "${vault:user}"}, connector)
    if allowed:
        assert (resolution.config, resolution.faults) == ({"a": "ann"}, ())
    else:
        (fault,) = resolution.faults
        assert f"connector {connector!r} may not use config provider 'vault'" in fault.description
        assert "DROVER_CONFIG_PROVIDERS limits to orders-*" in fault.description
        assert vault.asked == []


@pytest.mark.parametrize("setting", ["config.providers", "config.providers.vault.class"])
def test_a_connector_defines_no_providers(resolver: ConfigResolver, setting: str) -> None:
    (fault,) = resolver.resolve({setting: "vault", "config.provider": "x"}, "c").faults
    assert fault.field == f'config["{setting}"]'
    assert "DROVER_CONFIG_PROVIDERS" in fault.description
