"""Which values of a config are secrets in clear, and the placeholders that replace them."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from drover.config.resolution import placeholder_providers
from drover.config.url_passwords import has_url_password
from drover.model.secrets import sounds_secret

_PLACEHOLDERS = re.compile(r"\$\{[^}]*\}")
#: ``password="…"`` as in a JAAS config.
_ASSIGNED = re.compile(r"(?:password|secret|token)[\w.]*\s*[=:]\s*[\"']?[^\s\"';,]", re.IGNORECASE)


def secret_settings(
    config: Mapping[str, str], *, passwords: Collection[str], plain: Collection[str]
) -> list[str]:
    """The settings whose values have secrets in clear, sorted.

    Args:
        config: The config.
        passwords: The settings that are declared as passwords.
        plain: The settings that are declared with another type. A setting that nothing declares is
            a secret if its name is the one of a secret.
    """
    return sorted(
        name
        for name, value in config.items()
        if value.strip()
        and _is_clear(
            value,
            is_secret=name in passwords or (name not in plain and sounds_secret(name)),
        )
    )


def _is_clear(value: str, *, is_secret: bool) -> bool:
    if not is_secret:
        return has_url_password(value)
    if not placeholder_providers(value):
        return True
    # a JAAS config can have a placeholder and a password
    return bool(_ASSIGNED.search(_PLACEHOLDERS.sub("", value)))


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A secret of a written definition.

    Attributes:
        setting: The setting.
        key: The key in the file of secrets.
        text: What the definition has in place of the value.
    """

    setting: str
    key: str
    text: str


def placeholder(connector_id: str, setting: str, secrets_file: str) -> Placeholder:
    """The placeholder of a connector's setting."""
    key = f"{connector_id}.{quote(setting, safe='._-')}"
    return Placeholder(setting, key, f"${{file:{secrets_file}:{key}}}")
