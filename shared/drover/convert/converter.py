"""The base class of converters."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.config.configurable import Configurable
from drover.record.arrow import Array, Binaries, Rows, Texts
from drover.record.framed import Framed


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded values of one schema.

    Attributes:
        rows: The rows of the values, ascending; None for all rows.
        field: The field with the values' type and schema.
        values: The values.
    """

    rows: Rows | None
    field: pa.Field
    values: Array


class Converter(Configurable):
    """Converts keys or values to bytes and back; pickled with its config.

    Both methods take any number of rows and raise if any row fails. A RowsError names the rows;
    after another error the pipeline calls again with fewer rows to find them.
    """

    version: ClassVar[str] = "unknown"
    aliases: ClassVar[Sequence[str]] = ()

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        """Create a converter.

        Args:
            config: Parsed settings by name, without the prefix ``value.converter.``.
            is_key: Whether it converts keys.
        """
        self.config = config
        self.is_key = is_key

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The converter's own settings."""

    @abstractmethod
    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """Encode values as a binary array; null stays null unless the format encodes null.

        Args:
            field: The field with the values' schema.
            values: The values.
            topics: The records' topics; None for the values of headers.

        Raises:
            RecordError: A value cannot be encoded.
        """

    def encode_framed(self, field: pa.Field, values: Array, topics: Texts | None) -> Framed:
        """As ``encode``; a format with the same bytes around all values can return them once.

        Raises:
            RecordError: A value cannot be encoded.
        """
        return Framed(self.encode(field, values, topics))

    @abstractmethod
    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """Decode a binary array; returns one entry per schema.

        Raises:
            RecordError: Bytes are not of this format.
        """
