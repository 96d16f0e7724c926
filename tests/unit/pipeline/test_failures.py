"""Records that a step cannot process are found one by one, and no record is lost."""

import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.model.dead_letters import VALUE_CUT_HEADER
from drover.pipeline import (
    PassReport,
    Policy,
    RecordFailedError,
    Step,
    Tolerate,
    sink_pipeline,
    source_pipeline,
)
from drover.pipeline import tracked as tracked_module
from drover.pipeline.dead_letters import Parts, dead_letter
from drover.pipeline.layouts import SizeLimit, TableRows, topic_records
from drover.pipeline.replay import LetterRecords
from drover.pipeline.report import FAILURES_MAX, FailedRecord, total
from drover.pipeline.tracked import TrackedRead, written_letters
from drover.record import ErrorStage, RecordError, RetriableError, failing_at, make_batch
from drover.record.batch import ERROR_COLUMN, HEADERS_TYPE, ORIGIN_COLUMN, RAW_COLUMN
from drover.record.errors import RowsError


@dataclass(frozen=True)
class RefuseNegative:
    """Fails for a whole batch; the error does not name the row."""

    name: str = "transforms.positive"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        if pc.any(pc.less(batch.column("value"), 0)).as_py():
            raise ValueError("a value is negative")
        yield batch


@dataclass(frozen=True)
class NameNegative:
    """Its error names at most ``at_most`` of the failed rows."""

    at_most: int
    name: str = "transforms.positive"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        numbers = batch.column("value").to_pylist()
        errors = {row: RecordError(f"{n} is negative") for row, n in enumerate(numbers) if n < 0}
        if errors:
            named = dict(list(errors.items())[-self.at_most :])
            with failing_at(ErrorStage.VALUE_CONVERTER):
                raise RowsError(named)
        yield batch


@dataclass(frozen=True)
class AskServer:
    """Fails for every record, because a server is away."""

    name: str = "convert"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        with failing_at(ErrorStage.VALUE_CONVERTER):
            raise RetriableError("the server is away")


@dataclass(frozen=True)
class DropEven:
    name: str = "transforms.odd"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        # an empty batch counts as no batch
        yield batch.filter(pc.equal(pc.bit_wise_and(batch.column("value"), 1), 1))


@dataclass(frozen=True)
class KeepAll:
    """Returns a new batch with the same records."""

    name: str = "transforms.copy"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        yield batch.slice(0)


STEPS: tuple[Step, ...] = (RefuseNegative(), DropEven())


def records(numbers: Sequence[int], *, first_offset: int = 0) -> pa.RecordBatch:
    count = len(numbers)
    return make_batch(
        count,
        topic=pa.array(["t"] * count),
        partition=pa.array([3] * count, pa.int32()),
        offset=pa.array(range(first_offset, first_offset + count), pa.int64()),
        value=(pa.field("value", pa.int64()), pa.array(numbers, pa.int64())),
    )


def tolerant(*, topic: str | None = None, in_batch: bool = True, context: bool = False) -> Tolerate:
    return Tolerate("c", 1, topic=topic, context_headers=context, in_batch=in_batch)


def run(
    batches: Sequence[pa.RecordBatch],
    policy: Policy | None = None,
    steps: tuple[Step, ...] = STEPS,
) -> tuple[list[pa.RecordBatch], PassReport]:
    report = PassReport()
    pipeline = sink_pipeline(transforms=steps, policy=policy)
    return list(pipeline.run(iter(batches), report)), report


def numbers_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for each in batches for number in each.column("value").to_pylist()]


def test_without_tolerance_the_first_bad_record_is_named_by_its_place() -> None:
    with pytest.raises(
        RecordFailedError,
        match=r"record t-3@42 failed in transforms\.positive: ValueError: a value is negative",
    ):
        run([records([1, 3, -5, -7], first_offset=40)])


@given(
    st.lists(st.integers(-3, 9), max_size=60),
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from([None, "dead"]),
    st.sampled_from(
        [
            STEPS,
            (NameNegative(99), DropEven()),
            (NameNegative(1), DropEven()),
            (KeepAll(), NameNegative(2), DropEven()),
        ]
    ),
)
def test_any_bad_subset_is_isolated_and_the_counts_add_up(
    numbers: list[int], cuts: list[int], topic: str | None, steps: tuple[Step, ...]
) -> None:
    edges = [0, *sorted(min(cut, len(numbers)) for cut in cuts), len(numbers)]
    batches = [
        records(numbers[start:end], first_offset=start) for start, end in itertools.pairwise(edges)
    ]
    policy = tolerant(topic=topic, in_batch=False)
    out, report = run(batches, policy, steps)
    assert numbers_of(out) == [n for n in numbers if n >= 0 and n % 2]
    bad = [n for n in numbers if n < 0]
    assert report.failed_count == len(bad)
    assert report.dead_lettered_count == (len(bad) if topic else 0)
    assert len(policy.kept) == report.dead_lettered_count
    assert (
        report.read_count
        == len(numbers)
        == (report.written_count + report.filtered_count + report.failed_count)
    )
    places = sorted(failure.place for failure in report.failures)
    assert places == sorted(f"t-3@{offset}" for offset, n in enumerate(numbers) if n < 0)


def test_rows_that_a_step_names_are_told_with_their_own_errors() -> None:
    _, report = run([records([1, -2, 3, -4])], tolerant(), (NameNegative(99),))
    assert [
        (each.place, each.stage, each.error_class, each.message) for each in report.failures
    ] == [
        ("t-3@1", "VALUE_CONVERTER", "RecordError", "-2 is negative"),
        ("t-3@3", "VALUE_CONVERTER", "RecordError", "-4 is negative"),
    ]


def test_rows_of_another_batch_than_came_are_found_by_halving() -> None:
    out, report = run([records([2, -1, 4, -3, 5])], tolerant(), (DropEven(), NameNegative(99)))
    assert numbers_of(out) == [5]
    assert [each.message for each in report.failures] == ["-1 is negative", "-3 is negative"]
    assert report.filtered_count == 2


def test_good_rows_beside_named_ones_stay_together() -> None:
    out, _ = run([records([1, -2, 3, -4, 5])], tolerant(), (NameNegative(99),))
    assert [each.num_rows for each in out] == [3]


def test_a_sinks_dead_letter_is_the_record_as_it_came_and_says_why() -> None:
    raw = pa.RecordBatch.from_pydict(
        {
            "topic": ["orders"],
            "partition": pa.array([1], pa.int32()),
            "offset": [7],
            "key": [b"k"],
            "value": [b"{not json"],
            "headers": pa.array([[{"key": "trace", "value": b"\x01"}]]),
            "timestamp": pa.array([1234], pa.timestamp("us", tz="UTC")),
        }
    )

    @dataclass(frozen=True)
    class Parse:
        name: str = "JsonConverter"

        def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
            raise ValueError("no JSON")

    policy = tolerant(topic="dead", in_batch=False, context=True)
    pipeline = sink_pipeline(prepare=_prepare, converters=(Parse(),), policy=policy)
    assert list(pipeline.run(iter([raw]), PassReport())) == []
    (letter,) = policy.kept[0].letter.to_pylist()
    assert (letter["topic"], letter["key"], letter["value"]) == ("dead", b"k", b"{not json")
    headers = {each["key"]: each["value"] for each in letter["headers"]}
    assert headers["trace"] == b"\x01"
    found = {
        name.removeprefix("__connect.errors."): value.decode()
        for name, value in headers.items()
        if name.startswith("__connect.errors.")
    }
    trace = found.pop("exception.stacktrace")
    assert trace.startswith("Traceback")
    assert trace.endswith("ValueError: no JSON\n")
    assert found == {
        "topic": "orders",
        "partition": "1",
        "offset": "7",
        "connector.name": "c",
        "task.id": "1",
        "stage": "VALUE_CONVERTER",
        "class.name": "JsonConverter",
        "exception.class.name": "ValueError",
        "exception.message": "no JSON",
    }


def _prepare(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    return topic_records(batch)


def test_rows_that_a_source_could_not_read_are_dead_letters_with_their_bytes() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "id": [1, None, 3],
            ORIGIN_COLUMN: ["/a.csv:2", "/a.csv:3", "/a.csv:4"],
            ERROR_COLUMN: [None, "2 fields, expected 1", None],
            RAW_COLUMN: [None, b"2,2", None],
        }
    )
    pipeline = source_pipeline(prepare=TableRows("id"), policy=tolerant(topic="dead"))
    report = PassReport()
    out = list(pipeline.run(iter([rows]), report))
    good = [each for each in out if each.column("topic").null_count]
    assert [each.column("key").to_pylist() for each in good] == [[1], [3]]
    assert [each.column("value").to_pylist() for each in good] == [[{"id": 1}], [{"id": 3}]]
    (letter,) = [each for each in out if not each.column("topic").null_count]
    assert (letter.column("topic")[0].as_py(), letter.column("value")[0].as_py()) == (
        "dead",
        b"2,2",
    )
    (failure,) = report.failures
    assert str(failure) == ("record /a.csv:3 failed in poll: ValueError: 2 fields, expected 1")
    assert (report.read_count, report.written_count, report.dead_lettered_count) == (3, 2, 1)


@pytest.mark.parametrize("key", ["id", ("id", "name")])
def test_rows_of_which_none_can_be_read_need_no_key(key: str | tuple[str, ...]) -> None:
    rows = pa.RecordBatch.from_pydict(
        {ORIGIN_COLUMN: ["/a:1"], ERROR_COLUMN: ["broken"], RAW_COLUMN: [b"x"]}
    )
    pipeline = source_pipeline(prepare=TableRows(key), policy=tolerant(topic="dead"))
    out = list(pipeline.run(iter([rows]), PassReport()))
    letters = [each for each in out if each.num_rows]
    assert [each.column("value").to_pylist() for each in letters] == [[b"x"]]
    missing = pa.RecordBatch.from_pydict({"n": [1]})
    with pytest.raises(RecordError, match="key's column 'id' is not in the rows: they have n"):
        list(pipeline.run(iter([missing]), PassReport()))


def test_a_source_names_the_place_that_it_gave() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1], ORIGIN_COLUMN: ["/a.csv:2"]})
    pipeline = source_pipeline(prepare=TableRows(), transforms=(_Fail(),))
    with pytest.raises(RecordFailedError, match=r"record /a\.csv:2 failed in fail: KeyError"):
        list(pipeline(iter([rows])))


def test_the_error_has_the_calls_of_a_plugin_and_no_calls_for_a_value_that_drover_rejects() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1], ORIGIN_COLUMN: ["/a.csv:2"]})
    with pytest.raises(RecordFailedError) as raised:
        list(source_pipeline(prepare=TableRows(), transforms=(_Fail(),))(iter([rows])))
    assert 'raise KeyError("x")' in raised.value.trace
    assert pickle.loads(pickle.dumps(raised.value)).trace == raised.value.trace
    with pytest.raises(RecordFailedError) as raised:
        list(source_pipeline(prepare=TableRows(), transforms=(_Reject(),))(iter([rows])))
    assert str(raised.value) == "record /a.csv:2 failed in reject: 1 is negative"
    assert raised.value.trace == ""


@dataclass(frozen=True)
class _Reject:
    name: str = "reject"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        raise RecordError("1 is negative")


@dataclass(frozen=True)
class _Fail:
    name: str = "fail"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        raise KeyError("x")


def test_only_so_many_failures_are_told_one_by_one() -> None:
    _, report = run([records([-1] * (FAILURES_MAX + 5))], tolerant())
    assert len(report.failures) == FAILURES_MAX
    assert report.skipped_count == FAILURES_MAX + 5
    assert len(total([report, report]).failures) == FAILURES_MAX


class Collected:
    def __init__(self) -> None:
        self.value: dict[int, PassReport] = {}

    def add(self, term: dict[int, PassReport]) -> None:
        self.value |= term


def test_what_runs_again_under_its_number_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Collected()
    written: list[int] = []

    def write(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        count = sum(each.num_rows for each in batches)
        written.append(count)
        yield pa.RecordBatch.from_pydict({"record_count": [count]})

    def read(number: int) -> Iterable[pa.RecordBatch]:
        return iter([records([number, -1])])

    pipeline = sink_pipeline(transforms=STEPS, policy=tolerant(topic="dead", in_batch=False))
    tracked = TrackedRead(read, pipeline, reports, write)  # type: ignore[arg-type]
    for number in (1, 1, 3):
        assert numbers_of(tracked(number)) == [number]
    found = total(reports.value.values())
    assert (found.read_count, found.written_count, found.dead_lettered_count) == (4, 2, 2)
    assert [each.place for each in found.letters] == [("t", 3, 1), ("t", 3, 1)]
    assert written == []
    rows = written_letters(found.letters, write)  # type: ignore[arg-type]
    assert (rows, written) == ([{"record_count": 2}], [2])
    written.clear()
    monkeypatch.setattr(tracked_module, "_LETTERS_BYTES_MAX", 0)
    for number in (1, 1, 3):
        assert numbers_of(tracked(number)) == [number]
    found = total(reports.value.values())
    assert written == [1] * 3
    assert list(found.dead_letter_rows) == [{"record_count": 1}] * 2
    assert not found.letters


@dataclass(frozen=True)
class RejectRows:
    """Rejects numbers, as a converter that reports rows."""

    numbers: frozenset[int]
    name: str = "reject"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        found = batch.column("value").to_pylist()
        rows = {row: RecordError(str(n)) for row, n in enumerate(found) if n in self.numbers}
        if rows:
            raise RowsError(rows)
        yield batch


@dataclass(frozen=True)
class RejectBatches:
    """Rejects whole batches with a number, which are then halved."""

    numbers: frozenset[int]
    name: str = "reject batches"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        if self.numbers.intersection(batch.column("value").to_pylist()):
            raise ValueError("a number is bad")
        yield batch


BAD = st.frozensets(st.integers(0, 19))


@settings(max_examples=40)
@given(BAD, BAD, BAD)
def test_dead_letters_follow_their_records_whatever_step_rejects_them(
    first: frozenset[int], second: frozenset[int], third: frozenset[int]
) -> None:
    steps: tuple[Step, ...] = (RejectRows(first), RejectBatches(second), RejectRows(third))
    policy = tolerant(topic="dead", in_batch=False)
    good, report = run([records(range(10)), records(range(10, 20), first_offset=10)], policy, steps)
    bad = sorted(first | second | third)
    assert [each.place[2] for each in policy.kept] == bad
    assert [each.place for each in report.failures] == [f"t-3@{each}" for each in bad]
    assert numbers_of(good) == [each for each in range(20) if each not in bad]
    if bad:
        with pytest.raises(RecordFailedError, match=rf"record t-3@{bad[0]} failed"):
            run([records(range(10)), records(range(10, 20), first_offset=10)], None, steps)


def letter_of(
    key: bytes | None, value: bytes | None, headers: Mapping[str, bytes], bytes_max: int
) -> dict[str, Any] | None:
    """The dead letter of a record with a failure that has a stack trace."""
    record = make_batch(
        1,
        topic=pa.array(["t"]),
        partition=pa.array([3], pa.int32()),
        offset=pa.array([7], pa.int64()),
        key=(pa.field("key", pa.binary()), pa.array([key], pa.binary())),
        value=(pa.field("value", pa.binary()), pa.array([value], pa.binary())),
        headers=pa.array(
            [[{"key": name, "value": each, "type": None} for name, each in headers.items()]],
            HEADERS_TYPE,
        ),
    )
    failure = FailedRecord("t-3@7", "STAGE", "step", "ValueError", "wrong", "trace " * 1_000)
    letter = dead_letter(
        record,
        failure,
        topic="dead",
        connector="c",
        task=0,
        context_headers=True,
        bytes_max=bytes_max,
    )
    if letter is None:
        return None
    (found,) = letter.to_pylist()
    parts = Parts(found["key"], found["value"], found["headers"])
    assert parts.size_bytes <= bytes_max
    own: dict[str, Any] = {
        each["key"].removeprefix("__connect.errors."): each["value"] for each in found["headers"]
    }
    return {"key": found["key"], "value": found["value"], **own}


def test_a_dead_letter_over_the_limit_loses_its_trace_and_then_the_end_of_its_value() -> None:
    whole = letter_of(b"k", b"x" * 1_000, {"h": b"1"}, 10_000)
    assert whole is not None
    assert "exception.stacktrace" in whole
    assert "value.original.bytes" not in whole
    short = letter_of(b"k", b"x" * 5_000, {"h": b"1"}, 10_000)
    assert short is not None
    assert short["value"] == b"x" * 5_000
    assert "exception.stacktrace" not in short
    assert "value.original.bytes" not in short
    assert short["exception.message"] == b"wrong"
    cut = letter_of(b"k", "é".encode() * 6_000, {"h": b"1"}, 10_000)
    assert cut is not None
    assert 9_000 < len(cut["value"]) < 10_000
    assert set(cut["value"].decode()) == {"é"}  # no part of a character
    assert cut["value.original.bytes"] == b"12000"
    assert (cut["key"], cut["h"], cut["offset"]) == (b"k", b"1", b"7")
    headers = letter_of(b"k", b"v" * 100, {"h": b"1" * 20_000}, 10_000)
    assert headers is not None
    assert (headers["value"], headers["value.original.bytes"]) == (b"", b"100")
    assert headers["headers.original.bytes"] == b"20009"
    assert "h" not in headers
    key = letter_of(b"k" * 20_000, None, {}, 10_000)
    assert key is not None
    assert key["value"] is None
    assert 9_000 < len(key["key"]) < 10_000
    assert key["key.original.bytes"] == b"20000"
    tiny = letter_of(b"k" * 500, b"v" * 500, {"h": b"1" * 500}, 300)
    assert tiny is not None
    assert (tiny["topic"], tiny["partition"], tiny["offset"]) == (b"t", b"3", b"7")
    assert letter_of(b"k", b"v", {}, 20) is None


def test_a_record_whose_dead_letter_fits_nowhere_is_skipped_and_counted() -> None:
    policy = Tolerate("c", 1, topic="dead", context_headers=True, letter_bytes_max=20)
    made, report = run([records([1, -5])], policy)
    assert numbers_of(made) == [1]
    assert (report.skipped_count, report.dead_lettered_count) == (1, 0)


def test_a_cut_dead_letter_is_not_replayed_as_a_record() -> None:
    cut = letter_of(b"k", b"x" * 50_000, {}, 10_000)
    assert cut is not None
    headers = [{"key": VALUE_CUT_HEADER, "value": b"50000"}]
    letters = pa.RecordBatch.from_pydict(
        {
            "topic": ["dead"] * 2,
            "partition": pa.array([0, 0], pa.int32()),
            "offset": [0, 1],
            "key": pa.array([b"k"] * 2, pa.binary()),
            "value": pa.array([cut["value"], b"whole"], pa.binary()),
            "headers": pa.array(
                [headers, None], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
            ),
            "timestamp": pa.array([0, 0], pa.timestamp("us", tz="UTC")),
        }
    )
    policy = tolerant(topic="dead", in_batch=False)
    pipeline = sink_pipeline(prepare=LetterRecords("t"), policy=policy)
    report = PassReport()
    (made,) = pipeline.run(iter([letters]), report)
    assert made.column("value").to_pylist() == [b"whole"]
    assert "was cut to the size limit" in report.failures[0].message
    (again,) = [each.letter.to_pylist()[0] for each in policy.kept]
    assert {"key": VALUE_CUT_HEADER, "value": b"50000", "type": None} in again["headers"]


def test_headers_count_in_the_size_of_a_record() -> None:
    headers = [[{"key": "h", "value": b"1" * 900, "type": None}], None, []]
    value = pa.array([b"v" * 200, b"v" * 900, b"v" * 1_200], pa.binary())
    batch = make_batch(
        3,
        topic=pa.array(["t"] * 3),
        value=(pa.field("value", pa.binary()), value),
        headers=pa.array(headers, HEADERS_TYPE),
    )
    policy = tolerant()
    made, report = run([batch], policy, (SizeLimit(1_000),))
    assert [each.column("value").to_pylist() for each in made] == [[b"v" * 900]]
    assert [each.message.split(",")[0] for each in report.failures] == ["key"] * 2


def test_what_is_no_records_fault_is_not_tolerated() -> None:
    pipeline = source_pipeline(
        prepare=TableRows(), converters=(AskServer(),), policy=Tolerate("c", 0, "bad")
    )
    report = PassReport()
    with pytest.raises(RetriableError, match="the server is away"):
        list(pipeline.run(iter([pa.RecordBatch.from_pydict({"a": [1, 2]})]), report))
    assert report.failed_count == 0


def test_a_topic_may_have_a_lower_limit_than_others() -> None:
    value = pa.array([b"v" * 50, b"v" * 150, b"v" * 150, b"v" * 1_500], pa.binary())
    batch = make_batch(
        4,
        topic=pa.array(["low", "low", "high", "high"]),
        value=(pa.field("value", pa.binary()), value),
    )
    made, report = run([batch], tolerant(), (SizeLimit(1_000, {"low": 100}),))
    kept = [(row["topic"], len(row["value"])) for each in made for row in each.to_pylist()]
    assert kept == [("low", 50), ("high", 150)]
    assert ["the limit is 100 " in each.message for each in report.failures] == [True, False]
