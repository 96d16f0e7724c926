"""Config providers: the sources of ``${provider:path:key}`` values in configs (KIP-297)."""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

from drover.config.class_registry import ClassRegistry
from drover.config.other_classes import OtherClasses
from drover.config.patterns import Pattern, PatternTimeoutError
from drover.config.properties import parse_properties

#: The entry point group of config providers.
GROUP = "drover.config_providers"
#: The setting with a provider's class; by default the built-in provider with the same name.
CLASS = "class"
#: The setting with the connectors that may use a provider; by default all.
CONNECTORS = "connectors"
ALLOWED_PATHS = "allowed.paths"
ALLOWLIST_PATTERN = "allowlist.pattern"
FILE_MAX_BYTES = 1024 * 1024
#: The prefix of Drover's own variables, some of them passwords; connectors must not read them.
_OWN_PREFIX = "DROVER_"


class ConfigProviderError(Exception):
    """A provider's setup or lookup failed. The message has the cause, but no values."""


@dataclass(frozen=True, slots=True)
class ConfigData:
    """The values that a provider found, by key.

    Attributes:
        values: The values.
        ttl_ms: How long they are valid; None if they do not expire.
    """

    values: Mapping[str, str]
    ttl_ms: int | None = None


class ConfigProvider(ABC):
    """Looks values up, in the engine, whenever a connector or task with a placeholder starts.

    Subclasses are entry points of ``drover.config_providers``. Several threads may call a provider
    at the same time. A lookup is abandoned after the time limit of the call that needs it.
    """

    aliases: ClassVar[Sequence[str]] = ()

    def __init__(self, settings: Mapping[str, str]) -> None:
        """``settings`` are the provider's settings in DROVER_CONFIG_PROVIDERS, without the
        settings that every provider has: ``class`` and ``connectors``.

        Raises:
            ConfigProviderError: A setting is missing, invalid or unknown.
        """
        _only(settings, ())

    @abstractmethod
    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """The values of those ``keys`` that exist at ``path`` (empty for ``${provider:key}``).

        Raises:
            ConfigProviderError: The path is not readable.
        """


class FileConfigProvider(ConfigProvider):
    """``${file:/path/to/file:key}``: a key of a properties file below one of ``allowed.paths``."""

    aliases = ("file", "org.apache.kafka.common.config.provider.FileConfigProvider")

    def __init__(self, settings: Mapping[str, str]) -> None:
        _only(settings, {ALLOWED_PATHS})
        self._allowed = _allowed_paths(settings)

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider``."""
        text = _read(_within(path, self._allowed))
        try:
            found = parse_properties(text)
        except ValueError as error:
            raise ConfigProviderError(f"{path} is not a properties file: {error}") from None
        return ConfigData({key: found[key] for key in keys if key in found})


class DirectoryConfigProvider(ConfigProvider):
    """``${directory:/path/to/directory:file}``: the text of a file, without a trailing newline.

    The directory is in ``allowed.paths`` or below one of them. Orchestrators mount secrets in this
    form.
    """

    aliases = ("directory", "org.apache.kafka.common.config.provider.DirectoryConfigProvider")

    def __init__(self, settings: Mapping[str, str]) -> None:
        _only(settings, {ALLOWED_PATHS})
        self._allowed = _allowed_paths(settings)

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider``."""
        directory = _within(path, self._allowed)
        if not directory.is_dir():
            raise ConfigProviderError(f"{path} is not a directory")
        values = {}
        for key in keys:
            if "/" in key or key in ("", ".", ".."):
                raise ConfigProviderError(f"{key!r} is not a file name")
            file = _within(str(directory / key), self._allowed)
            if file.is_file():
                values[key] = _read(file).removesuffix("\n").removesuffix("\r")
        return ConfigData(values)


class EnvVarConfigProvider(ConfigProvider):
    """``${env:NAME}``: an environment variable of the worker whose whole name matches
    ``allowlist.pattern``; never one of Drover's own.
    """

    aliases = ("env", "org.apache.kafka.common.config.provider.EnvVarConfigProvider")

    def __init__(
        self, settings: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        _only(settings, {ALLOWLIST_PATTERN})
        try:
            self._allowed = Pattern(_required(settings, ALLOWLIST_PATTERN))
        except ValueError as error:
            raise ConfigProviderError(f"{ALLOWLIST_PATTERN} is not a pattern: {error}") from None
        self._environment = os.environ if environment is None else environment

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider``."""
        if path:
            raise ConfigProviderError("variables have no path: use ${env:NAME}")
        for key in keys:
            try:
                is_allowed = self._allowed.matches(key)
            except PatternTimeoutError as error:
                raise ConfigProviderError(f"{ALLOWLIST_PATTERN}: {error}") from None
            if key.upper().startswith(_OWN_PREFIX) or not is_allowed:
                raise ConfigProviderError(f"{key} is not allowed ({ALLOWLIST_PATTERN})")
        return ConfigData({key: self._environment[key] for key in keys if key in self._environment})


def _built_in() -> Sequence[type[ConfigProvider]]:
    return (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)


PROVIDERS_ELSEWHERE = (
    OtherClasses(
        ("KubernetesSecretConfigProvider", "KubernetesConfigMapConfigProvider"),
        "",
        "DirectoryConfigProvider, for a secret that is mounted as a directory",
    ),
    OtherClasses(("EnvironmentVariableConfigProvider",), "", "EnvVarConfigProvider"),
    OtherClasses(
        (
            *("VaultConfigProvider", "vault", "SecretsManagerConfigProvider", "secretsmanager"),
            *("AzureKeyVaultConfigProvider", "SsmParamStoreConfigProvider", "SecretConfigProvider"),
        ),
        "reads a secret store: let its agent write files, for FileConfigProvider",
    ),
)
PROVIDERS: ClassRegistry[ConfigProvider] = ClassRegistry(
    "config provider", GROUP, _built_in, PROVIDERS_ELSEWHERE
)
#: The names of the built-in providers, if a worker's settings do not rename them.
BUILT_IN_NAMES = tuple(each.aliases[0] for each in _built_in())


def make_provider(name: str, settings: Mapping[str, str]) -> ConfigProvider:
    """Create the provider that a worker's settings define as ``name``. Runs plugin code.

    Raises:
        ConfigProviderError: Its class does not exist, or its settings are invalid.
    """
    own = {key: value for key, value in settings.items() if key not in (CLASS, CONNECTORS)}
    try:
        return PROVIDERS.find(settings.get(CLASS, name))(own)
    except ValueError as error:
        raise ConfigProviderError(str(error)) from error


def connector_patterns(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the connectors that may use a provider, with the wildcards * and ?.

    Raises:
        ConfigProviderError: The setting is empty.
    """
    if CONNECTORS not in settings:
        return ("*",)
    return tuple(each.strip() for each in _required(settings, CONNECTORS).split(","))


def may_use(patterns: Sequence[str], connector: str) -> bool:
    """Whether a connector's name matches one of the patterns."""
    return any(fnmatchcase(connector, each) for each in patterns)


def _only(settings: Mapping[str, str], known: Collection[str]) -> None:
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise ConfigProviderError(
            f"{unknown[0]} is not one of its settings ({', '.join(sorted(known)) or 'none'})"
        )


def _required(settings: Mapping[str, str], key: str) -> str:
    value = settings.get(key, "").strip()
    if not value:
        raise ConfigProviderError(f"{key} is required")
    return value


def _allowed_paths(settings: Mapping[str, str]) -> list[Path]:
    paths = [Path(each.strip()) for each in _required(settings, ALLOWED_PATHS).split(",")]
    for path in paths:
        if not path.is_absolute():
            raise ConfigProviderError(f"{ALLOWED_PATHS}: {path} is not absolute")
    return paths


def _within(path: str, allowed: Sequence[Path]) -> Path:
    """The real path, with links resolved, if it is allowed."""
    if not path.startswith("/"):
        raise ConfigProviderError(f"the path {path!r} is not absolute")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(each)) for each in allowed):
        raise ConfigProviderError(f"{path} is not below {ALLOWED_PATHS}")
    return real


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigProviderError(f"{file} cannot be read: {error.strerror}") from error
    if len(raw) > FILE_MAX_BYTES:
        raise ConfigProviderError(f"{file} is larger than {FILE_MAX_BYTES} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigProviderError(f"{file} is not UTF-8") from error
