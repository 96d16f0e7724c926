"""Stages and publishes batches within transactions of the store."""

import sqlite3
from collections.abc import Mapping, Sequence

from drover.dataplane import claims, topics
from drover.dataplane.values import PublishedRange, PublishResult, StagedBlob
from drover.errors import InvalidArgumentError, Reason
from drover.model.ids import TaskId, Term


def stage(connection: sqlite3.Connection, task: TaskId, claim: Term, payload: bytes) -> int:
    """Store a blob under the task's claim; refused for a stale claim, so no clean-up is needed."""
    claims.check(connection, task, claim)
    blob_id = connection.execute("INSERT INTO blobs (payload) VALUES (?)", (payload,)).lastrowid
    assert blob_id is not None
    connection.execute(
        "INSERT INTO staging VALUES (?, ?, ?, ?, ?)",
        (blob_id, task.connector, task.task, claim.generation, claim.sequence),
    )
    return blob_id


def discard_staged(connection: sqlite3.Connection, task: TaskId) -> None:
    """Remove the task's staged blobs."""
    _discard(connection, "connector = ? AND task = ?", (task.connector, task.task))


def discard_stale(connection: sqlite3.Connection, connector: str) -> None:
    """Remove blobs that tasks of the connector staged under stale claims."""
    _discard(
        connection,
        "connector = ? AND NOT EXISTS (SELECT 1 FROM claims"
        " WHERE claims.connector = staging.connector AND claims.task = staging.task AND"
        " claims.generation = staging.generation AND claims.sequence = staging.sequence)",
        (connector,),
    )


def _discard(connection: sqlite3.Connection, where: str, arguments: tuple[object, ...]) -> None:
    staged = f"FROM staging WHERE {where}"
    connection.execute(f"DELETE FROM blobs WHERE blob_id IN (SELECT blob_id {staged})", arguments)
    connection.execute(f"DELETE {staged}", arguments)


def publish(
    connection: sqlite3.Connection,
    task: TaskId,
    claim: Term,
    staged: Sequence[StagedBlob],
    now_ms: int,
) -> PublishResult:
    """Assign offsets to the blobs, in this order, and make them visible."""
    _require_staged(connection, task, claim, staged)
    result = _make_visible(connection, staged, now_ms)
    connection.executemany(
        "DELETE FROM staging WHERE blob_id = ?", [(each.blob_id,) for each in staged]
    )
    discard_staged(connection, task)
    return result


def append(
    connection: sqlite3.Connection,
    topic: str,
    parts: Mapping[int, Sequence[tuple[int, bytes]]],
    now_ms: int,
) -> PublishResult:
    """Write blobs and make them visible at once.

    Args:
        connection: A write transaction.
        topic: The topic, which must exist.
        parts: By partition, in order: the number of records and the blob.
        now_ms: The time of the write.

    Raises:
        NotFoundError: TOPIC_NOT_FOUND.
        InvalidArgumentError: INVALID_REQUEST, no such partition.
    """
    staged = []
    for partition, blobs in parts.items():
        for sequence, (count, blob) in enumerate(blobs):
            inserted = connection.execute("INSERT INTO blobs (payload) VALUES (?)", (blob,))
            assert inserted.lastrowid is not None
            staged.append(
                StagedBlob(0, sequence, topic, partition, count, len(blob), inserted.lastrowid)
            )
    return _make_visible(connection, staged, now_ms)


def _make_visible(
    connection: sqlite3.Connection, blobs: Sequence[StagedBlob], now_ms: int
) -> PublishResult:
    ends: dict[tuple[str, int], int] = {}
    starts: dict[tuple[str, int], int] = {}
    for blob in blobs:
        key = (blob.topic, blob.partition)
        if key not in ends:
            ends[key] = starts[key] = _end_offset(connection, blob)
        connection.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                blob.topic,
                blob.partition,
                ends[key],
                blob.record_count,
                blob.size_bytes,
                now_ms,
                blob.blob_id,
            ),
        )
        ends[key] += blob.record_count
    connection.executemany(
        "UPDATE partitions SET end_offset = ? WHERE topic = ? AND partition = ?",
        [(end, topic, partition) for (topic, partition), end in ends.items()],
    )
    return PublishResult(
        [
            PublishedRange(topic, partition, starts[topic, partition], end)
            for (topic, partition), end in ends.items()
        ]
    )


def _require_staged(
    connection: sqlite3.Connection, task: TaskId, claim: Term, staged: Sequence[StagedBlob]
) -> None:
    rows = connection.execute(
        "SELECT blob_id FROM staging"
        " WHERE connector = ? AND task = ? AND generation = ? AND sequence = ?",
        (task.connector, task.task, claim.generation, claim.sequence),
    )
    known = {row[0] for row in rows}
    for blob in staged:
        if blob.blob_id not in known:
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST,
                f"blob {blob.blob_id} is not staged under claim {claim} of task {task}: stage the "
                "batch again",
            )
        known.discard(blob.blob_id)
        if blob.record_count < 1:
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST, f"blob {blob.blob_id} has no records: do not publish it"
            )


def _end_offset(connection: sqlite3.Connection, blob: StagedBlob) -> int:
    row = connection.execute(
        "SELECT end_offset FROM partitions WHERE topic = ? AND partition = ?",
        (blob.topic, blob.partition),
    ).fetchone()
    if row is not None:
        return int(row[0])
    found = topics.find(connection, blob.topic)
    if found is None:
        raise topics.unknown(blob.topic)
    raise InvalidArgumentError(
        Reason.INVALID_REQUEST,
        f"topic {blob.topic!r} has partitions 0 to {found.partition_count - 1}, "
        f"not {blob.partition}",
    )
