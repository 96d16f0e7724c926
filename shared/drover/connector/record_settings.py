"""The settings of converters and transforms, and the objects that a parsed config defines."""

from collections.abc import Mapping
from typing import Any

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import OneOf
from drover.convert.converter import Converter
from drover.convert.registry import CONVERTERS, build_converter, converter_config_def
from drover.convert.unchanged import UnchangedConverter
from drover.pipeline.schema_change import SchemaChange
from drover.transform.chain import chain_config_def

KEY_CONVERTER = "key.converter"
VALUE_CONVERTER = "value.converter"
HEADER_CONVERTER = "header.converter"
SCHEMA_CHANGE = "schema.change"
CONVERTER_SETTINGS = (KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER)

#: Converters that leave the bytes of records unchanged if no step reads them.
_TRANSPARENT = frozenset({"StringConverter", "ByteArrayConverter", "SimpleHeaderConverter"})


_SCHEMA_CHANGE = ConfigDef(
    ConfigKey(
        SCHEMA_CHANGE,
        ConfigType.STRING,
        default=str(SchemaChange.EVOLVE),
        group="Records",
        documentation="What happens if the schema of a record's value, before the transforms, "
        "differs from its topic's first schema in this run of the task: the record passes "
        "(evolve), fails (freeze), is dropped (discard_row), or loses its new columns "
        "(discard_value).",
        validator=OneOf(*SchemaChange),
    )
)


def record_config_def(raw: Mapping[str, str | None]) -> ConfigDef:
    """The settings of the converters and transforms that a config names."""
    definition = _SCHEMA_CHANGE
    for setting in CONVERTER_SETTINGS:
        definition |= converter_config_def(setting, raw)
    return definition | chain_config_def(raw)


def with_worker_converters(raw: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """A config with the worker's converters for the converter settings that it does not set.

    The worker's settings of such a converter are added too, as in Kafka Connect.
    """
    merged = dict(raw)
    for setting in CONVERTER_SETTINGS:
        if raw.get(setting) is None and setting in defaults:
            prefix = f"{setting}."
            merged |= {
                name: value
                for name, value in defaults.items()
                if name == setting or name.startswith(prefix)
            }
    return merged


def passes_bytes(config: Mapping[str, Any]) -> bool:
    """Whether the converters of a parsed config leave bytes unchanged."""
    for setting in CONVERTER_SETTINGS:
        if config.get(setting):
            found = CONVERTERS.find_named(setting, config)
            if not found.__module__.startswith("drover.") or found.__name__ not in _TRANSPARENT:
                return False
    return True


def converter_of(config: Mapping[str, Any], setting: str, *, structured: bool) -> Converter:
    """The converter that a parsed config names, or the default converter.

    Args:
        config: The parsed config.
        setting: One of CONVERTER_SETTINGS.
        structured: Whether the connector is structured, which determines the default.

    Raises:
        ValueError: The converter cannot be created.
    """
    is_key = setting == KEY_CONVERTER
    if config.get(setting):
        return build_converter(setting, config, is_key=is_key)
    if setting == HEADER_CONVERTER:
        return named_converter("SimpleHeaderConverter")
    return (
        named_converter("JsonConverter", is_key=is_key)
        if structured
        else with_defaults(UnchangedConverter, is_key=is_key)
    )


def named_converter(name: str, *, is_key: bool = False) -> Converter:
    """A converter with its default settings."""
    return with_defaults(CONVERTERS.find(name), is_key=is_key)


def with_defaults(kind: type[Converter], *, is_key: bool = False) -> Converter:
    """A converter of a class with its default settings."""
    return kind(kind.config_def().parse({}).values, is_key=is_key)
