"""Committed offsets: JSON texts of connectors, kept beside the data they belong to."""

import json
import sqlite3
from collections.abc import Sequence
from typing import NoReturn

from drover.errors import InvalidArgumentError, Reason, Violation
from drover.model.offsets import METADATA_MAX_BYTES, CommittedOffset

#: A partition or an offset is a position, not a place for data.
JSON_MAX_BYTES = 64 * 1024
#: What an offset takes in a message beside its texts, at most.
ROW_OVERHEAD_BYTES = 32


def canonical_json(text: str) -> str:
    """The one spelling of a JSON object: keys sorted, no white space; equal objects are equal here.

    Raises:
        ValueError: ``text`` is not a JSON object.
    """
    value = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, not {text[:80]!r}")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def validate(offsets: Sequence[CommittedOffset]) -> list[Violation]:
    """Every fault of the offsets."""
    violations = []
    for index, offset in enumerate(offsets):
        for field, text in (
            ("partition_json", offset.partition_json),
            ("offset_json", offset.offset_json),
        ):
            if text is None:
                continue
            fault = _json_fault(text)
            if fault:
                violations.append(Violation(f"offsets[{index}].{field}", fault))
        size = len(offset.metadata.encode("utf-8", "surrogatepass"))
        if size > METADATA_MAX_BYTES:
            violations.append(
                Violation(
                    f"offsets[{index}].metadata",
                    f"must be at most {METADATA_MAX_BYTES} bytes, not {size}",
                )
            )
    return violations


def require_valid(offsets: Sequence[CommittedOffset]) -> None:
    """Refuse faulty offsets.

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
    """Store valid offsets; a partition's text stays as it was first written."""
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


def fetch(connection: sqlite3.Connection, connector: str) -> list[CommittedOffset]:
    """A connector's offsets, in the order of their canonical partitions."""
    rows = connection.execute(
        "SELECT partition_json, offset_json, metadata FROM offsets"
        " WHERE connector = ? ORDER BY partition_key",
        (connector,),
    )
    return [CommittedOffset(*row) for row in rows]


def fetch_page(
    connection: sqlite3.Connection, connector: str, after_key: str, max_bytes: int
) -> tuple[list[CommittedOffset], bool]:
    """A connector's offsets behind a canonical partition, about ``max_bytes`` of them, and whether
    there are more.
    """
    rows = connection.execute(
        "SELECT partition_json, offset_json, metadata FROM offsets"
        " WHERE connector = ? AND partition_key > ? ORDER BY partition_key",
        (connector, after_key),
    )
    page: list[CommittedOffset] = []
    size_bytes = 0
    for row in rows:
        size_bytes += sum(len(text.encode()) for text in row) + ROW_OVERHEAD_BYTES
        if page and size_bytes > max_bytes:
            rows.close()
            return page, True
        page.append(CommittedOffset(*row))
    return page, False


def _json_fault(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > JSON_MAX_BYTES:
        return f"must be at most {JSON_MAX_BYTES} bytes, not {size}"
    try:
        canonical_json(text).encode()
    except (ValueError, RecursionError) as error:
        return f"must be a JSON object: {error}"
    return ""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
