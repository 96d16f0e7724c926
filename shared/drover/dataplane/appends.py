"""Which appends to a topic were made, so that a repeated call writes nothing again."""

import hashlib
import sqlite3

from drover.model.times import DAY_MS

#: How many appends of a topic are remembered, and for how long.
REMEMBERED_MAX = 40
REMEMBERED_MS = 7 * DAY_MS


def digest_of(request_id: str) -> str:
    """A short text that identifies a request id of any length."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:32]


def find(connection: sqlite3.Connection, topic: str, request_id: str) -> int | None:
    """The number of records of the append; None if it is not remembered."""
    row = connection.execute(
        "SELECT record_count FROM appends WHERE topic = ? AND request_id = ?",
        (topic, digest_of(request_id)),
    ).fetchone()
    return None if row is None else int(row[0])


def remember(
    connection: sqlite3.Connection, topic: str, request_id: str, record_count: int, now_ms: int
) -> None:
    """Remember an append, and forget old ones."""
    connection.execute(
        "INSERT OR REPLACE INTO appends VALUES (?, ?, ?, ?)",
        (topic, digest_of(request_id), record_count, now_ms),
    )
    connection.execute("DELETE FROM appends WHERE appended_ms < ?", (now_ms - REMEMBERED_MS,))
    connection.execute(
        "DELETE FROM appends WHERE topic = ?1 AND request_id NOT IN (SELECT request_id FROM appends"
        " WHERE topic = ?1 ORDER BY appended_ms DESC LIMIT ?2)",
        (topic, REMEMBERED_MAX),
    )
