"""Validates configs with the library that is installed beside the command, without a cluster."""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from drover.config.config_def import UNDEFINED_GROUP, ConfigType
from drover.config.near_names import did_you_mean, near_classes
from drover.config.other_products import nearest_connector
from drover.config.plugin_imports import PLUGIN_IMPORTS
from drover.connector import SinkConnector, SourceConnector
from drover.connector.connector import Connector
from drover.connector.settings import CONNECTOR_CLASS, validate_config
from drover.migrate.checks import Finding, Validation

_GROUP = "drover.connectors"


class InstalledConnectors:
    """The connectors of the installed distributions, imported when they are asked for."""

    def __init__(self) -> None:
        self._points = sorted(entry_points(group=_GROUP), key=lambda each: each.name)
        self._by_name: dict[str, type[Connector]] | None = None
        self._broken: dict[str, str] = {}

    def find(self, class_name: str) -> type[Connector] | None:
        """The connector that ``connector.class`` names, by class, short name or alias."""
        if self._by_name is None:
            self._by_name = {}
            for point in self._points:
                for name, found in self._loaded(point):
                    self._by_name.setdefault(name, found)
        return self._by_name.get(class_name.strip())

    def validate(self, config: Mapping[str, str]) -> Validation:
        """The faults and warnings of a config; the systems that it names are not contacted."""
        class_name = config.get(CONNECTOR_CLASS, "").strip()
        found = self.find(class_name)
        if found is None:
            return Validation(missing=self._missing(class_name))
        name = found.__name__
        try:
            values = validate_config(found, config, use_systems=False)
        except Exception as error:  # noqa: BLE001 - code of a connector
            fault = Finding(CONNECTOR_CLASS, f"validate() of {name} raised {type(error).__name__}")
            return Validation(runs_as=name, faults=(fault,))
        return Validation(
            runs_as=name,
            guarantee=str(found.guarantees.kafka) if found.guarantees else "",
            faults=tuple(Finding(each.key.name, text) for each in values for text in each.errors),
            warnings=tuple(
                Finding(each.key.name, text) for each in values for text in each.warnings
            ),
            skipped=tuple(
                Finding(each.key.name, text) for each in values for text in each.skipped_checks
            ),
            secret_settings=frozenset(
                each.key.name for each in values if each.key.type is ConfigType.PASSWORD
            ),
            plain_settings=frozenset(
                each.key.name
                for each in values
                if each.key.type is not ConfigType.PASSWORD and each.key.group != UNDEFINED_GROUP
            ),
        )

    def _loaded(self, point: EntryPoint) -> Iterator[tuple[str, type[Connector]]]:
        try:
            found = PLUGIN_IMPORTS.run(f"{point.name} = {point.value}", point.load)
        except Exception as error:  # noqa: BLE001 - code of a distribution
            self._broken[point.name] = f"{type(error).__name__}: {error}"
            return
        if isinstance(found, type) and issubclass(found, SourceConnector | SinkConnector):
            full_name = f"{found.__module__}.{found.__qualname__}"
            for name in (point.name, found.__name__, full_name, *found.aliases):
                yield name, found

    def _missing(self, class_name: str) -> str:
        if not class_name:
            return "the config has no connector.class"
        known = {each: found.__name__ for each, found in (self._by_name or {}).items()}
        near = did_you_mean([repr(each) for each in near_classes(class_name, known)])
        hint = near or nearest_connector(class_name) or "there is none for its system"
        text = f"no connector {class_name!r} is installed beside this command: {hint}"
        if self._broken:
            text += f" (not importable here: {', '.join(sorted(self._broken))})"
        return text
