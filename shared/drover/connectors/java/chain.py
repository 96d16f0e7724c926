"""Which converters and transforms of a Java connector run in its host, and which in Drover.

Kafka's own converters and transforms exist in both, with the same results; the host runs Kafka's
and the plugin's own, because records are then converted once. From the first transform on that
only Drover has, a source's steps run in Drover, and a sink's steps up to the last one; Java
transforms among them as in other connectors. Then host and Drover exchange JSON with schemas.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from drover.connector.other_settings import OtherSettings, RawConfig, Translation
from drover.connectors.java.steps import JavaStep
from drover.convert.registry import CONVERTERS
from drover.errors import Violation
from drover.transform.registry import TRANSFORMS

#: The prefix that selects the Java class where Drover has one of the same name.
JAVA_PREFIX = "java:"
#: The prefix of settings for the host, in a config with Drover's names.
HOST_PREFIX = "java.host."
KEY, VALUE, HEADER = "key.converter", "value.converter", "header.converter"
_CONVERTERS = (KEY, VALUE, HEADER)
_TRANSFORMS, _PREDICATES = "transforms", "predicates"
_STORAGE = "org.apache.kafka.connect.storage"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_DEFAULTS = {KEY: _JSON, VALUE: _JSON, HEADER: f"{_STORAGE}.SimpleHeaderConverter"}
#: Converters of Kafka, by the names that Drover has for its own.
_KAFKA = {
    "JsonConverter": _JSON,
    "StringConverter": f"{_STORAGE}.StringConverter",
    "SimpleHeaderConverter": f"{_STORAGE}.SimpleHeaderConverter",
    "ByteArrayConverter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
#: Behind the prefix of a step: the wanted version of its class.
VERSION = "plugin.version"
_KAFKAS_OWN = "org.apache.kafka.connect."


def java_name(name: str) -> str:
    """The Java class that a setting names."""
    name = name.strip().removeprefix(JAVA_PREFIX).strip()
    return _KAFKA.get(name, name)


@dataclass(frozen=True, slots=True)
class Split:
    """The steps of a config.

    Attributes:
        hosted: The transforms that run in the host, in order.
        native: The transforms that run in Drover, in order.
        is_mixed: Whether Drover has a part, so that both exchange JSON with schemas.
    """

    hosted: Sequence[str] = ()
    native: Sequence[str] = ()
    is_mixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(OtherSettings):
    """The settings of a Java connector.

    Attributes:
        is_source: Whether it is a source.
        has_class: Whether the connector's plugin, or another installed one, has a class.
        in_plugin: Whether the connector's own plugin has a class.
        class_fault: Why a config may not name a class, as a clause; None if it may.
    """

    is_source: bool = True
    has_class: Callable[[str], bool] = lambda _name: False
    in_plugin: Callable[[str], bool] = lambda _name: False
    class_fault: Callable[[str], str | None] = lambda _name: None

    def faults_of(self, raw: RawConfig, own: Collection[str]) -> Iterator[Violation]:
        """See OtherSettings."""
        yield from OtherSettings.faults_of(self, raw, own)
        yield from self._refused(raw, self.split(raw))

    def _refused(self, raw: RawConfig, split: Split) -> Iterator[Violation]:
        """The classes for the host that the worker does not allow."""
        steps = [f"{_TRANSFORMS}.{each}.type" for each in split.hosted]
        names = [each.strip() for each in _listed(raw, _PREDICATES)]
        steps += [f"{_PREDICATES}.{each}.type" for each in names if each]
        for setting in (*steps, *(() if split.is_mixed else _CONVERTERS)):
            name = java_name(raw.get(setting) or "")
            if self.has_class(name) and not name.startswith(_KAFKAS_OWN):
                fault = self.class_fault(name)
                if fault is not None:
                    yield Violation(setting, f"cannot be used: {fault}")

    def translated(self, raw: RawConfig, own: Collection[str]) -> Translation:
        """The config in which the settings of the host's steps have HOST_PREFIX."""
        if any(name.startswith(HOST_PREFIX) for name in raw):
            return Translation(raw, {})
        split = self.split(raw)
        hosted = {f"{_TRANSFORMS}.{each}." for each in split.hosted}
        config: dict[str, str | None] = {}
        given: dict[str, str] = {}
        for name, text in raw.items():
            to_host = name.startswith(tuple(hosted)) or (_is_step(name) and not split.is_mixed)
            if to_host and text is not None:
                config[HOST_PREFIX + name] = text
                given[HOST_PREFIX + name] = name
            else:
                config[name] = text
        if split.is_mixed:
            config[_TRANSFORMS] = ",".join(split.native)
            config[HOST_PREFIX + _TRANSFORMS] = ",".join(split.hosted)
            given[HOST_PREFIX + _TRANSFORMS] = _TRANSFORMS
            for each in (KEY, VALUE):
                config[each] = raw.get(each) or "JsonConverter"
        return Translation(config, given, HOST_PREFIX)

    def split(self, raw: RawConfig) -> Split:
        """Which steps of a config run where."""
        names = list(dict.fromkeys(filter(None, map(str.strip, _listed(raw, _TRANSFORMS)))))
        of_host = {each: self._is_hosted(raw, each) for each in names}
        run = list(takewhile(of_host.get, names if self.is_source else reversed(names)))
        hosted = [each for each in names if each in run]
        native = [each for each in names if each not in run]
        of_drover = [
            each
            for each in (KEY, VALUE)
            if (name := raw.get(each)) and not self._exists(name, CONVERTERS.find)
        ]
        return Split(hosted, native, is_mixed=bool(native or of_drover))

    def _is_hosted(self, raw: RawConfig, transform: str) -> bool:
        name = raw.get(f"{_TRANSFORMS}.{transform}.type") or ""
        return self._exists(name, TRANSFORMS.find)

    def _exists(self, name: str, find: Callable[[str], type[object]]) -> bool:
        """Whether the host has a class and is to run it."""
        name = name.strip()
        if name.startswith((JAVA_PREFIX, _KAFKAS_OWN)) or name in _KAFKA or self.in_plugin(name):
            return True
        return not _is_native(name, find) and self.has_class(name)


def _is_native(name: str, find: Callable[[str], type[object]]) -> bool:
    if name.strip().startswith(JAVA_PREFIX):
        return False
    try:
        return not issubclass(find(name), JavaStep)
    except ValueError:
        return False


def _listed(raw: Mapping[str, str | None], name: str) -> list[str]:
    return (raw.get(name) or "").split(",")


def _is_step(name: str) -> bool:
    """Whether a setting belongs to converters and transforms."""
    steps = (*_CONVERTERS, _TRANSFORMS, _PREDICATES)
    return any(name == each or name.startswith(f"{each}.") for each in steps)


def has_steps_of_drover(texts: Mapping[str, str | None]) -> bool:
    """Whether Drover has a part of the steps of a translated config."""
    return _TRANSFORMS in texts or KEY in texts


def hosted_config(texts: Mapping[str, str | None]) -> dict[str, str]:
    """The config for the host, of a translated config: with full names of Java classes, and with
    JSON with schemas where Drover has a part.
    """
    is_mixed = has_steps_of_drover(texts)
    config: dict[str, str] = {}
    for name, text in texts.items():
        if text is None or (is_mixed and _is_step(name) and not name.startswith(_PREDICATES)):
            continue
        config[name.removeprefix(HOST_PREFIX)] = text
    for setting in _CONVERTERS:
        config[setting] = java_name(config.get(setting) or _DEFAULTS[setting])
    for kind in (_TRANSFORMS, _PREDICATES):
        for each in _listed(config, kind):
            name = f"{kind}.{each.strip()}.type"
            if name in config:
                config[name] = java_name(config[name])
    return config


def classes_of(config: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The classes of a host's config besides the connector, each with the wanted version; empty for
    the latest one.
    """
    return frozenset(
        (name, config.get(f"{step}.{VERSION}", "")) for step, name in steps_of(config).items()
    )


def steps_of(config: Mapping[str, str]) -> dict[str, str]:
    """The converters, transforms and predicates of plugins in a host's config: the classes, by the
    prefix of their settings.
    """
    steps = {each: each for each in _CONVERTERS}
    for kind in (_TRANSFORMS, _PREDICATES):
        names = [f"{kind}.{each.strip()}" for each in _listed(config, kind)]
        steps |= {f"{each}.type": each for each in names}
    return {
        step: name
        for setting, step in steps.items()
        if (name := config.get(setting)) and not name.startswith(_KAFKAS_OWN)
    }
