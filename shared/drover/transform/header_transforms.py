"""DropHeaders, InsertHeader and HeaderFrom: transforms of headers."""

import decimal
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.config.validators import NonEmpty, OneOf
from drover.record import RecordError
from drover.record.arrow import Array, Headers, Texts
from drover.record.batch import HEADERS, KEY, VALUE, with_column
from drover.record.json.encode import json_texts
from drover.record.json.form import CONNECT
from drover.record.json.schema_writer import NO_SCHEMA, schema_text
from drover.record.json.schemaless import dumps, value_text
from drover.record.literals import Parsed, parse_literal
from drover.record.schema import arrow_field, schema_of
from drover.transform.header_columns import header_entries, with_entries, without_keys
from drover.transform.key_or_value import (
    PACKAGE,
    REPLACE_NULL_WITH_DEFAULT,
    FieldTransform,
    definition,
    list_key,
    text_key,
)
from drover.transform.structs import columns_of, rebuilt_field, struct_of
from drover.transform.transform import SettingError, Transform

_MOVE, _COPY = "move", "copy"


class DropHeaders(Transform):
    """Drops all headers of some keys."""

    aliases = (f"{PACKAGE}.DropHeaders",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(
            list_key("headers", validator=NonEmpty(), documentation="Keys of the headers to drop.")
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._keys = frozenset(config["headers"])

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        return [_with_headers(batch, without_keys(batch.column(HEADERS), self._keys))]


class InsertHeader(Transform):
    """Adds the same header to every record."""

    aliases = (f"{PACKAGE}.InsertHeader",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(
            text_key("header", documentation="The key of the header."),
            text_key(
                "value.literal",
                documentation="Its value: a number, true or false, a date, a list, … or text.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._key: str = config["header"].strip()
        literal = config["value.literal"].strip()
        self._type, self._value = _header_form(parse_literal(literal, any_decimal=True))

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        values = pa.repeat(pa.scalar(self._value, pa.binary()), batch.num_rows)
        added = header_entries(self._key, values, _repeated(self._type, batch.num_rows))
        return [_with_headers(batch, with_entries(batch.column(HEADERS), added))]


def _header_form(literal: Parsed) -> tuple[str, bytes | None]:
    """Type and value as headers have them (see HEADERS_TYPE)."""
    schema, value = literal.schema, literal.value
    if value is None:
        return NO_SCHEMA, None
    if schema is None:
        return NO_SCHEMA, dumps(value).encode()
    if isinstance(value, decimal.Decimal):
        text = value_text(value, CONNECT)  # its scale may be more than Arrow has
    else:
        field = arrow_field("header", schema)
        text = json_texts(field, pa.array([value], field.type), CONNECT)[0].as_py()
    return schema_text(schema), text.encode()


class HeaderFrom(FieldTransform):
    """Copies or moves fields to headers."""

    purpose = "making headers of fields"
    nulls_pass = False

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            list_key("fields", validator=NonEmpty(), documentation="The fields."),
            list_key("headers", validator=NonEmpty(), documentation="The keys, as many as fields."),
            text_key(
                "operation",
                validator=OneOf(_MOVE, _COPY),
                documentation="move: the fields leave the key or value. copy: they stay.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._fields: list[str] = config["fields"]
        self._keys: list[str] = config["headers"]
        self._moves = config["operation"] == _MOVE
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]
        if len(self._fields) != len(self._keys):
            raise SettingError(
                "headers",
                f"must be as many as fields: {len(self._keys)} are not {len(self._fields)}",
            )

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        columns = columns_of(values, replace_nulls=self._replace_nulls)
        by_name = {child.name: (child, column) for child, column in columns}
        added = []
        for name, key in zip(self._fields, self._keys, strict=True):
            if name not in by_name:
                raise RecordError(f"the {self.side} has no field {name!r}")
            child, column = by_name[name]
            kinds = _repeated(schema_text(schema_of(child)), batch.num_rows)
            texts = json_texts(child, column, CONNECT).cast(pa.binary())
            added.append(header_entries(key, texts, kinds))
        if self._moves:
            kept = struct_of([each for each in columns if each[0].name not in self._fields], values)
            batch = with_column(batch, rebuilt_field(field, kept), kept)
        return _with_headers(batch, with_entries(batch.column(HEADERS), *added))

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        kinds = _repeated(NO_SCHEMA, batch.num_rows)
        added = []
        for name, key in zip(self._fields, self._keys, strict=True):
            found = [(each or {}).get(name) for each in maps]
            texts = [None if each is None else dumps(each).encode() for each in found]
            added.append(header_entries(key, pa.array(texts, pa.binary()), kinds))
        if self._moves:
            for each in maps:
                for name in self._fields:
                    (each or {}).pop(name, None)
            batch = self.with_maps(batch, maps)
        return _with_headers(batch, with_entries(batch.column(HEADERS), *added))


def _with_headers(batch: pa.RecordBatch, headers: Headers) -> pa.RecordBatch:
    return with_column(batch, batch.schema.field(HEADERS), headers)


def _repeated(text: str, row_count: int) -> Texts:
    return pa.repeat(pa.scalar(text, pa.string()), row_count)


class HeaderFromKey(HeaderFrom, side=KEY):
    """HeaderFrom on keys."""


class HeaderFromValue(HeaderFrom, side=VALUE):
    """HeaderFrom on values."""
