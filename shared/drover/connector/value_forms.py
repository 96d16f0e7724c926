"""What a config alone shows about the values that a structured sink receives."""

from collections.abc import Mapping
from typing import Any

from drover.convert.registry import CONVERTERS
from drover.transform.chain import TRANSFORMS_KEY
from drover.transform.registry import TRANSFORMS

_VALUE = "value.converter"
#: Converters whose values never have fields.
_FIELDLESS = (
    *("StringConverter", "ByteArrayConverter", "SimpleHeaderConverter", "BooleanConverter"),
    *("ShortConverter", "IntegerConverter", "LongConverter", "FloatConverter", "DoubleConverter"),
)
#: Transforms after which values without fields have none, either.
_KEEPS_FORM = ("RegexRouter", "TimestampRouter", "Filter", "DropHeaders", "InsertHeader")
#: Built-in transforms that may give schemaless values a schema.
_GIVES_SCHEMA = ("Sql", "ArrowFunction")


def fieldless_converter(config: Mapping[str, Any]) -> str | None:
    """The name of the value converter, if no value has fields, also after the transforms; None if
    values may have fields.

    Args:
        config: The parsed settings; invalid ones may be absent.
    """
    converter = _converter(config)
    transforms = _transforms(config)
    if converter not in _FIELDLESS or transforms is None:
        return None
    keeps = (each in _KEEPS_FORM or each.endswith("$Key") for each in transforms)
    return converter if all(keeps) else None


def is_schemaless_json(config: Mapping[str, Any]) -> bool:
    """Whether all values are JSON without a schema, also after the transforms."""
    transforms = _transforms(config)
    return (
        _converter(config) == "JsonConverter"
        and config.get(f"{_VALUE}.schemas.enable") is False
        and transforms is not None
        and not any(each in _GIVES_SCHEMA for each in transforms)
    )


def _converter(config: Mapping[str, Any]) -> str | None:
    if not config.get(_VALUE):
        return None
    found = CONVERTERS.find_named(_VALUE, config)
    return found.__name__ if found.__module__.startswith("drover.") else None


def _transforms(config: Mapping[str, Any]) -> list[str] | None:
    """The class names of the transforms; None if one is a plugin's or its type is invalid."""
    names = []
    for each in config.get(TRANSFORMS_KEY) or ():
        setting = f"{TRANSFORMS_KEY}.{each}.type"
        found = TRANSFORMS.find_named(setting, config) if config.get(setting) else None
        if found is None or not found.__module__.startswith("drover."):
            return None
        names.append(found.__name__)
    return names
