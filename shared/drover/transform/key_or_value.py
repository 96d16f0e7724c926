"""Transforms of keys or values: what their two forms, $Key and $Value, have in common."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.record import RecordError
from drover.record.arrow import Array
from drover.record.batch import VALUE, with_column
from drover.record.json.schemaless import dumps, loads
from drover.record.schema import is_schemaless
from drover.transform.transform import Transform

PACKAGE = "org.apache.kafka.connect.transforms"

REPLACE_NULL_WITH_DEFAULT = ConfigKey(
    "replace.null.with.default",
    ConfigType.BOOLEAN,
    default=True,
    documentation="Whether fields that are null get the default that their schema has.",
)


class KeyOrValue(Transform):
    """Changes the key or the value.

    A class has two forms: ``class HoistFieldKey(HoistField, side=KEY)``, and the same for VALUE.
    Their simple names are Kafka Connect's: HoistField$Key, HoistField$Value.
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

    #: What it does, for messages: "masking fields".
    purpose: ClassVar[str]
    #: Whether keys and values that are null stay so; else they are an error.
    nulls_pass: ClassVar[bool]

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        field, values = batch.schema.field(self.side), batch.column(self.side)
        if values.null_count and not self.nulls_pass:
            raise RecordError(f"{self.purpose} needs a {self.side}, not null")
        if values.null_count == len(values):
            # of nothing but nulls the schema is left, as it is where Kafka Connect leaves a record
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
        """The batch after the change; ``values`` is a struct array, ``field`` its field."""

    @abstractmethod
    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """The batch after the change; ``maps`` are its values without schema."""

    def with_maps(self, batch: pa.RecordBatch, values: Iterable[Any]) -> pa.RecordBatch:
        """The batch with these values without schema."""
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
    """Values without schema as the array that batches have; None is null."""
    return pa.array([None if each is None else dumps(each) for each in values], pa.string())


def kind_of(value: object) -> str:
    """What a value without schema is, for messages."""
    kinds: dict[type, str] = {
        bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list",
        dict: "a map", bytes: "bytes", type(None): "null",
    }  # fmt: skip
    return kinds.get(type(value), f"a {type(value).__name__}")


def text_key(name: str, **more: Any) -> ConfigKey:
    """A setting of text."""
    return ConfigKey(name, ConfigType.STRING, **more)


def list_key(name: str, **more: Any) -> ConfigKey:
    """A setting of several texts."""
    return ConfigKey(name, ConfigType.LIST, **more)


def definition(*keys: ConfigKey) -> ConfigDef:
    """The settings of a transform that has REPLACE_NULL_WITH_DEFAULT, too."""
    return ConfigDef(*keys, REPLACE_NULL_WITH_DEFAULT)
