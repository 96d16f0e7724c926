"""The settings of Java converters, transforms and predicates, and the faults of a config."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from drover.config.config_def import ConfigDef
from drover.config.configurable import uses_systems
from drover.config.validators import Check
from drover.connectors.java.steps import given_config_def, is_kafkas
from drover.java_plugins.catalogue import JavaClass, JavaPluginError, Kind
from drover.java_plugins.describe import Configure, JavaValue, Validated, config_def, validate
from drover.java_plugins.host import describing_jvm


def checked_config_def(java_class: JavaClass, given: Mapping[str, str]) -> ConfigDef:
    """The settings of a class, with the faults that it finds, in a JVM without other configs.

    Raises:
        ValueError: The class fails, or rejects its settings together.
    """
    try:
        found = _validated(java_class, tuple(sorted(given.items())), uses_systems())
    except JavaPluginError as error:
        raise ValueError(str(error)) from None
    own = _own(java_class)
    declared = ConfigDef(*(each for each in config_def(found.description) if each.name not in own))
    others = {name: text for name, text in given.items() if name not in declared}
    definition = declared | given_config_def(others)
    faults = {each.name: each for each in found.values if each.errors and each.name in given}
    missing = [each for each in found.values if each.errors and each.name not in definition]
    if missing:
        raise ValueError("; ".join(f"{each.name}: {each.errors[0]}" for each in missing))
    return ConfigDef(
        *(
            replace(key, validator=_fault(faults[key.name])) if key.name in faults else key
            for key in definition
        )
    )


def _fault(value: JavaValue) -> Check:
    return Check(lambda _: "; ".join(value.errors))


@lru_cache(maxsize=1_000)
def _validated(
    java_class: JavaClass, given: tuple[tuple[str, str], ...], uses_systems: bool
) -> Validated:
    path = None if is_kafkas(java_class) else java_class.path
    # configure() may connect to the systems that the config names
    configure = Configure(java_class.kind.value, is_key=False) if uses_systems else None
    settings = dict(given) | _own(java_class)
    return validate(describing_jvm(), path, java_class.name, settings, configure)


def _own(java_class: JavaClass) -> dict[str, str]:
    """The settings that the runtime gives a class, as Kafka Connect does."""
    kinds = {Kind.CONVERTER: "value", Kind.HEADER_CONVERTER: "header"}
    kind = kinds.get(java_class.kind)
    return {} if kind is None else {"converter.type": kind}
