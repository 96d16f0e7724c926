"""Converters with a schema registry, configured as in a connector's config."""

import struct

import pyarrow as pa

from drover.convert.converter import Converter
from drover.convert.registry import build_converter, converter_config_def


def converter_at(
    class_name: str, url: str, setting: str = "value.converter", **settings: str
) -> Converter:
    """A converter that tries the registry once; underscores in settings become dots."""
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
    """The schema id at the start of a record."""
    magic, found = struct.unpack(">bI", raw[:5])
    assert magic == 0
    return int(found)
