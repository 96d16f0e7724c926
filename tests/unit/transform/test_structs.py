"""Transforms of keys and values with a schema."""

import datetime
import decimal
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from drover.record import Field, RecordError, Schema, Type, column_schema
from drover.record import schema as schemas
from drover.record.batch import with_column
from tests.support.records import AT, optional, run, side_of, struct, transform, with_schema

INNER = replace(struct(v=Schema(Type.INT32), w=optional(Type.INT32, default="9")), optional=True)
SCHEMA = replace(
    struct(
        id=Schema(Type.INT32),
        name=optional(Type.STRING, default='"none"'),
        inner=INNER,
        tags=optional(Type.ARRAY, value_schema=Schema(Type.STRING), doc="words"),
    ),
    name="shop.Order",
    version=2,
    doc="an order",
    parameters={"owner": "us"},
)
FULL = {"id": 1, "name": "a", "inner": {"v": 5, "w": None}, "tags": ["x"]}
BARE = {"id": 2, "name": None, "inner": None, "tags": None}


def test_fields_swap_their_names() -> None:
    config = transform("ReplaceField$Value", include="id,name", renames="id:name,name:id")
    found = side_of(run(config, with_schema(SCHEMA, FULL, BARE)))
    assert found == [{"name": 1, "id": "a"}, {"name": 2, "id": "none"}]


def schema_after(kind: str, schema: Schema, row: Any, **settings: str) -> Schema:
    found = column_schema(run(transform(kind, **settings), with_schema(schema, row))[0], "value")
    assert found is not None
    return found


def test_a_rebuilt_schema_keeps_its_name_and_is_required() -> None:
    default = replace(SCHEMA, optional=True, default='{"id":1,"name":"x","inner":null,"tags":[]}')
    found = schema_after("ReplaceField$Value", default, FULL, include="id", renames="id:no")
    assert found == replace(SCHEMA, fields=(Field("no", Schema(Type.INT32)),))


def test_flattened_fields_take_optionality_and_defaults_of_what_they_were_in() -> None:
    outer = struct(a=replace(INNER, default='{"v":8,"w":null}'), b=replace(INNER, optional=False))
    row = {"a": None, "b": {"v": 1, "w": 2}}
    found = schema_after("Flatten$Value", outer, row)
    assert side_of(run(transform("Flatten$Value"), with_schema(outer, row))) == [
        {"a.v": None, "a.w": None, "b.v": 1, "b.w": 2}
    ]
    assert found.fields == (
        Field("a.v", optional(Type.INT32, default="8")),
        Field("a.w", optional(Type.INT32, default="9")),
        Field("b.v", Schema(Type.INT32)),
        Field("b.w", optional(Type.INT32, default="9")),
    )


@pytest.mark.parametrize(
    ("path", "replace_nulls", "expected"),
    [("a", "true", {"v": 8, "w": None}), ("a", "false", None), ("a.v", "true", 8),
     ("a.v", "false", 8), ("a.w", "true", 9), ("a.w", "false", None)],
)  # fmt: skip
def test_a_path_leads_through_the_defaults_of_structs(
    path: str, replace_nulls: str, expected: Any
) -> None:
    outer = struct(a=replace(INNER, default='{"v":8,"w":null}'))
    config = transform("ExtractField$Value", field=path, field__syntax__version="V2")
    config["transforms.it.replace.null.with.default"] = replace_nulls
    assert side_of(run(config, with_schema(outer, {"a": None}))) == [expected]


def test_columns_of_a_connectors_own_types_are_masked() -> None:
    columns = {
        "text": pa.array(["a", None]).dictionary_encode(),
        "small": pa.array([1, 2], pa.uint8()),
        "large": pa.array([["a"], None], pa.large_list(pa.string())),
        "wide": pa.array(["a", "b"], pa.large_string()),
        "day": pa.array([86_400_000, None], pa.date64()),
        "time": pa.array([7, None], pa.time64("us")),
    }
    values = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    batch = with_values(with_schema(SCHEMA, FULL, FULL), values)
    found = side_of(run(transform("MaskField$Value", fields=",".join(columns)), batch))
    epoch = {"day": datetime.date(1970, 1, 1), "time": datetime.time(0)}
    assert found[0] == {"text": "", "small": 0, "large": [], "wide": ""} | epoch
    assert found[1] == {
        "text": None, "small": 0, "large": None, "wide": "", "day": None, "time": None,
    }  # fmt: skip


def with_values(batch: pa.RecordBatch, values: Any) -> pa.RecordBatch:
    return with_column(batch, pa.field("value", values.type), values)


MASKED = [
    (optional(Type.BOOLEAN), True, False),
    (optional(Type.FLOAT32), 1.5, 0.0),
    (optional(Type.BYTES, name=schemas.DECIMAL, parameters={"scale": "2"}), decimal.Decimal("1.25"),
     decimal.Decimal(0)),
    (optional(Type.INT32, name=schemas.DATE), AT.date(), datetime.date(1970, 1, 1)),
    (optional(Type.INT32, name=schemas.TIME), datetime.time(1), datetime.time(0)),
    (optional(Type.INT64, name=schemas.TIMESTAMP), AT,
     datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
    (optional(Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.INT8)),
     [("a", 1)], []),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "masked"), MASKED)
def test_masks_are_of_the_type(schema: Schema, value: Any, masked: Any) -> None:
    batch = with_schema(struct(it=schema), {"it": value}, {"it": None})
    found = side_of(run(transform("MaskField$Value", fields="it"), batch))
    assert found == [{"it": masked}, {"it": None}]


REFUSED: list[tuple[str, dict[str, str], Schema, Any, str]] = [
    ("ExtractField$Value", {"field": "no"}, SCHEMA, FULL, "has no field 'no'"),
    ("ExtractField$Value", {"field": "id.x", "field__syntax__version": "V2"}, SCHEMA, FULL,
     "no struct"),
    ("ExtractField$Value", {"field": "x"}, optional(Type.STRING), None, "no struct"),
    ("Flatten$Value", {}, Schema(Type.STRING), "x", "needs a struct in the value, not string"),
    ("Flatten$Value", {}, struct(m=optional(
        Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.INT8))), {}, "maps"),
    ("Flatten$Value", {}, struct(**{"a": INNER, "a.v": Schema(Type.INT8)}),
     {"a": {"v": 1, "w": 1}, "a.v": 1}, "more than one field called 'a.v'"),
    ("HoistField$Value", {"field": ""}, SCHEMA, FULL, "a field with a name"),
    ("InsertField$Value", {"topic__field": "id"}, SCHEMA, FULL, "more than one field called 'id'"),
    ("InsertField$Value", {"topic__field": "!"}, SCHEMA, FULL, "without a name"),
    ("MaskField$Value", {"fields": "id"}, SCHEMA, None, "needs a value, not null"),
    ("MaskField$Value", {"fields": "inner"}, SCHEMA, FULL, "cannot be masked"),
    ("MaskField$Value", {"fields": "b"}, struct(b=Schema(Type.BYTES)), {"b": b""}, "be masked"),
    ("MaskField$Value", {"fields": "b", "replacement": "1"}, struct(b=Schema(Type.BOOLEAN)),
     {"b": True}, "masked with a replacement"),
    ("MaskField$Value", {"fields": "id", "replacement": "x"}, SCHEMA, FULL, "masked with 'x'"),
    ("MaskField$Value", {"fields": "id", "replacement": "1e999999999"}, SCHEMA, FULL, "too large"),
    ("ReplaceField$Value", {"renames": "id:name"}, SCHEMA, FULL, "'name'"),
    ("ReplaceField$Value", {"renames": "id:x,name:x"}, SCHEMA, FULL, "both be named 'x'"),
    ("ReplaceField$Value", {"renames": ":id"}, SCHEMA, FULL, "would both be named"),
    ("HeaderFrom$Value", {"fields": "no", "headers": "h", "operation": "copy"}, SCHEMA, FULL,
     "has no field 'no'"),
    ("SetSchemaMetadata$Value", {"schema__name": "x"}, Schema(Type.STRING), "x", "needs a struct"),
    ("ValueToKey", {"fields": "id,no"}, SCHEMA, FULL, "has no field 'no'"),
    ("ValueToKey", {"fields": "id"}, SCHEMA, None, "not null"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings", "schema", "row", "fault"), REFUSED)
def test_what_cannot_be_done_is_refused(
    kind: str, settings: dict[str, str], schema: Schema, row: Any, fault: str
) -> None:
    if row is None:
        schema = replace(schema, optional=True)
    with pytest.raises(RecordError, match=fault):
        run(transform(kind, **settings), with_schema(schema, row))


def test_records_of_sources_have_no_offset() -> None:
    batch = with_schema(SCHEMA, FULL, of_source=True)
    with pytest.raises(RecordError, match="offset"):
        run(transform("InsertField$Value", offset__field="at"), batch)
    with pytest.raises(RecordError, match="'at' is required: no partition is known"):
        run(transform("InsertField$Value", partition__field="at!"), batch)
    found = side_of(run(transform("InsertField$Value", partition__field="at"), batch))
    assert found == [FULL | {"at": None}]


def test_a_slice_of_a_batch_is_a_batch() -> None:
    batch = with_schema(replace(SCHEMA, optional=True), None, BARE, FULL).slice(1)
    assert side_of(run(transform("Flatten$Value"), batch))[1]["inner.v"] == 5
    found = side_of(run(transform("ReplaceField$Value", include="id"), batch))
    assert found == [{"id": 2}, {"id": 1}]
