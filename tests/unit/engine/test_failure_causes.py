"""Outages and rejected credentials are distinguished from errors of the connector itself."""

import socket

import pytest

from drover.connector import CredentialsRejectedError, RetriableError
from drover.connectors.jdbc.database import DatabaseAddress, translated_errors
from drover.connectors.postgres.server import ServerAddress
from drover.connectors.postgres.server import translated_errors as translated_by_server
from drover.java_plugins.wire import Address, JavaHostEndedError
from drover.model.failures import FailureCause
from drover.pipeline import RecordFailedError
from drover_worker.engine.plugins.failure_causes import cause_of_failure

psycopg = pytest.importorskip("psycopg")
sa = pytest.importorskip("sqlalchemy")


def caused(cause: BaseException, error: Exception | None = None) -> Exception:
    error = error or ValueError("the call failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RetriableError("busy"), FailureCause.OUTAGE),
        (caused(RetriableError("busy")), FailureCause.OUTAGE),
        (ConnectionRefusedError(111, "refused"), FailureCause.OUTAGE),
        (caused(TimeoutError("timed out")), FailureCause.OUTAGE),
        (socket.gaierror(-2, "Name or service not known"), FailureCause.OUTAGE),
        (CredentialsRejectedError("no"), FailureCause.CREDENTIALS),
        (ValueError("broken"), FailureCause.PLUGIN),
        (FileNotFoundError(2, "no such file"), FailureCause.PLUGIN),
        (caused(TimeoutError("slow"), RecordFailedError("record t-0@1")), FailureCause.PLUGIN),
    ],
)
def test_cause_of_failure(error: Exception, cause: FailureCause) -> None:
    assert cause_of_failure(error) is cause


def test_the_end_of_a_plugins_jvm_is_the_plugins_failure() -> None:
    """So a plugin that ends its JVM at each start is not restarted forever."""
    with pytest.raises(JavaHostEndedError) as raised:
        Address("/no/such/folder/host.sock", "acme").call("ping")
    assert cause_of_failure(raised.value) is FailureCause.PLUGIN


REJECTED = 'connection failed: FATAL:  password authentication failed for user "drover"'
STARTING = "connection failed: FATAL:  the database system is starting up"
FULL = "connection failed: FATAL:  sorry, too many clients already"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (REJECTED, FailureCause.CREDENTIALS),
        (STARTING, FailureCause.OUTAGE),
        (FULL, FailureCause.OUTAGE),
    ],
)
def test_the_answers_of_postgresql_to_a_session(text: str, cause: FailureCause) -> None:
    server = ServerAddress("h", 5432, "shop", "drover", "")
    with pytest.raises(Exception, match="FATAL") as raised, translated_by_server(server, "reading"):
        raise psycopg.OperationalError(text)
    assert cause_of_failure(raised.value) is cause
    database = DatabaseAddress("postgresql", "h", 5432, "shop", "drover", "")
    with pytest.raises(Exception, match="FATAL") as raised, translated_errors(database, "reading"):
        raise sa.exc.OperationalError("select 1", {}, psycopg.OperationalError(text))
    assert cause_of_failure(raised.value) is cause


def test_a_rejected_password_of_mysql() -> None:
    database = DatabaseAddress("mysql", "h", 3306, "shop", "drover", "")
    with pytest.raises(Exception, match="denied") as raised, translated_errors(database, "reading"):
        raise sa.exc.OperationalError("select 1", {}, Exception(1045, "Access denied for user"))
    assert cause_of_failure(raised.value) is FailureCause.CREDENTIALS
