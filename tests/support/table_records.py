"""Records for JdbcSink's writer, and its results."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from drover.connector import TopicPartition
from drover.connectors.jdbc.database import DatabaseAddress, parse_address
from drover.connectors.jdbc.ledger import make_ledger
from drover.connectors.jdbc.table_writer import TableWriter
from drover.connectors.jdbc.write_settings import WriteSettings
from drover.model.ids import Term
from drover.record.batch import make_batch

VALUE = pa.struct([("id", pa.int64()), ("name", pa.string())])
KEY = pa.struct([("id", pa.int64())])
#: A topic with the longest name that Kafka allows.
LONG_TOPIC = "t" * 249


class RefusedError(Exception):
    """The reason for which the writer rejected the first record."""


def address_with_ledger(settings: dict[str, str]) -> DatabaseAddress:
    """A database with the offsets table."""
    found = parse_address(
        settings["connection.url"],
        settings.get("connection.user"),
        settings.get("connection.password"),
    )
    with found.connected() as connection:
        make_ledger(connection, "drover_offsets")
    return found


def write_settings(**changes: Any) -> WriteSettings:
    """Upserts and deletions by record key, with automatic table creation."""
    values: dict[str, Any] = {
        "table_format": "${topic}",
        "insert_mode": "upsert",
        "pk_mode": "record_key",
        "pk_fields": (),
        "deletes": True,
        "creates": True,
        "evolves": False,
        "fields": None,
        "ledger": "drover_offsets",
    }
    return WriteSettings(**values | changes)


def records(
    *rows: tuple[Any, Any], start: int = 0, topic: str = "items", key: Any = KEY, value: Any = VALUE
) -> pa.RecordBatch:
    """Keys and values as records of a topic's partition 0; ``key`` and ``value`` are types or
    fields.
    """
    count = len(rows)
    fields = [each if isinstance(each, pa.Field) else pa.field("", each) for each in (key, value)]
    arrays = [
        pa.array([row[index] for row in rows], each.type) for index, each in enumerate(fields)
    ]
    return make_batch(
        count,
        topic=pa.array([topic] * count, pa.string()),
        partition=pa.array([0] * count, pa.int32()),
        offset=pa.array(range(start, start + count), pa.int64()),
        key=(fields[0], arrays[0]),
        value=(fields[1], arrays[1]),
    )


def item(number: int, name: str | None) -> tuple[Any, Any]:
    """An item's key and value; without a name, its deletion."""
    return {"id": number}, None if name is None else {"id": number, "name": name}


def write(
    address: DatabaseAddress,
    *batches: pa.RecordBatch,
    claim: Term = Term(1, 1),  # noqa: B008 - a value
    output_id: str = "",
    **changes: Any,
) -> int:
    """Write batches; returns the number of rows. ``output_id`` is that of partition 0.

    Raises:
        RefusedError: A record was rejected.
    """
    return write_coming(address, batches, claim=claim, output_id=output_id, **changes)


def write_coming(
    address: DatabaseAddress,
    batches: Iterable[pa.RecordBatch],
    claim: Term = Term(1, 1),  # noqa: B008 - a value
    output_id: str = "",
    **changes: Any,
) -> int:
    """As ``write``, for batches that may be produced during the write."""
    names = ("items", LONG_TOPIC) if output_id else ()
    ids = {TopicPartition(name, 0): output_id for name in names}
    writer = TableWriter(address, "sink", claim, write_settings(**changes), output_ids=ids)
    (answer,) = writer(iter(batches))
    written, *refused = answer.to_pylist()
    if refused:
        raise RefusedError("record {topic}-{partition}@{offset}: {reason}".format_map(refused[0]))
    return int(written["rows"])
