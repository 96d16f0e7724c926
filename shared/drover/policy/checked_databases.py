"""Makes drivers of databases connect to checked addresses and files only, and limits how long they
wait for a server that is away.

Rejections are the driver's ProgrammingError, which is not retried; a name that cannot be resolved
is its OperationalError, which is.
"""

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drover.policy.egress import AllowedHosts, ForbiddenHostError
from drover.policy.files import check_root, directory_fault

if TYPE_CHECKING:
    import sqlalchemy as sa

_POSTGRES_PORT, _MYSQL_PORT = 5432, 3306
_LIBPQ_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
#: libpq's name of the certificate authorities of the system.
_SYSTEM = "system"
#: MySQL's error number for a failure to connect.
_MYSQL_CONNECT = 2003
#: How long a session may take to open, if its parameters have no limit; a server may accept a
#: connection and never answer.
_CONNECT_TIMEOUT_S = 10
#: Probes of an idle connection, which find a dead host within a minute or two: libpq's parameters,
#: and options of a socket.
_LIBPQ_PROBES = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_SOCKET_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


def libpq_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Libpq's parameters with the checked addresses of the host; TLS still verifies its name.

    Raises:
        psycopg.ProgrammingError: Connectors may not connect to the host, or not read a file.
        psycopg.OperationalError: The host name cannot be resolved.
    """
    import psycopg

    host = str(parameters.get("host") or "localhost")
    if host.startswith(("/", "@")):
        raise psycopg.ProgrammingError("the host must be a name or an address, not a local socket")
    for name in _LIBPQ_FILES:
        path = parameters.get(name)
        fault = directory_fault(str(path)) if path and path != _SYSTEM else None
        if fault is not None:
            raise psycopg.ProgrammingError(f"{name} {fault}")
    addresses = _addresses(psycopg, host, int(parameters.get("port") or _POSTGRES_PORT))
    return {
        **parameters,
        "host": ",".join([host] * len(addresses)),
        "hostaddr": ",".join(addresses),
    }


def restrict_engine(engine: "sa.Engine") -> None:
    """Restrict and limit the connections of an engine for PostgreSQL, MySQL or SQLite."""
    import sqlalchemy as sa

    @sa.event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, arguments: Any, parameters: dict[str, Any]) -> Any:
        if dialect.name == "postgresql":
            limits = {"connect_timeout": _CONNECT_TIMEOUT_S, **_LIBPQ_PROBES}
            parameters.update(libpq_parameters({**limits, **parameters}))
            return None
        if dialect.name == "sqlite":
            try:
                check_root(str(arguments[0]))
            except PermissionError as error:
                raise dialect.loaded_dbapi.ProgrammingError(str(error)) from None
            return None
        return _mysql_connection(parameters)


def _mysql_connection(parameters: Mapping[str, Any]) -> Any:
    """A connection over a socket to a checked address."""
    import pymysql

    timeout_s = parameters.get("connect_timeout") or _CONNECT_TIMEOUT_S
    # with a given socket, the driver limits the handshake only by the limit of reads
    connection = pymysql.connect(**{"read_timeout": timeout_s, **parameters}, defer_connect=True)
    host, port = str(parameters.get("host") or "localhost"), parameters.get("port") or _MYSQL_PORT
    failure: OSError | None = None
    for each in _addresses(pymysql, host, port):
        try:
            found = socket.create_connection((each, port), timeout_s)
        except OSError as error:
            failure = error
            continue
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _SOCKET_PROBES:
            if hasattr(socket, name):  # of Linux
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection.connect(found)
        connection._read_timeout = parameters.get("read_timeout")
        return connection
    text = f"Can't connect to MySQL server on {host!r} ({failure})"
    raise pymysql.OperationalError(_MYSQL_CONNECT, text) from None


def _addresses(driver: Any, host: str, port: int) -> list[str]:
    try:
        return list(AllowedHosts.of_worker().addresses(host, port))
    except ForbiddenHostError as error:
        raise driver.ProgrammingError(str(error)) from None
    except OSError as error:
        text = f"failed to resolve host {host!r}: {error.strerror or error}"
        number = (_MYSQL_CONNECT,) if driver.__name__ == "pymysql" else ()
        raise driver.OperationalError(*number, text) from None
