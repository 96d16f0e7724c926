"""AvroConverter: records of Avro whose schemas are in a registry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.convert.avro.avro_schemas import avro_text
from drover.convert.avro.connect_schemas import connect_schema
from drover.convert.avro.decode import decode_records
from drover.convert.avro.encode import encode_records
from drover.convert.avro.schemas import AvroSchema, kind_of, parse_avro
from drover.convert.avro.settings import AVRO_SETTINGS
from drover.convert.converter import Decoded
from drover.convert.registered.converter import PREFIX_BYTES, RegistryConverter
from drover.convert.registered.registry import SchemaFormat
from drover.convert.registered.sum_types import SUM_TYPES
from drover.record.schema import Schema, arrow_field


@dataclass(frozen=True, slots=True)
class _Known:
    """A schema of the registry, and the one that Kafka Connect has for it."""

    avro: AvroSchema
    schema: Schema


def _parsed(text: str, references: tuple[tuple[str, str], ...]) -> AvroSchema:
    return parse_avro(text, tuple(each for _, each in references))


def _for_reading(avro: AvroSchema) -> _Known:
    return _Known(avro, connect_schema(avro))


def _for_general_reading(avro: AvroSchema) -> _Known:
    return _Known(avro, connect_schema(avro, sum_types=True))


_PLAIN = SchemaFormat("AVRO", _parsed, _for_reading)
#: With generalized.sum.type.support.
_GENERAL = SchemaFormat("AVRO", _parsed, _for_general_reading)


class AvroConverter(RegistryConverter):
    """Avro behind the id of its schema in a registry, as Confluent's converter writes it."""

    version = "1"
    aliases = ("Avro", "io.confluent.connect.avro.AvroConverter")
    called = "Avro"

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._sum_types: bool = config[SUM_TYPES]

    @property
    def schema_format(self) -> SchemaFormat:
        """See RegistryConverter."""
        return _GENERAL if self._sum_types else _PLAIN

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return AVRO_SETTINGS

    def text_of(self, schema: Schema) -> str:
        """See RegistryConverter."""
        return avro_text(
            schema,
            enums=self.config["enhanced.avro.schema.support"] or self._sum_types,
            meta_data=self.config["connect.meta.data"],
        )

    def record_name(self, parsed: AvroSchema, schema: Schema) -> str | None:
        """See RegistryConverter. Of a union that of its first type."""
        root = parsed.resolved(parsed.root)
        if kind_of(root) == "union":
            nodes = [parsed.resolved(each) for each in root]
            root = next((each for each in nodes if kind_of(each) != "null"), root)
        return str(root["name"]) if kind_of(root) == "record" else None

    def write(
        self, field: pa.Field, values: Any, parsed: AvroSchema, before: bytes, strict: bool
    ) -> Any:
        """See RegistryConverter. A null with an optional schema is Avro's null."""
        return encode_records(
            field,
            values,
            parsed,
            before=before,
            strict=strict,
            defaults=not self.config["ignore.default.for.nullables"],
        )

    def read(self, values: Any, known: _Known) -> Sequence[Decoded]:
        """See RegistryConverter."""
        column = decode_records(values, known.avro, known.schema, skipped_bytes=PREFIX_BYTES)
        return [Decoded(None, arrow_field("value", known.schema), column)]
