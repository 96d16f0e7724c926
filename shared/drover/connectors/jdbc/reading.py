"""Reads rows of a statement as Arrow batches, on executors: by COPY or a cursor."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from drover.connector import RetriableError
from drover.connectors.jdbc.columns import Column, arrow_schema
from drover.connectors.jdbc.database import DatabaseAddress, translated_errors
from drover.connectors.postgres.copied import copied

#: How long a statement waits for a locked table.
LOCK_WAIT_S = 30
_POSTGRESQL = (
    "SET datestyle TO ISO; SET intervalstyle TO postgres; SET timezone TO 'UTC'; "
    "SET extra_float_digits TO 3; SET bytea_output TO hex; SET statement_timeout TO 0; "
    f"SET lock_timeout TO '{LOCK_WAIT_S}s'; SET idle_in_transaction_session_timeout TO 0"
)
_MYSQL = (
    f"SET SESSION time_zone = '+00:00', lock_wait_timeout = {LOCK_WAIT_S}, "
    f"innodb_lock_wait_timeout = {LOCK_WAIT_S}"
)
_FIRST_ROWS, _MOST_ROWS = 100, 10_000
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table, or a query in parentheses, and the columns that identify its rows."""

    name: str
    schema: str | None
    columns: tuple[Column, ...]
    incrementing: str | None = None
    timestamps: tuple[str, ...] = ()
    #: The primary key column, if it is a single integer.
    primary_number: str | None = None
    #: The zone of times without a zone.
    zone: tzinfo = UTC
    query: str | None = None
    #: The average size of a row, if the database has statistics.
    row_bytes: int = 0

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
        return self.piece(None, quoted_name(f"({text})", quote=False)).alias("query")

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
    """

    address: DatabaseAddress
    source: TableSource
    statement: "sa.Select[Any]"
    snapshot: str | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of some thousand.

        Raises:
            ColumnError: A value does not fit its column's type.
            Exception: As ``translated_errors``.
        """
        reading = translated_errors(self.address, f"reading {self.source.id}")
        with reading, session(self.address, self.snapshot) as connection:
            if self.address.kind == "postgresql":
                yield from self.copied(connection)
            else:
                yield from self.fetched(connection)

    def copied(self, connection: "sa.Connection") -> Iterator[pa.RecordBatch]:
        """The rows, read by PostgreSQL's COPY."""
        import psycopg

        raw: Any = connection.connection.driver_connection
        compiled = self.statement.compile(dialect=connection.dialect)
        query = psycopg.ClientCursor(raw).mogrify(str(compiled), compiled.params)
        copy = f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()
        columns = self.source.columns
        schema = arrow_schema(columns)
        try:
            for texts in copied(raw, copy, len(columns)):
                pairs = zip(columns, texts, strict=True)
                arrays = [column.array_of_texts(text) for column, text in pairs]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except psycopg.Error as error:
            raise sa.exc.DBAPIError.instance(
                None, None, error, psycopg.Error, dialect=connection.dialect
            ) from None

    def fetched(self, connection: "sa.Connection") -> Iterator[pa.RecordBatch]:
        """The rows, read by the driver's cursor."""
        columns = self.source.columns
        schema = arrow_schema(columns)
        # a server-side cursor where the driver supports it
        streaming = connection.execution_options(stream_results=True, max_row_buffer=1)
        result = streaming.execute(self.statement)
        count = _FIRST_ROWS
        while rows := result.fetchmany(count):
            values = list(zip(*rows, strict=True))
            arrays = [each.array(v) for each, v in zip(columns, values, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield batch
            row_bytes = max(1, batch.nbytes // len(rows))
            count = max(1, min(_MOST_ROWS, _BATCH_BYTES // row_bytes))


def run_verbatim(connection: "sa.Connection", statement: str) -> None:
    """Run a statement verbatim, without parameter substitution."""
    connection.execution_options(no_parameters=True).exec_driver_sql(statement)


@contextmanager
def session(
    address: DatabaseAddress, snapshot: str | None = None, options: Mapping[str, Any] | None = None
) -> "Iterator[sa.Connection]":
    """A connection for reading: times in UTC, limited waits for locks.

    Args:
        address: The database.
        snapshot: See RowsBetween.
        options: SQLAlchemy's execution options.

    Raises:
        RetriableError: The snapshot no longer exists, because its session ended.
    """
    with address.connected() as connection:
        for statement in {"postgresql": [_POSTGRESQL], "mysql": [_MYSQL]}.get(address.kind, []):
            connection.exec_driver_sql(statement)
        connection.commit()
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
