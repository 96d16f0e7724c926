"""Classifies errors of databases: an outage, a rejected login, or an error that a wait cannot fix.

Works on the exceptions of psycopg, PyMySQL, sqlite3 and SQLAlchemy without importing them.
"""

import re
from enum import Enum
from typing import Any


class DatabaseFailure(Enum):
    """What an error of a database means for a retry."""

    #: The server does not answer, is busy, starts, ends, or is read-only during a failover.
    OUTAGE = "outage"
    #: The server rejects the user, the password, or sessions of the user.
    LOGIN_REJECTED = "login rejected"
    #: Any other error: of a statement, a right, a name, a setting, a row, or TLS.
    LASTING = "lasting"


#: PostgreSQL's messages for a refused session, which has no SQLSTATE in libpq, and PgBouncer's.
_POSTGRES_LOGINS = re.compile(
    r"authentication failed|no password supplied|role \".*\" does not exist"
    r"|is not permitted to log in|no pg_hba\.conf entry|pg_hba\.conf rejects|no such user"
    r"|requires a valid client certificate|password has expired"
)
_POSTGRES_LASTING = re.compile(
    r"database \".*\" does not exist|no such database|permission denied for database"
    r"|certificate|SSL was required|SSL connection is required|does not support SSL|private key"
    r"|unrecognized configuration parameter|unsupported startup parameter"
    r"|unsupported frontend protocol|to start (walsender|WAL sender)|invalid \S+ value"
)
#: SQLSTATE classes of outages: connection, rollback of a transaction (deadlock), resources,
#: intervention of an operator, the server's operating system.
_POSTGRES_CLASSES = ("08", "40", "53", "57", "58")
_POSTGRES_OUTAGES = frozenset(
    {
        "25006",  # read-only: a failover made this server a standby
        *("25P03", "25P04"),  # the session ended because it waited too long
        *("55006", "55P03"),  # in use, locked
    }
)
#: In the classes above, but not outages: a limit of a setting, the database was dropped, a file of
#: the installation is missing or exists.
_POSTGRES_NO_OUTAGES = frozenset({"53400", "57P04", "58P01", "58P02"})
#: A standby cannot answer what only a primary can; the state 55000 has other meanings too.
_IN_RECOVERY = re.compile(r"recovery is in progress|during recovery")

#: Error numbers of MySQL and MariaDB.
_MYSQL_LOGINS = frozenset(
    {
        *(1045, 1698),  # access denied
        1130,  # the host may not connect
        *(1820, 1862),  # the password has expired
        *(3118, 4151),  # the account is locked
    }
)
_MYSQL_OUTAGES = frozenset(
    {
        *(1040, 1203, 1226),  # too many connections: of the server, of the user
        *(1021, 1114),  # no room
        *(1037, 1038, 1041, 1135),  # no memory, no thread
        1047,  # a node of a Galera cluster that is not ready
        1053,  # the server shuts down
        1129,  # the host is blocked after failed connections
        *(1152, 1158, 1159, 1160, 1161, 1184),  # the network between client and server
        *(1180, 3101),  # a commit that the cluster rejected
        *(1205, 1213),  # locks
        *(1317, 1927, 1969, 3024),  # interrupted, killed, out of time
        *(1792, 1836),  # read-only: a failover made this server a replica
    }
)
#: --read-only, among other options.
_MYSQL_OPTION = 1290
#: Errors of the client, 2000 to 2999, are outages except these: a character set, TLS that is
#: required or fails, a method of authentication.
_MYSQL_CLIENT_LASTING = frozenset({2019, 2026, 2049, 2054, 2058, 2059, 2060, 2061})
_MYSQL_TLS = re.compile(r"\[SSL|certificate|SSL is required|doesn't support SSL")

#: SQLite's names of errors, by their starts: in use, no room, not accessible, a failed read or
#: write of the disk.
_SQLITE_OUTAGES = re.compile(r"SQLITE_(BUSY|LOCKED|FULL|CANTOPEN|IOERR|PROTOCOL)")
_SQLITE_TEXTS = ("locked", "busy", "unable to open", "disk is full")
#: DB-API names of classes whose errors can be outages.
_OPERATIONAL = ("OperationalError", "InterfaceError")


def database_failure(error: BaseException) -> DatabaseFailure | None:
    """What an error of psycopg, PyMySQL, sqlite3, or of SQLAlchemy around one of them means.

    Returns:
        None if it is no error of these libraries.
    """
    original = getattr(error, "orig", None)
    if not isinstance(original, BaseException):
        return _of_driver(error, is_operational=_is_operational(error))
    is_operational = _is_operational(error) or _is_operational(original)
    found = _of_driver(original, is_operational=is_operational)
    if getattr(error, "connection_invalidated", False) is True:
        return _stronger(found, DatabaseFailure.OUTAGE)
    return found


def _stronger(found: DatabaseFailure | None, default: DatabaseFailure) -> DatabaseFailure:
    """A rejected login also invalidates the connection."""
    return found if found is DatabaseFailure.LOGIN_REJECTED else default


def _of_driver(error: BaseException, *, is_operational: bool) -> DatabaseFailure | None:
    package = _package(error)
    if package.startswith("psycopg"):
        return _of_postgres(error, is_operational=is_operational)
    if package == "sqlite3":
        return _of_sqlite(error)
    has_number = bool(error.args) and isinstance(error.args[0], int)
    if package in ("pymysql", "MySQLdb") or (is_operational and has_number):
        return _of_mysql(error, is_operational=is_operational)
    return None


def _package(error: BaseException) -> str:
    for each in type(error).__mro__:
        package = each.__module__.partition(".")[0]
        if package in ("psycopg", "psycopg2", "pymysql", "MySQLdb", "sqlite3"):
            return package
    return ""


def _of_postgres(error: BaseException, *, is_operational: bool) -> DatabaseFailure:
    state: Any = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if not isinstance(state, str):
        return _of_session(error) if is_operational else DatabaseFailure.LASTING
    if state.startswith("28"):
        return DatabaseFailure.LOGIN_REJECTED
    if state in _POSTGRES_NO_OUTAGES:
        return DatabaseFailure.LASTING
    passes = state.startswith(_POSTGRES_CLASSES) or state in _POSTGRES_OUTAGES
    if passes or (state == "55000" and _IN_RECOVERY.search(str(error))):
        return DatabaseFailure.OUTAGE
    return DatabaseFailure.LASTING


def _of_session(error: BaseException) -> DatabaseFailure:
    text = str(error)
    if _POSTGRES_LOGINS.search(text):
        return DatabaseFailure.LOGIN_REJECTED
    return DatabaseFailure.LASTING if _POSTGRES_LASTING.search(text) else DatabaseFailure.OUTAGE


def _of_mysql(error: BaseException, *, is_operational: bool) -> DatabaseFailure:
    number, text = error.args[0] if error.args else None, str(error)
    if not isinstance(number, int) or not is_operational:
        return DatabaseFailure.LASTING
    if number in _MYSQL_LOGINS:
        return DatabaseFailure.LOGIN_REJECTED
    is_of_client = number == 0 or 2000 <= number < 3000
    if is_of_client and number not in _MYSQL_CLIENT_LASTING and not _MYSQL_TLS.search(text):
        return DatabaseFailure.OUTAGE
    is_read_only = number == _MYSQL_OPTION and "read-only" in text.replace("_", "-")
    outage = number in _MYSQL_OUTAGES or is_read_only
    return DatabaseFailure.OUTAGE if outage else DatabaseFailure.LASTING


def _of_sqlite(error: BaseException) -> DatabaseFailure:
    name = getattr(error, "sqlite_errorname", None)
    if isinstance(name, str):
        passes = _SQLITE_OUTAGES.match(name) is not None
    else:
        passes = any(each in str(error) for each in _SQLITE_TEXTS)
    return DatabaseFailure.OUTAGE if passes else DatabaseFailure.LASTING


def _is_operational(error: BaseException) -> bool:
    return any(each.__name__ in _OPERATIONAL for each in type(error).__mro__)
