"""Which converters and transforms of a Java connector run in its host, and which in Drover.

Kafka's own converters and transforms exist in both, with the same results. The host runs as many as
it can, because a record is then converted once; a class that only Drover has runs in Drover, behind
those of a source and before those of a sink.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from drover.connector.other_settings import OtherSettings, RawConfig, Translation

#: The prefix that selects the Java class where Drover has one of the same name.
JAVA_PREFIX = "java:"
#: The prefix of settings for the host, in a config with Drover's names.
HOST_PREFIX = "java.host."
CONVERTERS = ("key.converter", "value.converter", "header.converter")
_CHAIN = ("transforms", "predicates")
_STORAGE = "org.apache.kafka.connect.storage"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
_DEFAULTS = {
    "key.converter": JSON_CONVERTER,
    "value.converter": JSON_CONVERTER,
    "header.converter": f"{_STORAGE}.SimpleHeaderConverter",
}
#: Converters of Kafka, by the names that Drover has for its own.
_KAFKA = {
    "JsonConverter": JSON_CONVERTER,
    "StringConverter": f"{_STORAGE}.StringConverter",
    "SimpleHeaderConverter": f"{_STORAGE}.SimpleHeaderConverter",
    "ByteArrayConverter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
_KAFKAS_OWN = "org.apache.kafka.connect."


def java_name(name: str) -> str:
    """The Java class that a setting names."""
    name = name.strip().removeprefix(JAVA_PREFIX).strip()
    return _KAFKA.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(OtherSettings):
    """The settings of a Java connector.

    Attributes:
        keys: Names of the connector's own settings.
    """

    keys: Collection[str] = field(default_factory=frozenset)

    def translated(self, raw: RawConfig, own: Collection[str]) -> Translation:
        """The config in which the host's converters and transforms have HOST_PREFIX."""
        config: dict[str, str | None] = {}
        given: dict[str, str] = {}
        for name, text in raw.items():
            if text is not None and is_hosted(name):
                config[HOST_PREFIX + name] = text
                given[HOST_PREFIX + name] = name
            else:
                config[name] = text
        return Translation(config, given)


def is_hosted(name: str) -> bool:
    """Whether a setting belongs to the converters and transforms of the host."""
    return any(name == each or name.startswith(f"{each}.") for each in (*CONVERTERS, *_CHAIN))


def hosted_config(
    texts: Mapping[str, str | None], *, resolve: Callable[[str], str] = java_name
) -> dict[str, str]:
    """The config for the host: as it was written, with full names of Java classes."""
    config: dict[str, str] = {}
    for name, text in texts.items():
        if text is not None:
            config[name.removeprefix(HOST_PREFIX)] = text
    for setting in CONVERTERS:
        config[setting] = resolve(config.get(setting) or _DEFAULTS[setting])
    for kind in _CHAIN:
        for each in (config.get(kind) or "").split(","):
            name = f"{kind}.{each.strip()}.type"
            if name in config:
                config[name] = java_name(config[name])
    return config
