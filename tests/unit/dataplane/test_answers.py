"""Errors of executors reach the driver as they were raised."""

import gc
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import RetriableError
from drover.dataplane.answers import (
    ANSWER,
    Answering,
    AnsweringInArrow,
    ExecutorError,
    LoadedModules,
    rows_of,
)
from drover.errors import InvalidArgumentError, Reason, UnavailableError, Violation
from drover.pipeline import RecordFailedError
from drover_worker.engine.plugins.threads import format_trace


class TwoPartError(Exception):
    """Its pickle cannot be read, because its constructor takes other arguments than ``args``."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text today")


def raising(error: BaseException, cause: BaseException | None = None) -> Any:
    def function(_: object) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"number": [1]})
        raise error from cause

    return function


def answered(error: BaseException, cause: BaseException | None = None) -> BaseException:
    with pytest.raises(BaseException) as caught:
        rows_of(Answering(raising(error, cause))(()))
    return caught.value


def test_rows_come_in_the_order_of_spark_partitions() -> None:
    def rows(numbers: Iterator[int]) -> Iterator[Any]:
        for number in numbers:
            yield pa.RecordBatch.from_pydict({"number": [number], "blob": [b"\0\xff"]})

    answers = [
        *Answering(rows)(iter([1, 2])),
        *Answering(rows)(iter([])),
        *Answering(rows)(iter([3])),
    ]
    assert rows_of(answers) == [{"number": n, "blob": b"\0\xff"} for n in (1, 2, 3)]


def test_what_is_no_batch_is_told() -> None:
    def dicts(_: object) -> Iterator[Any]:
        yield {"n": 1}

    with pytest.raises(TypeError, match=r"must yield Arrow record batches, not dict: .*pylist"):
        rows_of(Answering(dicts)(()))


def test_an_answer_of_a_frame_is_a_row() -> None:
    def count(batches: Iterator[Any]) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"count": [sum(each.num_rows for each in batches)]})

    batches = [pa.RecordBatch.from_pydict({"x": [1, 2]})]
    (made,) = AnsweringInArrow(count)(iter(batches))
    assert rows_of(made.column(ANSWER).to_pylist()) == [{"count": 2}]


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError(Reason.STORAGE_UNAVAILABLE, "busy"),
        InvalidArgumentError.listing([Violation("topic", "is none")]),
        RecordFailedError("a-0@4: no"),
        RetriableError("later"),
        KeyError("x"),
    ],
)
def test_an_error_is_raised_as_it_was_and_says_where(error: Exception) -> None:
    found = answered(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    for name in ("reason", "message", "metadata", "violations"):
        assert getattr(found, name, None) == getattr(error, name, None)
    (note,) = found.__notes__
    assert "on an executor:" in note
    assert "in function" in note


def test_the_trace_of_an_executors_error_has_its_message_once() -> None:
    found = answered(ValueError("too long"), KeyError("name"))
    with pytest.raises(ValueError, match="too long") as raised:
        raise found
    trace = format_trace(raised.value)
    assert trace.startswith("Traceback")
    assert trace.rstrip().endswith("ValueError: too long")
    assert trace.count("too long") == trace.count("KeyError") == 1
    assert trace.index("raise found") < trace.index("on an executor:")


def test_causes_stay_behind_their_errors() -> None:
    found = answered(ValueError("what"), UnavailableError(Reason.STORAGE_UNAVAILABLE, "why"))
    assert isinstance(found.__cause__, UnavailableError)
    assert found.__cause__.message == "why"


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    second.__cause__ = first
    assert str(answered(first, second)) == "first"


def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    found = answered(TwoPartError("one", "two"))
    assert isinstance(found, ExecutorError)
    assert f"{__name__}.TwoPartError: one and two" in str(found)
    assert "in function" in str(found)


def test_an_error_without_a_text_is_named() -> None:
    found = answered(UntellableError())
    assert type(found).__name__ in ("UntellableError", "ExecutorError")


def test_an_error_whose_class_the_driver_does_not_have_is_told_in_words() -> None:
    (answer,) = Answering(raising(KeyError("x")))(())
    rows, [(_, told)], took_s = pickle.loads(answer)
    lost = pickle.dumps((rows, [(b"\x80\x04cnowhere\nGone\n.", told)], took_s))
    with pytest.raises(ExecutorError, match=r"builtins\.KeyError: 'x'"):
        rows_of([lost])


@pytest.mark.parametrize("error", [None, KeyError("x")])
def test_python_looks_for_cycles_as_before_afterwards(error: Exception | None) -> None:
    before = gc.get_threshold()
    seen = []

    def function(_: object) -> Iterator[Any]:
        seen.append(gc.get_threshold())
        if error is not None:
            raise error
        yield from ()

    list(Answering(function)(()))
    assert seen[0][0] > before[0]
    assert gc.get_threshold() == before


def test_rows_before_an_error_are_not_handed_out() -> None:
    answers = [*Answering(lambda _: iter(()))(()), *Answering(raising(KeyError("x")))(())]
    with pytest.raises(KeyError):
        rows_of(answers)


def test_what_modules_made_when_they_were_loaded_is_passed_over_once() -> None:
    frozen = []
    modules = LoadedModules(lambda: frozen.append("frozen"))
    for count in (700, 700, 900, 900, 900):
        modules.pass_over(count)
    assert frozen == ["frozen", "frozen"]


def test_what_loads_modules_with_each_call_is_not_kept_for_ever() -> None:
    frozen = []
    modules = LoadedModules(lambda: frozen.append("frozen"))
    for count in range(1_000):
        modules.pass_over(count)
    assert len(frozen) == 10
