"""InsertField: adds topic, partition, offset, timestamp or a text to the key or value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.record import RecordError
from drover.record.arrow import Array
from drover.record.batch import KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE, with_column
from drover.record.schema import TIMESTAMP as TIMESTAMP_SCHEMA
from drover.record.schema import Schema, Type, arrow_field
from drover.transform.key_or_value import (
    REPLACE_NULL_WITH_DEFAULT,
    FieldTransform,
    definition,
    text_key,
)
from drover.transform.structs import columns_of, rebuilt_field, struct_of
from drover.transform.transform import SettingError

_STATIC = "static"
_SCHEMAS = {
    TOPIC: Schema(Type.STRING),
    PARTITION: Schema(Type.INT32),
    OFFSET: Schema(Type.INT64),
    TIMESTAMP: Schema(Type.INT64, name=TIMESTAMP_SCHEMA, version=1),
    _STATIC: Schema(Type.STRING),
}
_SUFFIX = "The suffix ! makes the field required, ? (the default) optional."


@dataclass(frozen=True, slots=True)
class _Insertion:
    """An inserted field; ``what`` is a column of records, or _STATIC."""

    what: str
    name: str
    required: bool

    @property
    def field(self) -> pa.Field:
        """The Arrow field in structs."""
        return arrow_field(self.name, _SCHEMAS[self.what]).with_nullable(not self.required)


class InsertField(FieldTransform):
    """Adds fields with the record's topic, partition, offset (sinks only), timestamp, or a text."""

    purpose = "inserting fields"
    nulls_pass = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        docs = {
            TOPIC: "The field for the topic.",
            PARTITION: "The field for the partition, which records of sources do not have.",
            OFFSET: "The field for the offset; for sinks only.",
            TIMESTAMP: "The field for the record's timestamp.",
            _STATIC: "The field for static.value.",
        }
        return definition(
            *(
                text_key(f"{what}.field", default=None, documentation=f"{doc} {_SUFFIX}")
                for what, doc in docs.items()
            ),
            text_key("static.value", default=None, documentation="The text of static.field."),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]
        self._insertions = [
            _insertion(what, name.strip())
            for what in _SCHEMAS
            if (name := config[f"{what}.field"]) is not None
        ]
        static = config["static.value"]
        self._static: str | None = None if static is None else static.strip()
        if not self._insertions:
            raise SettingError(
                "topic.field", "or another of InsertField's settings ending in .field is required"
            )
        if config["static.field"] is not None and static is None:
            raise SettingError("static.value", "is required with static.field")

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        columns = columns_of(values, replace_nulls=self._replace_nulls)
        for each in self._insertions:
            inserted = self._values(batch, each)
            if each.required and inserted.null_count:
                missing = pc.and_(pc.is_null(inserted), pc.is_valid(values))
                if pc.any(missing).as_py():
                    raise RecordError(f"field {each.name!r} is required: no {each.what} is known")
            columns.append((each.field, inserted))
        changed = struct_of(columns, values)
        return with_column(batch, rebuilt_field(field, changed), changed)

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        for each in self._insertions:
            inserted = self._values(batch, each)
            if each.what == TIMESTAMP:
                # milliseconds, as in Kafka Connect
                inserted = pc.cast(inserted, pa.int64())
            inserted = inserted.to_pylist()
            for found, value in zip(maps, inserted, strict=True):
                if found is not None and value is not None:
                    found[each.name] = value
        return self.with_maps(batch, maps)

    def _values(self, batch: pa.RecordBatch, insertion: _Insertion) -> Array:
        if insertion.what == _STATIC:
            return pa.repeat(pa.scalar(self._static, pa.string()), batch.num_rows)
        column = batch.column(insertion.what)
        if insertion.what == OFFSET and column.null_count:
            raise RecordError("offset.field: records of sources have no offset")
        return pc.cast(column, insertion.field.type)


def _insertion(what: str, text: str) -> _Insertion:
    return _Insertion(what, text[:-1] if text.endswith(("!", "?")) else text, text.endswith("!"))


class InsertFieldKey(InsertField, side=KEY):
    """InsertField on keys."""


class InsertFieldValue(InsertField, side=VALUE):
    """InsertField on values."""
