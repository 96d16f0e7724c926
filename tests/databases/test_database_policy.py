"""Databases at hosts and files that connectors may not access."""

from pathlib import Path

import pytest

from drover.connectors.jdbc.database import DatabaseAddress, parse_address
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE
from tests.databases.test_jdbc_validation import BASE, faults
from tests.databases.test_postgres_cdc_validation import faults as cdc_faults
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres


def test_the_host_is_checked_when_a_connection_opens(
    server: MariaDb | Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.settings["connection.url"].replace("127.0.0.1", "localhost")
    login = (server.settings["connection.user"], server.settings.get("connection.password"))
    address = parse_address(url, *login)
    assert address.host == "localhost"
    with address.connected() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    monkeypatch.setenv(HOSTS_VARIABLE, "other.example")
    with pytest.raises(Exception, match="not a host that connectors may call"):
        address.engine().connect()
    found = faults({**BASE, **server.settings, "connection.url": url})
    assert "not a host that connectors may call" in found["connection.url"]
    monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.0/8,::1")
    with address.engine().connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_a_name_that_cannot_be_resolved_is_told(server: MariaDb | Postgres) -> None:
    url = server.settings["connection.url"].replace("127.0.0.1", "nothing.invalid")
    found = faults({**BASE, **server.settings, "connection.url": url})
    assert "failed to resolve host 'nothing.invalid'" in found["connection.url"]


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_metadata_addresses_are_refused_without_a_connection(kind: str) -> None:
    found = faults({**BASE, "connection.url": f"jdbc:{kind}://169.254.169.254/x"})
    assert "must not call" in found["connection.url"]


def cdc(postgres: Postgres, **changed: str) -> dict[str, str]:
    address = address_of_settings(postgres)
    return {
        "name": "c",
        "connector.class": "PostgresCdcSource",
        "topic.prefix": "p",
        "database.hostname": "localhost",
        "database.port": str(address.port),
        "database.user": address.user or "",
        "database.dbname": address.name or "",
        **changed,
    }


def address_of_settings(postgres: Postgres) -> DatabaseAddress:
    url = postgres.settings
    return parse_address(url["connection.url"], url["connection.user"], None)


def test_the_host_of_captured_changes_is_checked(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("/tmp", "@x", "a,b"):
        told = cdc_faults(cdc(postgres, **{"database.hostname": host}))["database.hostname"]
        assert "must be one host name" in told
    config = cdc(postgres)
    monkeypatch.setenv(HOSTS_VARIABLE, "other.example")
    told = cdc_faults(config)["database.hostname"]
    assert "not a host that connectors may call" in told


def test_files_of_certificates_are_checked_before_they_are_read(
    server: MariaDb | Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path / "root"))
    name = "sslrootcert" if isinstance(server, Postgres) else "ssl_ca"
    told = []
    for path in (tmp_path / "there", tmp_path / "missing"):
        (tmp_path / "there").write_text("")
        url = f"{server.settings['connection.url']}?{name}={path}"
        found = faults({**BASE, **server.settings, "connection.url": url})["connection.url"]
        told.append(found.replace(str(path), ""))
    assert told[0] == told[1]
    assert "must be below" in told[0]


def test_a_database_file_that_became_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    address = parse_address(f"jdbc:sqlite:{root}/a.db", None, None)
    (root / "a.db").symlink_to(tmp_path / "b.db")
    with pytest.raises(Exception, match="leads out of the allowed directories"):
        address.engine().connect()
    assert not (tmp_path / "b.db").exists()
