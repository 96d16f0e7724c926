"""The tab with a connector's config: settings by group, and the config as YAML and as JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.command_lines import drover_command
from drover.model.secrets import is_mask
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.frame import commands
from drover_gateway.console.html import Html, join, tag

#: The maximum number of settings of the table; the text below it has all.
SETTINGS_MAX = 500
_VALUE_MAX_CHARS = 2_000
#: Characters that JSON strings may have, and YAML or pages may not.
_CONTROLS = {
    code: f"\\u{code:04x}" for code in (*range(127, 160), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF)
}
#: A longer key needs another form in YAML.
_KEY_MAX_CHARS = 1_000
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
#: Words that are not text in YAML 1.1.
_OTHER_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_COMMON, _OTHER = "Settings of all connectors", "Further settings"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a config; ``key`` is None if the plugin does not define it."""

    name: str
    value: str | None
    key: pb.ConfigKey | None


def grouped(
    config: Mapping[str, str], keys: Sequence[pb.ConfigKey]
) -> list[tuple[str, list[Setting]]]:
    """The settings that the config has, by the plugin's groups; last without a group."""
    groups: dict[str, list[Setting]] = {}
    known = {key.name for key in keys}
    own = [key for key in keys if not key.common]
    for key in (*sorted(own, key=lambda each: each.order), *(k for k in keys if k.common)):
        if key.name in config:
            name = key.group or (_COMMON if key.common else _OTHER)
            groups.setdefault(name, []).append(Setting(key.name, config[key.name], key))
    rest = [Setting(name, config[name], None) for name in sorted(config.keys() - known)]
    if rest:
        groups.setdefault(_OTHER, []).extend(rest)
    return list(groups.items())


def defaults(config: Mapping[str, str], keys: Sequence[pb.ConfigKey]) -> list[Setting]:
    """The settings that the config does not have, with their defaults, by name."""
    return [
        Setting(key.name, key.default_value if key.HasField("default_value") else None, key)
        for key in sorted(keys, key=lambda each: each.name)
        if key.name not in config
    ]


def config_html(connector: pb.Connector, keys: Sequence[pb.ConfigKey], fault: str) -> Html:
    """The tab.

    Args:
        connector: The connector.
        keys: The settings of its plugin.
        fault: Why they are not known; empty if they are.
    """
    config = connector.config
    left_out = max(len(config) - SETTINGS_MAX, 0)
    sections: list[Html] = []
    room = SETTINGS_MAX
    for group, settings in grouped(config, keys):
        if room:
            sections.append(_group(f"g{len(sections)}", group, settings[:room]))
        room = max(room - len(settings), 0)
    others = defaults(config, keys)
    masked = any(is_mask(value) for value in config.values())
    return join(
        tag("p", f"Revision {connector.revision}. {len(config):,} settings."),
        tag("p", f"The plugin's settings are not known: {fault}", class_="bad") if fault else None,
        *sections,
        tag("p", f"{left_out:,} more settings are in the text below.") if left_out else None,
        tag(
            "details",
            tag("summary", f"{len(others):,} settings with their default"),
            _table("defaults", "Settings with their default", others[:SETTINGS_MAX]),
        )
        if others
        else None,
        _text("YAML", "as-yaml", yaml_of(connector)),
        _text("JSON", "as-json", json_of(connector)),
        tag("p", "Secrets are masked: a copy needs their values, or placeholders for them.")
        if masked
        else None,
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector get", connector.name, options=("-o", "yaml")),
                grpc_command("GetConnector", {"name": connector.name}),
            ],
        ),
    )


def yaml_of(connector: pb.Connector) -> str:
    """The definition as YAML, for ``drover apply``.

    PyYAML needs seconds for a config of 1 MiB, and other pages would wait for it.
    """
    pairs = [(_yaml(key), _yaml(value)) for key, value in sorted(connector.config.items())]
    settings = [
        f"  {key}: {value}" if len(key) <= _KEY_MAX_CHARS else f"  ? {key}\n  : {value}"
        for key, value in pairs
    ]
    return "\n".join([f"name: {_yaml(connector.name)}", "config:", *settings, ""])


def json_of(connector: pb.Connector) -> str:
    """The definition as JSON, for ``drover apply`` and for Kafka Connect's POST /connectors."""
    definition = {"name": connector.name, "config": dict(sorted(connector.config.items()))}
    return json.dumps(definition, indent=2, ensure_ascii=False).translate(_CONTROLS)


def _yaml(value: str) -> str:
    """A text as YAML: a JSON string, unless it is a word that cannot be anything else."""
    if _WORD.fullmatch(value) and value.casefold() not in _OTHER_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False).translate(_CONTROLS)


def _group(key: str, group: str, settings: Sequence[Setting]) -> Html:
    return tag("section", tag("h2", group, id=key), _table(key, group, settings))


def _table(key: str, label: str, settings: Sequence[Setting]) -> Html:
    rows = [
        tag(
            "tr",
            tag("th", tag("bdi", each.name), scope="row"),
            tag("td", *_value(each)),
            tag("td", each.key.documentation if each.key is not None else "", class_="doc"),
        )
        for each in settings
    ]
    head = ("Setting", "Value", "Documentation")
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
            tag("tbody", *rows),
            class_="settings",
            aria_label=label,
        ),
        class_="wide",
        tabindex=0,
        role="group",
        aria_label=f"{label}, table {key}",
    )


def _value(setting: Setting) -> tuple[Html | str, ...]:
    if setting.value is None:
        return (tag("small", "none"),)
    cut = len(setting.value) - _VALUE_MAX_CHARS
    if cut > 0:
        note = tag("small", f"{cut:,} more characters are in the text below")
        return (tag("code", setting.value[:_VALUE_MAX_CHARS]), note)
    secret = is_mask(setting.value)
    return (tag("code", setting.value), *((tag("small", "secret, masked"),) if secret else ()))


def _text(label: str, key: str, text: str) -> Html:
    """The config as text, with a button that ``console.js`` makes work."""
    lines = min(text.count("\n") + 1, 20)
    return tag(
        "details",
        tag("summary", f"As {label}"),
        tag("textarea", "\n", text, id=key, readonly=True, rows=lines, aria_label=f"As {label}"),
        tag("button", "Copy", type="button", hidden=True, data_copy=key),
        class_="copy",
    )
