"""Schemas with matching values, for property tests."""

import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from drover.record import schema as schemas
from drover.record.json.encode import json_texts
from drover.record.json.form import CONNECT
from drover.record.schema import SCALE, Field, Schema, Type, arrow_field, arrow_type

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def _ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_PRIMITIVES: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    (Schema(Type.INT8), _ints(8)),
    (Schema(Type.INT16), _ints(16)),
    (Schema(Type.INT32), _ints(32)),
    (Schema(Type.INT64), _ints(64)),
    (Schema(Type.FLOAT32), st.floats(width=32, allow_nan=False)),
    (Schema(Type.FLOAT64), st.floats(allow_nan=False)),
    (Schema(Type.BOOLEAN), st.booleans()),
    (Schema(Type.STRING), _TEXTS),
    (Schema(Type.BYTES), st.binary(max_size=8)),
    (Schema(Type.INT32, name=schemas.DATE, version=1), _ints(32)),
    (Schema(Type.INT32, name=schemas.TIME, version=1), st.integers(0, 86_399_999)),
    (Schema(Type.INT64, name=schemas.TIMESTAMP, version=1), _ints(64)),
    (
        Schema(Type.BYTES, name=schemas.DECIMAL, version=1, parameters={SCALE: "3"}),
        st.integers(-(10**37), 10**37).map(lambda digits: decimal.Decimal(digits).scaleb(-3)),
    ),
]

Pair = tuple[Schema, st.SearchStrategy[Any]]


@st.composite
def _pairs(draw: st.DrawFn, depth: int = 2) -> Pair:
    kinds = ["primitive", "struct", "array", "map"] if depth else ["primitive"]
    kind = draw(st.sampled_from(kinds))
    schema, values = _PRIMITIVES[draw(st.integers(0, len(_PRIMITIVES) - 1))]
    if kind == "struct":
        names = draw(st.lists(_NAMES, max_size=4, unique=True))
        parts = [(name, draw(_pairs(depth - 1))) for name in names]
        schema = Schema(Type.STRUCT, fields=tuple(Field(name, each) for name, (each, _) in parts))
        values = st.fixed_dictionaries({name: each for name, (_, each) in parts})
    elif kind == "array":
        item, items = draw(_pairs(depth - 1))
        schema = Schema(Type.ARRAY, value_schema=item)
        values = st.lists(items, max_size=3)
    elif kind == "map":
        key, keys = (schema, values) if draw(st.booleans()) else (Schema(Type.STRING), _TEXTS)
        value, items = draw(_pairs(depth - 1))
        schema = Schema(Type.MAP, key_schema=key, value_schema=value)
        values = st.dictionaries(keys, items, max_size=3).map(lambda found: list(found.items()))
    return draw(_decorated(schema, values))


@st.composite
def _decorated(draw: st.DrawFn, schema: Schema, values: st.SearchStrategy[Any]) -> Pair:
    """Add optionality, name, doc and default at random."""
    optional = draw(st.booleans())
    default = None
    if draw(st.integers(0, 3)) == 0:
        column = pa.array([draw(values)], arrow_type(schema))
        default = json_texts(arrow_field("value", schema), column, CONNECT)[0].as_py()
    named = schema.name is None and draw(st.booleans())
    decorated = Schema(
        schema.type,
        optional=optional,
        name=draw(_NAMES) if named else schema.name,
        version=draw(st.integers(1, 9)) if named else schema.version,
        doc=draw(st.none() | _TEXTS),
        default=default,
        parameters=schema.parameters,
        fields=schema.fields,
        key_schema=schema.key_schema,
        value_schema=schema.value_schema,
    )
    # null would be read as the default
    return decorated, st.none() | values if optional and default is None else values


@st.composite
def columns(draw: st.DrawFn) -> tuple[Schema, Any]:
    """A schema and an array of its values."""
    schema, values = draw(_pairs())
    return schema, pa.array(draw(st.lists(values, min_size=1, max_size=6)), arrow_type(schema))
