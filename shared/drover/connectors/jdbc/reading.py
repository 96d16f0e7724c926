"""Reads rows of a statement as Arrow batches, on executors: by COPY or a cursor."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from drover.connector import RetriableError
from drover.connector.records import ERROR_COLUMN, ORIGIN_COLUMN
from drover.connectors.jdbc.columns import Column, ColumnError, ColumnSettings, arrow_schema
from drover.connectors.jdbc.database import DatabaseAddress, translated_errors
from drover.connectors.jdbc.reflection import columns_of, described_columns, query_columns
from drover.connectors.postgres.copied import copied

#: How long a statement waits for a locked table.
LOCK_WAIT_S = 30
#: The same for a table that the session of a snapshot has locked: an ALTER TABLE that waits for
#: that session is before this one, and everyone else waits behind both.
SNAPSHOT_LOCK_WAIT_S = 3
_POSTGRESQL = (
    "SET datestyle TO ISO; SET intervalstyle TO postgres; SET timezone TO 'UTC'; "
    "SET extra_float_digits TO 3; SET bytea_output TO hex; SET statement_timeout TO 0; "
    f"SET lock_timeout TO '{LOCK_WAIT_S}s'; SET idle_in_transaction_session_timeout TO 0"
)
#: A setting that older servers do not know, and the first version with it.
_TRANSACTION_TIMEOUT, _TRANSACTION_TIMEOUT_SINCE = "SET transaction_timeout TO 0", (17,)
_MYSQL = (
    f"SET SESSION time_zone = '+00:00', lock_wait_timeout = {LOCK_WAIT_S}, "
    f"innodb_lock_wait_timeout = {LOCK_WAIT_S}"
)
#: What differs between the servers behind one name. Replicas of PostgreSQL have the identifier of
#: their primary, so it is the time of their start.
_SERVERS = {
    "postgresql": "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text",
    "mysql": "SELECT CONCAT_WS(' ', @@hostname, @@port, @@server_id)",
}
#: Where a connection's info has the text of ``server_of``.
_SERVER = "drover server"
_FIRST_ROWS, _MOST_ROWS = 100, 10_000
_BATCH_BYTES = 8 * 1024 * 1024


#: A session that was not used for so long is replaced: a network may have dropped it silently.
_KEPT_S = 5.0


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table, or a query in parentheses, and the columns that identify its rows."""

    name: str
    schema: str | None
    columns: tuple[Column, ...]
    incrementing: str | None = None
    timestamps: tuple[str, ...] = ()
    #: The columns of the records' keys, else of the primary key: they name a row in errors.
    keys: tuple[str, ...] = ()
    #: The primary key column, if it is a single integer.
    primary_number: str | None = None
    #: The zone of times without a zone.
    zone: tzinfo = UTC
    query: str | None = None
    #: The average size of a row, if the database has statistics.
    row_bytes: int = 0
    settings: ColumnSettings = field(default_factory=ColumnSettings)

    @property
    def id(self) -> str:
        """Its name in settings and offsets."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def relation(self, dialect: str) -> "sa.FromClause":
        """The FROM clause."""
        if self.query is None:
            return self.piece(self.schema, self.name)
        # verbatim: sa.text would find parameters in it
        text = self.query if dialect == "sqlite" else self.query.replace("%", "%%")
        # a comment at its end must not hide the parenthesis
        return self.piece(None, quoted_name(f"({text}\n)", quote=False)).alias("query")

    def piece(self, schema: str | None, name: str) -> "sa.TableClause":
        """Another table with the same columns."""
        return sa.table(name, *self._clauses(), schema=schema)

    def sql_name(self, connection: "sa.Connection") -> str:
        """The quoted table name."""
        preparer = connection.dialect.identifier_preparer
        # undo the escaping for drivers that look for parameters
        return preparer.format_table(self.piece(self.schema, self.name)).replace("%%", "%")

    def rows(self, relation: "sa.FromClause") -> "sa.Select[Any]":
        """A SELECT of all columns."""
        return sa.select(*(each.selected(relation.c[each.name]) for each in self.columns))

    def _clauses(self) -> "list[sa.ColumnClause[Any]]":
        return [sa.column(each.name, each.sql_type) for each in self.columns]


@dataclass(frozen=True)
class RowsBetween:
    """Rows to read, in order; picklable.

    Attributes:
        address: The database.
        source: The table.
        statement: Selects its columns.
        snapshot: The snapshot to read, from ``pg_export_snapshot()``; None for the current state.
        server: The server that planned these rows, from ``server_of``, whose rows may differ from
            others'; None if any server may answer.
    """

    address: DatabaseAddress
    source: TableSource
    statement: "sa.Select[Any]"
    snapshot: str | None = None
    server: str | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of some thousand; rows with a value that does not fit its column's
        type have the reason in ERROR_COLUMN.

        Raises:
            ColumnError: A column has another type now.
            RetriableError: Another server answers.
            Exception: As ``translated_errors``.
        """
        reading = translated_errors(self.address, f"reading {self.source.id}")
        opening = session(self.address, self.snapshot, server=self.server)
        with reading, opening as connection:
            if self.address.kind == "postgresql":
                yield from self.copied(connection)
            else:
                yield from self.fetched(connection)

    def copied(self, connection: "sa.Connection") -> Iterator[pa.RecordBatch]:
        """The rows, read by PostgreSQL's COPY."""
        import psycopg

        raw: Any = connection.connection.driver_connection
        whole = {"render_postcompile": True}
        compiled = self.statement.compile(dialect=connection.dialect, compile_kwargs=whole)
        query = psycopg.ClientCursor(raw).mogrify(str(compiled), compiled.params)
        copy = f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()
        rows = self._rows()
        try:
            for texts in copied(raw, copy, len(self.source.columns)):
                yield rows.batch(texts, Column.array_of_texts)
        except psycopg.Error as error:
            raise sa.exc.DBAPIError.instance(
                None, None, error, psycopg.Error, dialect=connection.dialect
            ) from None

    def fetched(self, connection: "sa.Connection") -> Iterator[pa.RecordBatch]:
        """The rows, read by the driver's cursor."""
        if self.address.kind == "sqlite":
            raw: Any = connection.connection.driver_connection
            raw.text_factory = _text_or_bytes
        # a server-side cursor where the driver supports it
        streaming = connection.execution_options(stream_results=True, max_row_buffer=1)
        result = streaming.execute(self.statement)
        made = self._rows()
        count = _FIRST_ROWS
        while rows := result.fetchmany(count):
            batch = made.batch(list(zip(*rows, strict=True)), Column.array)
            yield batch
            row_bytes = max(1, batch.nbytes // len(rows))
            count = max(1, min(_MOST_ROWS, _BATCH_BYTES // row_bytes))

    def _rows(self) -> "_Rows":
        return _Rows(self.source, self._require_types)

    def _require_types(self, fault: str) -> None:
        """Check that the columns have the types of the start, after a value did not fit its column.

        Raises:
            ColumnError: A column has another type now.
        """
        source = self.source
        with self.address.connected() as connection:
            if source.query is not None:
                found = query_columns(connection, source.query, source.settings)
            else:
                columns = described_columns(connection, source.name, source.schema)
                found = columns_of(connection, columns, source.settings, source.name, source.schema)
        now = {each.name: each.arrow_type for each in found}
        if any(now.get(each.name) != each.arrow_type for each in source.columns):
            raise ColumnError(
                f"{fault}: a column of {source.id} has another type than at the start"
            )


class _Rows:
    """Makes batches of a part's rows, and names the rows with bad values.

    Args:
        source: The table.
        check: Called once, with the first fault.
    """

    def __init__(self, source: TableSource, check: Callable[[str], None]) -> None:
        self._source = source
        self._schema = arrow_schema(source.columns)
        self._check = check
        self._checked = False
        self._count = 0

    def batch(self, values: Sequence[Any], convert: Callable[..., pa.Array]) -> pa.RecordBatch:
        """The next rows from the values of each column."""
        faults: dict[int, str] = {}
        pairs = zip(self._source.columns, values, strict=True)
        arrays = [convert(column, each, faults.setdefault) for column, each in pairs]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        start, self._count = self._count, self._count + batch.num_rows
        if not faults:
            return batch
        if not self._checked:
            self._check(next(iter(faults.values())))
            self._checked = True
        places = [
            self._place(batch, row, start) if row in faults else None
            for row in range(batch.num_rows)
        ]
        reasons = [faults.get(row) for row in range(batch.num_rows)]
        batch = batch.append_column(ORIGIN_COLUMN, pa.array(places, pa.string()))
        return batch.append_column(ERROR_COLUMN, pa.array(reasons, pa.string()))

    def _place(self, batch: pa.RecordBatch, row: int, start: int) -> str:
        """The position of a row: its table, and its key or its place in the offsets."""
        source = self._source
        numbers = (source.incrementing,) if source.incrementing else ()
        names = list(dict.fromkeys((*source.keys, *numbers, *source.timestamps)))
        if not names:
            return f"{source.id}, row {start + row + 1} of its part"
        values = (batch.column(name)[row].as_py() for name in names)
        shown = (f"{name}={f'{each}':.80}" for name, each in zip(names, values, strict=True))
        return f"{source.id} with {', '.join(shown)}"


def _text_or_bytes(raw: bytes) -> str | bytes:
    """SQLite does not check the encoding of texts: others are bytes, which are an error of their
    row.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@contextmanager
def session(
    address: DatabaseAddress,
    snapshot: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    server: str | None = None,
) -> "Iterator[sa.Connection]":
    """A connection for reading: times in UTC, limited waits for locks.

    Args:
        address: The database.
        snapshot: See RowsBetween.
        options: SQLAlchemy's execution options.
        server: See RowsBetween.

    Raises:
        RetriableError: Another server answers, or the snapshot no longer exists, because its
            session ended.
    """
    with address.connected() as connection:
        found = _prepared(connection, address.kind, is_of_snapshot=snapshot is not None)
        connection.commit()
        if server is not None and found != server:
            raise RetriableError(
                f"the rows to read at {address} were found on another server, and this one may "
                "lack some of them: the name leads to several servers, or the server was "
                "restarted. If this happens again, name a single server in connection.url, such "
                "as the primary"
            )
        if found is not None:
            connection.info[_SERVER] = found
        if snapshot is not None:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        if options:
            connection.execution_options(**options)
        if snapshot is not None:
            try:
                connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            except sa.exc.OperationalError:
                raise
            except sa.exc.DBAPIError:
                raise RetriableError(
                    f"the snapshot to read at {address} has expired: its session ended"
                ) from None
        yield connection


def _prepared(connection: "sa.Connection", kind: str, *, is_of_snapshot: bool) -> str | None:
    """Set a session up; returns its server, see ``server_of``."""
    if kind == "postgresql":
        settings = [_SERVERS[kind], _POSTGRESQL]
        if (connection.dialect.server_version_info or ()) >= _TRANSACTION_TIMEOUT_SINCE:
            settings.append(_TRANSACTION_TIMEOUT)
        if is_of_snapshot:
            settings.append(f"SET lock_timeout TO '{SNAPSHOT_LOCK_WAIT_S}s'")
        # in one request, whose first result is read
        return str(connection.exec_driver_sql("; ".join(settings)).scalar_one())
    if kind == "mysql":
        connection.exec_driver_sql(_MYSQL)
        return str(connection.exec_driver_sql(_SERVERS[kind]).scalar_one())
    return None


def server_of(connection: "sa.Connection") -> str | None:
    """The server of a ``session``, by a text that no other server behind its name has; None for
    SQLite. A restart of PostgreSQL changes it.
    """
    found: str | None = connection.info.get(_SERVER)
    return found


class KeptSession:
    """A session that stays open between uses, until ``close`` or an error.

    Args:
        address: The database.
        now_s: A monotonic clock.
    """

    def __init__(
        self, address: DatabaseAddress, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._now_s = now_s
        self._opened: ExitStack | None = None
        self._connection: sa.Connection | None = None
        self._used_s = 0.0

    @contextmanager
    def use(self) -> "Iterator[sa.Connection]":
        """The session, in a transaction that is rolled back at the end."""
        if self._now_s() - self._used_s > _KEPT_S:
            self.close()
        if self._connection is None:
            opened = ExitStack()
            self._connection = opened.enter_context(session(self._address))
            self._opened = opened
        try:
            yield self._connection
            self._connection.rollback()
        except BaseException:
            self.close()
            raise
        self._used_s = self._now_s()

    def close(self) -> None:
        """Close the session; idempotent."""
        opened, self._opened, self._connection = self._opened, None, None
        if opened is not None:
            with suppress(sa.exc.SQLAlchemyError):
                opened.close()
