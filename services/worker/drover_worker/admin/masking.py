"""Masks the values of secret settings."""

import re
from collections.abc import Collection

from drover.api.engine.v1 import engine_pb2
from drover.config.config_def import UNDEFINED_GROUP
from drover.config.resolution import only_placeholder_of, without_placeholders
from drover.config.url_passwords import has_url_password
from drover.errors import Violation
from drover.model.config import ConfigMap
from drover.model.secrets import MASK, is_mask, sounds_secret
from drover_worker.shell.known_plugins import KnownPlugins

#: Settings that are never secret; if the plugin is unknown, all other settings are masked.
_COMMON_KEYS = frozenset({"name", "connector.class", "tasks.max", "topic", "topics", "file"})
#: Settings for groups of topics, whose names a config defines; none is a secret.
_TOPIC_CREATION = "topic.creation."
_RECORD_MASK = re.compile(r"transforms\..*\.replacement")


class Masking:
    """Masks configs; a plugin declares which of its settings are secret."""

    def __init__(self, plugins: KnownPlugins, providers: Collection[str] = ()) -> None:
        """``providers`` are the worker's config providers; placeholders for them are not masked."""
        self._plugins = plugins
        self._providers = providers

    def masked(
        self, config: ConfigMap, connector_config: ConfigMap, *, show_undefined: bool
    ) -> dict[str, str]:
        """A connector's or task's config with its secrets masked.

        ``show_undefined`` is whether to show settings that no plugin defines, which may be secrets
        under any name. If the plugin is unknown, everything but the common settings is masked.
        """
        plugin = self._plugins.find(connector_config.get("connector.class", ""))
        types = {key.name: key.type for key in plugin.config_keys} if plugin else {}

        def hidden(key: str, value: str) -> bool:
            if only_placeholder_of(value, self._providers):
                return False
            if has_url_password(without_placeholders(value, self._providers)):
                return True  # a plugin's own setting for a URL
            if key in types:
                return types[key] == "PASSWORD"
            secret = self._plugins.is_secret_record_setting(key)
            if secret is not None:
                return secret
            # a password of another class, left in the config when the class was changed
            if sounds_secret(key) or self._plugins.is_password(key):
                return True
            if key in _COMMON_KEYS:
                return False
            defined = key.startswith(_TOPIC_CREATION)
            return plugin is None or not (defined or show_undefined)

        return {key: MASK if hidden(key, value) else value for key, value in config.items()}


def masked_default(key: engine_pb2.ConfigKey) -> str:
    """The default value of a plugin's setting, masked if it is a password."""
    secret = key.type == "PASSWORD" and key.default_value
    return MASK if secret else key.default_value


def masked_value(value: engine_pb2.ConfigValue, *, show_undefined: bool) -> str:
    """A validated value, masked if its setting is secret or, unless ``show_undefined``, not
    defined.
    """
    secret = value.key.type == "PASSWORD" or sounds_secret(value.key.name)
    secret = secret or has_url_password(value.value)
    secret = secret or (value.key.group == UNDEFINED_GROUP and not show_undefined)
    return MASK if secret and value.value else value.value


def kept_values(config: ConfigMap, stored: ConfigMap) -> dict[str, str]:
    """The stored values of the settings whose value in ``config`` is a mask."""
    return {
        key: stored[key]
        for key, value in config.items()
        if key in stored and _is_mask_of(key, value)
    }


def mask_violations(config: ConfigMap) -> list[Violation]:
    """Violations for values that are a mask, copied from a response in place of the secret."""
    return [
        Violation(f'config["{key}"]', "is the mask of a secret: set the secret itself")
        for key, value in config.items()
        if _is_mask_of(key, value)
    ]


def _is_mask_of(key: str, value: str) -> bool:
    """Whether a value is a mask in place of a secret, and not a mask that the transform MaskField
    writes into records.
    """
    if value == MASK:
        return _RECORD_MASK.fullmatch(key) is None
    return sounds_secret(key) and is_mask(value)
