"""Which converters there are, and how a connector's config names and sets them up."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from drover.config.class_registry import ClassRegistry
from drover.config.config_def import ConfigDef, ConfigKey, ConfigType, SettingError
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
    chosen = ConfigKey(
        setting,
        ConfigType.CLASS,
        default=None,
        documentation=f"The converter: {', '.join(CONVERTERS.own_names())}, or another class.",
        group="Converters",
        validator=Check(_fault),
    )
    name = raw.get(setting)
    if name is None or _fault(name) is not None:
        return ConfigDef(chosen)
    kind = CONVERTERS.find(name)
    faults = _contradiction(kind, setting, raw)
    own = (_prefixed(setting, each, faults.get(each.name)) for each in kind.config_def())
    return ConfigDef(chosen, *own)


def build_converter(setting: str, values: Mapping[str, Any], *, is_key: bool) -> Converter:
    """The converter that ``setting`` names, set up from the parsed values of its settings.

    Raises:
        ValueError: ``setting`` names no converter that there is.
    """
    kind = CONVERTERS.find(values[setting])
    own = {key.name: values[f"{setting}.{key.name}"] for key in kind.config_def()}
    return kind(own, is_key=is_key)


def _contradiction(
    kind: type[Converter], setting: str, raw: Mapping[str, str | None]
) -> dict[str, str]:
    """The fault of settings that are valid alone but contradict each other, by setting."""
    prefix = f"{setting}."
    own = {name.removeprefix(prefix): text for name, text in raw.items() if name.startswith(prefix)}
    parsed = kind.config_def().parse(own)
    if parsed.violations:
        return {}
    try:
        kind(parsed.values, is_key=setting == "key.converter")
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
    )


def _fault(name: str) -> str | None:
    try:
        CONVERTERS.find(name)
    except ValueError as error:
        return f"must name a converter: {error}"
    return None
