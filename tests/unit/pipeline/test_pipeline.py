import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from drover.pipeline import (
    PassReport,
    Pipeline,
    RecordFailedError,
    Step,
    sink_pipeline,
    source_pipeline,
)

Factory = Callable[..., Pipeline]
BOTH = pytest.mark.parametrize("factory", [source_pipeline, sink_pipeline])


def batch(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values)})


def values(batches: Iterator[pa.RecordBatch]) -> list[list[str]]:
    return [each.column("value").to_pylist() for each in batches]


@dataclass(frozen=True)
class Append:
    """Adds its name to each value."""

    name: str

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [
            pa.RecordBatch.from_pydict(
                {"value": [each + self.name for each in batch.column("value").to_pylist()]}
            )
        ]


@dataclass(frozen=True)
class Cut:
    """Makes one batch per row, and none of an empty batch."""

    name: str = "cut"

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)


@dataclass(frozen=True)
class Refuse:
    name: str = "refuse"

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch
        raise ValueError("no such field")


@BOTH
def test_without_steps_the_very_batches_pass_that_come(factory: Factory) -> None:
    batches = iter([batch("a")])
    assert factory()(batches) is batches


def test_a_source_transforms_and_then_converts() -> None:
    pipeline = source_pipeline(transforms=(Append("1"), Append("2")), converters=(Append("c"),))
    assert values(pipeline(iter([batch("a"), batch("b")]))) == [["a12c"], ["b12c"]]


def test_a_sink_converts_and_then_transforms() -> None:
    pipeline = sink_pipeline(transforms=(Append("1"), Append("2")), converters=(Append("c"),))
    assert values(pipeline(iter([batch("a")]))) == [["ac12"]]


@BOTH
def test_a_step_may_make_several_batches_of_one_or_none(factory: Factory) -> None:
    pipeline = factory(converters=(Cut(),), transforms=(Append("."),))
    assert values(pipeline(iter([batch("a", "b"), batch(), batch("c")]))) == [
        ["a."],
        ["b."],
        ["c."],
    ]


def test_batches_pass_one_at_a_time() -> None:
    pulled = []

    def source() -> Iterator[pa.RecordBatch]:
        for name in "ab":
            pulled.append(name)
            yield batch(name)

    rows = source_pipeline(transforms=(Cut(),))(source())
    next(rows)
    assert pulled == ["a"]


@pytest.mark.parametrize("stage", ["transforms", "converters"])
def test_a_failure_names_its_record_and_step_and_fails_the_task(stage: str) -> None:
    steps: dict[str, tuple[Step, ...]] = {stage: (Refuse("refuse"),)}
    passed: list[pa.RecordBatch] = []
    with pytest.raises(
        RecordFailedError, match="record of this batch failed in refuse: ValueError: no such field"
    ):
        passed += source_pipeline(**steps)(iter([batch("a")]))  # type: ignore[arg-type]
    assert passed == []


@BOTH
def test_a_pipeline_can_be_pickled(factory: Factory) -> None:
    pipeline = pickle.loads(pickle.dumps(factory(transforms=(Append("x"),))))
    assert values(pipeline(iter([batch("a")]))) == [["ax"]]


def test_what_a_source_makes_much_larger_is_made_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drover.pipeline.stages._FIRST_ROWS", 10)
    monkeypatch.setattr("drover.pipeline.stages._MADE_BYTES", 10_000)
    pipeline = source_pipeline(converters=(Append("x" * 1_000),))
    report = PassReport()
    made = list(pipeline.run(iter([batch(*map(str, range(100)))]), report))
    assert [value.rstrip("x") for each in values(iter(made)) for value in each] == [
        str(number) for number in range(100)
    ]
    assert max(each.num_rows for each in made) == 10
    assert (report.read_count, report.written_count) == (100, 100)
    small = source_pipeline(converters=(Append("x"),))
    assert [each.num_rows for each in small(iter([batch(*map(str, range(100)))]))] == [10, 90]
