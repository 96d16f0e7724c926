"""Settings of client libraries that connectors must not pass: databases, stores, registries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from drover.connector import Password
from drover.connector.settings import validate_config
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.storage.object_store import ObjectStoreError, check_place, place_of
from drover.connectors.http.source import HttpSource
from drover.connectors.jdbc.database import parse_address
from drover.connectors.jdbc.sink import JdbcSink
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.lakehouse.checked_files import CheckedFileIO
from drover.connectors.postgres.source import PostgresCdcSource
from drover.convert.registered.settings import registry_settings
from drover.policy.client_setting_lists import Library
from drover.policy.client_settings import OverridePolicy, client_setting_faults
from drover.policy.egress import HOSTS_VARIABLE, ForbiddenHostError
from drover.policy.files import ROOTS_VARIABLE
from tests.support.http_api import Reply, running_api

PG, MYSQL = "jdbc:postgresql://127.0.0.1:1/d?", "jdbc:mysql://127.0.0.1:1/d?"


@pytest.fixture(autouse=True)
def roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, "/files")


def faults(connector: type[Any], **config: str) -> dict[str, str]:
    raw = {"name": "a-x", "connector.class": connector.__name__, **config}
    return {
        each.key.name: each.errors[0] for each in validate_config(connector, raw) if each.errors
    }


@pytest.mark.parametrize("connector", [JdbcSource, JdbcSink])
@pytest.mark.parametrize(
    "url",
    [
        f"{PG}service=admin",
        f"{PG}passfile=/certs/pgpass",
        f"{PG}servicefile=/files/pg_service.conf",
        f"{PG}hostaddr=169.254.169.254",
        f"{PG}host=/var/run/postgresql",
        f"{PG}plugin=os",
        f"{PG}sslkeylogfile=/files/keys",
        f"{PG}sslrootcert=/etc/passwd",
        f"{PG}sslcert=/certs/service.pem",
        f"{PG}sslkey=/certs/service-key.pem",
        f"{PG}sslkey=engine:key",
        f"{PG}sslkey=/files/../certs/service-key.pem",
        f"{MYSQL}read_default_file=/etc/mysql/my.cnf",
        f"{MYSQL}local_infile=1",
        f"{MYSQL}init_command=DROP+TABLE+a",
        f"{MYSQL}plugin_dir=/files",
        f"{MYSQL}auth_plugin_map=x",
        f"{MYSQL}unix_socket=/run/mysqld.sock",
        f"{MYSQL}plugin=os",
        f"{MYSQL}ssl_ca=/etc/passwd",
        f"{MYSQL}serverSslCert=/etc/passwd",
        f"{MYSQL}sslMode=required&ssl_cert=/certs/service.pem&ssl_key=/certs/service-key.pem",
    ],
)
@pytest.mark.parametrize("policy", OverridePolicy)
def test_a_database_url_must_not_name_code_files_or_identities(
    connector: type[Any], url: str, policy: OverridePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_CLIENT_OVERRIDE_POLICY", policy)
    found = faults(connector, **{"connection.url": url, "topic.prefix": "a-", "topics": "a"})
    assert "connection.url" in found
    with pytest.raises(ValueError, match=r"unsupported parameter|its parameter|form"):
        parse_address(url, None, None)


def test_documented_parameters_are_allowed() -> None:
    parse_address(f"{PG}sslmode=verify-full&sslrootcert=/files/ca.pem&options=-c%20a.b=1", "u", "p")
    parse_address(f"{PG}sslrootcert=system&ApplicationName=x", "u", "p")
    parse_address(f"{MYSQL}sslMode=VERIFY_CA&ssl_ca=/files/ca.pem&charset=utf8mb4", "u", "p")


CDC = {
    "database.hostname": "127.0.0.1",
    "database.user": "u",
    "database.dbname": "d",
    "topic.prefix": "a",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database.sslkey", "/certs/service-key.pem"),
        ("database.sslkey", "engine:key"),
        ("database.sslcert", "/certs/service.pem"),
        ("database.sslrootcert", "/etc/passwd"),
        ("database.hostname", "/var/run/postgresql"),
        ("database.hostname", "@postgres"),
        ("database.hostname", "a,/var/run/postgresql"),
    ],
)
def test_change_data_capture_must_not_name_files_or_sockets(name: str, value: str) -> None:
    assert name in faults(PostgresCdcSource, **{**CDC, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store.url", "http://169.254.169.254/latest/meta-data/iam/security-credentials"),
        ("store.url", "http://169.254.169.254\\@127.0.0.1:9000"),
        ("store.url", "http://169.254.169.254@127.0.0.1:9000"),
        ("store.url", "http://169.254.169.254."),
        ("gcs.credentials.path", "/certs/google.json"),
        ("gcs.credentials.json", r'{"gcs_base_url": "http:\/\/169.254.169.254"}'),
        ("gcs.credentials.json", r'{"gcs_base_url": "\u0068ttp://169.254.169.254"}'),
        ("gcs.credentials.json", '{"gcs_base_url": "http://169.254.169.254", "private_key": "S"}'),
    ],
)
def test_a_store_must_not_name_forbidden_servers_and_files(name: str, value: str) -> None:
    own = {"path": "gs://b/x", "topic": "t", "format": "text", name: value}
    found = faults(FilesSource, **own)
    assert name in found
    assert "private_key" not in found[name]


@pytest.mark.parametrize("address", ["http://169.254.169.254", "http://169.254.169.254\\\\@a"])
def test_a_login_in_a_file_must_not_name_forbidden_servers(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path))
    login = tmp_path / "login.json"
    login.write_text(f'{{"gcs_base_url": "{address}"}}')
    place = place_of("gs://b/x", {"gcs.credentials.path": str(login)})
    with pytest.raises(ObjectStoreError, match=HOSTS_VARIABLE):
        check_place(place)


@pytest.mark.parametrize("form", ["{}\\@localhost:1", "{}@localhost:1", "{}%2f@localhost:1"])
def test_a_table_must_not_be_in_a_store_that_was_not_checked(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyArrow finds the host before the @, and a parser by the standard after it."""
    monkeypatch.setenv(HOSTS_VARIABLE, "localhost")
    with running_api(lambda _: Reply([])) as canary:
        files = CheckedFileIO({"s3.endpoint": form.format(canary.url)})
        with pytest.raises(ForbiddenHostError, match="clients read different hosts"):
            files.new_input("s3://bucket/file").exists()
        assert canary.requests == []


def test_the_default_address_of_azure_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "localhost")
    files = CheckedFileIO({"adls.account-name": "acme"})
    with pytest.raises(
        ForbiddenHostError, match=r"acme\.blob\.core\.windows\.net:443 is not a host"
    ):
        files.new_input("abfs://container/file").exists()


STORE: dict[str, Any] = {
    **dict.fromkeys(("store.url", "s3.region", "aws.access.key.id"), "x"),
    **dict.fromkeys(("aws.secret.access.key", "aws.session.token"), Password("x")),
    "gcs.credentials.path": "/files/x",
    "gcs.credentials.json": Password("x"),
    "azblob.account.name": "x",
    "azblob.account.key": Password("x"),
    "azblob.sas.token": Password("x"),
}


@pytest.mark.parametrize(("url", "count"), [("s3://b/x", 6), ("gs://b/x", 3), ("az://c/x", 4)])
def test_options_of_stores_are_listed(url: str, count: int) -> None:
    options = dict(place_of(url, STORE).options)
    assert len(options) == count
    assert client_setting_faults(Library.OBSTORE, options, OverridePolicy.ALLOWLIST) == []


def registry_faults(given: Mapping[str, str]) -> dict[str, str]:
    raw = {"schema.registry.url": "http://127.0.0.1:8081", **given}
    found = registry_settings("avro").parse(raw).violations
    return {each.field: each.description for each in found}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema.registry.url", "http://169.254.169.254"),
        ("schema.registry.url", "http://127.0.0.1:8081,http://169.254.169.254"),
        ("bearer.auth.issuer.endpoint.url", "http://169.254.169.254/token"),
        ("schema.registry.ssl.truststore.location", "/etc/passwd"),
        ("schema.registry.ssl.keystore.location", "/certs/service.pem"),
    ],
)
def test_a_registry_must_not_name_forbidden_servers_and_files(name: str, value: str) -> None:
    assert registry_faults({}) == {}
    assert registry_faults({name: value}).keys() == {name}


def test_the_existence_of_forbidden_files_is_not_shown() -> None:
    name = "schema.registry.ssl.truststore.location"
    there, missing = registry_faults({name: "/etc/passwd"}), registry_faults({name: "/etc/nothing"})
    assert there == missing


def test_hosts_of_registries_and_stores_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "api.example.com")
    assert HOSTS_VARIABLE in registry_faults({})["schema.registry.url"]
    own = {"path": "s3://b/x", "topic": "t", "format": "text", "store.url": "http://127.0.0.1:9000"}
    assert HOSTS_VARIABLE in faults(FilesSource, **own)["store.url"]


def test_http_connectors_pass_no_settings_to_their_client() -> None:
    assert HttpSource.other_settings.passed_on == ()
