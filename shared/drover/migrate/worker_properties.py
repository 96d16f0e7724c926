"""The settings of Kafka Connect's workers, which its REST API does not show, and Drover's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from drover.config.properties import parse_properties
from drover.config.providers import PROVIDERS
from drover.connector.record_settings import CONVERTER_SETTINGS
from drover.model.secrets import sounds_secret

#: What a report lists as not known without the file.
NOT_KNOWN = (
    "the group and the three topics of the workers",
    "the workers' converters (key.converter, value.converter, header.converter)",
    "the workers' config providers",
    "connector.client.config.override.policy",
    "exactly.once.source.support",
)
_SAME_MEANING = {
    "group.id": "DROVER_GROUP_ID",
    "config.storage.topic": "DROVER_CONFIG_STORAGE_TOPIC",
    "offset.storage.topic": "DROVER_OFFSET_STORAGE_TOPIC",
    "status.storage.topic": "DROVER_STATUS_STORAGE_TOPIC",
    "internal.topics.automatic.creation.enable": "DROVER_STORAGE_CREATE_TOPICS",
    "plugin.path": "DROVER_PLUGIN_PATH",
}
_REQUIRED = ("bootstrap.servers", *list(_SAME_MEANING)[:4])
_CLIENT_PREFIXES = ("security.protocol", "sasl.", "ssl.")
_EXACTLY_ONCE = "exactly.once.source.support"
_PROVIDERS = "config.providers"


@dataclass(frozen=True, slots=True)
class WorkerProperties:
    """A worker's properties file.

    Attributes:
        file: Its path.
        values: Its settings, with their secrets.
    """

    file: str
    values: Mapping[str, str] = field(repr=False)

    @classmethod
    def parsed(cls, file: str, text: str) -> "WorkerProperties":
        """Parse a properties file.

        Raises:
            ValueError: It lacks a setting that every distributed worker has.
        """
        values = parse_properties(text)
        missing = [each for each in _REQUIRED if not values.get(each, "").strip()]
        if missing:
            raise ValueError(
                f"{file} has no {', '.join(missing)}: it must be the properties file of a "
                "distributed worker of Kafka Connect"
            )
        return cls(file, values)

    @property
    def converters(self) -> dict[str, str]:
        """The workers' converters, with their settings."""
        return {
            name: value
            for name, value in self.values.items()
            if name in CONVERTER_SETTINGS
            or any(name.startswith(f"{each}.") for each in CONVERTER_SETTINGS)
        }

    @property
    def exactly_once(self) -> bool:
        """Whether sources deliver exactly once, as far as their connectors do."""
        return self.values.get(_EXACTLY_ONCE, "").strip().lower() == "enabled"

    @property
    def provider_classes(self) -> dict[str, str]:
        """The classes of the workers' config providers, by the providers' names."""
        names = self.values.get(_PROVIDERS, "").split(",")
        return {
            name: self.values.get(f"{_PROVIDERS}.{name}.class", "").strip()
            for each in names
            if (name := each.strip())
        }

    def environment(self) -> dict[str, str]:
        """Drover's settings for the same group and topics; secrets are left out."""
        found = {"DROVER_STORAGE_URL": f"kafka://{_compact(self.values['bootstrap.servers'])}"}
        for name, ours in _SAME_MEANING.items():
            if self.values.get(name, "").strip():
                found[ours] = self.values[name].strip()
        found["DROVER_EXACTLY_ONCE_SOURCE_SUPPORT"] = "enabled" if self.exactly_once else "disabled"
        converters = {
            name: value for name, value in self.converters.items() if not sounds_secret(name)
        }
        if converters:
            found["DROVER_CONVERTERS"] = json.dumps(converters, ensure_ascii=False)
        providers = self._providers()
        if providers:
            found["DROVER_CONFIG_PROVIDERS"] = json.dumps(providers, ensure_ascii=False)
        return found

    def by_hand(self) -> list[str]:
        """What the operator has to set too, with the names of the settings and no values."""
        found = []
        clients = sorted(each for each in self.values if each.startswith(_CLIENT_PREFIXES))
        if clients:
            found.append(
                f"set DROVER_KAFKA_CONFIG, with librdkafka's names, for {', '.join(clients)}"
            )
        secrets = sorted(each for each in self.converters if sounds_secret(each))
        if secrets:
            found.append(f"add to DROVER_CONVERTERS: {', '.join(secrets)}")
        for name, class_name in sorted(self.provider_classes.items()):
            fault = provider_fault(class_name or name)
            if fault:
                found.append(f"config provider {name}: {fault}")
            elif name not in self._providers():
                found.append(
                    f"config provider {name}: add it to DROVER_CONFIG_PROVIDERS with "
                    "allowed.paths (env: with allowlist.pattern), which is required here"
                )
        return found

    def _providers(self) -> dict[str, dict[str, str]]:
        providers = {}
        for name, class_name in self.provider_classes.items():
            if provider_fault(class_name or name):
                continue
            prefix = f"{_PROVIDERS}.{name}.param."
            given = {
                key.removeprefix(prefix): value
                for key, value in self.values.items()
                if key.startswith(prefix) and not sounds_secret(key)
            }
            if given:
                providers[name] = {**({"class": class_name} if class_name else {}), **given}
        return providers


def provider_fault(class_name: str) -> str:
    """Why a config provider's class is not available here; empty if it is."""
    try:
        PROVIDERS.find(class_name)
    except ValueError as error:
        return str(error)
    return ""


def _compact(servers: str) -> str:
    return ",".join(each.strip() for each in servers.split(",") if each.strip())
