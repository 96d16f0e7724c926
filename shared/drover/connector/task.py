"""The context of source and sink tasks."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term
from drover.model.status import FIGURES_MAX, figure_fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _never() -> bool:
    return False


class StaleClaimError(FailedPreconditionError):
    """Raise it if another owner has taken over the task's target under another claim.

    The task then ends without a failure, because it has a successor.
    """

    def __init__(self, message: str, claim: Term | str) -> None:
        super().__init__(Reason.STALE_CLAIM, message, metadata={"claim": str(claim)})


def preview_owner(connector: str) -> str:
    """The owner of the processes in which a preview runs: apart from running connectors."""
    return f"preview of {connector}"


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """The table that a source reads completely.

    Attributes:
        table: The table.
        estimated_row_count: The estimated number of its rows; None if unknown.
        remaining_table_count: The number of tables to read, this one included.
    """

    table: str
    estimated_row_count: int | None = None
    remaining_table_count: int = 1


class TaskFigures:
    """The gauges that the connector of one task reports; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, int] = {}

    def report(self, name: str, value: int) -> None:
        """See ``TaskContext.report``."""
        fault = figure_fault(name, value)
        with self._lock:
            if fault is None and name not in self._values and len(self._values) >= FIGURES_MAX:
                fault = f"figure {name} exceeds the limit of {FIGURES_MAX} figures per task"
            if fault is not None:
                raise ValueError(fault)
            self._values[name] = value

    def values(self) -> dict[str, int]:
        """The last value of each gauge."""
        with self._lock:
            return dict(self._values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The context in which a task runs.

    Attributes:
        task: The task.
        claim: The claim under which the task commits. A higher claim means that another owner has
            taken the task over. A task that changes an external system can store its claim there,
            and reject changes under a lower claim than the stored one.
        config: The connector's parsed config, overridden by the task's own.
        spark: The Spark session.
        stopping: Whether the task should end; call it in long loops.
        report: ``report(name, value)`` sets a gauge that the task's status shows beside the record
            counts. The value is a whole number, and the name ends in the unit (``_bytes``,
            ``_count``, ``_ms``, ``_percent``), such as ``slot_lag_bytes``. The last value of each
            name is shown. Cheap; raises ValueError for an invalid name or value, and for more than
            16 names.
        is_preview: Whether only a preview uses the task: nothing is stored or committed.
    """

    task: TaskId
    claim: Term
    config: Mapping[str, Any]
    spark: "SparkSession"
    stopping: Callable[[], bool] = _never
    report: Callable[[str, int], None] = field(default_factory=lambda: TaskFigures().report)
    is_preview: bool = False
