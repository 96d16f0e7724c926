"""Converters with a schema registry, set up as a connector's config does it."""

import struct

import pyarrow as pa

from drover.convert.converter import Converter
from drover.convert.registry import build_converter, converter_config_def


def converter_at(
    class_name: str, url: str, setting: str = "value.converter", **settings: str
) -> Converter:
    """One of a class that asks once; underscores of settings stand for dots."""
    raw: dict[str, str | None] = {
        setting: class_name,
        f"{setting}.schema.registry.url": url,
        f"{setting}.max.retries": "0",
    }
    raw |= {f"{setting}.{name.replace('_', '.')}": value for name, value in settings.items()}
    values = converter_config_def(setting, raw).parse(raw).require_valid()
    return build_converter(setting, values, is_key=setting == "key.converter")


def topics(*names: str | None) -> pa.Array:
    """The topics of records."""
    return pa.array(names, pa.string())


def schema_id_of(raw: bytes) -> int:
    """The id that a record begins with."""
    magic, found = struct.unpack(">bI", raw[:5])
    assert magic == 0
    return int(found)
