"""For each connector's system: which errors are outages, rejected credentials, or neither.

The real libraries raise the errors, by refused sockets and by running servers.
"""

import socket
import sqlite3
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pymysql
import pytest
import requests
import sqlalchemy as sa

from drover.connectors.files.storage import object_store
from drover.connectors.files.storage.object_store import ObjectPlace
from drover.connectors.http.client import HttpClient
from drover.connectors.http.settings import HttpSettings
from drover.connectors.jdbc.database import DatabaseAddress
from drover.connectors.jdbc.database import translated_errors as database_errors
from drover.connectors.kafka import cluster
from drover.connectors.lakehouse.iceberg_table import IcebergSettings
from drover.connectors.postgres.server import ServerAddress
from drover.connectors.postgres.server import translated_errors as server_errors
from drover.convert.avro.converter import AvroConverter
from drover.model.failures import FailureCause
from drover.policy import checked_databases
from drover_worker.engine.plugins.failure_causes import cause_of_failure
from tests.databases.test_http_source import HttpRun
from tests.support.addresses import free_ports
from tests.support.certificates import Authority, issue
from tests.support.http_api import Reply, running_api
from tests.support.http_gate import http_gate
from tests.support.mariadb import MariaDb
from tests.support.postgres import PASSWORD, Postgres
from tests.support.s3 import KEY, S3, SECRET

OUTAGE, CREDENTIALS, PLUGIN = FailureCause.OUTAGE, FailureCause.CREDENTIALS, FailureCause.PLUGIN
#: RFC 2606: never resolved.
NOWHERE = "no-such-host.invalid"


def cause_of(call: Callable[[], object]) -> FailureCause:
    """The cause of the error that a call raises."""
    with pytest.raises(Exception) as caught:
        call()
    return cause_of_failure(caught.value)


# Nothing listens, the name is unknown, or the server ends each connection


def jdbc(kind: str, host: str, port: int) -> object:
    address = DatabaseAddress(kind, host, port, "shop", "drover", "x")
    with database_errors(address, "reading"), address.connected() as connection:
        return connection


def capture(host: str, port: int) -> object:
    server = ServerAddress(host, port, "drover", "x", "shop")
    with server_errors(server, "preparing"), server.connected() as connection:
        return connection


def kafka(host: str, port: int) -> object:
    from confluent_kafka import Producer

    told: list[Any] = []
    settings = {"bootstrap.servers": f"{host}:{port}", "error_cb": cluster.noting(told)}
    producer = Producer({**settings, "log_level": 0})
    with cluster.translated_errors("cluster source", told):
        return cluster.topics_of(producer, told)


def http_settings(**config: Any) -> HttpSettings:
    from drover.connector.settings import task_config
    from drover.connectors.http.source import HttpSource

    raw = {"name": "h", "connector.class": "HttpSource", "topic": "t", **config}
    return HttpSettings.of(task_config(HttpSource, raw, {}))


def http_source(host: str, port: int) -> object:
    run = HttpRun(f"http://{host}:{port}/", **{"max.retries": "0"})
    return run.polls(1)


def registry(host: str, port: int, scheme: str = "http", **config: str) -> object:
    settings = {"schema.registry.url": f"{scheme}://{host}:{port}", **config}
    parsed = AvroConverter.config_def().parse(settings).require_valid("c")
    converter = AvroConverter(parsed, is_key=False)

    return converter.decode(pa.array([b"\0\0\0\0\1\2"], pa.binary()), "t")


def objects(host: str, port: int, scheme: str = "http") -> object:
    place = ObjectPlace(
        "s3://bucket",
        (
            ("endpoint", f"{scheme}://{host}:{port}"),
            ("access_key_id", "a"),
            ("secret_access_key", "b"),
        ),
    )
    with object_store.translated_errors(place, "listing"):
        return place.store().list_with_delimiter()


def iceberg_rest(host: str, port: int, scheme: str = "http") -> object:
    properties = (("type", "rest"), ("uri", f"{scheme}://{host}:{port}"))
    return IcebergSettings("lake", properties, ()).opened()


def iceberg_sql(host: str, port: int) -> object:
    uri = f"postgresql+psycopg://drover:x@{host}:{port}/shop"
    properties = (("type", "sql"), ("uri", uri))
    return IcebergSettings("lake", properties, ()).opened()


def own(library: Callable[[str], object]) -> Callable[[str, int], object]:
    return lambda host, port: library(f"http://{host}:{port}/")


SYSTEMS: dict[str, Callable[[str, int], object]] = {
    "JdbcSource and JdbcSink on PostgreSQL": lambda h, p: jdbc("postgresql", h, p),
    "JdbcSource and JdbcSink on MySQL": lambda h, p: jdbc("mysql", h, p),
    "PostgresCdcSource": capture,
    "KafkaSource and KafkaSink": kafka,
    "HttpSource": http_source,
    "schema registry": registry,
    "object stores": objects,
    "IcebergSink with a REST catalogue": iceberg_rest,
    "IcebergSink with an SQL catalogue": iceberg_sql,
    "a plugin with httpx": own(httpx.get),
    "a plugin with requests": own(requests.get),
    "a plugin with urllib": own(urllib.request.urlopen),
    "a plugin with psycopg": lambda h, p: psycopg.connect(host=h, port=p, user="x", dbname="x"),
    "a plugin with PyMySQL": lambda h, p: pymysql.connect(host=h, port=p, user="x"),
}

DATABASES = [each for each in SYSTEMS if "SQL" in each and "plugin" not in each]


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_RETRIES", 0)
    monkeypatch.setattr(cluster, "_TRIES_S", (0.5,))
    monkeypatch.setenv("DROVER_HTTP_ALLOWED_HOSTS", "*")
    object_store._store.cache_clear()


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_a_refused_connection_is_an_outage(system: str) -> None:
    (port,) = free_ports(1)
    assert cause_of(lambda: SYSTEMS[system]("127.0.0.1", port)) is OUTAGE


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_a_name_that_cannot_be_resolved_is_an_outage(system: str) -> None:
    assert cause_of(lambda: SYSTEMS[system](NOWHERE, 5432)) is OUTAGE


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_a_server_that_ends_each_connection_is_an_outage(system: str) -> None:
    with closing_server() as port:
        assert cause_of(lambda: SYSTEMS[system]("127.0.0.1", port)) is OUTAGE


@pytest.mark.parametrize("system", DATABASES)
def test_a_database_that_accepts_connections_and_never_answers_is_an_outage(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_databases, "_CONNECT_TIMEOUT_S", 2)
    monkeypatch.setattr("drover.connectors.jdbc.database.CONNECT_TIMEOUT_S", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert cause_of(lambda: SYSTEMS[system]("127.0.0.1", port)) is OUTAGE


@contextmanager
def closing_server() -> Iterator[int]:
    """A server that accepts connections, and ends them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                try:
                    listening.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            ended.set()
            thread.join()


# HTTP statuses

STATUSES = [
    *((status, OUTAGE) for status in (408, 429, 500, 502, 503, 504)),
    *((status, CREDENTIALS) for status in (401, 403)),
    (404, PLUGIN),
]
OF_HTTP = [
    "HttpSource",
    "schema registry",
    "IcebergSink with a REST catalogue",
    "a plugin with urllib",
]


@pytest.mark.parametrize(
    ("system", "status", "cause"),
    [
        (system, *each)
        for system in OF_HTTP
        for each in STATUSES
        if (system, each[0]) != ("schema registry", 404)  # an unknown schema: the record's error
    ],
)
def test_the_status_of_a_response_decides(system: str, status: int, cause: FailureCause) -> None:
    with running_api(lambda _: Reply(b"", status)) as api:
        port = httpx.URL(api.url).port
        assert port is not None
        assert cause_of(lambda: SYSTEMS[system]("127.0.0.1", port)) is cause


@pytest.mark.parametrize(("status", "cause"), STATUSES)
@pytest.mark.parametrize("get", [httpx.get, requests.get], ids=["httpx", "requests"])
def test_a_plugin_that_checks_the_status_need_not_convert_the_error(
    get: Callable[[str], Any], status: int, cause: FailureCause
) -> None:
    with running_api(lambda _: Reply(b"", status)) as api:
        assert cause_of(lambda: get(api.url).raise_for_status()) is cause


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (Reply({"error": "invalid_client"}, 401), CREDENTIALS),
        (Reply({"error": "invalid_client"}, 400), CREDENTIALS),
        (Reply(b"", 503), OUTAGE),
    ],
)
def test_a_token_server_that_rejects_the_client_rejects_credentials(
    reply: Reply, cause: FailureCause
) -> None:
    with running_api(lambda _: reply) as api:
        settings = http_settings(
            **{
                "http.url": api.url,
                "http.authorization.type": "oauth2",
                "oauth2.access.token.url": api.url,
                "oauth2.client.id": "a",
                "oauth2.client.secret": "b",
            }
        )
        client = HttpClient(settings, api.url)
        assert cause_of(client.log_in) in (cause, PLUGIN if cause is OUTAGE else cause)
        bearer = {
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.issuer.endpoint.url": api.url,
            "bearer.auth.client.id": "a",
            "bearer.auth.client.secret": "b",
            "bearer.auth.scope": "s",
            "bearer.auth.logical.cluster": "l",
            "bearer.auth.identity.pool.id": "i",
        }
        port = httpx.URL(api.url).port or 0
        assert cause_of(lambda: registry("127.0.0.1", port, **bearer)) is cause


# PostgreSQL


def pg(server: Postgres, **changes: Any) -> DatabaseAddress:
    found = DatabaseAddress(
        "postgresql", "127.0.0.1", server.port, server.database, "drover", PASSWORD
    )
    return replace(found, **changes)


def run_sql(address: DatabaseAddress, *statements: str) -> object:
    with database_errors(address, "writing"), address.connected() as connection:
        for each in statements:
            connection.exec_driver_sql(each)
    return None


def run_as_capture(server: Postgres, *statements: str, **changes: Any) -> object:
    address = ServerAddress("127.0.0.1", server.port, "drover", PASSWORD, server.database)
    address = replace(address, **changes)
    with server_errors(address, "preparing"), address.connected() as connection:
        for each in statements:
            connection.execute(each.encode())
    return None


@pytest.fixture
def restricted(postgres: Postgres) -> Iterator[str]:
    """A role that may not have a session."""
    name = f"limited_{postgres.database}"
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' CONNECTION LIMIT 0")
    yield name
    postgres.execute(f"DROP ROLE {name}")


def test_sessions_that_postgresql_refuses(postgres: Postgres, restricted: str) -> None:
    cases = [
        ({"password": "wrong"}, CREDENTIALS),
        ({"user": "nobody_there"}, CREDENTIALS),
        ({"user": restricted, "password": "x"}, OUTAGE),  # too many connections for the role
    ]
    for changes, cause in cases:
        assert cause_of(lambda c=changes: run_sql(pg(postgres, **c))) is cause, changes  # type: ignore[misc]
        assert cause_of(lambda c=changes: run_as_capture(postgres, **c)) is cause, changes  # type: ignore[misc]
    assert cause_of(lambda: run_sql(pg(postgres, name="no_such"))) is PLUGIN
    assert cause_of(lambda: run_as_capture(postgres, database="no_such")) is PLUGIN
    no_tls = (("sslmode", "verify-full"),)
    assert cause_of(lambda: run_sql(pg(postgres, options=no_tls))) is PLUGIN


KILL = "SELECT pg_terminate_backend(pg_backend_pid())"


@pytest.mark.parametrize(
    ("statements", "cause"),
    [
        ([KILL], OUTAGE),
        (["SET statement_timeout = 1", "SELECT pg_sleep(1)"], OUTAGE),
        (["SET TRANSACTION READ ONLY", "CREATE TABLE t (a int)"], OUTAGE),
        (["SELECT * FROM no_such_table"], PLUGIN),
        (["SELEKT 1"], PLUGIN),
        (["SELECT 1/0"], PLUGIN),
        (["SELECT 'x'::int"], PLUGIN),
        (["SELECT no_such_column FROM pg_class"], PLUGIN),
        (["SET work_mem = 'nonsense'"], PLUGIN),
    ],
)
def test_statements_that_postgresql_refuses(
    postgres: Postgres, statements: list[str], cause: FailureCause
) -> None:
    assert cause_of(lambda: run_sql(pg(postgres), *statements)) is cause
    begun = ["BEGIN", *statements]
    assert cause_of(lambda: run_as_capture(postgres, *begun)) is cause

    def by_a_plugin() -> None:
        with postgres.session() as session:
            for each in statements:
                session.execute(each.encode())

    assert cause_of(by_a_plugin) is cause


def test_a_locked_table_of_postgresql_is_an_outage(postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE t (a int)")
    with postgres.session() as session:
        session.execute("LOCK TABLE t")
        waits = ["SET lock_timeout = 1", "SELECT * FROM t"]
        assert cause_of(lambda: run_sql(pg(postgres), *waits)) is OUTAGE


# MariaDB


def my(server: MariaDb, **changes: Any) -> DatabaseAddress:
    found = DatabaseAddress("mysql", "127.0.0.1", server.port, server.database, "drover", PASSWORD)
    return replace(found, **changes)


def test_sessions_that_mariadb_refuses(mariadb: MariaDb) -> None:
    assert cause_of(lambda: run_sql(my(mariadb, password="wrong"))) is CREDENTIALS
    assert cause_of(lambda: run_sql(my(mariadb, name="no_such"))) is PLUGIN
    user = f"one_{mariadb.database}"
    mariadb.execute(
        f"CREATE USER {user} IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1",
        f"GRANT ALL ON {mariadb.database}.* TO {user}",
    )
    limited = my(mariadb, user=user, password="x")
    with limited.connected() as first:
        first.exec_driver_sql("SELECT 1")
        assert cause_of(lambda: run_sql(limited)) is OUTAGE
    mariadb.execute(f"ALTER USER {user} ACCOUNT LOCK")
    assert cause_of(lambda: run_sql(limited)) is CREDENTIALS
    no_tls = (("sslMode", "verify_identity"),)
    assert cause_of(lambda: run_sql(my(mariadb, options=no_tls))) is PLUGIN


@pytest.mark.parametrize(
    ("statements", "cause"),
    [
        (["KILL CONNECTION_ID()"], OUTAGE),
        (["SET STATEMENT max_statement_time=0.01 FOR SELECT SLEEP(5)"], OUTAGE),
        (["SET SESSION TRANSACTION READ ONLY", "CREATE TABLE t (a int)"], OUTAGE),
        (["SELECT * FROM no_such_table"], PLUGIN),
        (["SELEKT 1"], PLUGIN),
        (["SELECT no_such_column FROM information_schema.tables"], PLUGIN),
        (["CREATE TABLE u (a int not null)", "INSERT INTO u VALUES (NULL)"], PLUGIN),
    ],
)
def test_statements_that_mariadb_refuses(
    mariadb: MariaDb, statements: list[str], cause: FailureCause
) -> None:
    assert cause_of(lambda: run_sql(my(mariadb), *statements)) is cause
    engine = sa.create_engine(
        f"mysql+pymysql://drover:{PASSWORD}@127.0.0.1:{mariadb.port}/{mariadb.database}"
    )

    def by_a_plugin() -> None:
        with engine.connect() as connection:
            for each in statements:
                if not each.startswith("CREATE TABLE u"):
                    connection.exec_driver_sql(each)

    assert cause_of(by_a_plugin) is cause
    engine.dispose()


def test_a_replica_that_is_read_only_is_an_outage(mariadb: MariaDb) -> None:
    user = f"writer_{mariadb.database}"
    mariadb.execute(
        f"CREATE USER {user} IDENTIFIED BY 'x'", f"GRANT ALL ON {mariadb.database}.* TO {user}"
    )
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        writer = my(mariadb, user=user, password="x")
        assert cause_of(lambda: run_sql(writer, "CREATE TABLE t (a int)")) is OUTAGE
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")


# SQLite


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        ("INSERT INTO t VALUES (1)", OUTAGE),  # locked
        ("SELECT * FROM no_such_table", PLUGIN),
        ("SELEKT 1", PLUGIN),
    ],
)
def test_statements_that_sqlite_refuses(
    tmp_path: Path, statement: str, cause: FailureCause
) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (a int)")
        other.execute("BEGIN IMMEDIATE" if cause is PLUGIN else "BEGIN EXCLUSIVE")
        address = DatabaseAddress("sqlite", name=str(path))
        waits = "PRAGMA busy_timeout = 1"
        if cause is OUTAGE:

            def by_a_plugin() -> None:
                with closing(sqlite3.connect(path, timeout=0)) as own_connection:
                    own_connection.execute(statement)

            assert cause_of(by_a_plugin) is cause
            return
        assert cause_of(lambda: run_sql(address, waits, statement)) is cause


# Object stores


def test_requests_that_an_object_store_refuses(s3: S3) -> None:
    def listed(**changes: str) -> FailureCause:
        options = {
            "endpoint": s3.endpoint,
            "region": "us-east-1",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "virtual_hosted_style_request": "false",
            **changes,
        }
        url = options.pop("url", "s3://no-such-bucket")
        place = ObjectPlace(url, tuple(options.items()))

        def call() -> None:
            with object_store.translated_errors(place, "listing"):
                place.store().list_with_delimiter()

        return cause_of(call)

    assert listed(access_key_id="wrong") is CREDENTIALS
    assert listed(secret_access_key="wrong") is CREDENTIALS
    assert listed() is PLUGIN, "the bucket does not exist"


OVER_TLS: dict[str, Callable[[int], object]] = {
    "HttpSource": lambda port: HttpRun(f"https://localhost:{port}/").polls(1),
    "schema registry": lambda port: registry("localhost", port, scheme="https"),
    "object stores": lambda port: objects("localhost", port, scheme="https"),
    "IcebergSink with a REST catalogue": lambda port: iceberg_rest(
        "localhost", port, scheme="https"
    ),
    "a plugin with httpx": lambda port: httpx.get(f"https://localhost:{port}"),
    "a plugin with requests": lambda port: requests.get(f"https://localhost:{port}", timeout=5),
    "a plugin with urllib": lambda port: urllib.request.urlopen(f"https://localhost:{port}"),
}


@pytest.mark.parametrize("system", OVER_TLS, ids=str)
def test_a_certificate_that_is_not_trusted_is_no_outage(system: str, tmp_path: Path) -> None:
    files = issue(tmp_path, Authority.make())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with running_api(lambda _: Reply(b"")) as api:
        behind = httpx.URL(api.url).port
        assert behind is not None
        with http_gate(behind, context) as gate:
            port = int(gate.address.rpartition(":")[2].strip("/"))
            assert cause_of(lambda: OVER_TLS[system](port)) is PLUGIN
