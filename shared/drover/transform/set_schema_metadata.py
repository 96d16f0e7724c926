"""SetSchemaMetadata: changes the schema's name or version of the key or value."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.record import RecordError
from drover.record.batch import KEY, VALUE, with_column
from drover.record.schema import is_schemaless, with_identity
from drover.transform.key_or_value import (
    REPLACE_NULL_WITH_DEFAULT,
    KeyOrValue,
    definition,
    text_key,
)
from drover.transform.structs import columns_of, struct_of
from drover.transform.transform import SettingError


class SetSchemaMetadata(KeyOrValue):
    """Sets name and version of a struct's schema."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            text_key("schema.name", default=None, documentation="The schema's name."),
            ConfigKey("schema.version", ConfigType.INT, default=None, documentation="Its version."),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        name = config["schema.name"]
        self._name: str | None = None if name is None else name.strip()
        self._version: int | None = config["schema.version"]
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]
        if self._name is None and self._version is None:
            raise SettingError("schema.name", "or schema.version is required")

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        field, values = batch.schema.field(self.side), batch.column(self.side)
        without_schema = is_schemaless(field) or pa.types.is_binary(field.type)
        if without_schema and values.null_count == len(values):
            return [batch]
        if not pa.types.is_struct(field.type):
            kind = "one without schema" if is_schemaless(field) else field.type
            raise RecordError(
                f"setting the schema's metadata needs a struct in the {self.side}, not {kind}"
            )
        changed = struct_of(columns_of(values, replace_nulls=self._replace_nulls), values)
        named = with_identity(field, name=self._name, version=self._version)
        return [with_column(batch, named, changed)]


class SetSchemaMetadataKey(SetSchemaMetadata, side=KEY):
    """SetSchemaMetadata on keys."""


class SetSchemaMetadataValue(SetSchemaMetadata, side=VALUE):
    """SetSchemaMetadata on values."""
