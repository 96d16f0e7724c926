"""What is wrong with a record."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from drover.record.arrow import Rows


class RecordError(ValueError):
    """A record cannot be converted or transformed (Kafka Connect's DataException).

    The message says what is wrong with which field, without the record's position: whoever runs the
    step adds that.
    """


class RowsError(RecordError):
    """What is wrong with which rows of a batch, by their indices.

    Others may be wrong as well: whoever leaves these out asks again.
    """

    def __init__(self, rows: Mapping[int, RecordError]) -> None:
        super().__init__(rows)
        self.rows = dict(sorted(rows.items()))

    @property
    def first(self) -> RecordError:
        """The error of the first row."""
        return next(iter(self.rows.values()))

    def at(self, indices: Rows | None) -> "RowsError":
        """The same errors, of the rows at ``indices``; None leaves them."""
        if indices is None:
            return self
        return RowsError({indices[row].as_py(): error for row, error in self.rows.items()})

    def __str__(self) -> str:
        return str(self.first)


@contextmanager
def rows_at(indices: Rows | None) -> Iterator[None]:
    """Rows that are told inside are those at ``indices``; None leaves them."""
    try:
        yield
    except RowsError as error:
        raise error.at(indices) from None


class SchemaError(RecordError):
    """A schema cannot be used: it contradicts itself, or has no counterpart in Arrow."""


class PassError(Exception):
    """What goes wrong is no record's fault: the pass fails, whatever errors.tolerance says."""


class RetriableError(PassError):
    """Raise it from ``poll`` or ``write``, or from a converter or transform, when the same call may
    succeed later: within ``errors.retry.timeout`` it is made again, for the same batch, instead of
    failing the task.
    """


class ErrorStage(StrEnum):
    """Where a record failed (the header ``__connect.errors.stage``), in Kafka Connect's words but
    for SCHEMA_CHANGE, which it does not have.
    """

    TASK_POLL = "TASK_POLL"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    TASK_PUT = "TASK_PUT"
    SCHEMA_CHANGE = "SCHEMA_CHANGE"


class StageError(RecordError):
    """A record failed at a stage; ``__cause__`` is the error as it was raised there."""

    def __init__(self, stage: ErrorStage, description: str) -> None:
        super().__init__(stage, description)
        self.stage = stage
        self.description = description

    def __str__(self) -> str:
        return f"{self.stage}: {self.description}"


@contextmanager
def failing_at(stage: ErrorStage) -> Iterator[None]:
    """Raises what fails inside as a StageError; one that names its stage already stays, and so
    does one that is not about a record.
    """
    try:
        yield
    except (StageError, PassError):
        raise
    except Exception as error:
        shown = error.first if isinstance(error, RowsError) else error
        raise StageError(stage, f"{type(shown).__name__}: {shown}") from error
