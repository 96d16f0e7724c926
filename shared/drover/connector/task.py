"""What source and sink tasks know of where they run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _never() -> bool:
    return False


class RetriableError(Exception):
    """Raise it from ``poll`` or ``write`` when the same call may succeed later: within
    ``errors.retry.timeout`` it is called again, for the same batch, instead of failing the task.
    """


class StaleClaimError(FailedPreconditionError):
    """Raise it when what a task writes to was taken over under another claim than the task's: the
    task ends, and is no failure, for it has a successor.
    """

    def __init__(self, message: str, claim: Term | str) -> None:
        super().__init__(Reason.STALE_CLAIM, message, metadata={"claim": str(claim)})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Where a task runs.

    ``config`` is the connector's parsed config overlaid by the task's own. ``claim`` is the right
    under which it commits: whoever holds a higher one has taken the task over, so a task that
    changes the outside world can refuse to do so under a lower claim than the last it saw.
    ``stopping()`` says that the task should come to an end; ask it in long loops.
    """

    task: TaskId
    claim: Term
    config: Mapping[str, Any]
    spark: "SparkSession"
    stopping: Callable[[], bool] = _never
