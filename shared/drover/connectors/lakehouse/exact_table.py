"""A table of Iceberg that is committed to as it was read, or not at all."""

from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate


class ExactTable(Table):
    """Its commits fail when there was another one: a commit that the library adapts to that would
    have offsets that it did not look at.
    """

    @classmethod
    def of(cls, table: Table) -> "ExactTable":
        """This table, as it was read."""
        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        metadata = table.metadata.model_copy(update={"properties": properties})
        return cls(table.name(), metadata, table.metadata_location, table.io, table.catalog)

    def _do_commit(self, updates: Any, requirements: Any) -> None:
        try:
            super()._do_commit(updates, requirements)
        except CommitFailedException:
            # a proxy may repeat a commit whose answer it lost, and that is refused; the library
            # would remove files that the table has
            if not self._has(updates):
                raise

    def _has(self, updates: Any) -> bool:
        """Whether the snapshots of these updates are in the table."""
        wanted = {
            each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)
        }
        snapshots = self.catalog.load_table(self.name()).metadata.snapshots
        return bool(wanted) and wanted <= {each.snapshot_id for each in snapshots}
