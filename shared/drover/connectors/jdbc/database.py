"""How connectors reach a database: URLs as JDBC and SQLAlchemy write them, settings, clock."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from drover.connector import All as AllOf
from drover.connector import (
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    NonEmpty,
    RetriableError,
    Violation,
)
from drover.connectors.jdbc import mysql_tls
from drover.connectors.paths import root_fault
from drover.connectors.postgres.server import MAKE_ROOM, NO_ROOM_STATE

if TYPE_CHECKING:
    import sqlalchemy as sa

URL = "connection.url"
USER = "connection.user"
PASSWORD = "connection.password"
CONNECT_TIMEOUT_S = 10
#: How long what is known of a server is not looked up again: its version, how it quotes names.
_KNOWN_S = 60.0
_GROUP = "Database"

#: SQLAlchemy's drivers, by what a URL begins with.
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "sqlite": "sqlite",
}
#: Parameters of JDBC URLs and what the drivers call them; None for those that change nothing here.
_PARAMETERS: Mapping[str, Mapping[str, str | None]] = {
    "postgresql": {
        "sslmode": "sslmode",
        "sslrootcert": "sslrootcert",
        "sslcert": "sslcert",
        "sslkey": "sslkey",
        "ApplicationName": "application_name",
        "application_name": "application_name",
        "options": "options",
        "target_session_attrs": "target_session_attrs",
        "tcpKeepAlive": None,
        "prepareThreshold": None,
        "reWriteBatchedInserts": None,
        "stringtype": None,
    },
    "mysql": {
        "charset": "charset",
        **mysql_tls.PARAMETERS,
        "serverTimezone": None,
        "allowPublicKeyRetrieval": None,
        "rewriteBatchedStatements": None,
        "useServerPrepStmts": None,
    },
    "sqlite": {},
}
_OF_TLS = frozenset(mysql_tls.PARAMETERS.values())
#: What SQLite says of a file that others use, or that has no room to grow.
_SQLITE_PASSING = ("locked", "busy", "unable to open", "disk is full")
#: What MySQL's driver counts as operational although it will not pass: a right or a table that is
#: missing, a statement that is wrong.
_MYSQL_LASTING = frozenset({1044, 1045, 1049, 1054, 1064, 1142, 1143, 1146, 1227, 1370, 1419})
#: What MySQL and MariaDB refuse a row for and their driver counts as operational: no value for a
#: column without a default, a constraint (two numbers), a value that is none of the type.
_MYSQL_OF_A_ROW = frozenset({1292, 1364, 1366, 3819, 4025})
#: What PostgreSQL refuses a row for beside data and integrity: a key that is there twice, a limit.
_POSTGRES_OF_A_ROW = frozenset({"21000", "54000"})
#: What MySQL calls a disk without room: it may also say that the table is full.
_MYSQL_NO_ROOM = frozenset({1021, 1114})
#: Values in what servers say.
_VALUES = (
    (re.compile(r"(entry|value:?) '.*' for "), r"\1 for "),
    (re.compile(r"""^value ".*" is out"""), "value is out"),
    (re.compile(r""": ".*"$"""), ""),
)
_CLOCKS = {
    "postgresql": "SELECT clock_timestamp()",
    "mysql": "SELECT utc_timestamp(6)",
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
}
EXTRA = (
    "databases need more libraries on the workers: pip install 'drover-connect[jdbc]', then start "
    "them again"
)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a database is and how to log in; may be pickled, shows no password.

    ``kind`` is postgresql, mysql or sqlite; ``options`` are the driver's and those of
    ``mysql_tls``.
    """

    kind: str
    host: str | None = None
    port: int | None = None
    name: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()

    def url(self) -> "sa.URL":
        """The address as SQLAlchemy has it, with the password."""
        import sqlalchemy as sa  # not for those who only look at the settings

        return sa.URL.create(
            _DRIVERS[self.kind],
            username=self.user,
            password=self.password,
            host=self.host,
            port=self.port,
            database=self.name,
            query={name: value for name, value in self.options if name not in _OF_TLS},
        )

    def engine(self) -> "sa.Engine":
        """An engine without a pool: connections are closed when they are given back."""
        import sqlalchemy as sa

        arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
        if self.kind == "sqlite":
            arguments = {"timeout": CONNECT_TIMEOUT_S}
        if self.kind == "mysql":
            try:
                arguments |= mysql_tls.driver_arguments(dict(self.options))
            except ValueError as error:
                raise sa.exc.ArgumentError(str(error)) from None
        return sa.create_engine(
            self.url(), poolclass=sa.NullPool, connect_args=arguments, hide_parameters=True
        )

    @contextmanager
    def connected(self) -> "Iterator[sa.Connection]":
        """A connection for a while; what is not committed is rolled back."""
        engine = _known_engine(self, int(time.monotonic() / _KNOWN_S))
        with engine.connect() as connection:
            yield connection

    def __str__(self) -> str:
        where = f"{self.host or 'localhost'}:{self.port}" if self.port else self.host or ""
        return f"{self.kind}://{where}/{self.name or ''}"


@lru_cache(maxsize=16)
def _known_engine(address: DatabaseAddress, period: int) -> "sa.Engine":
    """One for a while: it knows the server, and statements that it has compiled."""
    del period
    return address.engine()


def parse_address(url: str, user: str | None, password: str | None) -> DatabaseAddress:
    """What a URL and the settings beside it say.

    Raises:
        ValueError: they do not name a database; the message has no password.
    """
    text = url.strip().removeprefix("jdbc:")
    scheme, colon, rest = text.partition(":")
    kind = _DRIVERS.get(scheme.partition("+")[0], "").partition("+")[0]
    if not colon or not kind:
        raise ValueError(
            "must begin with postgresql://, mysql:// or sqlite:// (jdbc: before it may be there)"
        )
    if kind == "sqlite":
        path = rest.removeprefix("//").partition("?")[0]
        path = f"/{path.lstrip('/')}" if rest.startswith("//") else path
        if not path.startswith("/"):
            raise ValueError("must name the file by its absolute path: jdbc:sqlite:/data/a.db")
        fault = root_fault(path)
        if fault is not None:
            raise ValueError(f"{path} {fault}")
        return DatabaseAddress(kind, name=path)
    parts = urlsplit(f"//{rest.removeprefix('//')}")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("its port must be a number up to 65535") from None
    if "," in parts.netloc or not parts.hostname or not parts.path.strip("/"):
        raise ValueError("must be like jdbc:postgresql://host:5432/database")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = _PARAMETERS[kind]
    own_user, own_password = parameters.pop("user", None), parameters.pop("password", None)
    unknown = sorted(parameters.keys() - known.keys())
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no parameter that is known here")
    options = {name: value for key, value in parameters.items() if (name := known[key]) is not None}
    fault = mysql_tls.options_fault(options) if kind == "mysql" else None
    if fault is not None:
        raise ValueError(fault)
    return DatabaseAddress(
        kind,
        host=parts.hostname,
        port=port,
        name=unquote(parts.path.strip("/")),
        user=user or own_user or (unquote(parts.username) if parts.username else None),
        password=password or own_password or (unquote(parts.password) if parts.password else None),
        options=tuple(options.items()),
    )


def _url_fault(url: str) -> str | None:
    try:
        parse_address(url, None, None)
    except ValueError as error:
        return str(error)
    return None


CONNECTION_SETTINGS = ConfigDef(
    ConfigKey(
        URL,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group=_GROUP,
        documentation="The database: jdbc:postgresql://host:5432/name, jdbc:mysql://host:3306/name "
        "or jdbc:sqlite:/path/to/file; without jdbc: too.",
        validator=AllOf(NonEmpty(), Check(_url_fault)),
    ),
    ConfigKey(
        USER,
        ConfigType.STRING,
        default=None,
        importance=Importance.HIGH,
        group=_GROUP,
        documentation="Who logs in.",
    ),
    ConfigKey(
        PASSWORD,
        ConfigType.PASSWORD,
        default=None,
        importance=Importance.HIGH,
        group=_GROUP,
        documentation="The user's password.",
    ),
)


def address_of(config: Mapping[str, Any]) -> DatabaseAddress:
    """The database of a parsed config."""
    password = config[PASSWORD]
    return parse_address(config[URL], config[USER], password.value if password else None)


@contextmanager
def looking_at(address: DatabaseAddress, found: list[Violation]) -> "Iterator[sa.Connection]":
    """A connection for a look at the server; that it cannot be had is a fault in ``found``."""
    try:
        import sqlalchemy as sa
    except ImportError:
        found.append(Violation("connector.class", EXTRA))
        raise LookFailedError from None
    try:
        with address.connected() as connection:
            yield connection
    except ModuleNotFoundError:
        found.append(Violation("connector.class", EXTRA))
        raise LookFailedError from None
    except sa.exc.SQLAlchemyError as error:
        found.append(Violation(_blamed(error), f"{address}: {reason_of(error)}"))
        raise LookFailedError from None


@contextmanager
def telling(address: DatabaseAddress, what: str) -> Iterator[None]:
    """Say in one line what the database refused, without statements and values.

    Raises:
        RetriableError: it cannot be reached, or is busy; the same may succeed later.
        DatabaseError: anything else.
    """
    import sqlalchemy as sa

    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
        told = f"{what} at {address}: {reason_of(error)}"
        if _has_no_room(error):
            told = f"{told}: {MAKE_ROOM}"
        # SQLite says so of almost everything
        passes = address.kind != "sqlite" or any(each in told for each in _SQLITE_PASSING)
        passes = passes and _number(error) not in _MYSQL_LASTING | _MYSQL_OF_A_ROW
        # without its cause, whose text has the statement and its values
        raise (RetriableError if passes else DatabaseError)(told) from None
    except sa.exc.SQLAlchemyError as error:
        raise DatabaseError(f"{what} at {address}: {reason_of(error)}") from None


class DatabaseError(Exception):
    """What a database refused."""


@contextmanager
def savepoint(connection: "sa.Connection") -> Iterator[None]:
    """What fails in here is undone."""
    import sqlalchemy as sa

    nested = connection.begin_nested()
    try:
        yield
    except BaseException as error:
        try:
            nested.rollback()
        except sa.exc.OperationalError:
            raise error from None  # it has undone everything: SQLite does for want of room
        raise
    nested.commit()


def sqlstate_of(error: "sa.exc.DBAPIError") -> str | None:
    """PostgreSQL's code of an error."""
    return getattr(error.orig, "sqlstate", None)


def is_of_a_row(error: "sa.exc.StatementError") -> bool:
    """Whether a database, or its driver, refused a statement for the values of a row."""
    import sqlalchemy as sa

    if not isinstance(error, sa.exc.DBAPIError):
        return True  # a value that the driver cannot send
    if isinstance(error, sa.exc.DataError | sa.exc.IntegrityError):
        return True
    return sqlstate_of(error) in _POSTGRES_OF_A_ROW or _number(error) in _MYSQL_OF_A_ROW


def _has_no_room(error: "sa.exc.DBAPIError") -> bool:
    if _number(error) in _MYSQL_NO_ROOM:
        return True
    is_full = sqlstate_of(error) == NO_ROOM_STATE
    return is_full or getattr(error.orig, "sqlite_errorname", None) == "SQLITE_FULL"


def _number(error: Exception) -> int | None:
    """What MySQL calls an error."""
    arguments = getattr(getattr(error, "orig", None), "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None


class LookFailedError(Exception):
    """The server could not be looked at; why is among the faults already."""


def reason_of(error: Exception) -> str:
    """What a driver says, in one line, without the statement and its values."""
    original = getattr(error, "orig", None) or error
    number = _number(error)  # MySQL's comes with its text
    whole = str(original) if number is None else f"{original.args[-1]} ({number})"
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    # what follows the first line is of a row, unless nobody is logged in yet
    told = lines[:3] if "connect" in str(original) else lines[:1]
    text = " ".join(told)
    for values, less in _VALUES:
        text = values.sub(less, text)
    return text[:500] or type(original).__name__


def _blamed(error: Exception) -> str:
    text = reason_of(error).lower()
    if "password" in text or "access denied" in text or "role" in text:
        return PASSWORD if "password" in text else USER
    return URL


def now_at(connection: "sa.Connection") -> datetime:
    """The database's clock."""
    import sqlalchemy as sa

    value = connection.execute(sa.text(_CLOCKS[connection.dialect.name])).scalar_one()
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
