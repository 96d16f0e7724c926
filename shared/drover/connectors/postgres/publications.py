"""Publications: the tables whose changes a server sends, and the operations it leaves out."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drover.connectors.postgres.remedies import NO_PRIVILEGE, identifier
from drover.connectors.postgres.server import (
    ServerAddress,
    Table,
    first_line,
    translated_errors,
)

if TYPE_CHECKING:
    import psycopg

#: The operations of ``skipped.operations``, in the names of publications.
OPERATIONS = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication of the server.

    Attributes:
        name: Its name.
        all_tables: Whether it publishes every table.
        owned: Whether the user may alter it, as its owner.
        via_root: Whether it publishes changes of partitions as changes of their table.
        unsent: The operations that it does not publish, as ``c``, ``u``, ``d`` and ``t``.
    """

    name: str
    all_tables: bool
    owned: bool
    via_root: bool
    unsent: frozenset[str]


def publication_of(
    connection: "psycopg.Connection[tuple[Any, ...]]", name: str
) -> Publication | None:
    """The publication with this name."""
    row = connection.execute(
        "SELECT puballtables, pg_has_role(pubowner, 'USAGE'), pubviaroot,"
        " ARRAY[pubinsert, pubupdate, pubdelete, pubtruncate]"
        " FROM pg_publication WHERE pubname = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    unsent = [each for each, is_sent in zip(OPERATIONS, row[3], strict=True) if not is_sent]
    return Publication(name, row[0], row[1], row[2], frozenset(unsent))


def published_generated(connection: "psycopg.Connection[tuple[Any, ...]]", publication: str) -> str:
    """The kind of generated columns that a publication includes: ``s`` (stored, from PostgreSQL 18
    on), or empty for none.
    """
    if connection.info.server_version < 180_000:
        return ""
    row = connection.execute(
        "SELECT pubgencols::text FROM pg_publication WHERE pubname = %s", (publication,)
    ).fetchone()
    return "s" if row == ("s",) else ""


def published(connection: "psycopg.Connection[tuple[Any, ...]]", publication: str) -> set[str]:
    """The tables of a publication, as ``schema.table``."""
    rows = connection.execute(
        "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (publication,)
    )
    return {f"{schema}.{name}" for schema, name in rows}


def split_tables(connection: "psycopg.Connection[tuple[Any, ...]]", publication: str) -> set[int]:
    """The partitioned tables whose changes a publication sends under the names of partitions."""
    rows = connection.execute(
        "SELECT DISTINCT pg_partition_root(c.oid)::oid FROM pg_publication_tables t"
        " JOIN pg_namespace n ON n.nspname = t.schemaname"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename"
        " WHERE t.pubname = %s AND c.relispartition",
        (publication,),
    )
    return {int(oid) for (oid,) in rows}


def restricted_tables(
    connection: "psycopg.Connection[tuple[Any, ...]]", publication: str
) -> set[str]:
    """The tables, as ``schema.table``, of which a publication sends only some rows or columns."""
    if connection.info.server_version < 150_000:
        return set()
    rows = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_publication p"
        " JOIN pg_publication_rel r ON r.prpubid = p.oid"
        " JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE p.pubname = %s AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)",
        (publication,),
    )
    return {f"{schema}.{name}" for schema, name in rows}


def unsent_operations(publication: Publication, skipped: Collection[str]) -> str | None:
    """A warning about operations that are missing in the records although they are not skipped."""
    unsent = [name for each, name in OPERATIONS.items() if each in publication.unsent - {*skipped}]
    if not unsent:
        return None
    return (
        f"publication {publication.name!r} does not send {', '.join(unsent)}, so these changes are "
        f"missing: ALTER PUBLICATION {identifier(publication.name)} SET (publish = "
        f"'{', '.join(OPERATIONS.values())}')"
    )


def why_unpublished(table: Table, publication: Publication | None, user: str) -> str | None:
    """What keeps the user from adding a table to a publication, as a predicate; None if nothing
    does. ``publication`` is None if it must be created.
    """
    reasons = (why_not_owned(table, user), why_not_altered(table, publication, user))
    return ", and ".join(filter(None, reasons)) or None


def why_not_owned(table: Table, user: str) -> str | None:
    """Why the user may not publish a table, as a predicate; None if it may."""
    if table.owned:
        return None
    return (
        "belongs to another role, and only its owner may publish it: "
        f"ALTER TABLE {identifier(table.schema, table.name)} OWNER TO {identifier(user)}"
    )


def why_not_altered(table: Table, publication: Publication | None, user: str) -> str | None:
    """Why the user may not add anything to the publication, as a predicate of a table that it
    lacks; None if it may.
    """
    if publication is None or publication.owned:
        return None
    own = identifier(publication.name)
    return (
        f"is not in publication {publication.name!r}, which belongs to another role: ALTER "
        f"PUBLICATION {own} ADD TABLE {identifier(table.schema, table.name)}, or ALTER "
        f"PUBLICATION {own} OWNER TO {identifier(user)}"
    )


def why_split(publication: str) -> str:
    """Why a partitioned table of ``split_tables`` is not captured, as a predicate."""
    return (
        "is sent only under the names of its partitions: ALTER PUBLICATION "
        f"{identifier(publication)} SET (publish_via_partition_root = true), with the table in it"
    )


def creation_remedy(address: ServerAddress) -> str:
    """The statement that lets the user create a publication."""
    return f"GRANT CREATE ON DATABASE {identifier(address.database)} TO {identifier(address.user)}"


def create(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    address: ServerAddress,
    name: str,
    *,
    all_tables: bool = False,
) -> None:
    """Create a publication, without tables or for all tables.

    Raises:
        ServerError: The user may not create it.
    """
    options = f"{'FOR ALL TABLES ' * all_tables}WITH (publish_via_partition_root = true)"
    statement = f"CREATE PUBLICATION {identifier(name)} {options}"
    remedy = creation_remedy(address)
    if all_tables:
        remedy = f"ALTER ROLE {identifier(address.user)} SUPERUSER"
    with translated_errors(address, statement, {NO_PRIVILEGE: remedy}):
        connection.execute(statement.encode())


def publish(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    address: ServerAddress,
    name: str,
    tables: Sequence[Table],
) -> dict[str, str]:
    """Create a publication with at least these tables, or add missing ones.

    Returns: The tables that the server does not let the user publish, with the reason.

    Raises:
        ServerError: The user may not create the publication.
    """
    import psycopg

    found = publication_of(connection, name)
    if found is not None and found.all_tables:
        return {}
    if found is None:
        create(connection, address, name)
    there = published(connection, name)
    missing = [each for each in tables if each.id not in there]
    reasons = {each.id: why_unpublished(each, found, address.user) for each in missing}
    refused = {table: why for table, why in reasons.items() if why is not None}
    lacking = [each for each in missing if each.id not in refused]
    try:
        if lacking:
            connection.execute(_addition(name, lacking))
    except psycopg.ProgrammingError:
        for each in lacking:
            try:
                connection.execute(_addition(name, [each]))
            except psycopg.ProgrammingError as error:
                refused[each.id] = f"cannot be published: {first_line(error)}"
    return refused


def _addition(publication: str, tables: Sequence[Table]) -> bytes:
    names = ", ".join(identifier(each.schema, each.name) for each in tables)
    return f"ALTER PUBLICATION {identifier(publication)} ADD TABLE {names}".encode()
