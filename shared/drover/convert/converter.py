"""What a converter is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from drover.config.config_def import ConfigDef
from drover.record.arrow import Array, Binaries, Rows, Texts


@dataclass(frozen=True, slots=True)
class Decoded:
    """Values of one schema: the rows they belong to, ascending, and ``field`` with their type.

    ``rows`` None stands for all rows.
    """

    rows: Rows | None
    field: pa.Field
    values: Array


class Converter(ABC):
    """Turns keys or values into the bytes that topics hold, and back; pickled with its config.

    Both methods take any number of rows at once and raise what is wrong with any of them: a
    RowsError says with which; else whoever runs them finds out by asking for fewer.
    """

    version: ClassVar[str] = "unknown"
    aliases: ClassVar[Sequence[str]] = ()

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        """``config`` are the parsed settings, without the prefix (``value.converter.``)."""
        self.config = config
        self.is_key = is_key

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The converter's own settings."""

    @abstractmethod
    def encode(self, field: pa.Field, values: Array, topics: Texts | None) -> Binaries:
        """Values, of the schema that ``field`` carries, as a binary array; null stays null unless
        the format has a form of its own for it. ``topics`` are the records' topics, None for
        the values of headers.

        Raises:
            RecordError: a value cannot be written so.
        """

    @abstractmethod
    def decode(self, values: Binaries, topics: Texts | None) -> Sequence[Decoded]:
        """A binary array as structured values, one entry for each schema that is among them.

        Raises:
            RecordError: bytes are not of this format.
        """
