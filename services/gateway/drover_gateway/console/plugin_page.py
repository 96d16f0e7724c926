"""The page of one plugin: its settings with their documentation, and an example."""

import json
from collections.abc import Sequence
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.plugin_examples import example_of
from drover.cli.output.plugin_pairs import pair_lines, pairs_of
from drover.codec.connect import decode_connector_type
from drover.model.command_lines import drover_command
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import NEW_CONNECTOR, Visit, commands
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.plugins_page import guarantee_text, workers_node
from drover_gateway.console.rows import Filters

#: The number of settings that are shown of a group; a plugin may declare thousands.
_KEYS_SHOWN = 500
_COLUMNS = ("Setting", "Type", "Default", "Importance", "Meaning")


def title_of(found: pb.GetPluginResponse) -> str:
    """The name of a plugin."""
    plugin = found.plugin if found.HasField("plugin") else found.record_plugin
    return plugin.aliases[0] if plugin.aliases else plugin.class_name


def plugin_html(visit: Visit, found: pb.GetPluginResponse, listing: pb.ListPluginsResponse) -> Html:
    """The page; ``listing`` has all plugins of the workers."""
    own = [each for each in found.config_keys if not each.common]
    common = [each for each in found.config_keys if each.common]
    is_connector = found.HasField("plugin")
    head = _connector(visit, found, listing) if is_connector else _part(found, listing)
    kind = decode_connector_type(found.plugin.type) or "connector"
    class_name = found.plugin.class_name or found.record_plugin.class_name
    return join(
        head,
        _settings("Settings", own) if own else tag("p", "It has no settings of its kind."),
        _settings(f"Settings of every {kind}", common) if common else None,
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("plugin describe", class_name),
                grpc_command("GetPlugin", {"class_name": class_name}),
            ],
        ),
    )


def _connector(visit: Visit, found: pb.GetPluginResponse, listing: pb.ListPluginsResponse) -> Node:
    plugin = found.plugin
    versions = [each for each in listing.plugins if each.class_name == plugin.class_name]
    pairs = list(pair_lines(plugin, pairs_of(plugin, listing.plugins)))
    create = tag(
        "a",
        "Create a connector of this class",
        href=f"{NEW_CONNECTOR}?{urlencode({'class': plugin.class_name})}",
    )
    example = json.dumps(example_of(plugin, found.config_keys), indent=2, ensure_ascii=False)
    name = title_of(found)
    return [
        tag("p", plugin.description) if plugin.description else None,
        _facts(
            ("Class", tag("bdi", plugin.class_name)),
            ("Also called", tag("bdi", ", ".join(plugin.aliases)) if plugin.aliases else None),
            ("Kind", decode_connector_type(plugin.type) or "unknown"),
            ("Each record", guarantee_text(plugin)),
            *_versions(versions or [plugin], listing),
        ),
        tag(
            "p",
            (create, " · ") if visit.rights.may_for_some("CreateConnector") else None,
            tag(
                "a",
                "Connectors of this class",
                href=Filters(class_name=plugin.class_name.rpartition(".")[2]).url(),
            ),
        ),
        tag(
            "details",
            tag("summary", f"Delivery of {name} together with others"),
            tag("ul", *(tag("li", each) for each in pairs)),
        )
        if pairs
        else None,
        tag(
            "section",
            tag("h2", "Example"),
            tag(
                "p",
                "For a file FILE.json and ",
                tag("code", "drover connector create -f FILE.json"),
            ),
            tag("pre", tag("code", example), tabindex=0),
        ),
    ]


def _part(found: pb.GetPluginResponse, listing: pb.ListPluginsResponse) -> Node:
    part = found.record_plugin
    versions = [each for each in listing.record_plugins if each.class_name == part.class_name]
    kinds = dict.fromkeys(each.kind.replace("_", " ") for each in versions or [part])
    # a class that is a converter of both kinds is listed twice
    unique = list({each.version: each for each in versions or [part]}.values())
    return _facts(
        ("Class", tag("bdi", part.class_name)),
        ("Also called", tag("bdi", ", ".join(part.aliases)) if part.aliases else None),
        ("Kind", ", ".join(kinds)),
        *_versions(unique, listing),
    )


def _versions(
    plugins: Sequence[pb.Plugin] | Sequence[pb.RecordPlugin], listing: pb.ListPluginsResponse
) -> list[tuple[str, Node]]:
    facts: list[tuple[str, Node]] = []
    for each in plugins:
        workers = workers_node(each, listing.worker_ids)
        facts.append((f"Version {each.version or 'unknown'} on", workers))
        if isinstance(each, pb.Plugin) and each.load_time.seconds:
            facts.append(("Loaded", time_html(each.load_time.ToMilliseconds())))
    return facts


def _facts(*facts: tuple[str, Node]) -> Html:
    return tag(
        "dl",
        *(tag("div", tag("dt", what), tag("dd", value)) for what, value in facts if value),
        class_="facts",
    )


def _settings(title: str, keys: Sequence[pb.ConfigKey]) -> Html:
    shown = keys[:_KEYS_SHOWN]
    left_out = len(keys) - len(shown)
    groups: dict[str, list[pb.ConfigKey]] = {}
    for key in shown:
        groups.setdefault(key.group, []).append(key)
    tables = [
        join(
            tag("h3", group) if len(groups) > 1 and group else None,
            _table(group or title, sorted(each, key=lambda key: key.order)),
        )
        for group, each in groups.items()
    ]
    return tag(
        "section",
        tag("h2", f"{title} ({len(keys):,})"),
        *tables,
        tag("p", f"and {left_out:,} more: drover plugin describe") if left_out else None,
    )


def _table(label: str, keys: Sequence[pb.ConfigKey]) -> Html:
    return tag(
        "div",
        tag(
            "table",
            tag("caption", label, class_="quiet"),
            tag("thead", tag("tr", *(tag("th", each, scope="col") for each in _COLUMNS))),
            tag("tbody", *(_row(each) for each in keys)),
        ),
        class_="wide",
        tabindex=0,
        role="group",
        aria_label=label,
    )


def _row(key: pb.ConfigKey) -> Html:
    values = ", ".join(key.valid_values)
    return tag(
        "tr",
        tag(
            "th",
            tag("bdi", key.name),
            tag("small", key.display_name)
            if key.display_name and key.display_name != key.name
            else None,
            scope="row",
            class_="long",
        ),
        tag("td", key.type.lower()),
        tag("td", _default(key), class_="long"),
        tag("td", key.importance.lower()),
        tag(
            "td",
            tag("bdi", key.documentation),
            tag("small", f"One of: {values}") if values else None,
            class_="text",
        ),
    )


def _default(key: pb.ConfigKey) -> Node:
    if key.required:
        return tag("strong", "required")
    if not key.HasField("default_value"):
        return "none"
    return tag("code", key.default_value) if key.default_value else "empty"
