"""Format-independent names of unions and enums: Confluent's ``generalized.sum.type.support``."""

from drover.convert.registered.settings import flag
from drover.record.schema import Schema, Type

#: Schema parameters that mark a struct as a union and a text as an enum. An enum also has the
#: parameter ``<name>.<symbol>`` with the number of each symbol.
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
    """Whether a parameter marks a struct as a union."""
    return schema.type is Type.STRUCT and GENERAL_UNION in schema.parameters


def enum_parameter(schema: Schema, own: str) -> str | None:
    """The parameter that marks a schema as an enum: the general one, or the format's ``own``."""
    return next((each for each in (GENERAL_ENUM, own) if each in schema.parameters), None)


def symbols_of(schema: Schema, parameter: str) -> dict[str, str]:
    """An enum's symbols with the values of their parameters."""
    prefix = f"{parameter}."
    return {
        name.removeprefix(prefix): value
        for name, value in schema.parameters.items()
        if name.startswith(prefix)
    }
