"""Placeholders in configs: ``${provider:key}`` and ``${provider:path:key}``.

Raw texts stay in the config log; only the engine that runs a connector or task resolves them.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from drover.config.providers import (
    BUILT_IN_NAMES,
    ConfigProvider,
    ConfigProviderError,
    make_provider,
)
from drover.errors import InvalidArgumentError, Reason, Violation

#: As in Kafka: provider, path (perhaps none) and key; the path ends at the last colon.
_PLACEHOLDER = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
#: What workers read in a config without its plugin, beside all of restart.policy.
_READ_RAW = ("name", "connector.class", "tasks.max", "consumer.override.group.id")
_RESTART = "restart."
#: Shorter values stand in many texts by chance.
_TELLING_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Resolution:
    """A config with its placeholders resolved.

    Attributes:
        config: The values; the raw text where there is a fault.
        raw: The config as it was written.
        faults: Why placeholders could not be resolved.
        secrets: Values that providers gave, with the placeholders they stand for.
        ttl_ms: How long the values hold; None for as long as wanted.
    """

    config: Mapping[str, str]
    raw: Mapping[str, str]
    faults: tuple[Violation, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    ttl_ms: int | None = None

    def require_whole(self) -> "Resolution":
        """This, when everything was resolved.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every fault.
        """
        if self.faults:
            raise InvalidArgumentError.listing(self.faults, reason=Reason.INVALID_CONFIG)
        return self

    def unresolved(self, config: Mapping[str, str]) -> dict[str, str]:
        """A config that was made of the resolved one, with placeholders in place of values."""
        restored = {}
        for key, value in config.items():
            if key in self.raw and value == self.config[key]:
                restored[key] = self.raw[key]
            else:
                restored[key] = with_placeholders(value, self.secrets)
        return restored


def with_placeholders(text: str, secrets: Mapping[str, str]) -> str:
    """A text in which values of providers are replaced, the longest first, no very short ones."""
    found = (each for each in secrets if len(each) >= _TELLING_LENGTH and each in text)
    for value in sorted(found, key=len, reverse=True):
        text = text.replace(value, secrets[value])
    return text


def placeholder_providers(text: str) -> set[str]:
    """The providers that a text's placeholders name."""
    return {match[1] for match in _PLACEHOLDER.finditer(text)}


class ConfigResolver:
    """Resolves configs with a worker's providers; each is made when it is first needed.

    A placeholder of a provider that the worker does not have stays as it is, as in Kafka Connect,
    unless it has the name of a built-in one: then somebody expects it to be resolved.

    Args:
        settings: Of each provider, by its name.
        make: Makes a provider.
    """

    def __init__(
        self,
        settings: Mapping[str, Mapping[str, str]],
        make: Callable[[str, Mapping[str, str]], ConfigProvider] = make_provider,
    ) -> None:
        self._settings = settings
        self._make = make
        self._providers: dict[str, ConfigProvider] = {}

    def resolve(self, config: Mapping[str, str]) -> Resolution:
        """Look up what placeholders stand for. Runs plugin code, and may take its time."""
        lookup = _Lookup(self)
        resolved: dict[str, str] = {}
        faults: list[Violation] = []
        for key, raw in config.items():
            try:
                resolved[key] = _PLACEHOLDER.sub(lookup.value, raw) if "${" in raw else raw
                if resolved[key] != raw and (key in _READ_RAW or key.startswith(_RESTART)):
                    raise ConfigProviderError("workers read it themselves: write its value")
            except ConfigProviderError as error:
                resolved[key] = raw
                faults.append(Violation(f'config["{key}"]', str(error)))
        return Resolution(resolved, dict(config), tuple(faults), lookup.secrets, lookup.ttl_ms)

    def known(self, name: str) -> bool:
        """Whether the worker has a provider of that name."""
        return name in self._settings

    def provider(self, name: str) -> ConfigProvider:
        """One of the worker's providers.

        Raises:
            ConfigProviderError: it cannot be set up.
        """
        found = self._providers.get(name)
        if found is None:
            try:
                found = self._make(name, self._settings[name])
            except ConfigProviderError as error:
                text = f"the config provider {name!r} cannot be set up: {error}"
                raise ConfigProviderError(text) from error
            self._providers[name] = found
        return found


class _Lookup:
    """What one config needs; each value is looked up once."""

    def __init__(self, resolver: ConfigResolver) -> None:
        self._resolver = resolver
        self._found: dict[tuple[str, str, str], str] = {}
        self.secrets: dict[str, str] = {}
        self.ttl_ms: int | None = None

    def value(self, match: re.Match[str]) -> str:
        """What a placeholder stands for."""
        placeholder, name, path, key = match[0], match[1], match[2] or "", match[3]
        if not self._resolver.known(name):
            if name in BUILT_IN_NAMES:
                raise ConfigProviderError(
                    f"{placeholder}: this worker has no config provider {name!r} "
                    "(DROVER_CONFIG_PROVIDERS)"
                )
            return placeholder
        place = (name, path, key)
        if place not in self._found:
            self._found[place] = self._ask(placeholder, *place)
        return self._found[place]

    def _ask(self, placeholder: str, name: str, path: str, key: str) -> str:
        try:
            data = self._resolver.provider(name).get(path, [key])
        except ConfigProviderError as error:
            raise ConfigProviderError(f"{placeholder}: {error}") from error
        except Exception as error:  # plugin code may raise anything, and say secrets doing so
            text = f"{placeholder}: the provider raised {type(error).__name__}"
            raise ConfigProviderError(text) from error
        value = data.values.get(key)
        if not isinstance(value, str):
            raise ConfigProviderError(f"{placeholder}: there is no such value")
        if value:
            self.secrets[value] = placeholder
        if data.ttl_ms is not None:
            self.ttl_ms = data.ttl_ms if self.ttl_ms is None else min(self.ttl_ms, data.ttl_ms)
        return value


def only_placeholder_of(text: str, providers: Collection[str]) -> bool:
    """Whether a text is one placeholder of a known provider, so that it tells no secret."""
    match = _PLACEHOLDER.fullmatch(text)
    return match is not None and match[1] in providers
