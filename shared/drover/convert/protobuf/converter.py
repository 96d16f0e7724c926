"""ProtobufConverter: messages of Protobuf whose schemas are in a registry."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.convert.converter import Decoded
from drover.convert.number_bytes import varints
from drover.convert.protobuf.connect_schemas import Conventions, connect_schema
from drover.convert.protobuf.decode import decode_messages, message_groups
from drover.convert.protobuf.descriptors import ProtoSchema, parse_proto
from drover.convert.protobuf.encode import encode_messages
from drover.convert.protobuf.proto_schemas import message_name, proto_text
from drover.convert.protobuf.settings import PROTOBUF_SETTINGS
from drover.convert.protobuf.wire import Wire
from drover.convert.registered.converter import PREFIX_BYTES, RegistryConverter
from drover.convert.registered.registry import SchemaFormat
from drover.convert.registered.sum_types import SUM_TYPES
from drover.record.errors import RecordError, RowsError
from drover.record.schema import Schema, arrow_field, schema_of


def _same(parsed: ProtoSchema) -> ProtoSchema:
    return parsed


_FORMAT = SchemaFormat("PROTOBUF", parse_proto, _same)


class ProtobufConverter(RegistryConverter):
    """Protobuf behind the id of its schema in a registry and the indexes of its message, as
    Confluent's converter writes it.
    """

    version = "1"
    aliases = ("Protobuf", "io.confluent.connect.protobuf.ProtobufConverter")
    called = "Protobuf"

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._conventions = Conventions(
            full_names=config["enhanced.protobuf.schema.support"],
            int_enums=config["int.for.enums"],
            optional_nulls=config["optional.for.nullables"],
            wrapped_nulls=config["wrapper.for.nullables"],
            scrubbed_names=config["scrub.invalid.names"],
            sum_types=config[SUM_TYPES],
        )

    @property
    def schema_format(self) -> SchemaFormat:
        """See RegistryConverter."""
        return _FORMAT

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return PROTOBUF_SETTINGS

    def text_of(self, schema: Schema) -> str:
        """See RegistryConverter."""
        return proto_text(schema, self._conventions)

    def record_name(self, parsed: ProtoSchema, schema: Schema) -> str | None:
        """See RegistryConverter."""
        _, message = parsed.first(message_name(schema))
        return str(message.full_name)

    def write(
        self, field: pa.Field, values: Any, parsed: ProtoSchema, before: bytes, strict: bool
    ) -> Any:
        """See RegistryConverter. Null stays null, which is a tombstone."""
        schema = schema_of(field)
        path, message = parsed.first(None if schema is None else message_name(schema))
        return encode_messages(
            field,
            values,
            message,
            before=before + _indexes(path),
            strict=strict,
            conventions=self._conventions,
        )

    def read(self, values: Any, known: ProtoSchema) -> Sequence[Decoded]:
        """See RegistryConverter. Each message type of a schema is decoded separately."""
        wire = Wire(values, skipped_bytes=PREFIX_BYTES)
        groups = message_groups(wire)
        found = []
        for path, rows, spans in groups:
            try:
                message, schema = self._message(known, path)
            except RecordError as error:
                raise RowsError(dict.fromkeys(rows.tolist(), error)) from None
            column = decode_messages(wire, spans, message, schema)
            own = None if len(groups) == 1 else pa.array(rows)
            found.append(Decoded(own, arrow_field("value", schema), column))
        return found

    def _message(self, known: ProtoSchema, path: tuple[int, ...]) -> tuple[Any, Schema]:
        """A message of a schema, and the schema that Kafka Connect has for it."""
        asked = (path, self._conventions)
        found: tuple[Any, Schema] | None = known.made.get(asked)
        if found is None:
            message = known.message(path)
            found = known.made[asked] = (message, connect_schema(message, self._conventions))
        return found


def _indexes(path: tuple[int, ...]) -> bytes:
    """The encoded message indexes that precede a record; the first message has a short form."""
    numbers = [0] if path == (0,) else [len(path), *path]
    return b"".join(varints(numbers).to_pylist())
