"""The table of offsets: the position of each topic partition, stored with the rows.

A topic that was created again, or whose offsets were reset, has new rows, in which the id of the
output follows the topic's name.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from drover.connector import Term, TopicPartition
from drover.connector.records import OFFSET, PARTITION, original_topics
from drover.connectors.jdbc.database import DatabaseError
from drover.connectors.jdbc.write_settings import split_name
from drover.connectors.output_ids import SEPARATOR, named_with

#: MySQL needs a length for text columns in a primary key.
_CONNECTOR_CHARS, _TOPIC_CHARS = 255, 249
_OUTPUT_ID_CHARS = 8


class Ledger:
    """The positions of a connector's topic partitions, written in the transaction of the rows."""

    def __init__(
        self,
        connection: "sa.Connection",
        name: str,
        connector: str,
        claim: Term,
        output_ids: Mapping[TopicPartition, str],
    ) -> None:
        self._connection = connection
        self._output_ids = output_ids
        self._connector = connector
        self._claim = claim
        self._table = ledger_table(name)
        self._next: dict[tuple[str, int], int] = {}

    def unwritten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records after the stored positions; advances the positions past them.

        Raises:
            DatabaseError: A later owner of a partition has written.
        """
        topics, partitions = original_topics(batch), batch.column(PARTITION)
        offsets = batch.column(OFFSET)
        found = pa.table([topics, partitions, offsets], ["topic", "partition", "offset"])
        ends = found.group_by(["topic", "partition"], use_threads=False)
        kept = None
        for row in ends.aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
            place = (row["topic"], row["partition"])
            start = self._next.get(place)
            if start is None:
                start = self._load(*place)
            self._next[place] = max(start, row["offset_max"] + 1)
            if row["offset_min"] < start:
                own = pc.and_(pc.equal(topics, place[0]), pc.equal(partitions, place[1]))
                old = pc.and_(own, pc.less(offsets, start))
                kept = pc.invert(old) if kept is None else pc.and_(kept, pc.invert(old))
        return batch if kept is None else batch.filter(kept)

    def save(self) -> None:
        """Write the positions."""
        claim = self._claim
        for (topic, partition), offset in self._next.items():
            self._connection.execute(
                self._table.update()
                .where(*self._of(topic, partition))
                .values(next_offset=offset, generation=claim.generation, sequence=claim.sequence)
            )

    def _load(self, topic: str, partition: int) -> int:
        """The next offset; locks the row until the end of the transaction."""
        found = self._connection.execute(
            sa.select(self._table).where(*self._of(topic, partition)).with_for_update()
        ).one_or_none()
        if found is None:
            self._connection.execute(
                self._table.insert().values(
                    connector=self._connector,
                    topic=self._stored_topic(topic, partition),
                    partition=partition,
                    next_offset=0,
                    generation=0,
                    sequence=0,
                )
            )
            return 0
        if Term(found.generation, found.sequence) > self._claim:
            raise DatabaseError(
                f"{topic}-{partition} was taken over by another task with a later claim"
            )
        return int(found.next_offset)

    def _of(self, topic: str, partition: int) -> "list[sa.ColumnElement[bool]]":
        columns = self._table.c
        return [
            columns.connector == self._connector,
            columns.topic == self._stored_topic(topic, partition),
            columns.partition == partition,
        ]

    def _stored_topic(self, topic: str, partition: int) -> str:
        return stored_topic(topic, self._output_ids.get(TopicPartition(topic, partition), ""))


def stored_topic(topic: str, output_id: str) -> str:
    """The topic column of an output: the topic, and the id if there is one. A name that is too long
    for that is cut and gets a checksum.
    """
    return named_with(topic if not output_id else _stem(topic), output_id)


def of_topic(table: "sa.Table", topic: str) -> "sa.ColumnElement[bool]":
    """The rows of all outputs of a topic."""
    others = f"{_stem(topic)}{SEPARATOR}"
    return (table.c.topic == topic) | table.c.topic.startswith(others, autoescape=True)


def stored_offsets(
    connection: "sa.Connection",
    name: str,
    connector: str,
    partitions: Mapping[TopicPartition, str],
) -> dict[TopicPartition, int]:
    """The stored positions of topic partitions, given with the ids of their outputs."""
    table = ledger_table(name)
    if not sa.inspect(connection).has_table(table.name, table.schema):
        return {}
    columns = (table.c.topic, table.c.partition, table.c.next_offset)
    rows = connection.execute(sa.select(*columns).where(table.c.connector == connector))
    stored = {(row.topic, row.partition): int(row.next_offset) for row in rows}
    found = {
        key: stored.get((stored_topic(key.topic, output_id), key.partition), 0)
        for key, output_id in partitions.items()
    }
    return {key: offset for key, offset in found.items() if offset > 0}


def _stem(topic: str) -> str:
    if len(topic) + 1 + _OUTPUT_ID_CHARS <= _TOPIC_CHARS:
        return topic
    checksum = hashlib.blake2b(topic.encode(), digest_size=8).hexdigest()
    room = _TOPIC_CHARS - _OUTPUT_ID_CHARS - len(checksum) - 2
    return f"{topic[:room]}{SEPARATOR}{checksum}"


def make_ledger(connection: "sa.Connection", name: str) -> None:
    """Create the table of offsets unless it exists; tolerates a concurrent creation. Commits."""
    table = ledger_table(name)
    try:
        table.create(connection, checkfirst=True)
        connection.commit()
    except sa.exc.DBAPIError:
        connection.rollback()
        if not sa.inspect(connection).has_table(table.name, table.schema):
            raise


@lru_cache(maxsize=16)
def ledger_table(name: str) -> "sa.Table":
    """The definition of the table of offsets."""
    schema, own = split_name(name)
    return sa.Table(
        own,
        sa.MetaData(),
        sa.Column("connector", sa.String(_CONNECTOR_CHARS), primary_key=True),
        sa.Column("topic", sa.String(_TOPIC_CHARS), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=schema,
    )
