"""Converters that pass bytes through, used where no converter is set."""

import pyarrow as pa

from drover.convert.plain_converters import ByteArrayConverter, StringConverter
from drover.record.arrow import Array, Binaries, Texts, is_text
from drover.record.errors import RecordError


class UnchangedConverter(ByteArrayConverter):
    """Passes bytes through and encodes text as UTF-8."""

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter."""
        if is_text(values.type):
            return values.cast(pa.binary())
        try:
            return super().encode(field, values, topics)
        except RecordError as error:
            setting = "key.converter" if self.is_key else "value.converter"
            raise RecordError(
                f"values of type {values.type} are no bytes, and {setting} is not set: set it to "
                "JsonConverter, for instance"
            ) from error


class PrintingConverter(StringConverter):
    """Passes bytes through and formats other values like StringConverter; for sinks of bytes."""

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter."""
        if pa.types.is_binary(values.type):
            return values
        return super().encode(field, values, topics)
