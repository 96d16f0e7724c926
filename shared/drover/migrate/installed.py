"""Validates configs with the library that is installed beside the command, without a cluster."""

from collections.abc import Mapping

from drover.config.config_def import UNDEFINED_GROUP, ConfigType
from drover.config.resolution import placeholder_providers
from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover.connector.connector import Connector
from drover.connector.settings import CONNECTOR_CLASS, validate_config
from drover.connector.sink import SinkConnector
from drover.migrate.checks import Finding, Validation
from drover.policy.consumer_groups import sink_group_violations


class InstalledConnectors:
    """The connectors of the installed distributions, imported when they are asked for."""

    def __init__(self) -> None:
        self._plugins = PluginRegistry(place="beside this command")

    def find(self, class_name: str) -> type[Connector] | None:
        """The connector that ``connector.class`` names; None if none or several have that name."""
        try:
            return self._plugins.find(class_name)
        except PluginNotFoundError:
            return None

    def validate(self, config: Mapping[str, str]) -> Validation:
        """The faults and warnings of a config for a cluster on Kafka; the systems that it names are
        not contacted.
        """
        class_name = config.get(CONNECTOR_CLASS, "").strip()
        if not class_name:
            return Validation(missing=f"the config has no {CONNECTOR_CLASS}")
        try:
            found = self._plugins.find(class_name)
        except PluginNotFoundError as error:
            return Validation(missing=str(error))
        name = found.__name__
        try:
            values = validate_config(found, config, use_systems=False)
        except Exception as error:  # noqa: BLE001 - code of a connector
            text = f"validate() of {name} raised {type(error).__name__}"
            return Validation(runs_as=name, faults=(Finding(CONNECTOR_CLASS, text),))
        group_faults = sink_group_violations(config) if issubclass(found, SinkConnector) else []
        unresolved = {name for name, text in config.items() if placeholder_providers(text)}
        return Validation(
            runs_as=name,
            guarantee=str(found.guarantees.kafka) if found.guarantees else "",
            faults=(
                *(
                    Finding(each.key.name, text)
                    for each in values
                    if each.key.name not in unresolved
                    for text in each.errors
                ),
                *(Finding(each.field, each.description) for each in group_faults),
            ),
            warnings=tuple(
                Finding(each.key.name, text) for each in values for text in each.warnings
            ),
            skipped=(
                *(Finding(each.key.name, text) for each in values for text in each.skipped_checks),
                *(
                    Finding(each.key.name, "its placeholder is resolved only on workers")
                    for each in values
                    if each.key.name in unresolved and each.errors
                ),
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
