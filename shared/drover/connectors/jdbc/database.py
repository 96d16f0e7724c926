"""Access to databases: JDBC and SQLAlchemy URLs, settings, errors, clock."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from drover.connector import All as AllOf
from drover.connector import (
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    CredentialsRejectedError,
    DatabaseFailure,
    Importance,
    NonEmpty,
    RetriableError,
    Violation,
    database_failure,
)
from drover.connectors.jdbc import mysql_tls
from drover.connectors.postgres.remedies import MAKE_ROOM, NO_ROOM_STATE
from drover.policy.checked_databases import restrict_engine
from drover.policy.client_setting_lists import Library
from drover.policy.client_settings import client_setting_faults
from drover.policy.egress import AllowedHosts
from drover.policy.files import root_fault

if TYPE_CHECKING:
    import sqlalchemy as sa

URL = "connection.url"
USER = "connection.user"
PASSWORD = "connection.password"
CONNECT_TIMEOUT_S = 10
#: How long facts about a server are cached: its version, its quoting rules.
_KNOWN_S = 60.0
_GROUP = "Database"

#: SQLAlchemy's drivers by URL scheme.
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "sqlite": "sqlite",
}
_PORTS = {"postgresql": 5432, "mysql": 3306}
#: Parameters of JDBC URLs and the drivers' names for them; None for parameters without effect.
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
#: Parameters with the meaning of the JDBC drivers: the schemas to search, and how MySQL's date
#: 0000-00-00 is read.
_CURRENT_SCHEMA, _ZERO_DATES = "currentSchema", "zeroDateTimeBehavior"
_ZERO_DATE_MODES = {
    "exception": "EXCEPTION",
    "convert_to_null": "CONVERT_TO_NULL",
    "converttonull": "CONVERT_TO_NULL",
    "round": "ROUND",
}
#: Parameters that would change the values: the value without effect, and the remedy for others.
_DEFAULT_ONLY = {
    "tinyInt1isBit": ("false", "set tinyint1.mapping"),
    "yearIsDateType": ("false", "years are numbers"),
}
#: Errors of MySQL and MariaDB about the values of a row, although their driver reports them as
#: operational: no value for a column without default, a constraint, an invalid value.
_MYSQL_OF_A_ROW = frozenset({1292, 1364, 1366, 3819, 4025})
#: PostgreSQL errors about the values of a row, besides data and integrity errors: a duplicate key,
#: a limit.
_POSTGRES_OF_A_ROW = frozenset({"21000", "54000"})
_MYSQL_DUPLICATE_KEY = 1062
_NO_SCHEMA_STATE, _MYSQL_NO_SCHEMA = "3F000", 1049
#: PostgreSQL's state, and MySQL's errors, for a missing right.
_DENIED_STATE, _MYSQL_DENIED = "42501", frozenset({1044, 1142, 1143, 1227, 1370})
_MYSQL_NO_DATABASE_RIGHT = 1044
#: MySQL errors for a full disk or table.
_MYSQL_NO_ROOM = frozenset({1021, 1114})
#: Patterns for values in server messages.
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
EXTRA = "databases need more libraries on the workers: pip install 'drover-connect[jdbc]'"


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database with credentials; picklable, its repr shows no password.

    ``kind`` is postgresql, mysql or sqlite; ``options`` are for the driver and ``mysql_tls``. An
    SQLite file that does not exist is created, unless it ``must_exist``. ``search_path`` has
    PostgreSQL's syntax. ``zero_dates`` is EXCEPTION, CONVERT_TO_NULL or ROUND.
    """

    kind: str
    host: str | None = None
    port: int | None = None
    name: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()
    must_exist: bool = False
    search_path: str = ""
    zero_dates: str = "EXCEPTION"

    def url(self) -> "sa.URL":
        """The address as a SQLAlchemy URL, with the password."""
        import sqlalchemy as sa  # only when a connection is made

        if self.kind == "sqlite" and self.must_exist:
            existing = f"file:{quote(self.name or '')}"
            query = {"mode": "rw", "uri": "true"}
            return sa.URL.create(_DRIVERS[self.kind], database=existing, query=query)
        query = {name: value for name, value in self.options if name not in _OF_TLS}
        if self.search_path:
            path = re.sub(r"([\\\s])", r"\\\1", self.search_path)
            query["options"] = f"-c search_path={path} {query.get('options', '')}".rstrip()
        return sa.URL.create(
            _DRIVERS[self.kind],
            username=self.user,
            password=self.password,
            host=self.host,
            port=self.port,
            database=self.name,
            query=query,
        )

    def engine(self) -> "sa.Engine":
        """An engine without a pool: released connections are closed."""
        import sqlalchemy as sa

        arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
        if self.kind == "sqlite":
            arguments = {"timeout": CONNECT_TIMEOUT_S}
        if self.kind == "postgresql":  # the driver reads no texts of a database in SQL_ASCII
            arguments["client_encoding"] = "UTF8"
        if self.kind == "mysql":
            try:
                arguments |= mysql_tls.driver_arguments(dict(self.options))
            except ValueError as error:
                raise sa.exc.ArgumentError(str(error)) from None
        engine = sa.create_engine(
            self.url(), poolclass=sa.NullPool, connect_args=arguments, hide_parameters=True
        )
        restrict_engine(engine)
        return engine

    @contextmanager
    def connected(self) -> "Iterator[sa.Connection]":
        """A connection; uncommitted changes are rolled back at the end."""
        engine = _known_engine(self, int(time.monotonic() / _KNOWN_S))
        with engine.connect() as connection:
            yield connection

    def __str__(self) -> str:
        where = f"{self.host or 'localhost'}:{self.port}" if self.port else self.host or ""
        return f"{self.kind}://{where}/{self.name or ''}"


@lru_cache(maxsize=16)
def _known_engine(address: DatabaseAddress, period: int) -> "sa.Engine":
    """An engine for one period: it caches facts about the server, and compiled statements."""
    del period
    return address.engine()


def parse_address(url: str, user: str | None, password: str | None) -> DatabaseAddress:
    """Parse a URL with the settings for user and password.

    Raises:
        ValueError: They do not name a database; the message has no password.
    """
    text = url.strip().removeprefix("jdbc:")
    scheme, colon, rest = text.partition(":")
    kind = _DRIVERS.get(scheme.partition("+")[0], "").partition("+")[0]
    if not colon or not kind:
        raise ValueError(
            "must start with postgresql://, mysql:// or sqlite://, with or without jdbc: before it"
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
        raise ValueError("must have the form jdbc:postgresql://host:5432/database")
    fault = AllowedHosts.of_worker().fault(parts.hostname, port or _PORTS[kind])
    if fault is not None:
        raise ValueError(fault)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = _PARAMETERS[kind]
    own_user, own_password = parameters.pop("user", None), parameters.pop("password", None)
    search_path = parameters.pop(_CURRENT_SCHEMA, "") if kind == "postgresql" else ""
    zero_dates = "EXCEPTION"
    if kind == "mysql":
        zero_dates = _zero_dates(parameters.pop(_ZERO_DATES, zero_dates))
        _drop_defaults(parameters)
    unknown = sorted(parameters.keys() - known.keys())
    if unknown:
        raise ValueError(f"{unknown[0]!r} is an unsupported parameter")
    options = {name: value for key, value in parameters.items() if (name := known[key]) is not None}
    library = Library.PYMYSQL if kind == "mysql" else Library.LIBPQ
    for name, fault in client_setting_faults(library, options):
        raise ValueError(f"its parameter {name} {fault}")
    wrong = mysql_tls.options_fault(options) if kind == "mysql" else None
    if wrong is not None:
        raise ValueError(wrong)
    return DatabaseAddress(
        kind,
        host=parts.hostname,
        port=port,
        name=unquote(parts.path.strip("/")),
        user=user or own_user or (unquote(parts.username) if parts.username else None),
        password=password or own_password or (unquote(parts.password) if parts.password else None),
        options=tuple(options.items()),
        search_path=search_path,
        zero_dates=zero_dates,
    )


def _zero_dates(value: str) -> str:
    mode = _ZERO_DATE_MODES.get(value.lower())
    if mode is None:
        raise ValueError(f"{_ZERO_DATES} must be EXCEPTION, CONVERT_TO_NULL or ROUND")
    return mode


def _drop_defaults(parameters: dict[str, str]) -> None:
    for name, (default, remedy) in _DEFAULT_ONLY.items():
        if parameters.pop(name, default).lower() != default:
            raise ValueError(f"{name} must be {default}: {remedy}")


def address_fault(url: str) -> str | None:
    """Why a URL names no database that connectors may use, or None."""
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
        documentation="The database: jdbc:postgresql://host:5432/name, "
        "jdbc:mysql://host:3306/name or jdbc:sqlite:/path/to/file; jdbc: may be omitted.",
        validator=AllOf(NonEmpty(), Check(address_fault)),
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
def checked_connection(
    address: DatabaseAddress, found: list[Violation]
) -> "Iterator[sa.Connection]":
    """A connection for checks of the server; a failure to connect is added to ``found``.

    An SQLite file that does not exist is not created: unless it ``must_exist``, an empty database
    is checked instead.

    Raises:
        LookFailedError: There is no connection.
    """
    try:
        import sqlalchemy as sa
    except ImportError:
        found.append(Violation("connector.class", EXTRA))
        raise LookFailedError from None
    if address.kind == "sqlite":
        path = Path(address.name or "")
        is_new = not address.must_exist and path.parent.is_dir() and not path.exists()
        address = replace(address, name=":memory:") if is_new else replace(address, must_exist=True)
    try:
        with address.connected() as connection:
            yield connection
    except ModuleNotFoundError:
        found.append(Violation("connector.class", EXTRA))
        raise LookFailedError from None
    except sa.exc.SQLAlchemyError as error:
        found.append(
            Violation(_blamed(error), f"{address}: {reason_of(error)}{_remedy(address, error)}")
        )
        raise LookFailedError from None


@contextmanager
def translated_errors(address: DatabaseAddress, what: str) -> Iterator[None]:
    """Convert database errors to one line, without statements and values.

    Raises:
        RetriableError: The database is unreachable or busy; a retry may succeed.
        DatabaseError: Any other error.
    """
    import sqlalchemy as sa

    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        told = f"{what} at {address}: {reason_of(error)}{_grant_remedy(error)}"
        if isinstance(error, sa.exc.DBAPIError) and _has_no_room(error):
            told = f"{told}: {MAKE_ROOM}"
        kind = {
            DatabaseFailure.OUTAGE: RetriableError,
            DatabaseFailure.LOGIN_REJECTED: LoginRejectedError,
        }.get(database_failure(error) or DatabaseFailure.LASTING, DatabaseError)
        # without the cause, which contains the statement and its values
        raise kind(told) from None


class DatabaseError(Exception):
    """An error that the database reported."""


class LoginRejectedError(RetriableError, CredentialsRejectedError):
    """The database rejects the user or the password."""


@contextmanager
def savepoint(connection: "sa.Connection") -> Iterator[None]:
    """A savepoint; the block's changes are undone if it fails."""
    import sqlalchemy as sa

    nested = connection.begin_nested()
    try:
        yield
    except BaseException as error:
        try:
            nested.rollback()
        except sa.exc.OperationalError:
            raise error from None  # SQLite rolled back the whole transaction (disk full)
        raise
    nested.commit()


def sqlstate_of(error: "sa.exc.DBAPIError") -> str | None:
    """PostgreSQL's error code."""
    return getattr(error.orig, "sqlstate", None)


def lacks_schema(error: "sa.exc.DBAPIError") -> bool:
    """Whether a statement names a schema that does not exist."""
    is_sqlite = "unknown database" in str(error.orig)
    return is_sqlite or sqlstate_of(error) == _NO_SCHEMA_STATE or _number(error) == _MYSQL_NO_SCHEMA


def is_duplicate_key(error: "sa.exc.DBAPIError") -> bool:
    """Whether MySQL refused a row because of a unique key."""
    return _number(error) == _MYSQL_DUPLICATE_KEY


def is_of_a_row(error: "sa.exc.StatementError") -> bool:
    """Whether a statement failed because of the values of a row."""
    import sqlalchemy as sa

    if not isinstance(error, sa.exc.DBAPIError):
        return True  # a value that the driver cannot send
    if isinstance(error, sa.exc.DataError | sa.exc.IntegrityError):
        return True
    return sqlstate_of(error) in _POSTGRES_OF_A_ROW or _number(error) in _MYSQL_OF_A_ROW


def _grant_remedy(error: "sa.exc.SQLAlchemyError") -> str:
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    is_denied = state == _DENIED_STATE or _number(error) in _MYSQL_DENIED
    return ": drover config validate names the statement that grants the right" if is_denied else ""


def _has_no_room(error: "sa.exc.DBAPIError") -> bool:
    if _number(error) in _MYSQL_NO_ROOM:
        return True
    is_full = sqlstate_of(error) == NO_ROOM_STATE
    return is_full or getattr(error.orig, "sqlite_errorname", None) == "SQLITE_FULL"


def _number(error: Exception) -> int | None:
    """MySQL's error number."""
    arguments = getattr(getattr(error, "orig", None), "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None


class LookFailedError(Exception):
    """The check of the server failed; the reason is already among the faults."""


def reason_of(error: Exception) -> str:
    """The driver's message in one line, without the statement and its values."""
    original = getattr(error, "orig", None) or error
    number = _number(error)  # MySQL's message does not include it
    whole = str(original) if number is None else f"{original.args[-1]} ({number})"
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    # later lines are about a row, except for failures to connect
    told = lines[:3] if "connect" in str(original) else lines[:1]
    text = " ".join(told)
    for values, less in _VALUES:
        text = values.sub(less, text)
    return text[:500] or type(original).__name__


def _remedy(address: DatabaseAddress, error: Exception) -> str:
    """The statement that lets the user connect, if only the right is missing."""
    text = reason_of(error)
    user = address.user or ""
    if "permission denied for database" in text:
        return f"; GRANT CONNECT ON DATABASE {address.name} TO {user}"
    if _number(error) == _MYSQL_NO_DATABASE_RIGHT:
        return f"; GRANT SELECT ON {address.name}.* TO {user!r}, and what the connector writes"
    return ""


def _blamed(error: Exception) -> str:
    text = reason_of(error).lower()
    if "permission denied" in text:
        return USER
    if "password" in text or "access denied" in text or "role" in text:
        return PASSWORD if "password" in text else USER
    return URL


def run_verbatim(connection: "sa.Connection", statement: str) -> None:
    """Run a statement verbatim, without parameter substitution."""
    connection.execution_options(no_parameters=True).exec_driver_sql(statement)


def now_at(connection: "sa.Connection") -> datetime:
    """The current time of the database's clock."""
    import sqlalchemy as sa

    value = connection.execute(sa.text(_CLOCKS[connection.dialect.name])).scalar_one()
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
