"""Connections to MySQL and MariaDB: encryption, and trusted certificates."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from drover.connectors.jdbc.database import parse_address
from tests.databases.test_jdbc_validation import faults
from tests.support.certificates import Authority, issue
from tests.support.mariadb import MariaDb

BASE = {"connector.class": "JdbcSource", "name": "c", "mode": "bulk", "topic.prefix": "db-"}


def settings(server: MariaDb, host: str = "127.0.0.1", **parameters: str) -> dict[str, str]:
    url = f"jdbc:{server.kind}://{host}:{server.port}/{server.database}?{urlencode(parameters)}"
    return {**BASE, **server.settings, "connection.url": url}


def cipher(config: Mapping[str, str]) -> str:
    """A connection's cipher; empty without encryption."""
    given = (config["connection.url"], config["connection.user"], config["connection.password"])
    with parse_address(*given).connected() as connection:
        row = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").one()
        return str(row[1])


@pytest.mark.parametrize("mode", [None, "PREFERRED", "REQUIRED", "trust"])
def test_a_connection_is_encrypted(server: MariaDb, mode: str | None) -> None:
    assert cipher(settings(server, **({"sslMode": mode} if mode else {})))


@pytest.mark.parametrize("parameters", [{"sslMode": "DISABLED"}, {"useSSL": "false"}])
def test_a_connection_is_plain_where_that_is_asked_for(
    server: MariaDb, parameters: dict[str, str]
) -> None:
    assert cipher(settings(server, **parameters)) == ""


@pytest.mark.parametrize("name", ["ssl_ca", "serverSslCert"])
def test_a_server_is_known_by_its_certificate_and_name(server: MariaDb, name: str) -> None:
    trusting = {name: server.tls.ca}
    server.execute("CREATE TABLE items (id INTEGER)")
    assert faults(settings(server, **trusting)) == {}
    assert faults(settings(server, sslMode="VERIFY_IDENTITY", **trusting)) == {}
    found = faults(settings(server, "localhost", **trusting))
    assert list(found) == ["connection.url"]
    assert "certificate is not valid for 'localhost'" in found["connection.url"]
    assert faults(settings(server, "localhost", sslMode="verify-ca", **trusting)) == {}


@pytest.mark.parametrize("mode", ["VERIFY_CA", "VERIFY_IDENTITY", "verify-full"])
def test_a_server_that_nobody_vouches_for_is_not_logged_in_at(
    server: MariaDb, tmp_path: Path, mode: str
) -> None:
    other = issue(tmp_path, Authority.make())
    for trusting in ({"ssl_ca": other.ca}, {}):
        found = faults(settings(server, sslMode=mode, **trusting))
        assert list(found) == ["connection.url"]
        assert "certificate verify failed" in found["connection.url"]


def test_a_user_may_need_a_certificate(server: MariaDb) -> None:
    server.execute(
        "CREATE TABLE items (id INTEGER)",
        "CREATE USER IF NOT EXISTS known@'127.0.0.1' IDENTIFIED BY 's' REQUIRE X509",
        "GRANT SELECT ON items TO known@'127.0.0.1'",
    )
    login = {"connection.user": "known", "connection.password": "s"}
    assert "Access denied" in str(faults({**settings(server), **login}))
    own = {"ssl_cert": server.tls.cert, "ssl_key": server.tls.key}
    assert faults({**settings(server, **own), **login}) == {}


def test_a_file_that_is_not_there_is_named(server: MariaDb) -> None:
    found = faults(settings(server, ssl_ca="/nowhere/ca.pem"))
    assert list(found) == ["connection.url"]
    assert "/nowhere/ca.pem: No such file" in found["connection.url"]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("sslMode=maybe", "sslMode must be one of DISABLED, PREFERRED, REQUIRED, VERIFY_CA"),
        ("ssl_key=/a.pem", "ssl_key needs ssl_cert"),
    ],
)
def test_parameters_that_say_nothing(parameters: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_address(f"jdbc:mysql://db/shop?{parameters}", None, None)
