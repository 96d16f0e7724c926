"""Batch boundaries change neither the resulting records nor their order."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from drover.record import Schema, Type, schema_of
from tests.support.records import only, optional, run, schemaless, struct, transform, with_schema

SCHEMA = Schema(
    Type.STRUCT,
    optional=True,
    fields=struct(
        a=Schema(Type.INT32),
        b=optional(Type.STRING, default='"none"'),
        c=Schema(Type.STRUCT, True, fields=struct(d=optional(Type.INT64, default="4")).fields),
    ).fields,
)
ROW = st.fixed_dictionaries(
    {
        "a": st.integers(0, 5),
        "b": st.sampled_from([None, "", "x", 'a "quote"']),
        "c": st.none() | st.fixed_dictionaries({"d": st.none() | st.integers(0, 3)}),
    }
)
CHAINS = [
    transform("ExtractField$Value", field="c.d", field__syntax__version="V2"),
    transform("Flatten$Value"),
    transform("HoistField$Value", field="it"),
    transform("InsertField$Value", topic__field="t", offset__field="o!", static__field="s",
              static__value="v"),
    transform("InsertHeader", header="h", value__literal="1"),
    transform("ReplaceField$Value", exclude="a", renames="b:z"),
    transform("ReplaceField$Value", include="a") | only("FieldMatches", field="a", min="3"),
    transform("Flatten$Value") | only("RecordIsTombstone", negate=True),
    transform("MaskField$Value", fields="a,b") | only("FieldMatches", field="b", pattern=".*"),
    transform("HeaderFrom$Value", fields="a,b", headers="x,y", operation="copy")
    | only("RecordIsTombstone", negate=True),
    transform("HeaderFrom$Value", fields="a,b", headers="x,y", operation="move")
    | only("FieldMatches", {"in": "1,2"}, field="c.d"),
    transform("ValueToKey", fields="b,a") | only("FieldMatches", field="a", max="2"),
    transform("Filter") | only("FieldMatches", field="a", equals="1"),
]  # fmt: skip


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Rows with their schemas; the schema of a tombstone is ignored."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        kinds = {each: schema_of(batch.schema.field(each)) for each in ("key", "value")}
        rows += [
            row | {f"{each} of": kinds[each] for each in kinds if row[each] is not None}
            for row in batch.to_pylist()
        ]
    return rows


@given(
    rows=st.lists(st.none() | ROW, max_size=12),
    cuts=st.sets(st.integers(1, 11)),
    config=st.sampled_from(CHAINS),
    has_schema=st.booleans(),
)
def test_cuts_do_not_matter(
    rows: list[Any], cuts: set[int], config: dict[str, str], has_schema: bool
) -> None:
    whole = with_schema(SCHEMA, *rows) if has_schema else schemaless(*rows)
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    parts = [whole.slice(start, end - start) for start, end in pairwise(edges)]
    found = rows_of(run(config, *parts))
    assert found == rows_of(run(config, whole))
    # additional columns stay with their rows, and the rows stay in order
    numbers = [int(row["origin"].removeprefix("row ")) for row in found]
    assert numbers == sorted(numbers)
    if config["transforms.it.type"] != "Filter":
        assert numbers == list(range(len(rows)))
