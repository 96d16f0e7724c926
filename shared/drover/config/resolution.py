"""Placeholders in configs: ``${provider:key}`` and ``${provider:path:key}``.

The config log stores the raw texts; only the engine that runs a connector or task resolves them.
Templates that connectors fill in, such as ``${topic}``, have no colon. A text with the form of a
placeholder can only come from a provider, because values are not resolved again.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from drover.config.providers import (
    ConfigProvider,
    ConfigProviderError,
    connector_patterns,
    make_provider,
    may_use,
)
from drover.errors import InvalidArgumentError, Reason, Violation

#: As in Kafka: provider, optional path, and key; the path ends at the last colon.
_PLACEHOLDER = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
#: Placeholders, and texts that only begin like one: without these, each ``${`` in them would be
#: compared with all of the rest.
_PLACES = re.compile(rf"{_PLACEHOLDER.pattern}|\$\{{[^}}]*+\}}?")
#: Settings that workers read without resolving placeholders.
_READ_RAW = ("name", "connector.class", "tasks.max", "consumer.override.group.id", "engine")
_READ_RAW_PREFIXES = ("restart.", "engine.")
#: Kafka Connect's worker settings for providers; with ``config.providers.`` settings of each.
_PROVIDERS = "config.providers"
#: A name that makes ``${name:…}`` a placeholder, also if the worker has no such provider.
_PROVIDER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
#: Shorter values occur in many texts by chance.
_REPLACED_LENGTH_MIN = 4


class UnknownProvider(Violation):
    """A placeholder of a provider that the worker does not have."""


class _UnknownProviderError(ConfigProviderError):
    pass


@dataclass(frozen=True, slots=True)
class Resolution:
    """A config with resolved placeholders.

    Attributes:
        config: The values; the raw text if resolving failed.
        raw: The raw config.
        faults: Placeholders that could not be resolved, with the cause.
        secrets: Values that providers returned, with their placeholders.
        ttl_ms: How long the values are valid; None if they do not expire.
    """

    config: Mapping[str, str]
    raw: Mapping[str, str]
    faults: tuple[Violation, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    ttl_ms: int | None = None

    def require_whole(self, undefined: Collection[str] = ()) -> "Resolution":
        """This resolution, if all placeholders were resolved.

        In settings that no plugin defines, placeholders of unknown providers stay text, as in Kafka
        Connect: nothing reads them.

        Args:
            undefined: The settings that no plugin defines.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every violation.
        """
        unread = {f'config["{each}"]' for each in undefined}
        faults = [
            each
            for each in self.faults
            if not (isinstance(each, UnknownProvider) and each.field in unread)
        ]
        if faults:
            raise InvalidArgumentError.listing(faults, reason=Reason.INVALID_CONFIG)
        return self

    def unresolved(self, config: Mapping[str, str]) -> dict[str, str]:
        """A config derived from the resolved config, with placeholders instead of values."""
        restored = {}
        for key, value in config.items():
            if key in self.raw and value == self.config[key]:
                restored[key] = self.raw[key]
            else:
                restored[key] = with_placeholders(value, self.secrets)
        return restored


def with_placeholders(text: str, secrets: Mapping[str, str]) -> str:
    """A text in which values of providers are replaced by placeholders, longest values first; very
    short values are not replaced.
    """
    found = (each for each in secrets if len(each) >= _REPLACED_LENGTH_MIN and each in text)
    for value in sorted(found, key=len, reverse=True):
        text = text.replace(value, secrets[value])
    return text


def placeholder_providers(text: str) -> set[str]:
    """The providers that the placeholders in a text name."""
    return {match[1] for match in _PLACES.finditer(text) if match[1] is not None}


class ConfigResolver:
    """Resolves configs with a worker's providers; each provider is created on first use.

    A placeholder of an unknown provider is a fault (``UnknownProvider``). Kafka Connect would keep
    it as text, and so send it to other systems.

    Args:
        settings: The settings of each provider, by its name.
        make: Creates a provider.
    """

    def __init__(
        self,
        settings: Mapping[str, Mapping[str, str]],
        make: Callable[[str, Mapping[str, str]], ConfigProvider] = make_provider,
    ) -> None:
        self._settings = settings
        self._make = make
        self._providers: dict[str, ConfigProvider] = {}

    def resolve(self, config: Mapping[str, str], connector: str) -> Resolution:
        """Replace placeholders by values. Runs plugin code, and may block.

        ``connector`` is the name of the connector that the values are for: providers may be limited
        to some connectors.
        """
        lookup = _Lookup(self, connector)
        resolved: dict[str, str] = {}
        faults: list[Violation] = []
        for key, raw in config.items():
            try:
                resolved[key] = _PLACES.sub(lookup.value, raw) if "${" in raw else raw
                if key == _PROVIDERS or key.startswith(f"{_PROVIDERS}."):
                    raise ConfigProviderError(
                        "is a setting of workers, not of connectors: the operator of the workers "
                        "defines providers with DROVER_CONFIG_PROVIDERS"
                    )
                if resolved[key] != raw and (
                    key in _READ_RAW or key.startswith(_READ_RAW_PREFIXES)
                ):
                    raise ConfigProviderError("workers read it unresolved: write its value")
            except ConfigProviderError as error:
                resolved[key] = raw
                kind = UnknownProvider if isinstance(error, _UnknownProviderError) else Violation
                faults.append(kind(f'config["{key}"]', str(error)))
        return Resolution(resolved, dict(config), tuple(faults), lookup.secrets, lookup.ttl_ms)

    def known(self, name: str) -> bool:
        """Whether the worker has a provider with this name."""
        return name in self._settings

    def provider(self, name: str, connector: str) -> ConfigProvider:
        """One of the worker's providers, for a connector.

        Raises:
            ConfigProviderError: The connector may not use the provider, or its setup fails.
        """
        patterns = connector_patterns(self._settings[name])
        if not may_use(patterns, connector):
            raise ConfigProviderError(
                f"connector {connector!r} may not use config provider {name!r}, which "
                f"DROVER_CONFIG_PROVIDERS limits to {', '.join(patterns)}: the operator of the "
                "workers can change that"
            )
        found = self._providers.get(name)
        if found is None:
            try:
                found = self._make(name, self._settings[name])
            except ConfigProviderError as error:
                text = f"the setup of config provider {name!r} failed: {error}"
                raise ConfigProviderError(text) from error
            self._providers[name] = found
        return found


class _Lookup:
    """The lookups for one config; each value is looked up once."""

    def __init__(self, resolver: ConfigResolver, connector: str) -> None:
        self._resolver = resolver
        self._connector = connector
        self._found: dict[tuple[str, str, str], str] = {}
        self.secrets: dict[str, str] = {}
        self.ttl_ms: int | None = None

    def value(self, match: re.Match[str]) -> str:
        """The value of a placeholder; a text that only begins like one stays unchanged."""
        if match[1] is None:
            return match[0]
        placeholder, name, path, key = match[0], match[1], match[2] or "", match[3]
        if not self._resolver.known(name):
            if _PROVIDER_NAME.fullmatch(name):
                raise _UnknownProviderError(
                    f"{placeholder}: this worker has no config provider {name!r}: the operator of "
                    "the workers defines it with DROVER_CONFIG_PROVIDERS"
                )
            return placeholder
        place = (name, path, key)
        if place not in self._found:
            self._found[place] = self._ask(placeholder, *place)
        return self._found[place]

    def _ask(self, placeholder: str, name: str, path: str, key: str) -> str:
        try:
            data = self._resolver.provider(name, self._connector).get(path, [key])
        except ConfigProviderError as error:
            raise ConfigProviderError(f"{placeholder}: {error}") from error
        except Exception as error:  # plugin code may raise anything, with secrets in its message
            text = f"{placeholder}: the provider raised {type(error).__name__}"
            raise ConfigProviderError(text) from error
        value = data.values.get(key)
        if not isinstance(value, str):
            raise ConfigProviderError(f"{placeholder}: the provider has no such value")
        if value:
            self.secrets[value] = placeholder
        if data.ttl_ms is not None:
            self.ttl_ms = data.ttl_ms if self.ttl_ms is None else min(self.ttl_ms, data.ttl_ms)
        return value


def without_placeholders(text: str, providers: Collection[str]) -> str:
    """A text without the placeholders of known providers."""
    return _PLACES.sub(lambda match: "" if match[1] in providers else match[0], text)


def only_placeholder_of(text: str, providers: Collection[str]) -> bool:
    """Whether a text consists of one placeholder of a known provider, and so contains no secret."""
    match = _PLACEHOLDER.fullmatch(text)
    return match is not None and match[1] in providers
