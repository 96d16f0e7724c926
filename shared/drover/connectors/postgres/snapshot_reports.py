"""Reports the progress of snapshots in the log and in the task's status."""

import logging
from collections.abc import Callable, Mapping, Sequence

from drover.connector import SnapshotProgress
from drover.connectors.postgres.server import Table

_log = logging.getLogger(__name__)

_NAMED_MAX = 20


class SnapshotReports:
    """Reports each step once.

    Args:
        report: ``SourceTaskContext.report_snapshot``.
    """

    def __init__(self, report: Callable[[SnapshotProgress | None], None]) -> None:
        self._report = report
        self._row_counts: Mapping[str, int | None] = {}
        self._left: list[str] = []
        self._table = ""

    def began(
        self, tables: Sequence[Table], row_counts: Mapping[str, int | None], position: str
    ) -> None:
        """A snapshot of some tables began; ``row_counts`` has estimates by the tables' ids."""
        self._row_counts, self._left = row_counts, [each.id for each in tables]
        self._table = ""
        named = ", ".join(self._left[:_NAMED_MAX])
        more = f" and {len(self._left) - _NAMED_MAX} more" if len(self._left) > _NAMED_MAX else ""
        _log.info(
            "a snapshot of %d tables began at LSN %s: %s%s", len(tables), position, named, more
        )

    def reading(self, table: Table) -> None:
        """A batch of a table is being read."""
        if table.id == self._table:
            return
        self._table = table.id
        count = self._row_counts.get(table.id)
        self._report(SnapshotProgress(table.id, count, len(self._left)))
        about = "an unknown number of" if count is None else f"about {count}"
        _log.info("reading table %s, %s rows", table.id, about)

    def read(self, table: Table) -> None:
        """A table was read completely."""
        _log.info("table %s was read", table.id)
        self._left = [each for each in self._left if each != table.id]
        if not self._left:
            self._report(None)
            _log.info("the snapshot is complete")

    def streaming(self, slot: str, position: str) -> None:
        """The task follows the changes from a position on."""
        self._report(None)
        _log.info("streaming changes from LSN %s of slot %s", position, slot)
