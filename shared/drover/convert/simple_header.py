"""Headers as text, whose types are guessed when they are read."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.convert.converter import Converter, Decoded
from drover.convert.plain_text import HeaderStyle
from drover.record.arrow import Array, Binaries, Texts
from drover.record.json.schema_writer import NO_SCHEMA, schema_text
from drover.record.json.schemaless import dumps
from drover.record.literals import Parsed, parse_literal
from drover.record.schema import Schema, Type, arrow_field, schema_of

_BYTES = Schema(Type.BYTES)
_NULL = (NO_SCHEMA, Parsed(None, None))


class SimpleHeaderConverter(Converter):
    """Text; reading takes ``12`` for a number, ``[1,2]`` for an array, and so on."""

    version = "1"
    aliases = ("SimpleHeader", "org.apache.kafka.connect.storage.SimpleHeaderConverter")

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return ConfigDef()

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter. Null stays null."""
        schema = schema_of(field)
        style = HeaderStyle()
        texts = style.schemaless(values) if schema is None else style.column(values, schema)
        return pa.array(texts, pa.string()).cast(pa.binary())

    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """See Converter. Bytes that are no text stay bytes."""
        groups: dict[str, tuple[Schema | None, list[int], list[Any]]] = {}
        for row, data in enumerate(values.to_pylist()):
            said, parsed = _NULL if data is None else _parsed(data)
            _, rows, found = groups.setdefault(said, (parsed.schema, [], []))
            rows.append(row)
            found.append(parsed.value)
        decoded = []
        for schema, rows, found in groups.values():
            field = arrow_field("value", schema)
            if schema is None:
                found = [None if value is None else dumps(value) for value in found]
            decoded.append(Decoded(pa.array(rows, pa.int64()), field, pa.array(found, field.type)))
        return decoded


@lru_cache(maxsize=1000)
def _parsed(data: bytes) -> tuple[str, Parsed]:
    try:
        parsed = parse_literal(data.decode())
    except UnicodeDecodeError:
        parsed = Parsed(_BYTES, data)
    return schema_text(parsed.schema), parsed
