"""JSON, with and without schemas."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import Check, InRange, OneOf
from drover.convert.converter import Converter, Decoded
from drover.convert.json_envelopes import decode_envelopes, decode_payloads
from drover.convert.settings import CONVERTER_TYPE
from drover.record.arrow import Array, Binaries, Texts
from drover.record.errors import RecordError
from drover.record.framed import Framed
from drover.record.json.decode import schemaless_texts
from drover.record.json.encode import checked_texts, json_texts
from drover.record.json.form import CONNECT, CONNECT_NUMERIC
from drover.record.json.schema_parser import parse_schema
from drover.record.json.schema_writer import NO_SCHEMA, schema_text
from drover.record.schema import arrow_field, schema_of

_SCHEMAS_ENABLE, _CACHE_SIZE = "schemas.enable", "schemas.cache.size"
_SCHEMA_CONTENT = "schema.content"
_DECIMAL_FORMAT, _REPLACE_NULL = "decimal.format", "replace.null.with.default"
_BASE64, _NUMERIC = "BASE64", "NUMERIC"


class _AnyCase(OneOf):
    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and item.upper() in self.valid_values


def _schema_fault(text: str) -> str | None:
    try:
        parse_schema(text or NO_SCHEMA)
    except RecordError as error:
        return f"must be a schema: {error}"
    return None


class JsonConverter(Converter):
    """JSON texts; with schemas.enable objects of the schema and the payload."""

    version = "1"
    aliases = ("Json", "org.apache.kafka.connect.json.JsonConverter")

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._schemas_enabled: bool = config[_SCHEMAS_ENABLE]
        is_numeric = config[_DECIMAL_FORMAT].upper() == _NUMERIC
        self._form = CONNECT_NUMERIC if is_numeric else CONNECT
        self._replace_null: bool = config[_REPLACE_NULL]
        # the text, for schemas are not pickled; parsing it again finds it in a cache
        self._fixed_schema: str | None = config[_SCHEMA_CONTENT]

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return ConfigDef(
            ConfigKey(
                _SCHEMAS_ENABLE,
                ConfigType.BOOLEAN,
                default=True,
                documentation="Whether values are objects of schema and payload.",
            ),
            ConfigKey(
                _SCHEMA_CONTENT,
                ConfigType.STRING,
                default=None,
                validator=Check(_schema_fault),
                documentation="The schema of all values, which then have none of their own.",
            ),
            ConfigKey(
                _CACHE_SIZE,
                ConfigType.INT,
                default=1000,
                validator=InRange(0),
                documentation="Accepted for Kafka Connect's sake; 1000 schemas are kept.",
            ),
            ConfigKey(
                _DECIMAL_FORMAT,
                ConfigType.STRING,
                default=_BASE64,
                validator=_AnyCase(_BASE64, _NUMERIC),
                documentation="How decimals are written; both forms are read.",
            ),
            ConfigKey(
                _REPLACE_NULL,
                ConfigType.BOOLEAN,
                default=True,
                documentation="Whether a field's default stands for null.",
            ),
            CONVERTER_TYPE,
        )

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter. A null with a schema is an envelope with the payload null, or the text
        null without envelopes; without a schema it stays null, a tombstone.
        """
        return self.encode_framed(field, values, topics).joined()

    def encode_framed(self, field: pa.Field, values: Array, topics: Texts | None) -> Framed:
        """See Converter."""
        schema = schema_of(field)
        if schema is None:
            texts = json_texts(field, values, self._form)
        else:
            texts = checked_texts(field, values, self._form, defaults=self._replace_null)
        binaries = texts.cast(pa.binary())
        if not self._schemas_enabled:
            return Framed(binaries)
        text = schema_text(schema, self._form)
        return Framed(binaries, before=f'{{"schema":{text},"payload":'.encode(), after=b"}")

    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """See Converter. Null bytes are a null without a schema."""
        if not self._schemas_enabled:
            return [Decoded(None, arrow_field("value", None), schemaless_texts(values))]
        fixed = parse_schema(self._fixed_schema) if self._fixed_schema else None
        if fixed is not None:
            return decode_payloads(values, fixed, replace_null=self._replace_null)
        return decode_envelopes(values, replace_null=self._replace_null)
