"""Marks of sink offsets that an operator has reset: the next output of each topic partition.

Offsets do not expire here, so that other marks are not needed.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from drover.dataplane import topics
from drover.model.offset_json import canonical_json
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_offsets import (
    is_sink_partition,
    parse_partition,
    parse_position,
    sink_offset,
)
from drover.model.sink_outputs import (
    OutputMark,
    SinkMetadata,
    SinkOutput,
    decode_mark,
    encode_mark,
)


def fetch(connection: sqlite3.Connection, connector: str) -> list[CommittedOffset]:
    """A connector's marks, as offsets of None, ordered by canonical partition."""
    rows = connection.execute(
        "SELECT partition_json, mark FROM offset_marks WHERE connector = ? ORDER BY partition_key",
        (connector,),
    )
    return [CommittedOffset(partition_json, None, mark) for partition_json, mark in rows]


def remove(
    connection: sqlite3.Connection, connector: str, offsets: Sequence[CommittedOffset]
) -> None:
    """Remove the marks of partitions that have a committed offset now."""
    connection.executemany(
        "DELETE FROM offset_marks WHERE connector = ? AND partition_key = ?",
        [(connector, canonical_json(each.partition_json)) for each in offsets],
    )


def reset_all(
    connection: sqlite3.Connection, connector: str, written: Sequence[TopicPartition]
) -> None:
    """Mark all offsets of a sink as reset, and partitions that were ``written`` without an offset;
    the offsets are removed by the caller.
    """
    rows = connection.execute(
        "SELECT partition_json FROM offsets WHERE connector = ?", (connector,)
    ).fetchall()
    changes = [CommittedOffset(partition_json, None) for (partition_json,) in rows]
    change(connection, connector, changes)
    ids = topics.ids(connection)
    for place in written:
        offset = sink_offset(place, None)
        if _find(connection, connector, offset) is None:
            first = SinkOutput(ids.get(place.topic, ""))
            _write(connection, connector, offset, OutputMark(first.after_reset(), 0, is_reset=True))


def change(
    connection: sqlite3.Connection, connector: str, changes: Sequence[CommittedOffset]
) -> list[CommittedOffset]:
    """The changes of offsets with the outputs that they belong to; marks the removed ones of sinks.

    Call it before the changes are stored.
    """
    ids = topics.ids(connection)
    changed = []
    for each in changes:
        if not is_sink_partition(json.loads(each.partition_json)):
            changed.append(each)
            continue
        known = _find(connection, connector, each) or OutputMark(SinkOutput(), 0, is_reset=True)
        if each.offset_json is None:
            if not known.is_reset:
                reset = replace(known, output=known.output.after_reset(), is_reset=True)
                _write(connection, connector, each, reset)
            changed.append(each)
            continue
        output = known.output.in_topic(ids.get(parse_partition(each.partition_json).topic, ""))
        changed.append(replace(each, metadata=SinkMetadata(output=output).text))
        remove(connection, connector, [each])
    return changed


def _find(
    connection: sqlite3.Connection, connector: str, offset: CommittedOffset
) -> OutputMark | None:
    """The output of a partition and its last known offset."""
    key = (connector, canonical_json(offset.partition_json))
    where = "WHERE connector = ? AND partition_key = ?"
    row = connection.execute(f"SELECT offset_json, metadata FROM offsets {where}", key).fetchone()
    if row is not None:
        return OutputMark(SinkMetadata.parsed(row[1]).output, parse_position(row[0]))
    row = connection.execute(f"SELECT mark FROM offset_marks {where}", key).fetchone()
    return None if row is None else decode_mark(row[0])


def _write(
    connection: sqlite3.Connection, connector: str, offset: CommittedOffset, mark: OutputMark
) -> None:
    key = canonical_json(offset.partition_json)
    connection.execute(
        "INSERT OR REPLACE INTO offset_marks VALUES (?, ?, ?, ?)",
        (connector, key, offset.partition_json, encode_mark(mark)),
    )
