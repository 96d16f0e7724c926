"""An Iceberg table whose commits fail after any concurrent commit."""

from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate


class ExactTable(Table):
    """A table whose commits fail after a concurrent commit: the library would rebase a commit onto
    it without checking its offsets.
    """

    @classmethod
    def of(cls, table: Table) -> "ExactTable":
        """The table, in the version that was read."""
        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        metadata = table.metadata.model_copy(update={"properties": properties})
        return cls(table.name(), metadata, table.metadata_location, table.io, table.catalog)

    def _do_commit(self, updates: Any, requirements: Any) -> None:
        try:
            super()._do_commit(updates, requirements)
        except CommitFailedException:
            # a proxy may retry a commit after a lost response, and get a conflict; the library
            # would then remove files that the table uses
            if not self._has(updates):
                raise

    def _has(self, updates: Any) -> bool:
        """Whether the table has the snapshots of these updates."""
        wanted = {
            each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)
        }
        snapshots = self.catalog.load_table(self.name()).metadata.snapshots
        return bool(wanted) and wanted <= {each.snapshot_id for each in snapshots}
