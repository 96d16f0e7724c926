"""Single booleans and numbers, as Kafka's serializers write them: big-endian."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.convert.converter import Converter, Decoded
from drover.convert.settings import CONVERTER_TYPE
from drover.record.arrow import Array, Binaries, Texts, text_bytes
from drover.record.errors import RecordError
from drover.record.json.schemaless import loads
from drover.record.schema import Schema, Type, arrow_field, arrow_type, schema_of

_PACKAGE = "org.apache.kafka.connect.converters."


class _FixedWidthConverter(Converter):
    """Values of one type, of which each has the same number of bytes."""

    version = "1"
    type: ClassVar[Type]
    #: numpy's name for the bytes.
    dtype: ClassVar[str]

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return ConfigDef(CONVERTER_TYPE)

    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """See Converter. Null stays null."""
        schema = schema_of(field)
        if schema is None:
            values = self._schemaless(values)
        elif schema.type is not self.type or pa.types.is_temporal(values.type):
            raise RecordError(f"{self._name} writes values of type {self.type}, not {values.type}")
        else:
            values = values.cast(arrow_type(schema))
        width = np.dtype(self.dtype).itemsize
        numbers = self._numbers(values)
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width),
            len(values),
            [None, pa.py_buffer(numbers.astype(self.dtype).tobytes())],
        )
        encoded = fixed.cast(pa.binary())
        return pc.if_else(values.is_valid(), encoded, None) if values.null_count else encoded

    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """See Converter."""
        width = np.dtype(self.dtype).itemsize
        lengths = pc.binary_length(values)
        if pc.any(pc.not_equal(lengths, width)).as_py():
            wrong = lengths.filter(pc.not_equal(lengths, width))[0].as_py()
            raise RecordError(f"{self._name} reads {width} bytes for each value, not {wrong}")
        filled = values.fill_null(bytes(width)) if values.null_count else values
        numbers = np.frombuffer(text_bytes(filled).tobytes(), self.dtype)
        self._check(numbers)
        field = arrow_field("value", Schema(self.type, optional=True))
        mask = np.asarray(values.is_null()) if values.null_count else None
        native = numbers.astype(numbers.dtype.newbyteorder("="))
        return [Decoded(None, field, pa.array(native, mask=mask).cast(field.type))]

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _numbers(self, values: Array) -> npt.NDArray[Any]:
        return np.asarray(values.fill_null(0) if values.null_count else values)

    def _check(self, numbers: npt.NDArray[Any]) -> None:
        """Raises RecordError for bytes of the right length that are no value."""

    def _schemaless(self, texts: Texts) -> Array:
        try:
            found = [None if text is None else loads(text) for text in texts.to_pylist()]
            wanted = float if self.dtype.startswith(">f") else int
            for each in found:
                if each is not None and (isinstance(each, bool) or not isinstance(each, wanted)):
                    raise RecordError(f"{self._name} does not write {str(each)[:80]!r}")
            return pa.array(found, arrow_type(Schema(self.type)))
        except RecordError:
            raise
        except (ValueError, OverflowError, pa.ArrowInvalid) as error:
            raise RecordError(f"{self._name}: {error}") from None


class ShortConverter(_FixedWidthConverter):
    """Numbers of 16 bits."""

    aliases = ("Short", f"{_PACKAGE}ShortConverter")
    type, dtype = Type.INT16, ">i2"


class IntegerConverter(_FixedWidthConverter):
    """Numbers of 32 bits."""

    aliases = ("Integer", f"{_PACKAGE}IntegerConverter")
    type, dtype = Type.INT32, ">i4"


class LongConverter(_FixedWidthConverter):
    """Numbers of 64 bits."""

    aliases = ("Long", f"{_PACKAGE}LongConverter")
    type, dtype = Type.INT64, ">i8"


class FloatConverter(_FixedWidthConverter):
    """Fractions of 32 bits."""

    aliases = ("Float", f"{_PACKAGE}FloatConverter")
    type, dtype = Type.FLOAT32, ">f4"


class DoubleConverter(_FixedWidthConverter):
    """Fractions of 64 bits."""

    aliases = ("Double", f"{_PACKAGE}DoubleConverter")
    type, dtype = Type.FLOAT64, ">f8"


class BooleanConverter(_FixedWidthConverter):
    """One byte, 1 or 0."""

    aliases = ("Boolean", f"{_PACKAGE}BooleanConverter")
    type, dtype = Type.BOOLEAN, "u1"

    def _numbers(self, values: Array) -> npt.NDArray[Any]:
        return np.asarray(values.fill_null(False).cast(pa.uint8()))

    def _check(self, numbers: npt.NDArray[Any]) -> None:
        wrong = numbers[numbers > 1]
        if wrong.size:
            raise RecordError(f"BooleanConverter reads the bytes 0 and 1, not {wrong[0]}")

    def _schemaless(self, texts: Texts) -> Array:
        try:
            found = [None if text is None else loads(text) for text in texts.to_pylist()]
        except ValueError as error:
            raise RecordError(f"a value without a schema is no JSON: {error}") from None
        if not all(each is None or isinstance(each, bool) for each in found):
            raise RecordError("BooleanConverter writes true and false, and no other values")
        return pa.array(found, pa.bool_())
