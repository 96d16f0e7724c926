"""HoistField: wraps the key or value in a struct or map."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.record import RecordError
from drover.record.batch import KEY, VALUE, with_column
from drover.record.json.schemaless import loads
from drover.record.schema import is_schemaless
from drover.transform.key_or_value import KeyOrValue, text_key, to_texts


class HoistField(KeyOrValue):
    """Wraps the key or value, including null, in a struct or a map with one field."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(text_key("field", documentation="The name of the field."))

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._name: str = config["field"].strip()

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        field, values = batch.schema.field(self.side), batch.column(self.side)
        if is_schemaless(field):
            texts = values.to_pylist()
            maps = ({self._name: None if each is None else loads(each)} for each in texts)
            return [with_column(batch, field, to_texts(maps))]
        if not self._name:
            raise RecordError("hoisting into a struct needs a field with a name")
        hoisted = pa.StructArray.from_arrays([values], fields=[field.with_name(self._name)])
        return [with_column(batch, pa.field(self.side, hoisted.type, nullable=False), hoisted)]


class HoistFieldKey(HoistField, side=KEY):
    """HoistField on keys."""


class HoistFieldValue(HoistField, side=VALUE):
    """HoistField on values."""
