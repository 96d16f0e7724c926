"""Hides secrets: which settings are secret, and what is shown in their place."""

from collections.abc import Collection

from drover.api.engine.v1 import engine_pb2
from drover.config.resolution import only_placeholder_of
from drover.errors import Violation
from drover.model.config import ConfigMap
from drover.model.secrets import MASK, sounds_secret
from drover_worker.shell.known_plugins import KnownPlugins

#: Shown though the plugin that declares the rest is not known here.
_COMMON_KEYS = frozenset({"name", "connector.class", "tasks.max", "topic", "topics", "file"})


class Masking:
    """Masks configs; plugins tell which of their settings are secret."""

    def __init__(self, plugins: KnownPlugins, providers: Collection[str] = ()) -> None:
        """``providers`` are the worker's config providers: what names one is no secret itself."""
        self._plugins = plugins
        self._providers = providers

    def masked(self, config: ConfigMap, connector_config: ConfigMap) -> dict[str, str]:
        """A connector's or task's config without the values of its secrets.

        While the plugin is not known nothing but the common settings is shown.
        """
        plugin = self._plugins.find(connector_config.get("connector.class", ""))
        types = {key.name: key.type for key in plugin.config_keys} if plugin else {}

        def hidden(key: str, value: str) -> bool:
            if only_placeholder_of(value, self._providers):
                return False
            if key in types:
                return types[key] == "PASSWORD"
            if sounds_secret(key):
                return True
            return plugin is None and key not in _COMMON_KEYS

        return {key: MASK if hidden(key, value) else value for key, value in config.items()}


def masked_default(key: engine_pb2.ConfigKey) -> str:
    """The default value of a plugin's setting, masked when it is a password."""
    secret = key.type == "PASSWORD" and key.default_value
    return MASK if secret else key.default_value


def masked_value(value: engine_pb2.ConfigValue) -> str:
    """A validated value, masked when its setting is secret."""
    secret = value.key.type == "PASSWORD" or sounds_secret(value.key.name)
    return MASK if secret and value.value else value.value


def mask_violations(config: ConfigMap) -> list[Violation]:
    """The faults of a config that was copied from an answer: the mask stands for a secret."""
    return [
        Violation(f'config["{key}"]', "is the mask shown in place of a secret: give the secret")
        for key, value in config.items()
        if value == MASK
    ]
