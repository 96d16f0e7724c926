"""Records that a sink's code rejects (KIP-610)."""

from pyspark.sql import SparkSession

from drover.dataplane.arrow_rows import ArrowRows
from drover.dataplane.plane import DataPlane, DeadLetterWriter
from drover.dataplane.values import ReadPlan
from drover.pipeline import FailTask, RecordFailedError, Tolerate
from drover.pipeline.failures import failure_at
from drover.pipeline.report import FailedRecord
from drover.pipeline.tracked import RejectedRead, Reports
from drover.record.errors import ErrorStage

#: Per batch, because executors look up each one.
REJECTED_MAX = 100_000


class Rejections:
    """The rejected records of one batch.

    Batches carry no extra data for them: the few rejected records are read again.
    """

    def __init__(
        self,
        plane: DataPlane,
        plan: ReadPlan,
        dead_letters: DeadLetterWriter,
        policy: FailTask | Tolerate,
        *,
        step: str,
    ) -> None:
        """``step`` names the sink that rejects."""
        self._plane = plane
        self._plan = plan
        self._dead_letters = dead_letters
        self._policy = policy
        self._step = step
        self._found: dict[tuple[str, int], dict[int, FailedRecord]] = {}
        self._count = 0

    def reject(self, topic: str, partition: int, offset: int, reason: str | Exception) -> None:
        """See SinkBatch.reject; always raises under FailTask."""
        place = f"{topic}-{partition}@{offset}"
        if not any(
            (each.topic, each.partition) == (topic, partition)
            and each.start_offset <= offset < each.end_offset
            for each in self._plan.ranges
        ):
            raise ValueError(f"record {place} is not in this batch, so it cannot be rejected")
        failure = failure_at(place, str(ErrorStage.TASK_PUT), self._step, reason)
        found = self._found.setdefault((topic, partition), {})
        self._count += offset not in found
        found.setdefault(offset, failure)
        if isinstance(self._policy, FailTask):
            raise RecordFailedError(f"{failure}{self._policy.remedy}")
        if self._count > REJECTED_MAX:
            raise ValueError(f"more than {REJECTED_MAX} records of one batch were rejected")

    def settle(self, spark: SparkSession, reports: Reports) -> bool:
        """Count the rejected records and write their dead letters; whether there were any.

        Raises:
            RecordFailedError: The sink ignored the error of ``reject``.
        """
        failures = [each for found in self._found.values() for each in found.values()]
        if not failures:
            return False
        if isinstance(self._policy, FailTask):
            raise RecordFailedError(f"{failures[0]}{self._policy.remedy}")
        ranges = tuple(
            each
            for each in self._plan.ranges
            if any(
                each.start_offset <= offset < each.end_offset
                for offset in self._found.get((each.topic, each.partition), ())
            )
        )
        rows = self._plane.rows(spark, ReadPlan(ranges))
        find = RejectedRead(rows.read, self._found, self._policy, reports, self._dead_letters.write)
        ArrowRows(spark, find, rows.partition_count, None).run(iter)
        return True
