"""Committed offsets: JSON texts of connectors, stored with the data they belong to."""

import sqlite3
from collections.abc import Sequence

from drover.errors import InvalidArgumentError, Reason
from drover.model.offset_json import canonical_json, size_bytes
from drover.model.offset_json import validate as validate
from drover.model.offsets import CommittedOffset


def require_valid(offsets: Sequence[CommittedOffset]) -> None:
    """Check offsets.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault.
    """
    violations = validate(offsets)
    if violations:
        raise InvalidArgumentError(
            Reason.INVALID_REQUEST,
            f"{len(violations)} faults in the offsets, the first: {violations[0].field} "
            f"{violations[0].description}",
            violations=violations,
        )


def write(
    connection: sqlite3.Connection,
    connector: str,
    offsets: Sequence[CommittedOffset],
    now_ms: int,
) -> None:
    """Store valid offsets; a partition keeps the text of its first write."""
    for offset in offsets:
        key = canonical_json(offset.partition_json)
        if offset.offset_json is None:
            connection.execute(
                "DELETE FROM offsets WHERE connector = ? AND partition_key = ?", (connector, key)
            )
            continue
        connection.execute(
            "INSERT INTO offsets VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (connector, partition_key) DO UPDATE SET"
            " offset_json = excluded.offset_json, metadata = excluded.metadata,"
            " committed_ms = excluded.committed_ms",
            (
                connector,
                key,
                offset.partition_json,
                offset.offset_json,
                offset.metadata,
                now_ms,
            ),
        )


def remove_all(connection: sqlite3.Connection, connector: str) -> None:
    """Remove a connector's offsets."""
    connection.execute("DELETE FROM offsets WHERE connector = ?", (connector,))


def fetch(connection: sqlite3.Connection, connector: str) -> list[CommittedOffset]:
    """A connector's offsets, ordered by canonical partition."""
    rows = connection.execute(
        "SELECT partition_json, offset_json, metadata FROM offsets"
        " WHERE connector = ? ORDER BY partition_key",
        (connector,),
    )
    return [CommittedOffset(*row) for row in rows]


def fetch_page(
    connection: sqlite3.Connection, connector: str, after_key: str, max_bytes: int
) -> tuple[list[CommittedOffset], bool]:
    """A connector's offsets after a canonical partition, about ``max_bytes`` of them, and whether
    more follow.
    """
    rows = connection.execute(
        "SELECT partition_json, offset_json, metadata FROM offsets"
        " WHERE connector = ? AND partition_key > ? ORDER BY partition_key",
        (connector, after_key),
    )
    page: list[CommittedOffset] = []
    page_bytes = 0
    for row in rows:
        offset = CommittedOffset(*row)
        page_bytes += size_bytes(offset)
        if page and page_bytes > max_bytes:
            rows.close()
            return page, True
        page.append(offset)
    return page, False
