"""Validates configs and lists plugins for the herder."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from drover.api.engine.v1 import engine_pb2
from drover.config.class_registry import ClassRegistry
from drover.config.config_def import UNDEFINED_GROUP, KeyPlace, places
from drover.config.plugin_errors import PluginProblem, describe_error, shown_error
from drover.config.resolution import Resolution, UnknownProvider, placeholder_providers
from drover.config.secret_texts import SecretTexts
from drover.config.url_passwords import URL_PASSWORD_FAULT
from drover.connector import ConfigDef, ConfigKey, ConfigType, ConfigValue, SourceConnector
from drover.connector.catalogue import (
    SINK,
    InstalledPlugin,
    PluginRegistry,
    class_name,
    connector_type,
)
from drover.connector.connector import Connector, Guarantee
from drover.connector.exactly_once_settings import EXACTLY_ONCE_SUPPORT, REQUIRED
from drover.connector.record_settings import CONVERTER_SETTINGS
from drover.connector.settings import CONNECTOR_CLASS, full_config_def, validate_config
from drover.convert.registry import CONVERTERS
from drover.dataplane.plane import TopicChecks, reserved_fault
from drover.errors import Caution, DroverError, SkippedCheck, Violation
from drover.java_plugins.values import JavaClass, Kind
from drover.log.storage import CLEANUP_POLICY, COMPACT
from drover.model.config import OFFSETS_TOPIC_SETTING
from drover.policy.consumer_groups import sink_group_violations
from drover.transform.registry import PREDICATES, TRANSFORMS
from drover_worker.engine.plugins.planned_use import planned_use
from drover_worker.engine.plugins.threads import cap_text
from drover_worker.engine.plugins.topic_setting_checks import check_topic_settings

_TEXT_MAX_BYTES = 16 * 1024
#: Settings whose values are parts of other settings' names.
_NAMING = ("transforms", "predicates", "topic.creation.groups")
_WARNED_SETTINGS_MAX = 100
_SYSTEMS_SKIPPED = (
    "the systems that the config names were not contacted: this needs the role ADMIN for the "
    "connector"
)
TOPICS_SKIPPED = (
    "the brokers were not asked whether they accept the connector's topics: this needs the role "
    "ADMIN for the connector"
)
_RESOLVED_FAULT = (
    "the value from the config provider is not valid here: the fault is not shown, because it may "
    "reveal the value"
)

_RESOLVED_CHECK = (
    "the system that the config names cannot be checked at the moment: the reason is not shown, "
    "because it may reveal the value from the config provider"
)


class _CommonSettings(SourceConnector):
    """The settings of a connector whose class is missing: only the common ones."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        raise NotImplementedError


def encode_plugins(
    plugins: Sequence[InstalledPlugin],
    problems: Sequence[PluginProblem],
    *,
    not_exactly_once: str = "",
    java_classes: Iterable[JavaClass] = (),
) -> engine_pb2.PluginList:
    """The answer to ListPlugins; a plugin whose config_def() fails becomes a problem.

    ``not_exactly_once`` is as in ``validate``; it lowers the guarantee of sources on Kafka.
    """
    answer = engine_pb2.PluginList(
        java_classes=(
            engine_pb2.JavaClass(
                kind=_JAVA_KINDS.get(each.kind, each.kind.value),
                class_name=_clean(each.name),
                version=_clean(each.version),
                plugin=_clean(each.plugin),
            )
            for each in java_classes
        )
    )
    found = list(problems)
    for plugin in plugins:
        try:
            answer.plugins.append(_encode_plugin(plugin, not_exactly_once))
        except Exception as error:  # noqa: BLE001 - plugin code; it is listed with its fault
            name = class_name(plugin.connector_class)
            found.append(
                PluginProblem(
                    name,
                    f"config_def() failed: {describe_error(error)}",
                    shown=f"config_def() failed: {shown_error(error)}",
                )
            )
    answer.record_settings.extend(_record_settings())
    answer.record_plugins.extend(_record_plugins())
    # after the listing, which imports them
    found += [problem for _, registry in _REGISTRIES for problem in registry.problems()]
    for problem in found:
        answer.problems.add(
            entry_point=_clean(problem.entry_point),
            message=_clean(problem.message),
            package=_clean(problem.package),
            shown=_clean(problem.shown),
        )
    return answer


_JAVA_KINDS = {Kind.TRANSFORM: "transforms", Kind.PREDICATE: "predicates"}
_REGISTRIES: Sequence[tuple[str, ClassRegistry[Any]]] = (
    ("converter", CONVERTERS),
    ("transforms", TRANSFORMS),
    ("predicates", PREDICATES),
)


def _record_plugins() -> Iterable[engine_pb2.RecordPlugin]:
    """The converters, transforms and predicates that can be imported."""
    for kind, registry in _REGISTRIES:
        for each in registry:
            yield engine_pb2.RecordPlugin(
                kind=kind,
                class_name=_clean(class_name(each)),
                aliases=[_clean(name) for name in dict.fromkeys((each.__name__, *each.aliases))],
                version=_clean(str(each.version)),
                config_keys=_record_keys(each),
            )


def _record_keys(plugin: type[Any]) -> list[engine_pb2.ConfigKey]:
    """The settings of a converter, transform or predicate; none if its config_def() fails."""
    with suppress(Exception):
        return _encode_keys(plugin.config_def())
    return []


def _record_settings() -> Iterable[engine_pb2.RecordSetting]:
    """The settings of converters, transforms and predicates; a failing config_def() is skipped."""
    for kind, registry in _REGISTRIES:
        for each in registry:
            with suppress(Exception):
                for key in each.config_def():
                    secret = key.type is ConfigType.PASSWORD
                    yield engine_pb2.RecordSetting(kind=kind, name=_clean(key.name), secret=secret)


def validate(
    registry: PluginRegistry,
    resolution: Resolution,
    *,
    not_exactly_once: str = "",
    use_systems: bool = True,
    on_kafka: bool = False,
    open_plane: Callable[[], TopicChecks] | None = None,
) -> engine_pb2.ConfigValidation:
    """Every setting of a config with its value as written and all of its faults.

    Runs plugin code.

    Args:
        registry: The installed connectors.
        resolution: The config.
        not_exactly_once: The reason why sources deliver at least once; empty for exactly once.
        use_systems: Check the settings with the systems that they name.
        on_kafka: Whether the cluster's storage is Kafka.
        open_plane: Opens the data plane, to check topics that settings name; None skips these
            checks.

    Raises:
        PluginNotFoundError: connector.class names a class that is not installed.
    """
    answer = _validated(registry, resolution.config, use_systems=use_systems)
    if on_kafka and answer.connector_type == SINK:
        _add(answer, sink_group_violations(resolution.config))
    if open_plane is not None and resolution.config.get(CONNECTOR_CLASS, "").strip():
        connector_class = registry.find_of(resolution.config)
        _add(answer, _storage_faults(connector_class, resolution.config, open_plane))
    for value in answer.values:
        if not_exactly_once and value.key.name == EXACTLY_ONCE_SUPPORT and value.value == REQUIRED:
            value.errors.append(f"cannot be {REQUIRED}: {not_exactly_once}")
        if value.key.name == OFFSETS_TOPIC_SETTING and value.value and not value.errors:
            value.errors.extend(_offsets_topic_faults(value.value, not_exactly_once, open_plane))
    check_topic_settings(answer, resolution.config, open_plane)
    return _as_written(answer, resolution)


def _storage_faults(
    connector_class: type[Connector],
    config: Mapping[str, str],
    open_plane: Callable[[], TopicChecks],
) -> list[Violation]:
    """What the storage would reject of the topics that a connector uses."""
    try:
        planned = planned_use(connector_class, config)
    except Exception:  # noqa: BLE001 - plugin code; its fault is reported with the settings
        return []
    if planned is None:
        return []
    use, faults = planned
    try:
        plane = open_plane()
        reserved = plane.reserved_topics()
        for each in use.topics:
            if each.name in reserved:
                text = f"must not be {each.name}, an internal topic of the cluster"
                faults.append(Violation(each.setting, f"{text}: name another topic"))
        allowed = [each for each in use.topics if each.name not in reserved]
        faults += plane.use_faults(replace(use, topics=allowed))
    except DroverError as error:
        text = f"the topics of the connector were not checked: {error.message}"
        faults.append(SkippedCheck(CONNECTOR_CLASS, text))
    return faults


def _add(answer: engine_pb2.ConfigValidation, faults: Iterable[Violation]) -> None:
    """Add faults to the settings that they name, or to the class where there is no such setting."""
    values = {each.key.name: each for each in answer.values}
    for fault in faults:
        if isinstance(fault, SkippedCheck):
            answer.skipped_checks.add(setting=_clean(fault.field), reason=_clean(fault.description))
            continue
        value = values.get(fault.field, values[CONNECTOR_CLASS])
        text = _clean(fault.description)
        if value.key.name != fault.field:
            text = f"{_clean(fault.field)} {text}"
        known = value.warnings if isinstance(fault, Caution) else value.errors
        if text not in known:
            known.append(text)


def uses_systems(connector_class: type[Connector]) -> bool:
    """Whether a connector has checks of systems."""
    found: Any = connector_class.check_systems
    default: Any = Connector.check_systems
    return found.__func__ is not default.__func__


def skip_unresolved(answer: engine_pb2.ConfigValidation, providers: Set[str]) -> None:
    """Replace the faults of values with unresolved placeholders by skipped checks."""
    for value in answer.values:
        if value.value and placeholder_providers(value.value) & providers:
            del value.errors[:]
            answer.skipped_checks.add(
                setting=value.key.name,
                reason="its placeholder is resolved only for callers who may change the connector",
            )


def _offsets_topic_faults(
    topic: str, not_exactly_once: str, open_plane: Callable[[], TopicChecks] | None
) -> list[str]:
    """Why the source's offsets cannot be committed to that topic."""
    if not_exactly_once:
        return [f"needs records and offsets in one transaction: {not_exactly_once}"]
    if open_plane is None:
        return []
    policy = None
    with suppress(DroverError):  # the task's start reports it
        plane = open_plane()
        fault = reserved_fault(plane, topic)
        if fault:
            return [f"{fault}: name another topic"]
        if plane.partition_counts([topic]):
            policy = plane.topic_settings(topic).get(CLEANUP_POLICY)
    if policy is None or policy == COMPACT:
        return []
    return [
        f"names the topic {topic} with {CLEANUP_POLICY}={policy}, which loses offsets: set it to "
        f"{COMPACT} (kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
        f"--add-config {CLEANUP_POLICY}={COMPACT}), or name another topic"
    ]


def _as_written(
    answer: engine_pb2.ConfigValidation, resolution: Resolution
) -> engine_pb2.ConfigValidation:
    """Put placeholders back, and drop texts about resolved values, which may contain them in any
    form; a value with an unresolved placeholder keeps only that fault.
    """
    faults = {each.field: each for each in resolution.faults}
    secrets = SecretTexts()
    secrets.add(resolution.secrets)
    for value in answer.values:
        name = value.key.name
        if value.HasField("value") and value.value != resolution.raw.get(name):
            value.value = secrets.hidden(value.value)
        if resolution.raw.get(name) != resolution.config.get(name):
            value.value = resolution.raw[name]
            value.warnings[:] = []
            value.recommended_values[:] = []
            if value.errors:
                shown = [each for each in value.errors if each.startswith(URL_PASSWORD_FAULT)]
                value.errors[:] = shown or [_RESOLVED_FAULT]
        fault = faults.pop(f'config["{name}"]', None)
        if isinstance(fault, UnknownProvider) and value.key.group == UNDEFINED_GROUP:
            value.warnings.append(fault.description)
        elif fault is not None:
            value.errors[:] = [fault.description]
    for check in answer.skipped_checks:
        if resolution.raw.get(check.setting) != resolution.config.get(check.setting):
            check.reason = _RESOLVED_CHECK
    if any(resolution.raw.get(each) != resolution.config.get(each) for each in _NAMING):
        for value in answer.values:
            key = value.key
            key.name, key.group = secrets.hidden(key.name), secrets.hidden(key.group)
            key.display_name = secrets.hidden(key.display_name)
            key.dependents[:] = [secrets.hidden(each) for each in key.dependents]
        for check in answer.skipped_checks:
            check.setting = secrets.hidden(check.setting)
    return answer


def _validated(
    registry: PluginRegistry, config: Mapping[str, str], *, use_systems: bool
) -> engine_pb2.ConfigValidation:
    """Every setting of a config with all of its faults.

    Raises:
        PluginNotFoundError: connector.class names a class that is not installed.
    """
    wanted = config.get(CONNECTOR_CLASS, "")
    if not wanted.strip():
        values = _replace_missing_class(_common_values(config))
        return engine_pb2.ConfigValidation(values=_encode_values(values))
    connector_class = registry.find_of(config)
    values = _limit_warnings(_validate_with(connector_class, config, use_systems=use_systems))
    answer = engine_pb2.ConfigValidation(
        values=_encode_values(values),
        connector_type=connector_type(connector_class),
        components=_components(connector_class, config),
    )
    for value in values:
        for reason in value.skipped_checks:
            answer.skipped_checks.add(setting=_clean(value.key.name), reason=_clean(reason))
    if not use_systems and uses_systems(connector_class):
        answer.skipped_checks.add(reason=_SYSTEMS_SKIPPED)
    return answer


def _components(connector_class: type[Connector], config: Mapping[str, str]) -> list[str]:
    """The classes that a config names, with their versions; missing classes are skipped."""
    found: list[tuple[str, type[Any]]] = [(CONNECTOR_CLASS, connector_class)]
    registries: list[tuple[ClassRegistry[Any], str]] = [
        *((CONVERTERS, setting) for setting in CONVERTER_SETTINGS),
        *((TRANSFORMS, f"transforms.{name}.type") for name in _names(config, "transforms")),
        *((PREDICATES, f"predicates.{name}.type") for name in _names(config, "predicates")),
    ]
    for registry, setting in registries:
        with suppress(ValueError):
            if config.get(setting):
                version = config.get(f"{setting.removesuffix('.type')}.plugin.version", "")
                found.append((setting, registry.find(config[setting], version)))
    return [
        f"{_clean(setting)} {_clean(class_name(each))} {_clean(str(each.version))}"
        for setting, each in found
    ]


def _names(config: Mapping[str, str], setting: str) -> list[str]:
    return [name for each in config.get(setting, "").split(",") if (name := each.strip())]


def _validate_with(
    connector_class: type[Connector], config: Mapping[str, str], *, use_systems: bool
) -> Sequence[ConfigValue]:
    """As ``validate_config``; an exception of the plugin becomes a fault of connector.class."""
    attempts: list[tuple[str, Callable[[], Sequence[ConfigValue]]]] = [
        (
            "validate",
            lambda: validate_config(connector_class, config, use_systems=use_systems),
        ),
        ("config_def", lambda: full_config_def(connector_class, config).validate(config)),
    ]
    faults: list[str] = []
    for function, attempt in attempts:
        try:
            return _with_faults(attempt(), faults)
        except Exception as error:  # noqa: BLE001 - plugin code; try the next function
            name = class_name(connector_class)
            faults = [f"{function}() of {name} raised {describe_error(error)}"]
    return _with_faults(_common_values(config), faults)


def _common_values(config: Mapping[str, str]) -> Sequence[ConfigValue]:
    """The common settings without warnings: unknown settings depend on the missing class."""
    return [replace(each, warnings=()) for each in validate_config(_CommonSettings, config)]


def _limit_warnings(values: Sequence[ConfigValue]) -> Sequence[ConfigValue]:
    """Keep the first warnings only: a config may have a huge number of unknown settings."""
    warned = islice((each.key.name for each in values if each.warnings), _WARNED_SETTINGS_MAX)
    kept = set(warned)
    return [each if each.key.name in kept else replace(each, warnings=()) for each in values]


def _with_faults(values: Sequence[ConfigValue], faults: Sequence[str]) -> Sequence[ConfigValue]:
    if not faults:
        return values
    return [
        replace(each, errors=(*each.errors, *faults)) if each.key.name == CONNECTOR_CLASS else each
        for each in values
    ]


def _replace_missing_class(values: Sequence[ConfigValue]) -> Sequence[ConfigValue]:
    """Treat a blank class like a missing one: the only fault is that it is required."""
    return [
        ConfigValue(each.key, None, ("is required",)) if each.key.name == CONNECTOR_CLASS else each
        for each in values
    ]


def description_of(connector_class: type) -> str:
    """The first paragraph of the class's docstring, without the marks of its markup."""
    paragraph = (connector_class.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "")


def _encode_plugin(plugin: InstalledPlugin, not_exactly_once: str) -> engine_pb2.Plugin:
    connector_class = plugin.connector_class
    guarantees = connector_class.guarantees
    on_kafka = guarantees.kafka if guarantees else None
    if not_exactly_once and issubclass(connector_class, SourceConnector):
        on_kafka = on_kafka and Guarantee.AT_LEAST_ONCE
    return engine_pb2.Plugin(
        class_name=class_name(connector_class),
        aliases=[_clean(alias) for alias in plugin.aliases],
        type=connector_type(connector_class),
        version=_clean(str(connector_class.version)),
        description=_clean(description_of(connector_class)),
        config_keys=_plugin_keys(connector_class),
        guarantee_embedded=guarantees.embedded if guarantees else "",
        guarantee_kafka=on_kafka or "",
    )


def _plugin_keys(connector_class: type[Connector]) -> list[engine_pb2.ConfigKey]:
    own = {key.name for key in connector_class.config_def()}
    keys = _encode_keys(full_config_def(connector_class))
    for key in keys:
        key.common = key.name not in own
    return keys


def _encode_keys(keys: Iterable[ConfigKey]) -> list[engine_pb2.ConfigKey]:
    listed = list(keys)
    return [_encode_key(*each) for each in zip(listed, places(listed), strict=True)]


def _encode_key(key: ConfigKey, place: KeyPlace) -> engine_pb2.ConfigKey:
    secret = key.type is ConfigType.PASSWORD
    default = None if secret or key.default_text is None else _clean(key.default_text)
    return engine_pb2.ConfigKey(
        name=_clean(key.name),
        type=str(key.type),
        required=key.required,
        default_value=default,
        importance=str(key.importance),
        documentation=_clean(key.documentation),
        group=_clean(key.group),
        valid_values=[_clean(value) for value in key.valid_values],
        width=str(key.width),
        display_name=_clean(key.display_name or key.name),
        order=place.order,
        dependents=[_clean(name) for name in place.dependents],
    )


def _encode_values(values: Sequence[ConfigValue]) -> list[engine_pb2.ConfigValue]:
    keys = _encode_keys(value.key for value in values)
    return [_encode_value(*each) for each in zip(values, keys, strict=True)]


def _encode_value(value: ConfigValue, key: engine_pb2.ConfigKey) -> engine_pb2.ConfigValue:
    shown = value.shown_text
    return engine_pb2.ConfigValue(
        key=key,
        value=None if shown is None else _clean(shown),
        errors=[_clean(error) for error in value.errors],
        warnings=[_clean(warning) for warning in value.warnings],
        recommended_values=[_clean(each) for each in value.recommended_values],
        visible=value.visible,
    )


def _clean(text: str) -> str:
    """Plugin text that fits in any message: valid UTF-8 of limited length."""
    return cap_text(text, _TEXT_MAX_BYTES)
