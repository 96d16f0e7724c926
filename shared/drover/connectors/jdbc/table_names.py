"""The names of a sink's tables: their parts, and what databases do not take."""

import re
from collections.abc import Callable, Iterator, Mapping

from drover.connectors.jdbc.write_settings import split_name

TOPIC = "${topic}"
#: What helps if a topic's name has dots.
ROUTER = (
    "rename the topics with a RegexRouter (transforms.route.regex=.*\\.(.*), "
    'transforms.route.replacement=$1), or quote the name: table.name.format="${topic}"'
)
#: The limit of a name's bytes (PostgreSQL, which cuts longer names) or characters (MySQL).
_POSTGRES_BYTES, _MYSQL_CHARS = 63, 64
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")


def format_fault(text: str) -> str | None:
    """Why a format or a name of a table is none, on any database."""
    unknown = [each for each in _PLACEHOLDER.findall(text) if each != TOPIC]
    if unknown:
        return f"has the unknown placeholder {unknown[0]}: only {TOPIC} is replaced"
    if "\0" in text:
        return "must not contain the character NUL"
    try:
        schema, own = split_name(text)
    except ValueError as error:
        return str(error)
    if not own.strip() or (schema is not None and not schema.strip()):
        return "has an empty part: it must be NAME or SCHEMA.NAME"
    return None


def no_schema(topic: str, table: str, schema: str) -> str:
    """The message about a schema that does not exist."""
    own = split_name(table)[1]
    text = f"topic {topic!r} has the table {own!r} of schema {schema!r}, which does not exist: "
    return f"{text}{ROUTER}" if "." in topic else f"{text}create it (CREATE SCHEMA)"


def name_fault(name: str, dialect: str) -> str | None:
    """Why a database does not take the name of a table or column."""
    if dialect == "postgresql" and len(name.encode()) > _POSTGRES_BYTES:
        return (
            f"has {len(name.encode())} bytes, and PostgreSQL cuts names to {_POSTGRES_BYTES}: "
            "rename it with a transform"
        )
    if dialect in ("mysql", "mariadb"):
        if len(name) > _MYSQL_CHARS:
            return (
                f"has {len(name)} characters, and the server takes {_MYSQL_CHARS}: rename it with "
                "a transform"
            )
        if name.endswith(" "):
            return "must not end with a blank"
    return None


def shared_tables(
    tables: Mapping[str, str], same: Callable[[str], str]
) -> Iterator[tuple[str, str, str]]:
    """Pairs of topics with different table names that are one table for the database, and the
    table; ``tables`` are tables by topic, ``same`` maps equal names to one.
    """
    seen: dict[str, tuple[str, str]] = {}
    for topic, table in tables.items():
        first = seen.setdefault(same(table), (topic, table))
        if first[1] != table:
            yield first[0], topic, table
