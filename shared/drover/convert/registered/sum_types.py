"""What unions and enums are called in Kafka Connect's schemas whatever format they come from:
Confluent's ``generalized.sum.type.support``.
"""

from drover.convert.registered.settings import flag
from drover.record.schema import Schema, Type

#: The parameters of a struct that stands for a union, and of a text that is an enum's symbol. Those
#: of an enum go on with a dot and each symbol, and have its number.
GENERAL_UNION = "org.apache.kafka.connect.data.Union"
GENERAL_ENUM = "org.apache.kafka.connect.data.Enum"
SUM_TYPES = "generalized.sum.type.support"

SUM_TYPES_KEY = flag(
    SUM_TYPES,
    False,
    "Whether unions and enums are read under names that are the same for all formats, so that a "
    "converter of another format writes them as unions and enums.",
)


def is_general_union(schema: Schema) -> bool:
    """Whether a struct stands for a union, by its parameter."""
    return schema.type is Type.STRUCT and GENERAL_UNION in schema.parameters


def enum_parameter(schema: Schema, own: str) -> str | None:
    """The parameter by which a schema is an enum: ``own`` of the format, or the general one."""
    return next((each for each in (GENERAL_ENUM, own) if each in schema.parameters), None)


def symbols_of(schema: Schema, parameter: str) -> dict[str, str]:
    """An enum's symbols, and what is said of each."""
    prefix = f"{parameter}."
    return {
        name.removeprefix(prefix): said
        for name, said in schema.parameters.items()
        if name.startswith(prefix)
    }
