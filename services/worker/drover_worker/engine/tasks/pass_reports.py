"""Collects the executors' reports about a task's records on the driver."""

import weakref

import structlog
from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession

from drover.model.ids import TaskId
from drover.pipeline import PassReport
from drover.pipeline.report import total

log = structlog.get_logger(__name__)


class _MergeReports(AccumulatorParam[dict[int, PassReport]]):
    """Merged by partition number: the last attempt of a partition replaces earlier ones."""

    def zero(self, value: dict[int, PassReport]) -> dict[int, PassReport]:
        del value
        return {}

    def addInPlace(  # noqa: N802 (Spark's name)
        self, value1: dict[int, PassReport], value2: dict[int, PassReport]
    ) -> dict[int, PassReport]:
        return {**value1, **value2}


class PassReports:
    """Collects the reports of one pass."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._accumulator: Accumulator[dict[int, PassReport]] | None = None

    @property
    def sender(self) -> "Accumulator[dict[int, PassReport]]":
        """The accumulator to which executors add their reports; see pipeline.tracked.Reports."""
        if self._accumulator is None:
            self._accumulator = self._spark.sparkContext.accumulator({}, _MergeReports())
            # pyspark keeps every accumulator and its value forever
            weakref.finalize(self, _accumulatorRegistry.pop, self._accumulator.aid, None)
        return self._accumulator

    def begin(self) -> None:
        """Discard the reports of the pass before."""
        if self._accumulator is not None:
            self._accumulator.value = {}

    def total(self) -> PassReport | None:
        """The sum of the reports since ``begin``; None when there are none."""
        found = self._accumulator.value if self._accumulator is not None else None
        return total(found[number] for number in sorted(found)) if found else None


def log_failures(report: PassReport, task: TaskId) -> None:
    """Log the failed records (errors.log.enable)."""
    for failure in report.failures:
        log.error(
            "a record failed",
            connector=task.connector,
            task=str(task),
            place=failure.place,
            stage=failure.stage,
            step=failure.step,
            error=f"{failure.error_class}: {failure.message}",
            **({"record": failure.record} if failure.record else {}),
        )
    more = report.failed_count - len(report.failures)
    if more > 0:
        log.error("more records failed", task=str(task), record_count=more)
