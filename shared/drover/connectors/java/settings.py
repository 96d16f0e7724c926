"""The settings that Drover adds to a Java plugin's own settings."""

from drover.connector import ConfigDef, ConfigKey, ConfigType, OneOf
from drover.connector.settings import CONFIG_TEXTS

ISOLATION = "java.isolation"
OF_PLUGIN, OF_TASK = "plugin", "task"
PLUGIN_VERSION = "connector.plugin.version"

JAVA_SETTINGS = ConfigDef(
    ConfigKey(
        ISOLATION,
        ConfigType.STRING,
        default=OF_PLUGIN,
        group="Java",
        documentation="Which tasks share a JVM: all tasks of the plugin on a worker (plugin), or "
        "none (task), so that a task which uses up its memory ends no other.",
        validator=OneOf(OF_PLUGIN, OF_TASK),
    ),
    ConfigKey(
        PLUGIN_VERSION,
        ConfigType.STRING,
        default=None,
        group="Java",
        documentation="The version of the plugin, where several are installed: one version, or a "
        "range as in [1.0,2.0) (KIP-891). By default the latest one.",
    ),
)

__all__ = ["CONFIG_TEXTS", "ISOLATION", "JAVA_SETTINGS", "OF_PLUGIN", "OF_TASK", "PLUGIN_VERSION"]
