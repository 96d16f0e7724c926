"""The schemas that a task's topics are known to have, where they may not change as they like."""

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

#: Rows of a frame among which there should be one with a value.
_FIRST_ROWS = 1_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _InTurn:
    """Several rows as one, each a Spark partition."""

    rows: tuple[tuple[Callable[[int], Iterable[Any]], int], ...]

    def __call__(self, number: int) -> Iterator[Any]:
        read, count = self.rows[number]
        for each in range(count):
            yield from read(each)


class KnownSchemas:
    """Finds the schema of each topic's first value before the batch that has it runs: so all
    executors go by the same ones, however the batch is cut.

    They are those of one run of the task.
    """

    def __init__(self, change: SchemaChange, task: TaskId) -> None:
        self._change = change
        self._task = task
        self._known: dict[str, pa.Field] = {}
        self._logged: set[tuple[str, str]] = set()

    def steps(self, default_topic: str | None) -> tuple[Step, ...]:
        """What brings values into the known schemas; no step when any schema passes.

        ``default_topic`` is that of records which name none.
        """
        if self._change is SchemaChange.EVOLVE:
            return ()
        return (KeepSchema(self._change, dict(self._known), default_topic or ""),)

    def wants(self, topic: str | None) -> bool:
        """Whether the topic's schema has to be found; None is for rows of any topics."""
        return self._change is not SchemaChange.EVOLVE and topic not in self._known

    def learn_from_source(
        self,
        rows: DataFrame | ArrowRows,
        topic: str | None,
        prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]],
    ) -> None:
        """Find those of a source's rows; all are looked at when ``topic`` does not name one for
        all.
        """
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
        """Find those of topics, each as it is read."""
        stages = (Stage("", converters),)
        records = Pipeline(stages, prepare, self._leave_out())
        reads = _InTurn(tuple((each.read, each.partition_count) for each in topics))
        rows = ArrowRows(topics[0].spark, reads, len(topics), None)
        find = Composed(records, FirstSchemas(topic_count=1))
        self._learn(rows.run(find))

    def log_changes(self, report: PassReport) -> None:
        """Warn of what was discarded, of each change once."""
        for topic, change in report.schema_changes.items():
            if (topic, change) in self._logged or len(self._logged) >= CHANGES_MAX:
                continue
            self._logged.add((topic, change))
            log.warning(
                "a schema has changed; what is new is left out",
                task=str(self._task),
                topic=topic,
                change=change,
                schema_change=str(self._change),
            )

    def _learn(self, found: Iterable[Mapping[str, Any]]) -> None:
        schemas = schemas_of((row["topic"], row["schema"]) for row in found)
        self._known = {**schemas, **self._known}

    def _leave_out(self) -> Tolerate:
        """What fails here fails again, and is told, when the batch itself runs."""
        return Tolerate(self._task.connector, self._task.task)
