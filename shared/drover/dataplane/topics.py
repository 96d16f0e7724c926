"""Topics of the embedded store: names, partitions, end offsets."""

import sqlite3
from collections.abc import Iterable, Mapping

from drover.dataplane.topic_settings import CLEANUP_POLICY, DELETE, compacts
from drover.dataplane.values import TopicInfo
from drover.errors import InvalidArgumentError, NotFoundError, Reason, Violation
from drover.model.names import TOPIC_NAME, TOPIC_NAME_MAX_CHARS

PARTITION_COUNT_MAX = 10_000


def name_fault(name: str) -> str:
    """The violation of Kafka's rules by a topic's name; empty for a valid one."""
    if name in (".", ".."):
        return f"must not be {name!r}"
    if not TOPIC_NAME.fullmatch(name):
        return (
            f"must be 1 to {TOPIC_NAME_MAX_CHARS} of the characters a-z, A-Z, 0-9, '.', '_' and "
            f"'-', not {name[:80]!r}"
        )
    return ""


def require_valid(name: str, partition_count: int) -> None:
    """Check a topic's name and partition count.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault.
    """
    violations = []
    fault = name_fault(name)
    if fault:
        violations.append(Violation("topic", fault))
    if not 1 <= partition_count <= PARTITION_COUNT_MAX:
        violations.append(
            Violation(
                "partition_count", f"must be 1 to {PARTITION_COUNT_MAX}, not {partition_count}"
            )
        )
    if violations:
        raise InvalidArgumentError(
            Reason.INVALID_REQUEST,
            "; ".join(f"{each.field} {each.description}" for each in violations),
            violations=violations,
        )


def ensure(
    connection: sqlite3.Connection,
    name: str,
    partition_count: int,
    now_ms: int,
    *,
    at_least: int = 0,
    settings: Mapping[str, str],
) -> TopicInfo:
    """Create the topic with these valid settings; an existing one gets ``partition_count``
    partitions if it has fewer than ``at_least``, and is otherwise returned unchanged.
    """
    found = find(connection, name)
    if found is not None and found.partition_count >= at_least:
        return found
    partition_count = max(partition_count, at_least)
    if found is None:
        connection.execute(
            "INSERT OR REPLACE INTO topic_ids VALUES (?, ?, lower(hex(randomblob(8))))",
            (name, now_ms),
        )
        connection.execute("DELETE FROM topic_settings WHERE topic = ?", (name,))
        connection.execute("DELETE FROM compactions WHERE topic = ?", (name,))
        connection.executemany(
            "INSERT INTO topic_settings VALUES (?, ?, ?)",
            [(name, setting, value) for setting, value in settings.items()],
        )
    connection.execute(
        "INSERT INTO topics VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET partition_count = excluded.partition_count",
        (name, partition_count, now_ms),
    )
    connection.executemany(
        "INSERT INTO partitions VALUES (?, ?, 0, 0)",
        [
            (name, partition)
            for partition in range(found.partition_count if found else 0, partition_count)
        ],
    )
    is_compacted = found.compacts if found is not None else compacts(settings)
    return TopicInfo(name, partition_count, compacts=is_compacted)


def find(connection: sqlite3.Connection, name: str) -> TopicInfo | None:
    """The topic, or None."""
    row = connection.execute(
        "SELECT partition_count, (SELECT value FROM topic_settings"
        "  WHERE topic = topics.name AND topic_settings.name = ?) FROM topics WHERE name = ?",
        (CLEANUP_POLICY, name),
    ).fetchone()
    return row and TopicInfo(name, row[0], compacts=compacts({CLEANUP_POLICY: row[1] or DELETE}))


def list_all(connection: sqlite3.Connection) -> list[TopicInfo]:
    """Every topic, sorted by name."""
    rows = connection.execute("SELECT name, partition_count FROM topics ORDER BY name")
    return [TopicInfo(*row) for row in rows]


def ids(connection: sqlite3.Connection) -> dict[str, str]:
    """The id of every topic: a topic that is created again under the same name gets another.

    The id of a topic from before ids were stored is made from its time of creation.
    """
    rows = connection.execute(
        "SELECT name, coalesce(topic_id, printf('%x', topics.created_ms)) FROM topics"
        " LEFT JOIN topic_ids ON topic = name AND topic_ids.created_ms = topics.created_ms"
    )
    return dict(rows.fetchall())


def settings(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """The settings that topics were created with, of the topics with any."""
    found: dict[str, dict[str, str]] = {}
    for topic, name, value in connection.execute(
        "SELECT topic, topic_settings.name, value FROM topic_settings"
        " JOIN topics ON topics.name = topic"
    ):
        found.setdefault(topic, {})[name] = value
    return found


def default_settings(connection: sqlite3.Connection) -> dict[str, str]:
    """The cluster's settings for topics that were created without them."""
    return dict(connection.execute("SELECT name, value FROM default_topic_settings").fetchall())


def bounds(
    connection: sqlite3.Connection, names: Iterable[str] | None = None
) -> dict[tuple[str, int], tuple[int, int]]:
    """The first and end offset of each partition, by (topic, partition)."""
    query = "SELECT topic, partition, start_offset, end_offset FROM partitions"
    if names is None:
        rows = connection.execute(query).fetchall()
    else:
        rows = [
            row for name in names for row in connection.execute(f"{query} WHERE topic = ?", (name,))
        ]
    return {(topic, partition): (start, end) for topic, partition, start, end in rows}


def unknown(name: str) -> NotFoundError:
    """The error for a topic that does not exist."""
    return NotFoundError(
        Reason.TOPIC_NOT_FOUND,
        f"topic {name!r} does not exist: it is created when a source first writes to it",
        metadata={"topic": name},
    )
