"""Which of the wanted tables are captured, and why the others are not."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from drover.connectors.postgres.publications import (
    Publication,
    published,
    split_tables,
    why_split,
    why_unpublished,
)
from drover.connectors.postgres.server import Table
from drover.connectors.postgres.settings import (
    ALL_TABLES,
    AUTOCREATE,
    FILTERED,
    INITIAL_ONLY,
    SNAPSHOT_MODE,
    USER,
    publication_name,
    why_left_out,
)

if TYPE_CHECKING:
    import psycopg


def divided(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    config: Mapping[str, Any],
    tables: Mapping[str, Table],
    is_read: Callable[[Table], bool],
    refused: Mapping[str, str],
    sent: Collection[str],
) -> tuple[dict[str, Table], dict[str, str]]:
    """The captured tables, and the reasons of the others.

    Args:
        connection: The server.
        config: The parsed config.
        tables: The wanted tables.
        is_read: Whether the rows of a table have been read.
        refused: The tables that cannot be added to the publication, with the reason.
        sent: The tables of the publication.
    """
    left_out = {
        name: why
        for name, each in tables.items()
        if (why := why_left_out(each, config, read=is_read(each))) is not None
    } | {name: why for name, why in refused.items() if name in tables}
    captured = dict(tables)
    if config[SNAPSHOT_MODE] != INITIAL_ONLY:
        captured = {name: each for name, each in tables.items() if name in sent}
        unsent = [each for name, each in tables.items() if each.partitioned and name not in sent]
        if unsent:
            name = publication_name(config)
            split = split_tables(connection, name)
            left_out |= {each.id: why_split(name) for each in unsent if each.oid in split}
    return {name: each for name, each in captured.items() if name not in left_out}, left_out


def publishable(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    config: Mapping[str, Any],
    publication: Publication | None,
    tables: Mapping[str, Table],
) -> tuple[set[str], dict[str, str]]:
    """The tables of the publication when a task has started, and the reasons of the tables that
    cannot be added.

    ``publication`` is None if there is none yet.
    """
    sent = published(connection, publication_name(config))
    if publication is None and config[AUTOCREATE] == ALL_TABLES:
        return {*tables}, {}
    if config[AUTOCREATE] != FILTERED or (publication is not None and publication.all_tables):
        return sent, {}
    split = {*split_tables(connection, publication_name(config))}
    refused = {
        name: why
        for name, each in tables.items()
        if name not in sent
        and (why := why_unpublished(each, publication, config[USER])) is not None
    }
    is_split = publication is not None and not publication.via_root
    added = {
        name
        for name, each in tables.items()
        if name not in refused and not (is_split and each.oid in split)
    }
    return sent | added, refused
