"""Rows of a statement as Arrow batches, on executors: COPY from PostgreSQL, else a cursor."""

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
from drover.connectors.jdbc.database import DatabaseAddress, telling
from drover.connectors.postgres.copied import copied

#: How long a statement waits for a table that others have locked.
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
    """A table, or a query in parentheses, and what its rows are found by."""

    name: str
    schema: str | None
    columns: tuple[Column, ...]
    incrementing: str | None = None
    timestamps: tuple[str, ...] = ()
    #: The column that is the primary key, if it is one whole number.
    primary_number: str | None = None
    #: The zone of times without one.
    zone: tzinfo = UTC
    query: str | None = None
    #: What a row takes on average, as far as the database knows.
    row_bytes: int = 0

    @property
    def id(self) -> str:
        """How settings and offsets call it."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def relation(self, dialect: str) -> "sa.FromClause":
        """What to select from."""
        if self.query is None:
            return self.piece(self.schema, self.name)
        # as it is written: sa.text would find parameters in it
        text = self.query if dialect == "sqlite" else self.query.replace("%", "%%")
        return self.piece(None, quoted_name(f"({text})", quote=False)).alias("query")

    def piece(self, schema: str | None, name: str) -> "sa.TableClause":
        """A table with the same columns."""
        return sa.table(name, *self._clauses(), schema=schema)

    def sql_name(self, connection: "sa.Connection") -> str:
        """A table's name as SQL has it."""
        preparer = connection.dialect.identifier_preparer
        # it is made for drivers that look for parameters
        return preparer.format_table(self.piece(self.schema, self.name)).replace("%%", "%")

    def rows(self, relation: "sa.FromClause") -> "sa.Select[Any]":
        """Selects every column of it."""
        return sa.select(*(each.selected(relation.c[each.name]) for each in self.columns))

    def _clauses(self) -> "list[sa.ColumnClause[Any]]":
        return [sa.column(each.name, each.sql_type) for each in self.columns]


@dataclass(frozen=True)
class RowsBetween:
    """Rows to read, in order; may be pickled.

    Attributes:
        address: The database.
        source: The table.
        statement: Selects its columns.
        snapshot: The moment to read, as ``pg_export_snapshot()`` calls it; None for now.
    """

    address: DatabaseAddress
    source: TableSource
    statement: "sa.Select[Any]"
    snapshot: str | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, some thousands at a time.

        Raises:
            ColumnError: a value that its column's type cannot hold.
            Exception: as ``telling``.
        """
        reading = telling(self.address, f"reading {self.source.id}")
        with reading, session(self.address, self.snapshot) as connection:
            if self.address.kind == "postgresql":
                yield from self.copied(connection)
            else:
                yield from self.fetched(connection)

    def copied(self, connection: "sa.Connection") -> Iterator[pa.RecordBatch]:
        """The rows by PostgreSQL's COPY."""
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
        """The rows as the driver gives them."""
        columns = self.source.columns
        schema = arrow_schema(columns)
        # what is held by the server, not by the driver, where it can
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
    """Run a statement as it is written, whatever looks like a parameter in it."""
    connection.execution_options(no_parameters=True).exec_driver_sql(statement)


@contextmanager
def session(
    address: DatabaseAddress, snapshot: str | None = None, options: Mapping[str, Any] | None = None
) -> "Iterator[sa.Connection]":
    """A connection to read with: times in UTC, and a lock is waited for a while only.

    Args:
        address: The database.
        snapshot: See RowsBetween.
        options: SQLAlchemy's execution options.

    Raises:
        RetriableError: the snapshot is gone, with the session that holds it.
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
                    f"the session that holds the moment to read at {address} has ended"
                ) from None
        yield connection
