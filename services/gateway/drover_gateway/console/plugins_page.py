"""The page with the plugins by kind, and the pages of their reload."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.plugin_pairs import guarantees
from drover.codec.connect import decode_connector_type
from drover.errors import DroverError
from drover.model.command_lines import drover_command
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import PLUGIN, PLUGINS, Visit, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.parts import search_html, table_html

CONFIRM, RUN = "/ui/plugins/confirm", "/ui/plugins/run"
_KINDS: Mapping[str, str] = {
    "source": "Sources",
    "sink": "Sinks",
    "converter": "Converters",
    "header_converter": "Header converters",
    "transforms": "Transforms",
    "predicates": "Predicates",
    "": "Of unknown kind",
}
_MOVED_SHOWN = 20
_PROBLEMS_SHOWN = 100


def plugins_html(visit: Visit, found: pb.ListPluginsResponse, text: str) -> Html:
    """The page; only classes whose name or alias contains ``text`` are listed."""
    by_kind: dict[str, list[pb.Plugin | pb.RecordPlugin]] = {}
    for plugin in found.plugins:
        if _matches(plugin, text):
            by_kind.setdefault(decode_connector_type(plugin.type), []).append(plugin)
    for part in found.record_plugins:
        if _matches(part, text):
            by_kind.setdefault(part.kind, []).append(part)
    everywhere = list(found.worker_ids)
    sections = [
        _section(label, by_kind[kind], everywhere)
        for kind, label in _KINDS.items()
        if by_kind.get(kind)
    ]
    nothing = notice(
        "empty",
        "No class matches" if text else "No plugin is installed",
        tag("p", tag("a", "Show all plugins", href=PLUGINS))
        if text
        else tag("p", "Install a package with plugins on each worker, and reload them."),
    )
    return join(
        search_html("Class contains", PLUGINS, text, class_="plain-filters"),
        _silent(found),
        _problems(found),
        *(sections or [nothing]),
        _reload_form(visit, found),
        commands(
            "The same from the command line and by gRPC",
            [
                "drover plugin list",
                grpc_command("ListPlugins"),
            ],
        ),
    )


def _problems(found: pb.ListPluginsResponse) -> Html | None:
    """The packages that failed to load."""
    if not found.problems:
        return None
    rows = [
        tag(
            "tr",
            tag("th", tag("bdi", each.package or "unknown"), scope="row"),
            tag("td", tag("bdi", each.entry_point), class_="long"),
            tag("td", tag("bdi", each.message), class_="text bad"),
            tag("td", tag("bdi", _places(each, found)), class_="long"),
        )
        for each in found.problems[:_PROBLEMS_SHOWN]
    ]
    left = len(found.problems) - len(rows)
    return tag(
        "section",
        tag("h2", "Failed to load"),
        table_html("Plugins that failed to load", ("Package", "Plugin", "Reason", "On"), rows),
        tag("p", f"{left:,} more are left out.") if left else None,
        tag("p", "After a repair of the package, reload the plugins.", class_="quiet-note"),
    )


def _places(problem: pb.PluginProblem, found: pb.ListPluginsResponse) -> str:
    is_everywhere = set(problem.worker_ids) == {*found.worker_ids}
    return "all workers" if is_everywhere else ", ".join(problem.worker_ids)


def confirm_html(visit: Visit, found: pb.ListPluginsResponse, worker_id: str) -> Html:
    """What a reload will do; of all workers if none is given."""
    worker_ids = [worker_id] if worker_id else list(found.worker_ids)
    hidden = [tag("input", type="hidden", name="worker", value=each) for each in worker_ids]
    lines: list[str] = []
    for each in worker_ids:
        lines.append(drover_command("plugin reload", options=("--worker", each)))
        lines.append(grpc_command("ReloadPlugins", {"worker_id": each}))
    return join(
        tag(
            "p",
            "Each worker starts a new engine and moves the connectors that use a changed package to"
            " it, one by one. The others stay in the old engine until they restart, at most an"
            " hour: until then both use memory. Nothing happens if no package changed.",
        ),
        tag("p", "The workers reload one after another, in some minutes at most:"),
        tag("ul", *(tag("li", tag("bdi", each)) for each in worker_ids)),
        _silent(found),
        visit.form(
            RUN,
            *hidden,
            tag(
                "label",
                tag("input", type="checkbox", name="all", value="yes"),
                " move all connectors and tasks, even if no package changed",
            ),
            tag("button", f"Reload {len(worker_ids):,}", class_="primary"),
            tag("a", "Cancel", href=PLUGINS),
            class_="decide",
        ),
        commands("The same from the command line and by gRPC", lines),
    )


def result_line(done: pb.ReloadPluginsResponse) -> Html:
    """What a reload did on one worker."""
    who = tag("bdi", done.worker_id, class_="who")
    if done.unchanged:
        return tag("li", who, " ", tag("span", "no package changed, so nothing was moved"))
    changed = f" of {', '.join(done.changed_packages)}" if done.changed_packages else ""
    text = f"a new engine{changed}; {done.moved_count:,} connectors and tasks moved to it"
    if done.kept_count:
        text += f", {done.kept_count:,} stay in the old one until they restart"
    moved = [
        tag("li", tag("bdi", each.connector), f": {each.reason}")
        for each in done.moved_connectors[:_MOVED_SHOWN]
    ]
    left_out = len(done.moved_connectors) - len(moved)
    return tag(
        "li",
        who,
        " ",
        tag("span", text, class_="good"),
        tag("ul", *moved, tag("li", f"and {left_out:,} more") if left_out > 0 else None)
        if moved
        else None,
    )


def failed_line(worker_id: str, error: DroverError) -> Html:
    """Why a worker has not reloaded its plugins."""
    message = " ".join(error.message.split()) or error.reason.value
    return tag(
        "li",
        tag("bdi", worker_id, class_="who"),
        " ",
        tag("span", f"not reloaded: {message}", class_="bad"),
    )


def results_end(done: int, failed: int) -> Html:
    """The part of the page after the lines with the results."""
    text = f"{done:,} reloaded, {failed:,} failed."
    return join(
        tag("p", tag("strong", text), class_="bad" if failed else "good", role="status"),
        tag("p", tag("a", "Back to the plugins", href=PLUGINS)),
    )


def plugin_link(class_name: str) -> str:
    """The page of a plugin."""
    return f"{PLUGIN}?{urlencode({'class': class_name})}"


def guarantee_text(plugin: pb.Plugin) -> str:
    """How often each record is delivered, on both kinds of storage."""
    embedded, kafka = guarantees(plugin)
    if embedded == kafka:
        return embedded or "not declared"
    return f"{embedded or 'not declared'} in embedded storage, {kafka or 'not declared'} on Kafka"


def _matches(plugin: pb.Plugin | pb.RecordPlugin, text: str) -> bool:
    folded = text.casefold()
    return any(folded in each.casefold() for each in (plugin.class_name, *plugin.aliases))


def _silent(found: pb.ListPluginsResponse) -> Html | None:
    if not found.silent_worker_ids:
        return None
    names = ", ".join(found.silent_worker_ids)
    return tag(
        "p",
        "These workers did not answer, so their plugins are missing: ",
        tag("bdi", names),
        class_="bad",
    )


def _section(
    label: str, plugins: Sequence[pb.Plugin | pb.RecordPlugin], everywhere: Sequence[str]
) -> Html:
    is_connectors = isinstance(plugins[0], pb.Plugin)
    columns = ("Class", "Version", "Workers", *(("Delivery", "Loaded") if is_connectors else ()))
    rows = []
    for each in plugins:
        details: tuple[Node, ...] = ()
        if isinstance(each, pb.Plugin):
            loaded = time_html(each.load_time.ToMilliseconds()) if each.load_time.seconds else None
            details = (tag("td", guarantee_text(each), class_="long"), tag("td", loaded))
        rows.append(
            tag(
                "tr",
                tag("th", _name(each), scope="row", class_="long"),
                tag("td", tag("bdi", each.version)),
                tag("td", workers_node(each, everywhere), class_="long"),
                *details,
            )
        )
    return tag(
        "section",
        tag("h2", f"{label} ({len(plugins):,})"),
        tag(
            "div",
            tag(
                "table",
                tag("caption", label, class_="quiet"),
                tag("thead", tag("tr", *(tag("th", each, scope="col") for each in columns))),
                tag("tbody", *rows),
            ),
            class_="wide",
            tabindex=0,
            role="group",
            aria_label=label,
        ),
    )


def workers_node(plugin: pb.Plugin | pb.RecordPlugin, everywhere: Sequence[str]) -> Node:
    """The workers that have this version of a plugin."""
    if not plugin.worker_ids:
        return "all" if len(everywhere) != 1 else tag("bdi", everywhere[0])
    return [
        tag("bdi", ", ".join(plugin.worker_ids), class_="warn"),
        tag("small", f"{len(plugin.worker_ids)} of {len(everywhere)}"),
    ]


def _name(plugin: pb.Plugin | pb.RecordPlugin) -> Node:
    name = plugin.aliases[0] if plugin.aliases else plugin.class_name
    small = plugin.description if isinstance(plugin, pb.Plugin) else ""
    return [
        tag("a", tag("bdi", name), href=plugin_link(plugin.class_name)),
        tag("small", tag("bdi", plugin.class_name)) if name != plugin.class_name else None,
        tag("small", small) if small else None,
    ]


def _reload_form(visit: Visit, found: pb.ListPluginsResponse) -> Html | None:
    if not visit.rights.may("ReloadPlugins"):
        return None
    options = [
        tag("option", "all workers", value=""),
        *(tag("option", each, value=each) for each in found.worker_ids),
    ]
    return tag(
        "section",
        tag("h2", "Load plugins that were installed or changed"),
        visit.form(
            CONFIRM,
            tag("label", "Reload on ", tag("select", *options, name="worker")),
            tag("button", "Reload…"),
            class_="decide",
        ),
    )
