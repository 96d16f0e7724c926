"""Text and bytes as they are."""

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import Check
from drover.convert.converter import Converter, Decoded
from drover.convert.plain_text import JavaStyle
from drover.convert.settings import CONVERTER_TYPE
from drover.record.arrow import Array, Binaries, Texts
from drover.record.errors import RecordError
from drover.record.json.schemaless import TAG, loads
from drover.record.schema import Schema, Type, arrow_field, schema_of

_ENCODING = "converter.encoding"
#: Java's UTF-16 writes big-endian with a mark, and reads what has no mark as big-endian.
_UTF_16 = codecs.lookup("utf-16").name
_STRING = arrow_field("value", Schema(Type.STRING, optional=True))
_BYTES = arrow_field("value", Schema(Type.BYTES, optional=True))
#: Types whose text in Arrow is that of Java.
_CAST_TYPES = {Type.STRING, Type.BOOLEAN, Type.INT8, Type.INT16, Type.INT32, Type.INT64}


def _encoding_fault(name: str) -> str | None:
    try:
        known = codecs.lookup(name)._is_text_encoding
    except LookupError:
        known = False
    return None if known else f"must be the name of a character set such as UTF-8, not {name!r}"


class StringConverter(Converter):
    """Text; other values are written as Java's toString prints them."""

    version = "1"
    aliases = ("String", "org.apache.kafka.connect.storage.StringConverter")

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._encoding = codecs.lookup(config[_ENCODING]).name

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return ConfigDef(
            ConfigKey(
                _ENCODING,
                ConfigType.STRING,
                default="UTF-8",
                validator=Check(_encoding_fault),
                documentation="The character set of the bytes.",
            ),
            CONVERTER_TYPE,
        )

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter."""
        schema = schema_of(field)
        if schema is None:
            texts = pa.array(JavaStyle().schemaless(values), pa.string())
        elif schema.type in _CAST_TYPES and schema.name is None:
            texts = values.cast(pa.string())
        else:
            texts = pa.array(JavaStyle().column(values, schema), pa.string())
        if self._encoding == "utf-8":
            return texts.cast(pa.binary())
        # as Java does, what the character set does not have is a question mark
        return pa.array(
            [None if text is None else self._encoded(text) for text in texts.to_pylist()],
            pa.binary(),
        )

    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """See Converter. Bytes that are none of the character set become U+FFFD."""
        return [Decoded(None, _STRING, self._decoded(values))]

    def _encoded(self, text: str) -> bytes:
        if self._encoding == _UTF_16:
            return codecs.BOM_UTF16_BE + text.encode("utf-16-be")
        return text.encode(self._encoding, "replace")

    def _decoded(self, values: Binaries) -> Texts:
        if self._encoding == "utf-8":
            try:
                return values.cast(pa.string())
            except pa.ArrowInvalid:
                pass  # some row has other bytes
        texts = [None if each is None else self._text(each) for each in values.to_pylist()]
        return pa.array(texts, pa.string())

    def _text(self, data: bytes) -> str:
        if self._encoding == _UTF_16 and not data.startswith(codecs.BOM_UTF16):
            return data.decode("utf-16-be", "replace")
        return data.decode(self._encoding, "replace")


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    version = "1"
    aliases = ("ByteArray", "org.apache.kafka.connect.converters.ByteArrayConverter")

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return ConfigDef(CONVERTER_TYPE)

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter."""
        schema = schema_of(field)
        if schema is None:
            return pa.array([_bytes_of(text) for text in values.to_pylist()], pa.binary())
        if schema.type is not Type.BYTES or pa.types.is_decimal(field.type):
            raise RecordError(f"ByteArrayConverter writes bytes, not values of type {schema.type}")
        return values.cast(pa.binary())

    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """See Converter."""
        return [Decoded(None, _BYTES, values.cast(pa.binary()))]


def _bytes_of(text: str | None) -> bytes | None:
    value = None if text is None else loads(text) if TAG[1:] in text else text
    if value is None or isinstance(value, bytes):
        return value
    raise RecordError("ByteArrayConverter writes bytes, not other values without a schema")
