"""Base classes of transforms with the two forms $Key and $Value."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.record import RecordError
from drover.record.arrow import Array
from drover.record.batch import VALUE, with_column
from drover.record.json.numbers import Fraction
from drover.record.json.schemaless import dumps, loads
from drover.record.schema import is_schemaless
from drover.transform.transform import Transform

PACKAGE = "org.apache.kafka.connect.transforms"

REPLACE_NULL_WITH_DEFAULT = ConfigKey(
    "replace.null.with.default",
    ConfigType.BOOLEAN,
    default=True,
    documentation="Whether nulls in fields are replaced with the default of the field's schema.",
)


class KeyOrValue(Transform):
    """Changes the key or the value.

    Each transform has two subclasses: ``class HoistFieldKey(HoistField, side=KEY)``, and the same
    with VALUE. Their simple names are Kafka Connect's: HoistField$Key, HoistField$Value.
    """

    side: ClassVar[str] = VALUE

    def __init_subclass__(cls, *, side: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if side is not None:
            cls.side = side
            cls.__name__ = f"{cls.__bases__[0].__name__}${side.capitalize()}"
            cls.aliases = (f"{PACKAGE}.{cls.__name__}",)


class FieldTransform(KeyOrValue):
    """Changes fields of structs (column by column) or of maps without schema (row by row)."""

    #: The action in messages, such as "masking fields".
    purpose: ClassVar[str]
    #: Whether null keys and values pass unchanged; otherwise they are an error.
    nulls_pass: ClassVar[bool]

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        field, values = batch.schema.field(self.side), batch.column(self.side)
        if values.null_count and not self.nulls_pass:
            raise RecordError(f"{self.purpose} needs a {self.side}, not null")
        if values.null_count == len(values):
            # Kafka Connect returns null records unchanged, with their schema
            return [batch]
        if is_schemaless(field):
            return [self.change_maps(batch, self._maps(values))]
        if not pa.types.is_struct(values.type):
            raise RecordError(
                f"{self.purpose} needs a struct in the {self.side}, not {values.type}"
            )
        return [self.change_structs(batch, field, values)]

    @abstractmethod
    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """Change a struct array; returns the changed batch."""

    @abstractmethod
    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """Change values without schema; returns the changed batch."""

    def with_maps(self, batch: pa.RecordBatch, values: Iterable[Any]) -> pa.RecordBatch:
        """Replace the key or value with values without schema."""
        return with_column(batch, batch.schema.field(self.side), to_texts(values))

    def _maps(self, values: Any) -> list[dict[str, Any] | None]:
        maps = [None if text is None else loads(text) for text in values.to_pylist()]
        for each in maps:
            if not isinstance(each, dict | None):
                raise RecordError(
                    f"{self.purpose} needs a map in the {self.side}, not {kind_of(each)}"
                )
        return maps


def to_texts(values: Iterable[Any]) -> pa.Array:
    """Values without schema as an array of texts, as in batches; None is null."""
    return pa.array([None if each is None else dumps(each) for each in values], pa.string())


def map_of(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A map of these entries.

    Raises:
        RecordError: Two have the same name: Kafka Connect keeps the last one, and loses the others.
    """
    found: dict[str, Any] = {}
    for name, value in entries:
        if name in found:
            raise RecordError(f"there would be more than one field called {name!r}")
        found[name] = value
    return found


def kind_of(value: object) -> str:
    """The type of a value without schema, for messages."""
    kinds: dict[type, str] = {
        bool: "a boolean", int: "a number", float: "a number", Fraction: "a number",
        str: "text", list: "a list", dict: "a map", bytes: "bytes", type(None): "null",
    }  # fmt: skip
    return kinds.get(type(value), f"a {type(value).__name__}")


def text_key(name: str, **more: Any) -> ConfigKey:
    """A setting of type STRING."""
    return ConfigKey(name, ConfigType.STRING, **more)


def list_key(name: str, **more: Any) -> ConfigKey:
    """A setting of type LIST."""
    return ConfigKey(name, ConfigType.LIST, **more)


def definition(*keys: ConfigKey) -> ConfigDef:
    """A config definition that includes REPLACE_NULL_WITH_DEFAULT."""
    return ConfigDef(*keys, REPLACE_NULL_WITH_DEFAULT)
