"""Which converters there are, and how a connector's config names and sets them up."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from drover.config.class_registry import (
    VERSION_KEY,
    ClassRegistry,
    VersionUnavailableError,
    version_setting,
)
from drover.config.config_def import ConfigDef, ConfigKey, ConfigType, Importance, SettingError
from drover.config.validators import Check
from drover.convert.converter import Converter
from drover.convert.other_converters import CONVERTERS_ELSEWHERE


def _built_in() -> Sequence[type[Converter]]:
    # imported when first asked for: who converts nothing does not need them
    from drover.convert.avro.converter import AvroConverter
    from drover.convert.json_converter import JsonConverter
    from drover.convert.number_converters import (
        BooleanConverter,
        DoubleConverter,
        FloatConverter,
        IntegerConverter,
        LongConverter,
        ShortConverter,
    )
    from drover.convert.plain_converters import ByteArrayConverter, StringConverter
    from drover.convert.protobuf.converter import ProtobufConverter
    from drover.convert.simple_header import SimpleHeaderConverter

    return (
        AvroConverter, BooleanConverter, ByteArrayConverter, DoubleConverter, FloatConverter,
        IntegerConverter,
        JsonConverter, LongConverter, ProtobufConverter, ShortConverter,
        SimpleHeaderConverter, StringConverter,
    )  # fmt: skip


CONVERTERS: ClassRegistry[Converter] = ClassRegistry(
    "converter", "drover.converters", _built_in, CONVERTERS_ELSEWHERE
)


def converter_config_def(setting: str, raw: Mapping[str, str | None]) -> ConfigDef:
    """The setting that names a converter (``value.converter``), optional, and behind its prefix the
    settings of the converter that ``raw`` names; only the first if it names none that there is.
    """
    is_of_headers = setting == "header.converter"
    chosen = ConfigKey(
        setting,
        ConfigType.CLASS,
        default=None,
        importance=Importance.LOW if is_of_headers else Importance.HIGH,
        documentation=f"The converter: {', '.join(CONVERTERS.own_names())}, or another class.",
        group="Converters",
    )
    name = raw.get(setting)
    version = _prefixed(setting, VERSION_KEY, None)
    if name is None:
        return ConfigDef(chosen, version)
    prefix = f"{setting}."
    given = {
        each.removeprefix(prefix): text
        for each, text in raw.items()
        if each.startswith(prefix) and text is not None and each != version.name
    }
    try:
        kind = CONVERTERS.find_named(setting, raw)
        definition = kind.config_def_for(given)
    except VersionUnavailableError as error:
        return ConfigDef(chosen, _prefixed(setting, VERSION_KEY, str(error)))
    except ValueError as error:
        fault = f"must name a converter: {error}"
        return ConfigDef(replace(chosen, validator=Check(lambda _: fault)), version)
    faults = _contradiction(kind, definition, given, is_key=setting == "key.converter")
    own = (_prefixed(setting, each, faults.get(each.name)) for each in definition)
    return ConfigDef(chosen, version, *own)


def build_converter(setting: str, values: Mapping[str, Any], *, is_key: bool) -> Converter:
    """The converter that ``setting`` names, set up from the parsed values of its settings.

    Raises:
        ValueError: ``setting`` names no converter that there is.
    """
    version = version_setting(setting)
    kind = CONVERTERS.find_named(setting, values)
    prefix = f"{setting}."
    own = {
        name.removeprefix(prefix): each
        for name, each in values.items()
        if name.startswith(prefix) and name != version
    }
    return kind(kind.own_values(own), is_key=is_key)


def _contradiction(
    kind: type[Converter], definition: ConfigDef, given: Mapping[str, str], *, is_key: bool
) -> dict[str, str]:
    """The fault of settings that are valid alone but contradict each other, by setting."""
    parsed = definition.parse(given)
    if parsed.violations:
        return {}
    try:
        kind(kind.own_values(parsed.values), is_key=is_key)
    except SettingError as error:
        return {error.setting: error.fault}
    return {}


def _prefixed(setting: str, key: ConfigKey, fault: str | None) -> ConfigKey:
    if fault is not None:
        # validators are not called for None
        default = "" if key.default is None else key.default
        key = replace(key, default=default, validator=Check(lambda _: fault))
    return ConfigKey(
        f"{setting}.{key.name}",
        key.type,
        default=key.default,
        importance=key.importance,
        documentation=key.documentation,
        group="Converters",
        validator=key.validator,
        trimmed=key.trimmed,
    )
