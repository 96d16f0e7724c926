"""Handles values with another schema than earlier ones of their topic (schema.change)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.record.batch import TOPIC, VALUE, with_column
from drover.record.errors import ErrorStage, StageError
from drover.record.fitting import SchemaChangeError, fit

#: The most topics of a pass whose changes are reported.
CHANGES_MAX = 100

#: The columns of FirstSchemas' results.
_FOUND = pa.schema([("topic", pa.string()), ("schema", pa.binary())])


class SchemaChange(StrEnum):
    """The values of the setting; the same as in dlt and ingestr."""

    EVOLVE = "evolve"
    FREEZE = "freeze"
    DISCARD_ROW = "discard_row"
    DISCARD_VALUE = "discard_value"


@dataclass(frozen=True, slots=True)
class KeepSchema:
    """A step that converts the values of each topic to its known schema.

    Values that fit are converted (see ``record.fitting``). Others fail (FREEZE), are dropped
    (DISCARD_ROW), or lose their new parts (DISCARD_VALUE). A topic without a known schema gets the
    schema of its first value here; for all executors to agree, ``known`` has the topics of the
    batch.
    """

    change: SchemaChange
    known: dict[str, pa.Field] = field(default_factory=dict)
    default_topic: str = ""
    #: The first discarded change, by topic.
    changes: dict[str, str] = field(default_factory=dict)
    name: str = "schema.change"

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See Step.

        Raises:
            StageError: In SCHEMA_CHANGE, for values that do not fit.
        """
        for topic, part in by_topic(batch, self.default_topic):
            yield from self._keep(topic, part)

    def _keep(self, topic: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        values, found = batch.column(VALUE), batch.schema.field(VALUE)
        known = self.known.get(topic)
        if known is None:
            if values.null_count < len(values):
                self.known[topic] = found
            yield batch
            return
        try:
            fitted = fit(known, found, values)
        except SchemaChangeError as error:
            if self.change is SchemaChange.FREEZE:
                raise StageError(ErrorStage.SCHEMA_CHANGE, str(error)) from error
            yield from self._discard(topic, batch, error)
        else:
            yield _with_values(batch, known, fitted)

    def _discard(
        self, topic: str, batch: pa.RecordBatch, error: SchemaChangeError
    ) -> Iterator[pa.RecordBatch]:
        if error.of_rows and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self._keep(topic, batch.slice(0, half))
            yield from self._keep(topic, batch.slice(half))
            return
        if len(self.changes) < CHANGES_MAX:
            self.changes.setdefault(topic, str(error))
        if self.change is SchemaChange.DISCARD_ROW:
            return
        known, found = self.known[topic], batch.schema.field(VALUE)
        try:
            fitted = fit(known, found, batch.column(VALUE), drop=True)
        except SchemaChangeError as left:
            raise StageError(ErrorStage.SCHEMA_CHANGE, str(left)) from left
        yield _with_values(batch, known, fitted)


@dataclass(frozen=True, slots=True)
class FirstSchemas:
    """Finds the schema of each topic's first value, for ``topic_count`` topics if given; a function
    for executors.
    """

    default_topic: str = ""
    topic_count: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of topic and schema; see ``schemas_of``."""
        found: dict[str, bytes] = {}
        for batch in batches:
            for topic, part in by_topic(batch, self.default_topic):
                values = part.column(VALUE)
                if topic not in found and values.null_count < len(values):
                    schema = pa.schema([part.schema.field(VALUE)])
                    found[topic] = schema.serialize().to_pybytes()
            if len(found) == self.topic_count:
                break
        columns = {"topic": list(found), "schema": list(found.values())}
        yield pa.RecordBatch.from_pydict(columns, schema=_FOUND)


def schemas_of(rows: Iterable[tuple[str, bytes]]) -> Mapping[str, pa.Field]:
    """The fields that FirstSchemas found, by topic; the first one if there are several."""
    found: dict[str, pa.Field] = {}
    for topic, schema in rows:
        found.setdefault(topic, pa.ipc.read_schema(pa.py_buffer(schema)).field(0))
    return found


def by_topic(batch: pa.RecordBatch, default_topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The batch cut into runs of one topic, in order."""
    topics = batch.column(TOPIC).fill_null(default_topic)
    if len(pc.unique(topics)) <= 1:
        if len(topics):
            yield topics[0].as_py(), batch
        return
    codes = np.asarray(topics.dictionary_encode().indices)
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]):
        yield topics[start].as_py(), batch.slice(start, end - start)


def _with_values(batch: pa.RecordBatch, known: pa.Field, values: pa.Array) -> pa.RecordBatch:
    # tombstones are null, even if the schema is not nullable
    return with_column(batch, known.with_name(VALUE).with_nullable(True), values)
