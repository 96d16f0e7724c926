"""Removing old batches by age and by size."""

import sqlite3

from drover.dataplane.values import RetentionResult

#: Batches removed in one transaction, so that writers never wait long.
BATCHES_AT_ONCE = 64
#: Pages given back to the file system in one transaction.
PAGES_AT_ONCE = 4_000


def apply(
    connection: sqlite3.Connection,
    *,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> RetentionResult:
    """Remove up to ``BATCHES_AT_ONCE`` batches, always the oldest of their partition."""
    doomed: dict[tuple[str, int, int], tuple[int, int, int]] = {}
    if retention_ms is not None:
        rows = connection.execute(
            "SELECT topic, partition, base_offset, record_count, size_bytes, blob_id FROM batches"
            " WHERE created_ms < ? ORDER BY created_ms, base_offset LIMIT ?",
            (now_ms - retention_ms, BATCHES_AT_ONCE),
        )
        doomed.update({(row[0], row[1], row[2]): (row[3], row[4], row[5]) for row in rows})
    if retention_bytes is not None:
        _add_oversize(connection, retention_bytes, doomed)
    removed_records = removed_bytes = 0
    for (topic, partition, base), (count, size, blob_id) in doomed.items():
        connection.execute(
            "DELETE FROM batches WHERE topic = ? AND partition = ? AND base_offset = ?",
            (topic, partition, base),
        )
        connection.execute("DELETE FROM blobs WHERE blob_id = ?", (blob_id,))
        connection.execute(
            "UPDATE partitions SET start_offset = max(start_offset, ?)"
            " WHERE topic = ? AND partition = ?",
            (base + count, topic, partition),
        )
        removed_records += count
        removed_bytes += size
    if doomed:
        connection.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
    return RetentionResult(len(doomed), removed_records, removed_bytes)


def _add_oversize(
    connection: sqlite3.Connection,
    retention_bytes: int,
    doomed: dict[tuple[str, int, int], tuple[int, int, int]],
) -> None:
    sizes = connection.execute(
        "SELECT topic, partition, sum(size_bytes) AS total FROM batches"
        " GROUP BY topic, partition HAVING total > ?",
        (retention_bytes,),
    ).fetchall()
    for topic, partition, total in sizes:
        excess = total - retention_bytes
        rows = connection.execute(
            "SELECT base_offset, record_count, size_bytes, blob_id FROM batches"
            " WHERE topic = ? AND partition = ? ORDER BY base_offset LIMIT ?",
            (topic, partition, BATCHES_AT_ONCE),
        )
        for base, count, size, blob_id in rows:
            if excess <= 0:
                break
            doomed[topic, partition, base] = (count, size, blob_id)
            excess -= size
