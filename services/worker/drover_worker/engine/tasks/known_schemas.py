"""The known schemas of a task's topics, where schema.change restricts changes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame

from drover.dataplane.arrow_rows import ArrowRows, Composed, run_in_arrow
from drover.model.ids import TaskId
from drover.pipeline import PassReport, Pipeline, Step, Tolerate
from drover.pipeline.schema_change import (
    CHANGES_MAX,
    FirstSchemas,
    KeepSchema,
    SchemaChange,
    schemas_of,
)
from drover.pipeline.stages import Stage

#: How many rows of a frame are searched for a first value.
_FIRST_ROWS = 1_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _InTurn:
    """Several row sets as one, a Spark partition for each."""

    rows: tuple[tuple[Callable[[int], Iterable[Any]], int], ...]

    def __call__(self, number: int) -> Iterator[Any]:
        read, count = self.rows[number]
        for each in range(count):
            yield from read(each)


class KnownSchemas:
    """Finds the schema of each topic's first value before its batch runs, so that all executors use
    the same schemas. They hold for one run of the task.
    """

    def __init__(self, change: SchemaChange, task: TaskId) -> None:
        self._change = change
        self._task = task
        self._known: dict[str, pa.Field] = {}
        self._logged: set[tuple[str, str]] = set()

    def steps(self, default_topic: str | None) -> tuple[Step, ...]:
        """The step that converts values to the known schemas; none when all schemas are allowed.

        ``default_topic`` is the topic of records that name none.
        """
        if self._change is SchemaChange.EVOLVE:
            return ()
        return (KeepSchema(self._change, dict(self._known), default_topic or ""),)

    def wants(self, topic: str | None) -> bool:
        """Whether the topic's schema must be found; None means rows of several topics."""
        return self._change is not SchemaChange.EVOLVE and topic not in self._known

    def learn_from_source(
        self,
        rows: DataFrame | ArrowRows,
        topic: str | None,
        prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]],
    ) -> None:
        """Find the schemas in a source's rows; reads all rows when ``topic`` is None."""
        records = Pipeline(prepare=prepare, policy=self._leave_out())
        find = Composed(records, FirstSchemas(topic or "", None if topic is None else 1))
        if isinstance(rows, ArrowRows):
            self._learn(rows.run(find, at_once=True))
        else:
            some = rows if topic is None else rows.limit(_FIRST_ROWS)
            self._learn(run_in_arrow(some, find))

    def learn_from_topics(
        self,
        topics: Sequence[ArrowRows],
        prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]],
        converters: tuple[Step, ...],
    ) -> None:
        """Find the schema of each topic that is read."""
        stages = (Stage("", converters),)
        records = Pipeline(stages, prepare, self._leave_out())
        reads = _InTurn(tuple((each.read, each.partition_count) for each in topics))
        rows = ArrowRows(topics[0].spark, reads, len(topics), None)
        find = Composed(records, FirstSchemas(topic_count=1))
        self._learn(rows.run(find))

    def log_changes(self, report: PassReport) -> None:
        """Log each discarded schema change once."""
        for topic, change in report.schema_changes.items():
            if (topic, change) in self._logged or len(self._logged) >= CHANGES_MAX:
                continue
            self._logged.add((topic, change))
            log.warning(
                "a schema changed; its new parts are discarded",
                task=str(self._task),
                topic=topic,
                change=change,
                schema_change=str(self._change),
            )

    def _learn(self, found: Iterable[Mapping[str, Any]]) -> None:
        schemas = schemas_of((row["topic"], row["schema"]) for row in found)
        self._known = {**schemas, **self._known}

    def _leave_out(self) -> Tolerate:
        """Ignore failed records here: they fail again, and are reported, when the batch runs."""
        return Tolerate(self._task.connector, self._task.task)
