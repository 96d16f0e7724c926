"""ExtractField: replaces the key or value with one of its fields."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.config.validators import Check
from drover.record import RecordError
from drover.record.batch import KEY, VALUE, with_column
from drover.record.json.schemaless import loads
from drover.record.schema import is_schemaless
from drover.transform.field_path import find_column, find_value, parse_path
from drover.transform.key_or_value import (
    REPLACE_NULL_WITH_DEFAULT,
    KeyOrValue,
    definition,
    text_key,
    to_texts,
)
from drover.transform.transform import SettingError


def _version_fault(version: str) -> str | None:
    return None if version.upper() in ("V1", "V2") else f"must be V1 or V2, not {version!r}"


class ExtractField(KeyOrValue):
    """Replaces a struct or map with one of its fields, given by name or path."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            text_key("field", documentation="The field: a name, with V2 a path."),
            text_key(
                "field.syntax.version",
                default="V1",
                validator=Check(_version_fault),
                documentation="V1: field is a name. V2: it is a path with dots (`a.b`.c).",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        text = config["field"].strip()
        self._path: tuple[str, ...] = (text,)
        if config["field.syntax.version"].upper() == "V2":
            if not text:
                raise SettingError("field", "must not be empty")
            try:
                self._path = parse_path(text)
            except ValueError as error:
                raise SettingError("field", str(error)) from error
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        field, values = batch.schema.field(self.side), batch.column(self.side)
        if is_schemaless(field):
            return [with_column(batch, field, to_texts(map(self._of_map, values.to_pylist())))]
        if pa.types.is_binary(field.type) and values.null_count == len(values):
            return [batch]
        found = find_column(field, values, self._path, replace_nulls=self._replace_nulls)
        if found is None:
            raise RecordError(f"the {self.side} has no field {'.'.join(self._path)!r}")
        column, extracted = found
        return [with_column(batch, column.with_name(self.side), extracted)]

    def _of_map(self, text: str | None) -> Any:
        return None if text is None else find_value(loads(text), self._path)


class ExtractFieldKey(ExtractField, side=KEY):
    """ExtractField on keys."""


class ExtractFieldValue(ExtractField, side=VALUE):
    """ExtractField on values."""
