"""Removes old batches by age and by size, always from the start of their partition.

Expired batches are found in a snapshot that blocks no writer; only the removal holds the file's
write lock. Freed pages are reused by new batches; a file with mostly free pages shrinks.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from drover.dataplane.values import RetentionResult

#: The most batches per transaction, so that writers never wait long: removed pages have to be read.
BATCHES_AT_ONCE = 256
BYTES_AT_ONCE = 8 * 1024 * 1024
#: The most pages per transaction that are returned to the file system; each moves another page.
PAGES_AT_ONCE = 512
#: The share of free pages that is kept for new batches.
FREE_SHARE_KEPT = 0.25


@dataclass(frozen=True, slots=True)
class ExpiredBatch:
    """A batch to remove."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    size_bytes: int
    blob_id: int


def find(
    connection: sqlite3.Connection,
    *,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> list[ExpiredBatch]:
    """The batches that one transaction may remove; empty if there are none."""
    oldest_ms = now_ms - retention_ms if retention_ms is not None else None
    excess = _excess_bytes(connection, retention_bytes)
    expired: list[ExpiredBatch] = []
    size_bytes = 0
    for topic, partition in sorted({*_aged(connection, oldest_ms), *excess}):
        over = excess.get((topic, partition), 0)
        rows = connection.execute(
            "SELECT base_offset, record_count, size_bytes, blob_id, created_ms FROM batches"
            " WHERE topic = ? AND partition = ? ORDER BY base_offset LIMIT ?",
            (topic, partition, BATCHES_AT_ONCE - len(expired)),
        )
        for base, count, size, blob_id, created_ms in rows:
            if over <= 0 and (oldest_ms is None or created_ms >= oldest_ms):
                break
            expired.append(ExpiredBatch(topic, partition, base, count, size, blob_id))
            over -= size
            size_bytes += size
            if size_bytes >= BYTES_AT_ONCE:
                return expired
        if len(expired) >= BATCHES_AT_ONCE:
            break
    return expired


def remove(connection: sqlite3.Connection, expired: Sequence[ExpiredBatch]) -> RetentionResult:
    """Remove these batches and advance the start offsets of their partitions."""
    for batch in expired:
        connection.execute(
            "DELETE FROM batches WHERE topic = ? AND partition = ? AND base_offset = ?",
            (batch.topic, batch.partition, batch.base_offset),
        )
        connection.execute("DELETE FROM blobs WHERE blob_id = ?", (batch.blob_id,))
        connection.execute(
            "UPDATE partitions SET start_offset = max(start_offset, ?)"
            " WHERE topic = ? AND partition = ?",
            (batch.base_offset + batch.record_count, batch.topic, batch.partition),
        )
    return RetentionResult(
        len(expired),
        sum(batch.record_count for batch in expired),
        sum(batch.size_bytes for batch in expired),
    )


def spare_pages(connection: sqlite3.Connection) -> int:
    """The number of pages to return, so that at most the kept share of the file is free."""
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
    return max(0, int((free - pages * FREE_SHARE_KEPT) / (1 - FREE_SHARE_KEPT)))


def shrink(connection: sqlite3.Connection, page_count: int) -> None:
    """Return some free pages to the file system."""
    for _ in range(min(page_count, PAGES_AT_ONCE)):
        # one page per call: Python executes only the first step of this statement
        connection.execute("PRAGMA incremental_vacuum(1)")


def _aged(connection: sqlite3.Connection, oldest_ms: int | None) -> list[tuple[str, int]]:
    """The partitions whose first batch is too old."""
    if oldest_ms is None:
        return []
    (first_ms,) = connection.execute("SELECT min(created_ms) FROM batches").fetchone()
    if first_ms is None or first_ms >= oldest_ms:
        return []
    return connection.execute(
        "SELECT topic, partition FROM partitions WHERE ? > (SELECT created_ms FROM batches"
        "  WHERE batches.topic = partitions.topic AND batches.partition = partitions.partition"
        "  ORDER BY base_offset LIMIT 1)",
        (oldest_ms,),
    ).fetchall()


def _excess_bytes(
    connection: sqlite3.Connection, retention_bytes: int | None
) -> dict[tuple[str, int], int]:
    """The size of each partition above the limit, for partitions above it."""
    if retention_bytes is None:
        return {}
    rows = connection.execute(
        "SELECT topic, partition, sum(size_bytes) AS total FROM batches"
        " GROUP BY topic, partition HAVING total > ?",
        (retention_bytes,),
    )
    return {(topic, partition): total - retention_bytes for topic, partition, total in rows}
