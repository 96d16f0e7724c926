"""The settings of the converters, transforms and predicates that run in a Java connector's host."""

from collections.abc import Mapping
from dataclasses import replace

from drover.config.config_def import ConfigDef
from drover.connector.record_settings import CONVERTER_SETTINGS, record_config_def
from drover.connectors.java.chain import HOST_PREFIX, JAVA_PREFIX, VERSION, java_name
from drover.transform.chain import PREDICATES_KEY, TRANSFORMS_KEY


def hosted_config_def(raw: Mapping[str, str | None]) -> ConfigDef:
    """The settings of the classes for the host that a translated config names, behind HOST_PREFIX.

    A class of Kafka's that Drover has too is checked as Drover's, whose settings are the same,
    unless the config wants a version of it.
    """
    hosted = {
        name.removeprefix(HOST_PREFIX): text
        for name, text in raw.items()
        if name.startswith(HOST_PREFIX)
    }
    if not hosted:
        return ConfigDef()
    steps = _steps(hosted)
    in_java = {
        setting: JAVA_PREFIX + java_name(hosted[setting] or "")
        for setting, prefix in steps.items()
        if hosted.get(setting) and hosted.get(prefix + VERSION)
    }
    # where Drover has a part, the predicates of both are in the config under their own names
    predicates = {name: raw[name] for name in raw if name.startswith(PREDICATES_KEY)}
    return ConfigDef(
        *(
            replace(key, name=HOST_PREFIX + key.name)
            for key in record_config_def({**predicates, **hosted, **in_java})
            if key.name in hosted or key.name.startswith(tuple(steps.values()))
        )
    )


def _steps(hosted: Mapping[str, str | None]) -> dict[str, str]:
    """The prefix of the settings of each class, by the setting that names it."""
    steps = {each: f"{each}." for each in CONVERTER_SETTINGS if hosted.get(each)}
    for kind in (TRANSFORMS_KEY, PREDICATES_KEY):
        names = (each.strip() for each in (hosted.get(kind) or "").split(","))
        prefixes = [f"{kind}.{each}." for each in names if each]
        steps |= {f"{each}type": each for each in prefixes}
    return steps
