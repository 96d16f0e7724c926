"""Connector classes known to this worker: their type, and the settings to mask."""

from collections.abc import Iterable, Sequence

from drover.api.engine.v1 import engine_pb2 as pb
from drover.config.config_def import UNDEFINED_GROUP

#: What Drover itself defines for each transform and predicate.
_STEP_SETTINGS = frozenset(
    {
        *(("transforms", each) for each in ("type", "predicate", "negate", "plugin.version")),
        *(("predicates", each) for each in ("type", "plugin.version")),
        ("converter", "plugin.version"),
    }
)


class KnownPlugins:
    """The installed plugins, and classes without an entry point whose configs were validated.

    Kept when the engine ends, so that connectors can be shown without one.
    """

    def __init__(self) -> None:
        self._installed: dict[str, pb.Plugin] = {}
        self._validated: dict[str, pb.Plugin] = {}
        self._asked: set[str] = set()
        self._record_settings: dict[tuple[str, str], bool] = {}
        self._passwords: set[str] = set()
        #: Converters, transforms and predicates.
        self.record_plugins: Sequence[pb.RecordPlugin] = ()
        #: The Java classes that configs may name, each version once.
        self.java_classes: Sequence[pb.JavaClass] = ()
        #: What the current engine could not load.
        self.problems: Sequence[pb.PluginProblem] = ()
        #: Whether the current engine has listed its plugins.
        self.listed = False
        #: When the current engine started, in milliseconds since 1970; 0 without an engine.
        self.loaded_ms = 0

    def find(self, name: str) -> pb.Plugin | None:
        """The plugin with this class name or alias."""
        return self._installed.get(name) or self._validated.get(name)

    def version_of(self, name: str) -> str:
        """The version of the plugin with this class name or alias; empty if unknown."""
        plugin = self.find(name)
        return plugin.version if plugin else ""

    def find_record_plugin(self, name: str, kind: str = "") -> pb.RecordPlugin | None:
        """The converter, transform or predicate with this class name or alias; of any kind by
        default.
        """
        for each in self.record_plugins:
            if kind in ("", each.kind) and name in (each.class_name, *each.aliases):
                return each
        return None

    def full_name(self, kind: str, name: str) -> str:
        """The full name of a class that a config names; ``name`` if it is not known.

        ``kind`` is that of RecordPlugin, or empty for a connector.
        """
        name = name.strip().replace(":", ".")
        found = self.find_record_plugin(name, kind) if kind else self.find(name)
        return found.class_name if found is not None else name

    def names(self) -> dict[str, str]:
        """For each class name and alias of the plugins, the shortest name of the class."""
        known: list[pb.Plugin | pb.RecordPlugin] = [*self._installed.values(), *self.record_plugins]
        return {
            name: min((each.class_name, *each.aliases), key=len)
            for each in known
            for name in (each.class_name, *each.aliases)
        }

    def installed(self) -> list[pb.Plugin]:
        """The installed plugins, sorted by class name."""
        by_class = {plugin.class_name: plugin for plugin in self._installed.values()}
        return [plugin for _, plugin in sorted(by_class.items())]

    def set_installed(
        self,
        plugins: Iterable[pb.Plugin],
        record_settings: Iterable[pb.RecordSetting] = (),
        record_plugins: Iterable[pb.RecordPlugin] = (),
        problems: Iterable[pb.PluginProblem] = (),
        java_classes: Iterable[pb.JavaClass] = (),
    ) -> None:
        """Store the engine's plugin list, and converters and transforms with their settings."""
        self.record_plugins = tuple(record_plugins)
        self.problems = tuple(problems)
        self.java_classes = tuple(java_classes)
        self._installed = {
            name: plugin for plugin in plugins for name in (plugin.class_name, *plugin.aliases)
        }
        for plugin in self._installed.values():
            self._note_passwords(plugin)
        self._record_settings = {}
        for each in record_settings:
            place = (each.kind, each.name)
            self._record_settings[place] = each.secret or self._record_settings.get(place, False)
        self.listed = True

    def is_secret_record_setting(self, name: str) -> bool | None:
        """Whether a connector's setting is a secret of a converter, transform or predicate; None if
        none of them defines it.

        If several define a setting with this name, it is a secret if it is one of any of them.
        """
        kind, _, rest = name.partition(".")
        if kind in ("key", "value", "header"):
            kind, _, rest = rest.partition(".")
        else:
            rest = rest.partition(".")[2]
        if (kind, rest) in _STEP_SETTINGS:
            return False
        return self._record_settings.get((kind, rest))

    def is_password(self, name: str) -> bool:
        """Whether any known plugin declares a setting with this name as a password."""
        return name in self._passwords

    def learn(self, name: str, validation: pb.ConfigValidation) -> None:
        """Store the plugin of class ``name`` from a validation of its config."""
        if not validation.connector_type:
            return
        keys = [value.key for value in validation.values if value.key.group != UNDEFINED_GROUP]
        self._validated[name] = pb.Plugin(
            class_name=name, type=validation.connector_type, config_keys=keys
        )
        self._note_passwords(self._validated[name])

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

    def _note_passwords(self, plugin: pb.Plugin) -> None:
        self._passwords.update(each.name for each in plugin.config_keys if each.type == "PASSWORD")
