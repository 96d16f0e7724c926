"""Records whose value has another schema than earlier records."""

import pickle
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.pipeline import PassReport, RecordFailedError, Tolerate, source_pipeline
from drover.pipeline.schema_change import FirstSchemas, KeepSchema, SchemaChange, schemas_of
from drover.record import make_batch

FREEZE, ROW, VALUE = SchemaChange.FREEZE, SchemaChange.DISCARD_ROW, SchemaChange.DISCARD_VALUE

OLD = pa.struct([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
MORE = pa.struct([*OLD, ("city", pa.string())])
LESS = pa.struct([OLD.field("id")])
OTHER = pa.struct([OLD.field("id"), ("name", pa.int32())])
LOOSE = pa.struct([("id", pa.int64()), ("name", pa.string())])
KNOWN = {"t": pa.field("value", OLD)}

GOOD: dict[str, object] = {"id": 1, "name": "a"}
WITH_CITY: dict[str, object] = {"id": 2, "name": "b", "city": "c"}
NO_ID: dict[str, object] = {"id": None, "name": "d"}


def records(
    kind: pa.DataType,
    values: Sequence[object],
    *,
    topics: Sequence[str | None] = (),
    first: int = 0,
) -> pa.RecordBatch:
    count = len(values)
    return make_batch(
        count,
        topic=pa.array(topics or ["t"] * count, pa.string()),
        partition=pa.array([0] * count, pa.int32()),
        offset=pa.array(range(first, first + count), pa.int64()),
        value=(pa.field("value", kind), pa.array(list(values), kind)),
    )


def run(
    keep: KeepSchema, *batches: pa.RecordBatch, dead: str | None = None
) -> tuple[list[Any], PassReport]:
    """The values that pass, and the report with the others."""
    report = PassReport()
    policy = Tolerate("c", 0, topic=dead, in_batch=False)
    pipeline = pickle.loads(pickle.dumps(source_pipeline(transforms=(keep,), policy=policy)))
    made = list(pipeline.run(iter(batches), report))
    assert len({each.schema.field("value").type for each in made if each.num_rows}) <= 1
    handled = report.written_count + report.filtered_count + report.failed_count
    assert handled == report.read_count
    return [value for each in made for value in each.column("value").to_pylist()], report


@pytest.mark.parametrize("change", [FREEZE, ROW, VALUE])
def test_records_that_fit_take_the_known_schema(change: SchemaChange) -> None:
    made, report = run(
        KeepSchema(change, dict(KNOWN)), records(OLD, [GOOD, None]), records(LESS, [{"id": 2}])
    )
    assert made == [GOOD, None, {"id": 2, "name": None}]
    assert report.schema_changes == {}


def test_a_frozen_schema_makes_an_error_of_the_record_that_names_the_column() -> None:
    pipeline = source_pipeline(transforms=(KeepSchema(FREEZE, dict(KNOWN)),))
    with pytest.raises(RecordFailedError) as raised:
        list(pipeline(iter([records(MORE, [WITH_CITY], first=7)])))
    assert str(raised.value).startswith(
        "record t-0@7 failed in schema.change: SchemaChangeError: value.city (string) is new"
    )


def test_a_frozen_schemas_errors_are_dead_letters() -> None:
    made, report = run(
        KeepSchema(FREEZE, dict(KNOWN)),
        records(OLD, [GOOD]),
        records(MORE, [WITH_CITY, WITH_CITY]),
        records(LOOSE, [GOOD, NO_ID, None]),
        dead="dead",
    )
    assert made == [GOOD, GOOD, None]
    assert report.dead_lettered_count == 3
    assert {each.stage for each in report.failures} == {"SCHEMA_CHANGE"}


def test_discarded_rows_are_counted_as_filtered_and_their_change_is_told() -> None:
    made, report = run(
        KeepSchema(ROW, dict(KNOWN)),
        records(MORE, [WITH_CITY, WITH_CITY]),
        records(LOOSE, [GOOD, NO_ID, None]),
        records(OTHER, [{"id": 1, "name": 2}]),
    )
    assert made == [GOOD, None]
    assert report.filtered_count == 4
    assert report.schema_changes == {"t": "value.city (string) is new"}


def test_discarded_values_leave_the_rows() -> None:
    made, report = run(
        KeepSchema(VALUE, dict(KNOWN)),
        records(MORE, [WITH_CITY]),
        records(OTHER, [{"id": 3, "name": 7}]),
    )
    assert made == [{"id": 2, "name": "b"}, {"id": 3, "name": None}]
    assert report.schema_changes == {"t": "value.city (string) is new"}


def test_what_no_value_can_be_dropped_for_is_an_error() -> None:
    text_id = pa.struct([("id", pa.string())])
    made, report = run(
        KeepSchema(VALUE, dict(KNOWN)),
        records(text_id, [{"id": "x"}]),
        records(LOOSE, [NO_ID, GOOD]),
        records(pa.string(), ["no struct"]),
    )
    assert made == [GOOD]
    assert [each.message for each in report.failures] == [
        "value.id is string and was int64",
        "value.id is null and was required",
        f"value is string and was {OLD}",
    ]


def test_each_topic_has_its_own_schema() -> None:
    keep = KeepSchema(FREEZE, {**KNOWN, "u": pa.field("value", MORE)})
    mixed = records(MORE, [WITH_CITY, WITH_CITY, WITH_CITY], topics=["u", "t", "u"])
    made, report = run(keep, mixed)
    assert made == [WITH_CITY, WITH_CITY]
    assert [each.place for each in report.failures] == ["t-0@1"]


def test_records_without_a_topic_are_for_the_default_one() -> None:
    keep = KeepSchema(ROW, dict(KNOWN), "t")
    made, _ = run(keep, records(MORE, [WITH_CITY, WITH_CITY], topics=[None, "x"]))
    assert made == [WITH_CITY], "topic x had no schema yet"


def test_the_first_value_of_each_topic_says_its_schema() -> None:
    batches = [
        records(pa.binary(), [None, None], topics=["t", "u"]),
        records(OLD, [GOOD, GOOD], topics=["t", None]),
        records(MORE, [WITH_CITY, None, WITH_CITY], topics=["t", "v", "u"]),
    ]
    rows = [row for each in FirstSchemas("d")(iter(batches)) for row in each.to_pylist()]
    found = schemas_of((row["topic"], row["schema"]) for row in rows)
    assert {topic: field.type for topic, field in found.items()} == {"t": OLD, "d": OLD, "u": MORE}


def test_no_more_is_read_than_the_topics_that_are_wanted() -> None:
    batches = iter([records(OLD, [GOOD]), records(MORE, [WITH_CITY])])
    (found,) = FirstSchemas(topic_count=1)(batches)
    assert found.num_rows == 1
    assert next(batches).num_rows == 1


SHAPES: list[tuple[pa.DataType, dict[str, object] | None]] = [
    (OLD, GOOD),
    (OLD, None),
    (MORE, WITH_CITY),
    (LESS, {"id": 4}),
    (OTHER, {"id": 5, "name": 6}),
    (LOOSE, NO_ID),
    (LOOSE, GOOD),
]


@given(
    change=st.sampled_from([FREEZE, ROW, VALUE]),
    kinds=st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from("tu")), max_size=12),
    cuts=st.sets(st.integers(1, 11)),
)
def test_any_cut_into_batches_gives_the_same_records(
    change: SchemaChange,
    kinds: list[tuple[tuple[pa.DataType, dict[str, object] | None], str]],
    cuts: set[int],
) -> None:
    known = {topic: pa.field("value", OLD) for topic in "tu"}

    def passed(bounds: Sequence[int]) -> tuple[list[Any], int, int]:
        batches = []
        for start, end in pairwise(bounds):
            kind = kinds[start][0][0]
            values = [value for (_, value), _ in kinds[start:end]]
            topics = [topic for _, topic in kinds[start:end]]
            batches.append(records(kind, values, topics=topics, first=start))
        made, report = run(KeepSchema(change, dict(known)), *batches)
        return made, report.filtered_count, report.failed_count

    count = len(kinds)
    changes = {n for n in range(1, count) if kinds[n][0][0] != kinds[n - 1][0][0]}
    as_it_is = sorted({0, count} | changes)
    assert passed(as_it_is) == passed(sorted({*as_it_is, *(n for n in cuts if n < count)}))
