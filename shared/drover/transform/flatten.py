"""Flatten: moves nested fields to the top level."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.record import RecordError
from drover.record.arrow import Array
from drover.record.batch import KEY, VALUE, with_column
from drover.record.json.numbers import Fraction
from drover.record.schema import default_of, with_default
from drover.transform.key_or_value import FieldTransform, kind_of, map_of, text_key
from drover.transform.structs import Column, rebuilt_field, struct_of, with_defaults

_KEPT = (bool, int, float, Fraction, str, bytes, list)


class Flatten(FieldTransform):
    """Replaces every nested struct or map with its fields; names are joined by a delimiter.

    Lists are not changed. A field of an optional struct becomes optional.
    """

    purpose = "flattening"
    nulls_pass = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(
            text_key("delimiter", default=".", documentation="The text between joined names.")
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._delimiter: str = config["delimiter"].strip()

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        default = _default(field)
        columns = list(self._columns(values, "", optional=field.nullable, default=default))
        flat = struct_of(columns, values)
        return with_column(batch, rebuilt_field(field, flat), flat)

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        return self.with_maps(
            batch, (None if each is None else map_of(self._entries(each, "")) for each in maps)
        )

    def _columns(
        self, values: Any, prefix: str, *, optional: bool, default: Mapping[str, Any]
    ) -> Iterator[Column]:
        is_present = pc.is_valid(values)
        for index in range(values.type.num_fields):
            field, column = values.type.field(index), pc.struct_field(values, [index])
            name = f"{prefix}{field.name}"
            if default_of(field) is None and default.get(field.name) is not None:
                field_default = default[field.name]
            else:
                field_default = _default(field)
            may_miss = optional or field.nullable
            if pa.types.is_struct(field.type):
                # a struct's default sets the defaults of its fields' schemas, not a null's value
                yield from self._columns(
                    column,
                    f"{name}{self._delimiter}",
                    optional=may_miss,
                    default=field_default if isinstance(field_default, dict) else {},
                )
            elif pa.types.is_map(field.type):
                raise RecordError(f"flattening does not support maps with a schema: field {name!r}")
            else:
                text = None if field_default in (None, {}) else json.dumps(field_default)
                yield (
                    with_default(field, text).with_name(name).with_nullable(may_miss),
                    (with_defaults(field, column, is_present)),
                )

    def _entries(self, found: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in found.items():
            name = f"{prefix}{key}"
            if isinstance(value, dict):
                yield from self._entries(value, f"{name}{self._delimiter}")
            elif value is None or isinstance(value, _KEPT):
                yield name, value
            else:
                raise RecordError(f"flattening does not support {kind_of(value)}: field {name!r}")


def _default(field: pa.Field) -> Any:
    text = default_of(field)
    return {} if text is None else json.loads(text)


class FlattenKey(Flatten, side=KEY):
    """Flatten on keys."""


class FlattenValue(Flatten, side=VALUE):
    """Flatten on values."""
