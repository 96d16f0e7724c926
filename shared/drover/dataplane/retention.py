"""Removes old batches by age and by size, always from the start of their partition.

A topic's own settings take precedence over the cluster's; a topic that is only compacted has
neither limit.

Expired batches are found in a snapshot that blocks no writer; only the removal holds the file's
write lock. Freed pages are reused by new batches; a file with mostly free pages shrinks.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.dataplane import compaction_state, topics
from drover.dataplane.topic_settings import RETENTION_BYTES, RETENTION_MS, TopicSettings
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
    """The batches that one transaction may remove; empty if there are none.

    ``retention_ms`` and ``retention_bytes`` are for topics without these settings; None for no
    limit.
    """
    limits = _Limits(connection, retention_ms, retention_bytes)
    excess = _excess_bytes(connection, limits)
    expired: list[ExpiredBatch] = []
    size_bytes = 0
    for topic, partition in sorted({*_aged(connection, limits, now_ms), *excess}):
        over, left = excess.get((topic, partition), (0, 0))
        age_ms = limits.of(topic).retention_ms
        oldest_ms = None if age_ms is None else now_ms - age_ms
        rows = connection.execute(
            "SELECT base_offset, record_count, size_bytes, blob_id, created_ms FROM batches"
            " WHERE topic = ? AND partition = ? ORDER BY base_offset LIMIT ?",
            (topic, partition, BATCHES_AT_ONCE - len(expired)),
        )
        for base, count, size, blob_id, created_ms in rows:
            is_aged = oldest_ms is not None and created_ms < oldest_ms
            # the newest batch is never removed for its size, unless the limit is 0
            if not is_aged and (over <= 0 or (over < left <= size)):
                break
            expired.append(ExpiredBatch(topic, partition, base, count, size, blob_id))
            over -= size
            left -= size
            size_bytes += size
            if size_bytes >= BYTES_AT_ONCE:
                return expired
        if len(expired) >= BATCHES_AT_ONCE:
            break
    return expired


def remove(connection: sqlite3.Connection, expired: Sequence[ExpiredBatch]) -> RetentionResult:
    """Remove these batches and advance the start offsets of their partitions.

    Nothing of a partition is removed behind a batch that compaction has replaced since ``find``.
    """
    removed = []
    replaced: set[tuple[str, int]] = set()
    for batch in expired:
        place = (batch.topic, batch.partition)
        if place in replaced:
            continue
        deleted = connection.execute(
            "DELETE FROM batches"
            " WHERE topic = ? AND partition = ? AND base_offset = ? AND blob_id = ?",
            (*place, batch.base_offset, batch.blob_id),
        )
        if not deleted.rowcount:
            replaced.add(place)
            continue
        compaction_state.forget(connection, batch.blob_id)
        connection.execute(
            "UPDATE partitions SET start_offset = max(start_offset, ?)"
            " WHERE topic = ? AND partition = ?",
            (batch.base_offset + batch.record_count, *place),
        )
        removed.append(batch)
    return RetentionResult(
        len(removed),
        sum(batch.record_count for batch in removed),
        sum(batch.size_bytes for batch in removed),
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


class _Limits:
    """The limits of each topic."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        retention_ms: int | None,
        retention_bytes: int | None,
    ) -> None:
        self._default = _Limit(retention_ms, retention_bytes)
        self._own: dict[str, _Limit] = {
            topic: self._limit_of(settings)
            for topic, settings in topics.settings(connection).items()
        }

    def of(self, topic: str) -> "_Limit":
        return self._own.get(topic, self._default)

    @property
    def least_age_ms(self) -> int | None:
        """The least age of all topics; None if none has a limit."""
        ages = [each.retention_ms for each in (self._default, *self._own.values())]
        return min((age for age in ages if age is not None), default=None)

    @property
    def least_bytes(self) -> int | None:
        """The least size of all topics; None if none has a limit."""
        sizes = [each.retention_bytes for each in (self._default, *self._own.values())]
        return min((size for size in sizes if size is not None), default=None)

    def _limit_of(self, own: Mapping[str, str]) -> "_Limit":
        parsed = TopicSettings.of(own)
        if not parsed.deletes:
            return _Limit(None, None)
        default = self._default
        return _Limit(
            parsed.retention_ms if RETENTION_MS in own else default.retention_ms,
            parsed.retention_bytes if RETENTION_BYTES in own else default.retention_bytes,
        )


@dataclass(frozen=True, slots=True)
class _Limit:
    retention_ms: int | None
    retention_bytes: int | None


def _aged(connection: sqlite3.Connection, limits: _Limits, now_ms: int) -> list[tuple[str, int]]:
    """The partitions whose first batch is too old."""
    least_age_ms = limits.least_age_ms
    if least_age_ms is None:
        return []
    (first_ms,) = connection.execute("SELECT min(created_ms) FROM batches").fetchone()
    if first_ms is None or first_ms >= now_ms - least_age_ms:
        return []
    rows = connection.execute(
        "SELECT topic, partition, (SELECT created_ms FROM batches"
        "  WHERE batches.topic = partitions.topic AND batches.partition = partitions.partition"
        "  ORDER BY base_offset LIMIT 1) AS first_ms FROM partitions WHERE first_ms < ?",
        (now_ms - least_age_ms,),
    )
    found = []
    for topic, partition, created_ms in rows:
        age_ms = limits.of(topic).retention_ms
        if age_ms is not None and created_ms < now_ms - age_ms:
            found.append((topic, partition))
    return found


def _excess_bytes(
    connection: sqlite3.Connection, limits: _Limits
) -> dict[tuple[str, int], tuple[int, int]]:
    """The size of each partition above its limit, and its whole size, for partitions above it."""
    least_bytes = limits.least_bytes
    if least_bytes is None:
        return {}
    rows = connection.execute(
        "SELECT topic, partition, sum(size_bytes) AS total FROM batches"
        " GROUP BY topic, partition HAVING total > ?",
        (least_bytes,),
    )
    found = {}
    for topic, partition, total in rows:
        limit = limits.of(topic).retention_bytes
        if limit is not None and total > limit:
            found[topic, partition] = total - limit, total
    return found
