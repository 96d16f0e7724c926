"""Notifies plugins about changes to the committed offsets of their connectors."""

from collections.abc import Mapping, Sequence

from drover.connector.catalogue import PluginRegistry
from drover.connector.offsets import OffsetChange
from drover.connector.settings import parse_config


def alter_offsets(
    registry: PluginRegistry, config: Mapping[str, str], changes: Sequence[OffsetChange]
) -> bool:
    """Whether the plugin reports that no other system needs a change. Runs plugin code.

    Raises:
        PluginNotFoundError: connector.class names a class that is not installed.
        InvalidArgumentError: INVALID_CONFIG.
        Exception: The plugin rejects the change.
    """
    connector_class = registry.find_of(config)
    parsed = parse_config(connector_class, config).require_valid()
    return bool(connector_class.alter_offsets(parsed, changes))
