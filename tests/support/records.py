"""Record batches for tests of transforms, and transforms by their settings."""

import datetime
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from drover.record import Field, Schema, Type, arrow_field, arrow_type, make_batch, schema_of
from drover.record import schema as schemas
from drover.record.json.schemaless import dumps, loads
from drover.transform.chain import build_chain, chain_config_def

AT = datetime.datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=datetime.UTC)


def optional(kind: Type, **more: Any) -> Schema:
    return schemas.plain(kind, **more)


def struct(**fields: Schema) -> Schema:
    children = tuple(Field(each, schema) for each, schema in fields.items())
    return Schema(Type.STRUCT, fields=children)


def _columns(count: int, *, topic: str = "t", of_source: bool = False) -> dict[str, Any]:
    found = {
        "topic": pa.array([topic] * count),
        "origin": pa.array([f"row {row}" for row in range(count)]),
    }
    if not of_source:
        found |= {
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(40, 40 + count), pa.int64()),
            "timestamp": pa.array([AT] * count, pa.timestamp("ms", tz="UTC")),
        }
    return found


def with_schema(
    schema: Schema, *values: Any, side: str = "value", of_source: bool = False
) -> pa.RecordBatch:
    """A batch whose values (or keys) are of a schema."""
    array = pa.array(values, arrow_type(schema))
    columns = _columns(len(values), of_source=of_source)
    return make_batch(len(values), **columns, **{side: (arrow_field(side, schema), array)})


def schemaless(*values: Any, side: str = "value", of_source: bool = False) -> pa.RecordBatch:
    """A batch of values (or keys) without schema."""
    texts = pa.array([None if each is None else dumps(each) for each in values], pa.string())
    columns = _columns(len(values), of_source=of_source)
    return make_batch(len(values), **columns, **{side: (arrow_field(side, None), texts)})


def transform(kind: str, **settings: str) -> dict[str, str]:
    """The config of one transform; ``__`` in a name becomes a dot."""
    own = {f"transforms.it.{name.replace('__', '.')}": text for name, text in settings.items()}
    return {"transforms": "it", "transforms.it.type": kind} | own


def only(
    kind: str, conditions: Mapping[str, str] | None = None, *, negate: bool = False, **settings: str
) -> dict[str, str]:
    """Additional settings that restrict a config's transform to records matching a predicate."""
    own = {
        f"predicates.p.{name}": text for name, text in (settings | dict(conditions or {})).items()
    }
    found = {"transforms.it.predicate": "p", "predicates": "p", "predicates.p.type": kind} | own
    return found | {"transforms.it.negate": "true"} if negate else found


def run(config: Mapping[str, str], *batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batches after a config's transforms, which are pickled as for an executor."""
    values = chain_config_def(config).parse(config).require_valid()
    found = list(batches)
    for step in pickle.loads(pickle.dumps(build_chain(values))):
        found = [made for batch in found for made in step(batch)]
    for each in found:
        each.validate(full=True)
    return found


def side_of(batches: Sequence[pa.RecordBatch], side: str = "value") -> list[Any]:
    """The values (or keys) of batches; values without schema are parsed."""
    found: list[Any] = []
    for batch in batches:
        values = batch.column(side).to_pylist()
        if schema_of(batch.schema.field(side)) is None:
            values = [None if each is None else loads(each) for each in values]
        found += values
    return found
