"""Reads the first rows of tables for previews, without a slot or another publication."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from drover.connector import ArrowRows, SourceBatch, SourceTask, SourceTaskContext
from drover.connectors.postgres.publications import publication_of, published_generated
from drover.connectors.postgres.server import translated_errors, types_of
from drover.connectors.postgres.settings import (
    INITIAL_ONLY,
    NEVER,
    NO_DATA,
    SNAPSHOT_MODE,
    address_of,
    key_columns,
    publication_name,
    wanted_tables,
)
from drover.connectors.postgres.table_choice import divided, publishable

if TYPE_CHECKING:
    import pyarrow as pa

    from drover.connectors.postgres.snapshot import PagesReader, Snapshot

#: Larger than any table, so that each relation is one part.
_PART_BYTES = 1 << 62


@dataclass(frozen=True)
class FirstRowsReader:
    """Reads the first row of each part, and then the other rows; for ArrowRows."""

    parts: "tuple[PagesReader, ...]"

    def __call__(self, number: int) -> "Iterator[pa.RecordBatch]":
        """The first row of a part, or its other rows."""
        is_rest, place = divmod(number, len(self.parts))
        skipped = 0
        for batch in self.parts[place](0):
            if is_rest:
                yield batch.slice(1 - skipped)
                skipped = 1
            elif batch.num_rows:
                yield batch.slice(0, 1)
                return


class PostgresCdcPreviewTask(SourceTask):
    """Reads the tables that a new task would read, from a snapshot."""

    _snapshot: "Snapshot | None" = None

    def start(self, context: SourceTaskContext) -> None:
        """Open a snapshot of the tables."""
        from drover.connectors.postgres.record_shapes import record_shape
        from drover.connectors.postgres.snapshot import Snapshot

        config, address = context.config, address_of(context.config)
        self._batch: SourceBatch | None = None
        if config[SNAPSHOT_MODE] in (NO_DATA, NEVER):
            return
        with translated_errors(address, "preparing"), address.connected() as connection:
            wanted = {each.id: each for each in wanted_tables(connection, config)}
            name = publication_name(config)
            sent: Any = wanted
            refused: dict[str, str] = {}
            if config[SNAPSHOT_MODE] != INITIAL_ONLY:
                found = publication_of(connection, name)
                sent, refused = publishable(connection, config, found, wanted)
            tables, _ = divided(connection, config, wanted, _is_unread, refused, sent)
            generated = published_generated(connection, name)
            shape = record_shape(config, types_of(connection))
        if not tables:
            return
        self._snapshot = Snapshot(
            address,
            list(tables.values()),
            "drover preview",
            partial(key_columns, config),
            part_bytes=_PART_BYTES,
            generated=generated,
        )
        parts = tuple(r for _, r in self._snapshot.batches(shape, 1) if r is not None)
        if parts:
            rows = ArrowRows(context.spark, FirstRowsReader(parts), 2 * len(parts), None)
            self._batch = SourceBatch(rows, [])

    def poll(self) -> SourceBatch | None:
        """The rows, once."""
        batch, self._batch = self._batch, None
        return batch

    def stop(self) -> None:
        """Close the snapshot."""
        if self._snapshot is not None:
            self._snapshot.close()


def _is_unread(table: object) -> bool:
    del table
    return False
