"""The chain of a connector's transforms: their settings and their pipeline steps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from drover.config.class_registry import VERSION_KEY, ClassRegistry, VersionUnavailableError
from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import Check
from drover.transform.registry import PREDICATES, TRANSFORMS
from drover.transform.step import TransformStep
from drover.transform.transform import Predicate, SettingError, Transform

TRANSFORMS_KEY, PREDICATES_KEY = "transforms", "predicates"
_TYPE, _PREDICATE, _NEGATE, _VERSION = "type", "predicate", "negate", VERSION_KEY.name
_OF_ALL = frozenset({_TYPE, _PREDICATE, _NEGATE, _VERSION})
_Plugin = type[Transform] | type[Predicate]


def chain_config_def(raw: Mapping[str, str | None]) -> ConfigDef:
    """The settings of the transforms and predicates in a config.

    The definition is built for this config, so validation reports each fault at its setting.
    """
    definition = ConfigDef(
        _names_key(TRANSFORMS_KEY, "Transforms, in the order in which they are applied."),
        _names_key(PREDICATES_KEY, "Predicates, which select the records of transforms."),
    )
    predicates = _names(raw, PREDICATES_KEY)
    for name in _names(raw, TRANSFORMS_KEY):
        prefix = f"{TRANSFORMS_KEY}.{name}."
        conditions = ConfigDef(
            ConfigKey(
                prefix + _PREDICATE,
                ConfigType.STRING,
                default=None,
                validator=Check(lambda given: _predicate_fault(given, predicates)),
                documentation="The predicate of the records it applies to; default: all.",
                group=f"Transforms: {name}",
            ),
            ConfigKey(
                prefix + _NEGATE,
                ConfigType.BOOLEAN,
                default=False,
                validator=_always(_negate_fault(raw, prefix)),
                documentation="Whether it applies to all other records instead.",
                group=f"Transforms: {name}",
            ),
        )
        settings = _plugin_settings(raw, TRANSFORMS, prefix, f"Transforms: {name}")
        definition |= settings | conditions
    for name in predicates:
        prefix = f"{PREDICATES_KEY}.{name}."
        definition |= _plugin_settings(raw, PREDICATES, prefix, f"Predicates: {name}")
    return definition


def build_chain(values: Mapping[str, Any]) -> tuple[TransformStep, ...]:
    """The steps of a config that ``chain_config_def`` parsed without faults."""
    return tuple(_step(values, name) for name in values[TRANSFORMS_KEY])


def _step(values: Mapping[str, Any], name: str) -> TransformStep:
    prefix = f"{TRANSFORMS_KEY}.{name}."
    found = TRANSFORMS.find_named(prefix + _TYPE, values)
    predicate = values[prefix + _PREDICATE]
    return TransformStep(
        name=f"{TRANSFORMS_KEY}.{name} ({found.__name__})",
        transform=found(_own_values(values, prefix, found)),
        predicate=None if predicate is None else _predicate(values, predicate.strip()),
        negate=values[prefix + _NEGATE],
    )


def _predicate(values: Mapping[str, Any], name: str) -> Predicate:
    prefix = f"{PREDICATES_KEY}.{name}."
    found = PREDICATES.find_named(prefix + _TYPE, values)
    return found(_own_values(values, prefix, found))


def _own_values(values: Mapping[str, Any], prefix: str, plugin: _Plugin) -> dict[str, Any]:
    return plugin.own_values(_own(values, prefix))


def _own(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The settings of a plugin without its prefix; settings of all plugins are omitted."""
    own = {
        name.removeprefix(prefix): each
        for name, each in settings.items()
        if name.startswith(prefix)
    }
    return {name: each for name, each in own.items() if name not in _OF_ALL}


def _names_key(name: str, documentation: str) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.LIST,
        default=[],
        validator=Check(_names_fault),
        documentation=documentation,
        group="Transforms",
    )


def _names_fault(names: list[str]) -> str | None:
    if not all(names):
        return "must not have empty items"
    doubled = sorted({name for name in names if names.count(name) > 1})
    return f"must not name {doubled[0]!r} more than once" if doubled else None


def _names(raw: Mapping[str, str | None], key: str) -> list[str]:
    items = (raw.get(key) or "").split(",")
    return list(dict.fromkeys(name for each in items if (name := each.strip())))


def _predicate_fault(given: str, predicates: list[str]) -> str | None:
    if given.strip() in predicates:
        return None
    known = f"it has {', '.join(predicates)}" if predicates else "it is empty"
    return f"must be in the setting predicates, which lacks {given!r}: {known}"


def _negate_fault(raw: Mapping[str, str | None], prefix: str) -> str | None:
    if raw.get(prefix + _NEGATE) is None or raw.get(prefix + _PREDICATE) is not None:
        return None
    return f"needs {prefix}{_PREDICATE}, which is not set"


def _plugin_settings(
    raw: Mapping[str, str | None],
    registry: ClassRegistry[Any],
    prefix: str,
    group: str,
) -> ConfigDef:
    """The setting ``type`` and, if it is valid, the settings of that class."""
    faults: dict[str, str] = {}
    own: list[ConfigKey] = []
    if raw.get(prefix + _TYPE) is not None:
        settings = {name: text for name, text in _own(raw, prefix).items() if text is not None}
        try:
            found: _Plugin = registry.find_named(prefix + _TYPE, raw)
            own = list(found.config_def_for(settings))
            fault = _reserved_fault(own)
            if fault is None:
                faults = dict(_contradictions(settings, found, own))
            else:
                faults, own = {_TYPE: fault}, []
        except VersionUnavailableError as error:
            faults[_VERSION] = str(error)
        except ValueError as error:
            faults[_TYPE] = str(error)
        except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything
            faults[_TYPE] = f"cannot list its settings: {type(error).__name__}: {error}"
    type_key = ConfigKey(_TYPE, ConfigType.CLASS, documentation="Its class.")
    return ConfigDef(
        *(
            replace(_with_fault(key, faults.get(key.name)), name=prefix + key.name, group=group)
            for key in (type_key, *own, VERSION_KEY)
        )
    )


def _reserved_fault(own: Iterable[ConfigKey]) -> str | None:
    taken = [key.name for key in own if key.name in _OF_ALL]
    return f"has a setting called {taken[0]!r}, which every transform has" if taken else None


def _contradictions(
    settings: Mapping[str, str], plugin: _Plugin, own: Iterable[ConfigKey]
) -> Iterator[tuple[str, str]]:
    """Faults of settings that are valid alone but contradict each other."""
    parsed = ConfigDef(*own).parse(settings)
    if parsed.violations:
        return
    try:
        plugin(plugin.own_values(parsed.values))
    except SettingError as error:
        if any(key.name == error.setting for key in own):
            yield error.setting, error.fault
        else:
            yield _TYPE, str(error)
    except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything
        yield _TYPE, f"refuses its settings: {type(error).__name__}: {error}"


def _with_fault(key: ConfigKey, fault: str | None) -> ConfigKey:
    if fault is None:
        return key
    # validators are not called for None
    default = "" if key.default is None else key.default
    return replace(key, default=default, validator=_always(fault))


def _always(fault: str | None) -> Check:
    return Check(lambda _: fault)
