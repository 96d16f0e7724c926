"""Cast: converts fields, or a whole key or value, to another type."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.config.validators import All, Check, NonEmpty
from drover.record import Schema, Type, arrow_field
from drover.record.arrow import Array
from drover.record.batch import KEY, VALUE, with_column
from drover.record.json.encode import json_texts
from drover.record.json.form import CONNECT
from drover.record.json.schemaless import loads
from drover.record.json.values import default_column
from drover.record.schema import LOGICAL_NAMES, is_schemaless, schema_of, with_default
from drover.transform.cast_values import TARGETS, cast_column, cast_value
from drover.transform.key_or_value import (
    REPLACE_NULL_WITH_DEFAULT,
    FieldTransform,
    definition,
    list_key,
    to_texts,
)
from drover.transform.structs import columns_of, struct_of


class Cast(FieldTransform):
    """Casts as Java does: numbers out of range wrap, a text that is no number is an error."""

    purpose = "casting fields"
    nulls_pass = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            list_key(
                "spec",
                validator=All(NonEmpty(), Check(_spec_fault)),
                documentation="The fields and their types (price:float64,id:string), or one type "
                f"for the whole key or value. Types are {', '.join(TARGETS)}.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        spec: list[str] = config["spec"]
        self._whole: Type | None = None if ":" in spec[0] else _target(spec[0])
        self._fields: dict[str, Type] = {}
        if self._whole is None:
            for each in spec:
                name, _, target = each.partition(":")
                self._fields[name.strip()] = _target(target)
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        values = batch.column(self.side)
        if self._whole is None or values.null_count == len(values):
            return super().__call__(batch)
        field = batch.schema.field(self.side)
        if is_schemaless(field):
            texts = values.to_pylist()
            found = [
                None if each is None else cast_value(loads(each), self._whole) for each in texts
            ]
            return [with_column(batch, field, to_texts(found))]
        changed = cast_column(field, values, self._whole)
        default = _cast_default(field, self._whole)
        return [with_column(batch, _whole_field(field, self._whole, default), changed)]

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        columns = []
        for child, column in columns_of(values, replace_nulls=self._replace_nulls):
            target = self._fields.get(child.name)
            if target is None:
                columns.append((child, column))
                continue
            changed = cast_column(child, column, target)
            # the new schema keeps only nullability and default
            bare = pa.field(child.name, changed.type, nullable=child.nullable)
            columns.append((with_default(bare, _cast_default(child, target)), changed))
        changed = struct_of(columns, values)
        return with_column(batch, field.with_type(changed.type), changed)

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        for each in maps:
            if each is not None:
                # as in Kafka Connect, a missing field is added with null
                each |= {
                    name: cast_value(each.get(name), target)
                    for name, target in self._fields.items()
                }
        return self.with_maps(batch, maps)


def _target(name: str) -> Type:
    return TARGETS[name.strip().lower()]


def _whole_field(field: pa.Field, target: Type, default: str | None) -> pa.Field:
    """Keep the schema's name, version, doc and parameters, unless they define a logical type."""
    schema = schema_of(field)
    assert schema is not None
    if schema.name in LOGICAL_NAMES:
        schema = Schema(schema.type, schema.optional, doc=schema.doc)
    return arrow_field(field.name, replace(schema, type=target, default=default))


def _cast_default(field: pa.Field, target: Type) -> str | None:
    default = default_column(field, 1)
    if default is None:
        return None
    changed = cast_column(field, default, target)
    text: str = json_texts(pa.field(field.name, changed.type), changed, CONNECT)[0].as_py()
    return text


def _spec_fault(spec: list[str]) -> str | None:
    for each in spec:
        name, colon, target = each.rpartition(":")
        if ":" in name:
            return f"has more than one colon in {each!r}: write FIELD:TYPE"
        if target.strip().lower() not in TARGETS:
            return f"has no type in {each!r}: types are {', '.join(TARGETS)}"
        if not colon and len(spec) > 1:
            return f"has {each!r} for the whole value and further items: give either, not both"
    return None


class CastKey(Cast, side=KEY):
    """Cast of keys."""


class CastValue(Cast, side=VALUE):
    """Cast of values."""
