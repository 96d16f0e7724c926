"""What is known about an operation that raised an error."""

from dataclasses import dataclass
from enum import Enum

from drover.model.failures import FailureCause


class Fault(Enum):
    """A fault that is not the plugin's."""

    #: Another worker has a later claim.
    STALE_CLAIM = "stale claim"
    #: Busy, full, or a read that came too late: a retry may succeed.
    UNAVAILABLE = "unavailable"
    #: A Spark process ended during the call; a retry may succeed.
    LOST = "lost"
    #: An executor could not run the call, because it cannot use its files; a retry may succeed.
    EXECUTOR = "executor"


class FailureKind(Enum):
    """The errors that some phases handle in their own way."""

    OTHER = "other"
    #: The plugin asks for a retry of its call.
    RETRIABLE = "retriable"
    #: A batch is staged, but not visible: it can be published again.
    NOT_PUBLISHED = "not published"
    #: Another producer was initialised with the transactional id of the task.
    FENCED = "fenced"
    #: A staged batch cannot be published: its rows have to be staged again.
    STAGE_AGAIN = "stage again"
    #: The records of a batch have several schemas.
    MIXED_SCHEMAS = "mixed schemas"
    #: A partition ends before the position of the task.
    DATA_LOSS = "data loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error of an operation, as the shell classifies it.

    Attributes:
        error: The error.
        text: The error as text.
        kind: See FailureKind.
        fault: See Fault; None if it is the plugin's or a record's.
        cause: The cause for the status of the task.
        spark_is_running: Whether Spark is running; without it the engine is about to end.
    """

    error: BaseException
    text: str = ""
    kind: FailureKind = FailureKind.OTHER
    fault: Fault | None = None
    cause: FailureCause = FailureCause.PLUGIN
    spark_is_running: bool = True

    @property
    def is_final(self) -> bool:
        """Whether no retry is due to it."""
        is_own = self.fault is None and self.spark_is_running
        is_retriable = self.kind is FailureKind.RETRIABLE
        return self.fault is Fault.STALE_CLAIM or (is_own and not is_retriable)
