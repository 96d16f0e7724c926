"""What this worker knows of connector classes, for showing connectors: their type, what to mask."""

from collections.abc import Iterable, Sequence

from drover.api.engine.v1 import engine_pb2 as pb

#: The group in which the engine lists settings that the class does not define.
_UNDEFINED_GROUP = "Unknown"


class KnownPlugins:
    """The installed plugins, and classes that no entry point names but a config was checked with.

    It outlives the engine that told: while there is none, this is still what to show.
    """

    def __init__(self) -> None:
        self._installed: dict[str, pb.Plugin] = {}
        self._validated: dict[str, pb.Plugin] = {}
        self._asked: set[str] = set()
        #: Whether the present engine has been asked what is installed.
        self.listed = False
        #: When the present engine began, in milliseconds since 1970; 0 while there is none.
        self.loaded_ms = 0

    def find(self, name: str) -> pb.Plugin | None:
        """The plugin that a config calls ``name``: its class name or an alias."""
        return self._installed.get(name) or self._validated.get(name)

    def installed(self) -> list[pb.Plugin]:
        """The installed plugins by class name."""
        by_class = {plugin.class_name: plugin for plugin in self._installed.values()}
        return [plugin for _, plugin in sorted(by_class.items())]

    def set_installed(self, plugins: Iterable[pb.Plugin]) -> None:
        """The engine listed its plugins."""
        self._installed = {
            name: plugin for plugin in plugins for name in (plugin.class_name, *plugin.aliases)
        }
        self.listed = True

    def learn(self, name: str, validation: pb.ConfigValidation) -> None:
        """The engine checked a config of the class ``name``."""
        if not validation.connector_type:
            return
        keys = [value.key for value in validation.values if value.key.group != _UNDEFINED_GROUP]
        self._validated[name] = pb.Plugin(
            class_name=name, type=validation.connector_type, config_keys=keys
        )

    def note_asked(self, name: str) -> None:
        """The present engine is asked about the class ``name``: once, whatever becomes of it."""
        self._asked.add(name)

    def unasked(self, names: Iterable[str]) -> Sequence[str]:
        """Those of ``names`` that are unknown, and that the present engine was not asked about."""
        return sorted({n for n in names if n and self.find(n) is None} - self._asked)

    def engine_ended(self) -> None:
        """The next engine may have other plugins."""
        self.listed = False
        self._asked.clear()
