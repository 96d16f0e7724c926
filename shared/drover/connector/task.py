"""What source and sink tasks know of where they run."""

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
    """Raise it when what a task writes to was taken over under another claim than the task's: the
    task ends, and is no failure, for it has a successor.
    """

    def __init__(self, message: str, claim: Term | str) -> None:
        super().__init__(Reason.STALE_CLAIM, message, metadata={"claim": str(claim)})


class TaskFigures:
    """A connector's own figures of one task; any thread may report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, int] = {}

    def report(self, name: str, value: int) -> None:
        """See ``TaskContext.report``."""
        fault = figure_fault(name, value)
        with self._lock:
            if fault is None and name not in self._values and len(self._values) >= FIGURES_MAX:
                fault = f"{name} is one figure too many: a task has at most {FIGURES_MAX}"
            if fault is not None:
                raise ValueError(fault)
            self._values[name] = value

    def values(self) -> dict[str, int]:
        """The last value of each."""
        with self._lock:
            return dict(self._values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Where a task runs.

    ``config`` is the connector's parsed config overlaid by the task's own. ``claim`` is the right
    under which it commits: whoever holds a higher one has taken the task over, so a task that
    changes the outside world can refuse to do so under a lower claim than the last it saw.
    ``stopping()`` says that the task should come to an end; ask it in long loops.

    ``report(name, value)`` tells a figure of the connector's own, which the task's status shows
    beside what became of records: a whole number, under a name that ends in its unit (``_bytes``,
    ``_count``, ``_ms``, ``_percent``), such as ``slot_lag_bytes``. The last value of each counts.
    It costs nothing to speak of, and raises ValueError for another name or value, or for more than
    16 names.
    """

    task: TaskId
    claim: Term
    config: Mapping[str, Any]
    spark: "SparkSession"
    stopping: Callable[[], bool] = _never
    report: Callable[[str, int], None] = field(default_factory=lambda: TaskFigures().report)
