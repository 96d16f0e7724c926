"""Errors of records, in the words that users see."""

import pytest

from drover.record.errors import (
    ErrorStage,
    RecordError,
    RowsError,
    StageError,
    described,
    failing_at,
)


def of(error: Exception) -> str:
    with pytest.raises(StageError) as caught, failing_at(ErrorStage.VALUE_CONVERTER):
        raise error
    return described(caught.value)


def test_an_error_is_described_without_the_names_of_drovers_classes() -> None:
    error = RecordError("the field city is missing")
    assert described(error) == "the field city is missing"
    assert of(error) == "VALUE_CONVERTER: the field city is missing"
    assert of(RowsError({3: error})) == "VALUE_CONVERTER: the field city is missing"
    assert described(StageError(ErrorStage.TASK_PUT, "too large")) == "TASK_PUT: too large"


def test_the_class_of_another_error_is_named() -> None:
    assert of(KeyError("city")) == "VALUE_CONVERTER: KeyError: 'city'"
    assert described(OSError("no space")) == "OSError: no space"
