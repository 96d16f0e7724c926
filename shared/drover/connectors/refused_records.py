"""Records that the target of a sink refuses, as its writer on executors returns them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from drover.connector import SinkBatch

#: The columns of a refused record in a writer's answer.
REFUSED_COLUMNS = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("reason", pa.string()),
]
_ANSWER = pa.schema([("rows", pa.int64()), *REFUSED_COLUMNS])


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that cannot be written, by its original place, and the reason."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset

    def within(self, where: str) -> "RefusedRecord":
        """The record with a part of the target, such as a table, before its reason."""
        return replace(self, reason=f"{where}: {self.reason}")


class RefusedRecordError(Exception):
    """A record that cannot be written, where the first such record fails the batch."""

    def __init__(self, record: RefusedRecord) -> None:
        super().__init__(record)
        self.record = record

    def __str__(self) -> str:
        own = self.record
        return f"record {own.topic}-{own.partition}@{own.offset}: {own.reason}"


def answer(row_count: int, refused: Iterable[RefusedRecord]) -> pa.RecordBatch:
    """The answer of a writer: a row with the number of written rows, then the refused records."""
    rows = [{"rows": row_count}, *map(asdict, refused)]
    return pa.RecordBatch.from_pylist(rows, schema=_ANSWER)


def write_batch(batch: SinkBatch, writer: Callable[[Iterable[Any]], Iterator[Any]]) -> None:
    """Write a batch in one call of a writer, and reject the records that it refuses.

    Raises:
        RecordFailedError: Rejected records fail the task.
    """
    try:
        rows = batch.run_in_arrow(writer, at_once=True)
    except RefusedRecordError as error:
        batch.reject(**asdict(error.record))
        raise
    reject_refused(batch, rows)


def reject_refused(batch: SinkBatch, rows: Iterable[Mapping[str, Any]]) -> list[RefusedRecord]:
    """Reject the refused records in the rows of a writer's answers, and return them.

    Raises:
        RecordFailedError: Rejected records fail the task.
    """
    found = [
        RefusedRecord(row["topic"], row["partition"], row["offset"], row["reason"])
        for row in rows
        if row["reason"] is not None
    ]
    for each in found:
        batch.reject(*each.place, each.reason)
    return found
