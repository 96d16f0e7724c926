"""The stored side of compaction: which partitions need it, and the replacement of batches.

A compacted batch covers the same offsets as the batches that it replaces, so the batches of a
partition have no gaps between them. Inside it offsets are missing; its blob has the offset of each
record.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from drover.dataplane import topics
from drover.dataplane.topic_settings import TopicSettings, compacts, with_defaults

#: A smaller partition is compacted after every write, a larger one when the bytes since the last
#: pass are this share of all (as Kafka's min.cleanable.dirty.ratio), so that the work stays in
#: proportion to the writes.
SMALL_BYTES = 4 * 1024 * 1024
DIRTY_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch of a partition. ``offset_count`` offsets belong to it. ``tombstone_ms`` is the
    earliest time at which a pass kept a tombstone in it; None if it has none, or was never
    compacted.
    """

    base_offset: int
    offset_count: int
    size_bytes: int
    created_ms: int
    blob_id: int
    tombstone_ms: int | None = None

    @property
    def end_offset(self) -> int:
        """The offset after the last one."""
        return self.base_offset + self.offset_count


@dataclass(frozen=True, slots=True)
class CompactedBatch:
    """What replaces batches; ``tombstone_ms`` as in StoredBatch."""

    payload: bytes
    record_count: int
    size_bytes: int
    tombstone_ms: int | None


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """A partition to compact: the batches that may be compacted, from the start of the partition.

    ``clean_offset`` is where the records begin that no pass has seen.
    """

    topic: str
    topic_id: str
    partition: int
    settings: TopicSettings
    batches: Sequence[StoredBatch]
    clean_offset: int


def due(connection: sqlite3.Connection, now_ms: int) -> list[tuple[str, int]]:
    """The partitions that need a pass."""
    found = []
    defaults = topics.default_settings(connection)
    for topic, own in topics.settings(connection).items():
        if compacts(own):
            settings = TopicSettings.of(with_defaults(own, defaults))
            rows = connection.execute(
                "SELECT partition FROM partitions WHERE topic = ? ORDER BY partition", (topic,)
            )
            found += [
                (topic, partition)
                for (partition,) in rows.fetchall()
                if _is_due(connection, topic, partition, settings, now_ms)
            ]
    return found


def work(
    connection: sqlite3.Connection, topic: str, partition: int, now_ms: int
) -> CompactionWork | None:
    """What a pass over a partition may change; None if the topic is gone or not compacted."""
    own = topics.settings(connection).get(topic, {})
    topic_id = topics.ids(connection).get(topic)
    if topic_id is None or not compacts(own):
        return None
    settings = TopicSettings.of(with_defaults(own, topics.default_settings(connection)))
    latest_ms = now_ms - settings.min_compaction_lag_ms
    rows = connection.execute(
        "SELECT base_offset, batches.record_count, size_bytes, created_ms, blob_id, tombstone_ms"
        " FROM batches LEFT JOIN compacted_blobs USING (blob_id)"
        " WHERE topic = ? AND partition = ? ORDER BY base_offset",
        (topic, partition),
    )
    batches = []
    for row in rows:
        batch = StoredBatch(*row)
        if batch.created_ms > latest_ms:
            break
        batches.append(batch)
    clean_offset = _clean_offset(connection, topic, partition)
    return CompactionWork(topic, topic_id, partition, settings, batches, clean_offset)


def replace(
    connection: sqlite3.Connection,
    of: CompactionWork,
    replaced: Sequence[StoredBatch],
    by: CompactedBatch,
) -> bool:
    """Replace neighbouring batches; False if retention or another pass changed them."""
    first, last = replaced[0], replaced[-1]
    where = "topic = ? AND partition = ? AND base_offset BETWEEN ? AND ?"
    place = (of.topic, of.partition, first.base_offset, last.base_offset)
    rows = connection.execute(
        f"SELECT blob_id FROM batches WHERE {where} ORDER BY base_offset", place
    )
    # the ids of blobs are never used again, so they identify the topic too
    if [blob_id for (blob_id,) in rows] != [each.blob_id for each in replaced]:
        return False
    connection.execute(f"DELETE FROM batches WHERE {where}", place)
    for each in replaced:
        forget(connection, each.blob_id)
    blob_id = connection.execute("INSERT INTO blobs (payload) VALUES (?)", (by.payload,)).lastrowid
    connection.execute(
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            of.topic,
            of.partition,
            first.base_offset,
            last.end_offset - first.base_offset,
            by.size_bytes,
            max(each.created_ms for each in replaced),
            blob_id,
        ),
    )
    connection.execute(
        "INSERT INTO compacted_blobs VALUES (?, ?, ?)", (blob_id, by.record_count, by.tombstone_ms)
    )
    return True


def forget(connection: sqlite3.Connection, blob_id: int) -> None:
    """Remove a blob."""
    connection.execute("DELETE FROM blobs WHERE blob_id = ?", (blob_id,))
    connection.execute("DELETE FROM compacted_blobs WHERE blob_id = ?", (blob_id,))


def set_clean(connection: sqlite3.Connection, of: CompactionWork, offset: int) -> None:
    """Store that a pass has seen the records before the offset, unless the topic is another one."""
    if topics.ids(connection).get(of.topic) == of.topic_id:
        connection.execute(
            "INSERT OR REPLACE INTO compactions VALUES (?, ?, ?)", (of.topic, of.partition, offset)
        )


def take_turn(connection: sqlite3.Connection, holder: str, now_ms: int, until_ms: int) -> bool:
    """Make ``holder`` the only process that compacts, until then; False if another one is."""
    row: tuple[str, int] | None = connection.execute(
        "SELECT holder, until_ms FROM turns WHERE work = 'compaction'"
    ).fetchone()
    if row is not None and row[0] != holder and row[1] > now_ms:
        return False
    connection.execute(
        "INSERT OR REPLACE INTO turns VALUES ('compaction', ?, ?)", (holder, until_ms)
    )
    return True


def _is_due(
    connection: sqlite3.Connection,
    topic: str,
    partition: int,
    settings: TopicSettings,
    now_ms: int,
) -> bool:
    clean_offset = _clean_offset(connection, topic, partition)
    latest_ms = now_ms - settings.min_compaction_lag_ms
    # batches are in the order of time, except after a clock was set back: the pass looks closely
    row: tuple[int, int, int | None] = connection.execute(
        "SELECT coalesce(sum(size_bytes), 0), coalesce(sum(CASE"
        "  WHEN base_offset + batches.record_count > ?1 AND created_ms <= ?2 THEN size_bytes"
        "  ELSE 0 END), 0), min(tombstone_ms)"
        " FROM batches LEFT JOIN compacted_blobs USING (blob_id)"
        " WHERE topic = ?3 AND partition = ?4",
        (clean_offset, latest_ms, topic, partition),
    ).fetchone()
    total_bytes, dirty_bytes, tombstone_ms = row
    if tombstone_ms is not None and tombstone_ms + settings.delete_retention_ms <= now_ms:
        return True
    is_small = total_bytes <= SMALL_BYTES
    return dirty_bytes > 0 and (is_small or dirty_bytes >= DIRTY_SHARE * total_bytes)


def _clean_offset(connection: sqlite3.Connection, topic: str, partition: int) -> int:
    row = connection.execute(
        "SELECT clean_offset FROM compactions WHERE topic = ? AND partition = ?",
        (topic, partition),
    ).fetchone()
    return 0 if row is None else int(row[0])
