"""Errors of records, and of the passes that process them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from drover.record.arrow import Rows


class RecordError(ValueError):
    """A record cannot be converted or transformed (Kafka Connect's DataException).

    The message names the field and the fault, without the record's position: the caller that runs
    the step adds the position.
    """


class RowsError(RecordError):
    """Errors of a batch's rows, by row index.

    The list may be incomplete: a caller that removes these rows must call again with the rest.
    """

    def __init__(self, rows: Mapping[int, RecordError]) -> None:
        super().__init__(rows)
        self.rows = dict(sorted(rows.items()))

    @property
    def first(self) -> RecordError:
        """The error of the first row."""
        return next(iter(self.rows.values()))

    def at(self, indices: Rows | None) -> "RowsError":
        """The same errors with rows mapped through ``indices``; None keeps the rows."""
        if indices is None:
            return self
        return RowsError({indices[row].as_py(): error for row, error in self.rows.items()})

    def __str__(self) -> str:
        return str(self.first)


@contextmanager
def rows_at(indices: Rows | None) -> Iterator[None]:
    """Maps rows of a RowsError raised inside through ``indices``; None keeps the rows."""
    try:
        yield
    except RowsError as error:
        raise error.at(indices) from None


class SchemaError(RecordError):
    """A schema is unusable: it is inconsistent, or Arrow has no equivalent type."""


class PassError(Exception):
    """An error that no record caused: the pass fails regardless of errors.tolerance."""


class RetriableError(PassError):
    """Raise it from ``poll`` or ``write``, or from a converter or transform, when the same call may
    succeed later: within ``errors.retry.timeout`` Drover retries the call for the same batch before
    the task fails. Restarts after such a failure are not counted.
    """


class CredentialsRejectedError(PassError):
    """Raise it when a system rejects the credentials, which may be corrected there or in a secret:
    the task fails, and restarts after ``restart.backoff.max.ms`` until they are accepted.
    """


class ErrorStage(StrEnum):
    """The stage at which a record failed (the header ``__connect.errors.stage``). The names are
    Kafka Connect's, except SCHEMA_CHANGE, which Kafka Connect does not have.
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
    """A record failed at a stage; ``__cause__`` is the original error.

    ``class_name`` is the class at work, if it is not the pipeline's step: one of its converters.
    """

    def __init__(self, stage: ErrorStage, description: str, class_name: str = "") -> None:
        super().__init__(stage, description, class_name)
        self.stage = stage
        self.description = description
        self.class_name = class_name

    def __str__(self) -> str:
        return f"{self.stage}: {self.description}"


def described(error: BaseException) -> str:
    """What is wrong with a record, for its user: a StageError's stage and the text of the original
    error. The class is named only of an error that is no RecordError: its text may be one word.
    """
    if isinstance(error, StageError) and error.__cause__ is not None:
        return f"{error.stage}: {described(error.__cause__)}"
    return str(error) if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"


@contextmanager
def failing_at(stage: ErrorStage, class_name: str = "") -> Iterator[None]:
    """Wraps errors raised inside in a StageError. A StageError and a PassError are raised
    unchanged. ``class_name``: see StageError.
    """
    try:
        yield
    except (StageError, PassError):
        raise
    except Exception as error:
        shown = error.first if isinstance(error, RowsError) else error
        description = f"{type(shown).__name__}: {shown}"
        raise StageError(stage, description, class_name) from error
