"""PostgreSQL servers for change data capture: settings, sessions, slots, publications."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, LiteralString

from drover.connector import (
    CredentialsRejectedError,
    DatabaseFailure,
    RetriableError,
    database_failure,
)
from drover.connectors.postgres.pgoutput import Relation, RelationColumn
from drover.connectors.postgres.remedies import (
    MAKE_ROOM,
    NO_ROOM_STATE,
    session_remedy,
    with_remedy,
)
from drover.policy.checked_databases import libpq_parameters

if TYPE_CHECKING:
    import psycopg

    from drover.connectors.postgres.values import DatabaseTypes

CONNECT_TIMEOUT_S = 10
#: The first version with the setting transaction_timeout, which older ones refuse.
TRANSACTION_TIMEOUT_SINCE = 170_000
#: A longer wait for a locked table is retried, so that other sessions go first.
LOCK_TIMEOUT_MS = 10_000
#: What sessions must be set to, so that values have the text that is read here.
_SESSION_OPTIONS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=3 "
    "-c bytea_output=hex -c statement_timeout=0 -c row_security=off "
    "-c idle_in_transaction_session_timeout=0"
)

EXTRA = "change capture needs more libraries on the workers: pip install 'drover-connect[postgres]'"

_TABLES: LiteralString = """
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p', c.relreplident = 'f',
       c.relreplident <> 'n' AND (c.relreplident = 'f' OR EXISTS (
           SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid
              AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END)),
       pg_has_role(c.relowner, 'USAGE'),
       array_remove(ARRAY[
           CASE WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN
              format('GRANT USAGE ON SCHEMA %%I TO %%I', n.nspname, current_user) END,
           CASE WHEN NOT has_table_privilege(c.oid, 'SELECT') THEN
              format('GRANT SELECT ON %%I.%%I TO %%I', n.nspname, c.relname, current_user) END,
           CASE WHEN row_security_active(c.oid) THEN
              format('ALTER ROLE %%I BYPASSRLS', current_user) END], NULL)
       || CASE WHEN c.relkind = 'p' THEN ARRAY (
           WITH s AS MATERIALIZED (
              SELECT l.oid, l.relname, l.relnamespace, p.nspname FROM pg_partition_tree(c.oid) t
              JOIN pg_class l ON l.oid = t.relid JOIN pg_namespace p ON p.oid = l.relnamespace
              WHERE t.isleaf AND l.relkind = 'r')
           SELECT DISTINCT format('GRANT USAGE ON SCHEMA %%I TO %%I', s.nspname, current_user)
           FROM s WHERE NOT has_schema_privilege(s.relnamespace, 'USAGE')
              AND s.relnamespace <> n.oid UNION ALL
           SELECT format('GRANT SELECT ON %%I.%%I TO %%I', s.nspname, s.relname, current_user)
           FROM s WHERE NOT has_table_privilege(s.oid, 'SELECT') UNION ALL
           SELECT DISTINCT format('ALTER ROLE %%I BYPASSRLS', current_user)
           FROM s WHERE row_security_active(s.oid) AND NOT row_security_active(c.oid))
           ELSE '{}' END,
       ARRAY (SELECT a.attname::text FROM pg_index i JOIN pg_attribute a
           ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
           WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)
              AND a.attgenerated NOT IN ('', %s) ORDER BY a.attnum),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
       c.relkind = 'p' AND EXISTS (
           SELECT FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
           WHERE t.isleaf AND l.relreplident <> 'f' AND (c.relreplident = 'f' OR NOT EXISTS (
              SELECT FROM pg_index i WHERE i.indrelid = l.oid AND i.indisvalid AND
              CASE l.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END))),
       CASE WHEN current_setting('server_version_num')::int >= 180000
          AND (c.relreplident = 'f' OR c.relkind = 'p' AND EXISTS (
              SELECT FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
              WHERE t.isleaf AND l.relreplident = 'f'))
          THEN ARRAY (SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attgenerated NOT IN ('', %s)
              ORDER BY a.attnum) ELSE '{}' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'
ORDER BY 2, 3
"""
_COLUMNS: LiteralString = """
SELECT a.attname, a.atttypid, a.atttypmod,
       c.relreplident = 'f'
       OR coalesce(a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_index i ON i.indrelid = c.oid
     AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated IN ('', %s)
ORDER BY a.attnum
"""
#: Columns whose values may be stored out of line; rows below two kilobytes never are.
_LARGE_COLUMNS: LiteralString = """
SELECT a.attname FROM pg_attribute a
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated IN ('', %s)
  AND a.attstorage IN ('x', 'e') AND NOT (a.atttypmod BETWEEN 5 AND 504)
ORDER BY a.attnum
"""
_GENERATED_KEY_COLUMNS: LiteralString = """
SELECT a.attname FROM pg_attribute a JOIN pg_index i ON i.indrelid = a.attrelid
     AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE a.attrelid = %s AND (i.indisprimary OR i.indisreplident) AND a.attgenerated <> ''
ORDER BY a.attnum
"""
_PRIMARY_KEY: LiteralString = """
SELECT a.attname FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place
"""
_DOMAINS: LiteralString = (
    "SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd' AND typbasetype <> 0"
)
#: The elements of an array are separated by a comma, except for boxes.
_ARRAYS: LiteralString = (
    "SELECT a.oid, a.typelem FROM pg_type a JOIN pg_type e ON e.typarray = a.oid"
    " WHERE e.typdelim = ','"
)
_HSTORES: LiteralString = "SELECT oid FROM pg_type WHERE typname = 'hstore' AND typtype = 'b'"


#: What has a name like a table, but no changes that can be published.
_OTHERS: LiteralString = """
SELECT n.nspname, c.relname, CASE
    WHEN c.relispartition THEN 'is a partition: list its table ' ||
        (SELECT rn.nspname || '.' || r.relname FROM pg_class r JOIN pg_namespace rn
         ON rn.oid = r.relnamespace WHERE r.oid = pg_partition_root(c.oid))
    WHEN c.relkind IN ('v', 'm') THEN 'is a view, which has no changes in the log'
    WHEN c.relkind = 'f' THEN 'is a foreign table, which has no changes in the log'
    ELSE 'is not logged, so it has no changes in the log' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (c.relkind IN ('v', 'm', 'f') OR c.relkind IN ('r', 'p')
       AND (c.relispartition OR c.relpersistence <> 'p'))
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY 1, 2
"""


class ServerError(Exception):
    """The server refused an operation, or lacks something."""


class LoginRejectedError(RetriableError, CredentialsRejectedError):
    """The server rejects the user or the password."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a database with credentials; picklable, its repr shows no password.

    ``ssl`` has the libpq settings sslmode, sslrootcert, sslcert and sslkey, if set.
    """

    host: str
    port: int
    user: str
    password: str | None = field(repr=False)
    database: str
    ssl: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def connected(self, name: str = "drover") -> "Iterator[psycopg.Connection[tuple[Any, ...]]]":
        """A session that commits each statement; ``name`` is its application name."""
        import psycopg

        connection = psycopg.connect(**self.parameters(name), autocommit=True)
        try:
            yield connection
        finally:
            connection.close()

    def parameters(self, name: str) -> dict[str, Any]:
        """The connection parameters for libpq, with checked addresses.

        Raises:
            psycopg.Error: The host cannot be resolved, or must not be connected to.
        """
        parameters = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "dbname": self.database,
            "connect_timeout": CONNECT_TIMEOUT_S,
            # the driver reads no texts of a database in SQL_ASCII
            "client_encoding": "UTF8",
            "application_name": name,
            "options": f"{_SESSION_OPTIONS} -c lock_timeout={LOCK_TIMEOUT_MS}",
            # detect a dead server within a minute or two
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            **self.ssl,
        }
        return libpq_parameters(parameters)

    def __str__(self) -> str:
        return f"postgresql://{self.host}:{self.port}/{self.database}"


@contextmanager
def translated_errors(
    address: ServerAddress, what: str, remedies: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Convert server errors to one line, without the values in statements.

    Args:
        address: The server.
        what: What is done there, such as the statement.
        remedies: What to do about an error, by SQLSTATE.

    Raises:
        RetriableError: The server is unreachable; a retry may succeed.
        ServerError: Any other error.
    """
    import psycopg

    def line(error: psycopg.Error) -> str:
        remedy = (remedies or {}).get(error.sqlstate or "")
        return with_remedy(f"{what} at {address}: {first_line(error, address)}", remedy)

    try:
        yield
    except psycopg.Error as error:
        kind = {
            DatabaseFailure.OUTAGE: RetriableError,
            DatabaseFailure.LOGIN_REJECTED: LoginRejectedError,
        }.get(database_failure(error) or DatabaseFailure.LASTING, ServerError)
        raise kind(line(error)) from None


def without_time_limit(connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
    """Let the transactions of a session take as long as they need."""
    if connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        connection.execute("SET transaction_timeout TO 0")


def first_line(error: Exception, address: ServerAddress | None = None) -> str:
    """The driver's message in one line, with a remedy if one is known.

    ``address``: where a session was refused, if that may be the error.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = (lines[0] if lines else type(error).__name__)[:500]
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is None and address is not None:
        return with_remedy(told, session_remedy(told, address.user, address.database))
    return with_state_remedy(told, sqlstate)


def with_state_remedy(told: str, sqlstate: str | None) -> str:
    """The server's message, with the remedy for its SQLSTATE if one is known."""
    return f"{told}: {MAKE_ROOM}" if sqlstate == NO_ROOM_STATE else told


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the catalogue.

    Attributes:
        oid: Its number, which a rename keeps and a new table of the same name does not have.
        schema: Its schema.
        name: Its name.
        partitioned: Whether it is the root of partitions.
        full_identity: Whether its replica identity is FULL.
        identifies_rows: Whether its updates and deletes can be published.
        owned: Whether the user may publish it, as its owner.
        grants: The statements that let the user read all of its rows; empty if it may.
        generated_keys: The generated columns of its primary key and replica identity.
        has_primary_key: Whether it has a primary key.
        partitions_differ: Whether a partition sends less of old rows than its table.
        unsent_identity: The generated columns of a replica identity FULL that are not published.
            From PostgreSQL 18 on the server then refuses updates and deletes.
    """

    oid: int
    schema: str
    name: str
    partitioned: bool
    full_identity: bool
    identifies_rows: bool
    owned: bool = True
    grants: Sequence[str] = ()
    generated_keys: Sequence[str] = ()
    has_primary_key: bool = True
    partitions_differ: bool = False
    unsent_identity: Sequence[str] = ()

    @property
    def id(self) -> str:
        """Its name in settings, offsets and topics."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot; ``active_pid`` is the process that streams from it, or None."""

    plugin: str | None
    database: str | None
    active_pid: int | None
    confirmed_lsn: int | None
    lost: bool


def tables_of(
    connection: "psycopg.Connection[tuple[Any, ...]]", generated: str = ""
) -> list[Table]:
    """Every table that can be published, in order; for partitioned tables the root.

    ``generated``: see ``published_generated``.
    """
    return [Table(*row) for row in connection.execute(_TABLES, (generated, generated))]


def other_relations(
    connection: "psycopg.Connection[tuple[Any, ...]]",
) -> list[tuple[str, str]]:
    """The relations that cannot be captured: ``schema.name``, and the kind, as a predicate."""
    return [(f"{schema}.{name}", kind) for schema, name, kind in connection.execute(_OTHERS)]


def relation_of(
    connection: "psycopg.Connection[tuple[Any, ...]]", table: Table, generated: str = ""
) -> Relation:
    """A table in its current version; ``generated``: see ``published_generated``."""
    rows = connection.execute(_COLUMNS, (table.oid, generated)).fetchall()
    columns = tuple(RelationColumn(*row) for row in rows)
    return Relation(table.oid, table.schema, table.name, columns, table.full_identity)


def large_columns(
    connection: "psycopg.Connection[tuple[Any, ...]]", table: Table, generated: str = ""
) -> list[str]:
    """The columns that a change leaves out unless it modifies them, if they are large."""
    if table.full_identity:
        return []
    return [name for (name,) in connection.execute(_LARGE_COLUMNS, (table.oid, generated))]


def name_of(connection: "psycopg.Connection[tuple[Any, ...]]", oid: int) -> str | None:
    """The current ``schema.table`` of a table; None if it does not exist."""
    row = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = %s",
        (oid,),
    ).fetchone()
    return None if row is None else f"{row[0]}.{row[1]}"


def primary_key_of(
    connection: "psycopg.Connection[tuple[Any, ...]]", relation: Relation
) -> list[str]:
    """The columns of a table's primary key, else its replica identity.

    The primary key is the current one, while the relation may be an earlier version with other
    column names.

    Raises:
        ServerError: The server does not send a column of the key.
    """
    rows = connection.execute(_PRIMARY_KEY, (relation.oid,)).fetchall()
    names = [name for (name,) in rows]
    sent = {each.name for each in relation.columns}
    rows = connection.execute(_GENERATED_KEY_COLUMNS, (relation.oid,)).fetchall()
    unsent = [name for (name,) in rows if name not in sent]
    if unsent:
        raise ServerError(f"table {relation.name} {generated_key_fault(unsent)}")
    identity = [each.name for each in relation.columns if each.in_identity]
    if identity and not (names and set(names) <= set(identity)):
        return [] if relation.full_identity else identity
    return names


def generated_key_fault(columns: Sequence[str]) -> str:
    """Why records of a table with generated columns in its key would have a wrong key."""
    return (
        f"has the generated column {columns[0]!r} in its key, which the server does not publish: "
        "set REPLICA IDENTITY FULL and message.key.columns to other columns, or exclude the table"
    )


def key_of(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    relation: Relation,
    asked_for: Sequence[str] | None,
) -> list[str]:
    """The columns of a table's keys: the ``asked_for`` ones, else the primary key.

    Raises:
        ServerError: The table, or its replica identity, lacks a column.
    """
    if asked_for is None:
        return primary_key_of(connection, relation)
    columns = {each.name: each for each in relation.columns}
    for name in asked_for:
        if name not in columns:
            raise ServerError(f"table {relation.name} has no column {name!r} for its key")
        if not columns[name].in_identity:
            raise ServerError(
                f"column {name!r} cannot be in the key of table {relation.name}, as the server "
                "does not send it with deletions: ALTER TABLE … REPLICA IDENTITY FULL"
            )
    return list(asked_for)


def types_of(connection: "psycopg.Connection[tuple[Any, ...]]") -> "DatabaseTypes":
    """The types of the database; nested domains are resolved."""
    from drover.connectors.postgres.values import DatabaseTypes

    found = {oid: (base, modifier) for oid, base, modifier in connection.execute(_DOMAINS)}
    for oid, (base, modifier) in found.items():
        seen = {oid}
        while base in found and base not in seen:
            seen.add(base)
            base, modifier = found[base]
        found[oid] = (base, modifier)
    arrays = dict(connection.execute(_ARRAYS).fetchall())
    hstores = frozenset(oid for (oid,) in connection.execute(_HSTORES))
    return DatabaseTypes(found, arrays, hstores)


def slot_of(connection: "psycopg.Connection[tuple[Any, ...]]", name: str) -> Slot | None:
    """The slot with this name."""
    row = connection.execute(
        "SELECT plugin, database, active_pid, (confirmed_flush_lsn - '0/0')::bigint,"
        " coalesce(wal_status = 'lost', false) FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    return None if row is None else Slot(*row)


def log_end(connection: "psycopg.Connection[tuple[Any, ...]]") -> int:
    """The end of the server's log."""
    row = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])


def lsn_text(position: int) -> str:
    """A position in the server's log as PostgreSQL shows it, such as "0/16B3748"."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def lag_of(connection: "psycopg.Connection[tuple[Any, ...]]", slot: str) -> tuple[int, int]:
    """The bytes of the log after the slot's confirmed position, and the bytes that the server
    retains for it; zeros without the slot.
    """
    row = connection.execute(
        "SELECT pg_current_wal_lsn() - confirmed_flush_lsn, pg_current_wal_lsn() - restart_lsn"
        " FROM pg_replication_slots WHERE slot_name = %s",
        (slot,),
    ).fetchone()
    unread, kept = row or (None, None)
    return max(0, int(unread or 0)), max(0, int(kept or 0))


def attached_partitions(
    connection: "psycopg.Connection[tuple[Any, ...]]", roots: Sequence[int]
) -> list[tuple[int, int, int]]:
    """The partitions of tables that existed before they were attached and have rows: each with its
    table and the transaction that attached it. A partition that was created as one has the same
    transaction as its columns.
    """
    if not roots:
        return []
    rows = connection.execute(
        "SELECT l.relid::oid, r.oid, h.xmin::text::bigint FROM unnest(%s::oid[]) AS r (oid)"
        " CROSS JOIN LATERAL pg_partition_tree(r.oid) AS l JOIN pg_inherits h ON"
        " h.inhrelid = l.relid JOIN pg_attribute a ON a.attrelid = l.relid AND a.attnum = -1"
        " WHERE l.level > 0 AND a.xmin <> h.xmin AND EXISTS (SELECT FROM"
        " pg_partition_tree(l.relid) AS p WHERE p.isleaf AND pg_relation_size(p.relid) > 0)",
        (list(roots),),
    )
    return [(int(partition), int(root), int(xid)) for partition, root, xid in rows]
