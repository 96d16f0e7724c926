"""Which settings of client libraries connectors may set, by policy."""

import pytest

from drover.policy.client_setting_lists import Library
from drover.policy.client_settings import (
    POLICY_VARIABLE,
    OverridePolicy,
    client_setting_faults,
    servers_in,
)
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE

KAFKA, ICEBERG = Library.LIBRDKAFKA, Library.PYICEBERG
NONE, ALLOWLIST, ALL = OverridePolicy


@pytest.fixture(autouse=True)
def roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, "/files")


def test_listed_settings_are_allowed() -> None:
    given = {"bootstrap.servers": "k:9092", "fetch.min.bytes": "1", "sasl.password": "x"}
    assert client_setting_faults(KAFKA, given, ALLOWLIST) == []
    assert client_setting_faults(KAFKA, given, ALL) == []


def test_none_allows_essential_settings_only() -> None:
    given = {"bootstrap.servers": "k:9092", "fetch.min.bytes": "1", "sasl.password": "x"}
    ((name, fault),) = client_setting_faults(KAFKA, given, NONE)
    assert name == "fetch.min.bytes"
    assert "DROVER_CLIENT_OVERRIDE_POLICY=none" in fault


def test_unlisted_settings_need_the_policy_all() -> None:
    given = {"statistics.interval.ms": "1000"}
    ((_, fault),) = client_setting_faults(KAFKA, given, ALLOWLIST)
    assert "administrator can allow it with DROVER_CLIENT_OVERRIDE_POLICY=all" in fault
    assert client_setting_faults(KAFKA, given, ALL) == []


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("plugin.library.paths", "/files/evil", "names code"),
        ("Plugin.Library.Paths", "/files/evil", "names code"),
        ("new.kinit.cmd", "id", "names a command"),
        ("group.id", "connect-other", "is set by the connector"),
        ("sasl.kerberos.keytab", "/files/a", "selects an identity"),
        ("transactional.id", "drover-x", "is set by the connector"),
        ("some.new.callback", "x", "names code"),
        ("some.endpoint", "x", "names another server"),
        ("new.thing", "http://other/", "names another server"),
        ("new.thing", "/etc/passwd", "must be below /files"),
        ("new.file", "secret", "must be an absolute path"),
    ],
)
def test_the_policy_all_still_rejects(name: str, value: str, part: str) -> None:
    ((_, fault),) = client_setting_faults(KAFKA, {name: value}, ALL)
    assert part in fault


def test_the_policy_all_passes_files_below_the_roots() -> None:
    assert client_setting_faults(KAFKA, {"new.file": "/files/a"}, ALL) == []


@pytest.mark.parametrize(
    ("library", "name"),
    [
        (KAFKA, "ssl.key.location"),
        (KAFKA, "ssl.ca.location"),
        (KAFKA, "ssl.truststore.location"),
        (Library.LIBPQ, "sslkey"),
        (Library.PYMYSQL, "ssl_ca"),
        (Library.OBSTORE, "service_account_path"),
        (Library.REGISTRY, "ssl.ca.location"),
    ],
)
@pytest.mark.parametrize("policy", OverridePolicy)
def test_files_must_be_below_the_roots(library: Library, name: str, policy: OverridePolicy) -> None:
    assert client_setting_faults(library, {name: "/files/a.pem"}, policy) == []
    ((_, fault),) = client_setting_faults(library, {name: "/etc/ssl/key.pem"}, policy)
    assert "must be below /files (DROVER_FILE_ROOTS of the worker" in fault


def test_a_key_of_an_openssl_engine_is_no_path() -> None:
    ((_, fault),) = client_setting_faults(Library.LIBPQ, {"sslkey": "engine:key"}, ALLOWLIST)
    assert "must be an absolute path" in fault


def test_servers_are_checked_by_the_policy_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "k:9092,login.example.com")
    given = {
        "bootstrap.servers": "k:9092",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    }
    assert client_setting_faults(KAFKA, given, ALLOWLIST) == []
    given["sasl.oauthbearer.token.endpoint.url"] = "https://evil.example.com/token"
    ((name, fault),) = client_setting_faults(KAFKA, given, ALLOWLIST)
    assert name == "sasl.oauthbearer.token.endpoint.url"
    assert HOSTS_VARIABLE in fault


def test_metadata_addresses_are_rejected() -> None:
    given = {"s3.endpoint": "http://169.254.169.254/latest"}
    ((_, fault),) = client_setting_faults(ICEBERG, given, ALLOWLIST)
    assert "must not call" in fault


def test_no_message_has_a_part_of_a_connection_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "a.example.com")
    text = "AccountName=a;AccountKey=SECRET==;BlobEndpoint=http://127.0.0.1:10000/a"
    ((_, fault),) = client_setting_faults(ICEBERG, {"adls.connection-string": text}, ALLOWLIST)
    assert "SECRET" not in fault
    assert "127.0.0.1:10000" in fault
    text = "AccountName=a;AccountKey=SECRET=="
    assert client_setting_faults(ICEBERG, {"adls.connection-string": text}, ALLOWLIST) == []


def test_servers_in_values() -> None:
    assert list(servers_in("a:1, [::1]:2,c")) == [("a", 1), ("::1", 2), ("c", 0)]
    assert list(servers_in("https://a/x")) == [("a", 443)]
    assert list(servers_in('{"gcs_base_url": "http://127.0.0.1:4443"}')) == [("127.0.0.1", 4443)]
    assert list(servers_in("postgresql+psycopg://u:p@db:5432/n")) == [("db", 5432)]


def test_the_policy_is_that_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OverridePolicy.of_worker({}) is ALLOWLIST
    monkeypatch.setenv(POLICY_VARIABLE, "all")
    assert client_setting_faults(KAFKA, {"statistics.interval.ms": "1"}) == []
