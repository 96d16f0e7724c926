"""Converters and their settings in a connector's config."""

import pickle
from typing import Any

import pytest

from drover.config.config_def import Importance
from drover.convert.registry import CONVERTERS, build_converter, converter_config_def

_STORAGE = "org.apache.kafka.connect.storage"
_CONVERTERS = "org.apache.kafka.connect.converters"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("JsonConverter", "JsonConverter"),
        ("Json", "JsonConverter"),
        ("org.apache.kafka.connect.json.JsonConverter", "JsonConverter"),
        ("String", "StringConverter"),
        (f"{_STORAGE}.StringConverter", "StringConverter"),
        ("SimpleHeader", "SimpleHeaderConverter"),
        (f"{_STORAGE}.SimpleHeaderConverter", "SimpleHeaderConverter"),
        ("ByteArray", "ByteArrayConverter"),
        *(
            (f"{_CONVERTERS}.{each}Converter", f"{each}Converter")
            for each in ("ByteArray", "Boolean", "Short", "Integer", "Long", "Float", "Double")
        ),
        ("drover.convert.json_converter.JsonConverter", "JsonConverter"),
    ],
)
def test_a_converter_has_the_names_of_kafka_connect(name: str, expected: str) -> None:
    assert CONVERTERS.find(name).__name__ == expected


def test_a_class_that_is_not_there_is_refused_with_one_that_is() -> None:
    raw = {"value.converter": "JsonConvertor"}
    (fault,) = converter_config_def("value.converter", raw).parse(raw).violations
    assert fault.field == "value.converter"
    assert "did you mean 'JsonConverter'" in fault.description


def test_the_settings_are_those_of_the_class() -> None:
    found = converter_config_def("key.converter", {"key.converter": "Json"})
    assert [key.name for key in found] == [
        "key.converter",
        "key.converter.plugin.version",
        "key.converter.schemas.enable",
        "key.converter.schema.content",
        "key.converter.schemas.cache.size",
        "key.converter.decimal.format",
        "key.converter.replace.null.with.default",
        "key.converter.converter.type",
    ]
    found = converter_config_def("key.converter", {})
    assert [key.name for key in found] == ["key.converter", "key.converter.plugin.version"]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"": "Json", ".schemas.enable": "perhaps"}, "must be true or false"),
        ({"": "Json", ".decimal.format": "HEX"}, "must be one of BASE64, NUMERIC"),
        ({"": "Json", ".schema.content": "{"}, "must be a schema"),
        ({"": "Json", ".schema.content": '{"type":"int7"}'}, "unknown schema type 'int7'"),
        ({"": "String", ".converter.encoding": "UTF-9"}, "the name of a character set"),
        ({"": "String", ".converter.encoding": "base64"}, "the name of a character set"),
        ({"": "Long", ".converter.type": "body"}, "must be one of key, value, header"),
    ],
)
def test_a_faulty_setting_is_refused(settings: dict[str, str], fault: str) -> None:
    raw: dict[str, str | None] = {f"value.converter{key}": text for key, text in settings.items()}
    (found,) = converter_config_def("value.converter", raw).parse(raw).violations
    assert fault in found.description


@pytest.mark.parametrize("kind", list(CONVERTERS), ids=lambda kind: kind.__name__)
def test_a_converter_is_pickled_with_its_config(kind: Any) -> None:
    raw = {
        "value.converter": kind.__name__,
        "value.converter.schema.registry.url": "http://registry",
    }
    values = converter_config_def("value.converter", raw).parse(raw).require_valid()
    converter = build_converter("value.converter", values, is_key=False)
    copied = pickle.loads(pickle.dumps(converter))
    assert type(copied) is kind
    assert copied.config == converter.config


@pytest.mark.parametrize(
    ("setting", "importance"),
    [
        ("key.converter", Importance.HIGH),
        ("value.converter", Importance.HIGH),
        ("header.converter", Importance.LOW),
    ],
)
def test_the_converters_of_keys_and_values_are_important(
    setting: str, importance: Importance
) -> None:
    assert next(iter(converter_config_def(setting, {}))).importance is importance
