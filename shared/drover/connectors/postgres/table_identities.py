"""Which captured table is meant: PostgreSQL identifies a table by its number, not by its name."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drover.connectors.postgres.pgoutput import Relation
from drover.connectors.postgres.server import Table, attached_partitions, name_of
from drover.connectors.postgres.settings import is_wanted, wanted_tables
from drover.connectors.postgres.snapshot_point import SnapshotPoint

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger(__name__)


class TableIdentities:
    """The names and numbers of captured tables, now and before renames.

    Attributes:
        captured: The captured tables, including renamed ones under their former names.
        points: The committed points of tables, including former ones.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.captured: dict[str, Table] = {}
        self.points: dict[str, SnapshotPoint | None] = {}
        #: Attached partitions that the last reading of their table includes.
        self._attached: set[int] = set()

    def is_replaced(self, table: Table, begun: Mapping[str, SnapshotPoint]) -> bool:
        """Whether another table had the name of this one, or this one another name since."""
        if self.captured.get(table.id, table).oid != table.oid:
            return True
        points = {**self.points, **begun}
        point = points.get(table.id)
        if point is None or point.oid is None:
            return False
        later = (p for p in points.values() if p and p.oid == table.oid and p.lsn > point.lsn)
        return point.oid != table.oid or any(True for _ in later)

    def with_attached(
        self,
        connection: "psycopg.Connection[tuple[Any, ...]]",
        tables: Mapping[str, Table],
        seen: "Mapping[str, SnapshotPoint | None]",
    ) -> set[str]:
        """The tables that got a partition with rows since they were read: the log lacks
        its rows.
        """
        read = {
            table.oid: (name, point)
            for name, table in tables.items()
            if table.partitioned and (point := seen.get(name)) is not None
        }
        found = set()
        for partition, root, xid in attached_partitions(connection, list(read)):
            name, point = read[root]
            if partition not in self._attached and not point.has_seen_id(xid):
                self._attached.add(partition)
                found.add(name)
        return found

    def former_name(self, relation: Relation) -> Table | None:
        """The captured table that has another name in the log; None if it has its own."""
        captured = self.captured.get(relation.name)
        if captured is not None and captured.oid == relation.oid:
            return None
        points = {name: point for name, point in self.points.items() if point is not None}
        found = {name for name, each in self.captured.items() if each.oid == relation.oid}
        found |= {name for name, each in points.items() if each.oid == relation.oid}
        if not found or relation.name in found:
            return None
        name = max(found, key=lambda each: points[each].lsn if each in points else 0)
        if name in self.captured:
            return self.captured[name]
        schema, _, own = name.partition(".")
        return Table(relation.oid, schema, own, False, relation.full_identity, True)

    def keeps_name(
        self,
        connection: "psycopg.Connection[tuple[Any, ...]]",
        relation: Relation,
        former: Table,
    ) -> bool:
        """Whether changes of a renamed table belong to its former name: it has that name again, or
        no table has it and the lists do not select the new one.
        """
        if name_of(connection, relation.oid) == former.id:
            return True
        config = self._config
        if is_wanted(relation.schema, relation.name, config):
            return False
        if any(each.id == former.id for each in wanted_tables(connection, config)):
            return False
        _log.warning(
            "table %s was renamed to %s: its changes are captured as %s until another table has "
            "that name",
            *(former.id, relation.name, former.id),
        )
        return True
