"""Connector classes known to this worker: their type, and the settings to mask."""

from collections.abc import Iterable, Sequence

from drover.api.engine.v1 import engine_pb2 as pb

#: The group for settings that the class does not define.
_UNDEFINED_GROUP = "Unknown"


class KnownPlugins:
    """The installed plugins, and classes without an entry point whose configs were validated.

    Kept when the engine ends, so that connectors can be shown without one.
    """

    def __init__(self) -> None:
        self._installed: dict[str, pb.Plugin] = {}
        self._validated: dict[str, pb.Plugin] = {}
        self._asked: set[str] = set()
        #: Whether the current engine has listed its plugins.
        self.listed = False
        #: When the current engine started, in milliseconds since 1970; 0 without an engine.
        self.loaded_ms = 0

    def find(self, name: str) -> pb.Plugin | None:
        """The plugin with this class name or alias."""
        return self._installed.get(name) or self._validated.get(name)

    def installed(self) -> list[pb.Plugin]:
        """The installed plugins, sorted by class name."""
        by_class = {plugin.class_name: plugin for plugin in self._installed.values()}
        return [plugin for _, plugin in sorted(by_class.items())]

    def set_installed(self, plugins: Iterable[pb.Plugin]) -> None:
        """Store the engine's plugin list."""
        self._installed = {
            name: plugin for plugin in plugins for name in (plugin.class_name, *plugin.aliases)
        }
        self.listed = True

    def learn(self, name: str, validation: pb.ConfigValidation) -> None:
        """Store the plugin of class ``name`` from a validation of its config."""
        if not validation.connector_type:
            return
        keys = [value.key for value in validation.values if value.key.group != _UNDEFINED_GROUP]
        self._validated[name] = pb.Plugin(
            class_name=name, type=validation.connector_type, config_keys=keys
        )

    def note_asked(self, name: str) -> None:
        """Record that the current engine was asked about ``name``: it is asked only once."""
        self._asked.add(name)

    def unasked(self, names: Iterable[str]) -> Sequence[str]:
        """The unknown classes in ``names`` that the current engine was not asked about."""
        return sorted({n for n in names if n and self.find(n) is None} - self._asked)

    def engine_ended(self) -> None:
        """Forget what only holds for the engine that ended: the next one may have other plugins."""
        self.listed = False
        self._asked.clear()
