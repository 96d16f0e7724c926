"""ValueToKey: builds the key from fields of the value."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.config.validators import NonEmpty
from drover.record import RecordError
from drover.record.arrow import Array
from drover.record.batch import KEY, with_column
from drover.record.schema import arrow_field
from drover.transform.key_or_value import (
    PACKAGE,
    REPLACE_NULL_WITH_DEFAULT,
    FieldTransform,
    definition,
    list_key,
    to_texts,
)
from drover.transform.structs import columns_of, struct_of


class ValueToKey(FieldTransform):
    """Replaces the key with a struct or map of fields of the value."""

    aliases = (f"{PACKAGE}.ValueToKey",)
    purpose = "making a key of fields"
    nulls_pass = False

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            list_key("fields", validator=NonEmpty(), documentation="The fields that are the key.")
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._fields: list[str] = list(dict.fromkeys(config["fields"]))
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        columns = {
            child.name: (child, column)
            for child, column in columns_of(values, replace_nulls=self._replace_nulls)
        }
        missing = [name for name in self._fields if name not in columns]
        if missing:
            raise RecordError(f"the value has no field {missing[0]!r}")
        key = struct_of([columns[name] for name in self._fields], values)
        return with_column(batch, pa.field(KEY, key.type, nullable=False), key)

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        keys = ({name: (each or {}).get(name) for name in self._fields} for each in maps)
        return with_column(batch, arrow_field(KEY, None), to_texts(keys))
