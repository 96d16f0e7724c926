"""The page with the loggers, and the page before the change of a level."""

from collections.abc import Sequence
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.loggers import levels_of
from drover.model.command_lines import drover_command
from drover_gateway.console.audit_page import AuditFilters
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import LOGGERS, Visit, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.parts import search_html, table_html

CONFIRM, RUN = f"{LOGGERS}/confirm", f"{LOGGERS}/run"
ROOT = "root"
#: The number of loggers of a page.
LOGGERS_MAX = 300
_CHILDREN_SHOWN = 20
#: The levels that are offered; the other names are Kafka Connect's for the same.
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "OFF")


def loggers_html(
    visit: Visit, found: pb.ListLoggersResponse, text: str, chosen: str, level: str
) -> Html:
    """The page.

    Args:
        visit: Who asks.
        found: The loggers of all workers.
        text: Only loggers whose names contain it.
        chosen: The logger in the form.
        level: The level that was set for it; empty if none was.
    """
    matching = [each for each in found.loggers if text.casefold() in each.name.casefold()]
    shown = matching[:LOGGERS_MAX]
    left = len(matching) - len(shown)
    may_set = visit.rights.may("SetLoggerLevel")
    titles = ("Logger", "Level", "Set", *(["Action"] if may_set else []))
    changed = None
    if level:
        text_after = f" is being set to {level} on every worker."
        again = tag("a", "Show the present state", href=_url(q=text))
        changed = tag("p", tag("bdi", chosen), text_after, " ", again, class_="good", role="status")
    return join(
        changed,
        _silent(found),
        _form(visit, found.loggers, chosen) if may_set else None,
        search_html("Name contains", LOGGERS, text, class_="plain-filters"),
        table_html("Loggers of all workers", titles, _rows(shown, may_set=may_set))
        if shown
        else notice("empty", "No logger matches", tag("p", tag("a", "Show all", href=LOGGERS))),
        tag("p", f"{left:,} more loggers are left out: search for them.") if left else None,
        tag(
            "p",
            "A level is in force until a worker ends. ",
            tag("a", "Who has set levels", href=AuditFilters(call="SetLoggerLevel").url()),
            class_="quiet-note",
        ),
        commands(
            "The same from the command line and by gRPC",
            ["drover logger list --cluster", grpc_command("ListLoggers", {"cluster_scope": True})],
        ),
    )


def confirm_html(visit: Visit, found: pb.ListLoggersResponse, name: str, level: str) -> Html:
    """What will have the level, before it is set."""
    affected = [each for each in found.loggers if _is_set_with(each.name, name)]
    back = _url(q="" if name == ROOT else name)
    if not affected:
        return notice(
            "error",
            "There is no such logger",
            tag("p", "No worker has ", tag("bdi", name), " or a child of it."),
            tag("p", tag("a", "Back to the loggers", href=LOGGERS)),
        )
    if all(each.level == level for each in affected):
        return join(
            tag("p", tag("bdi", name), f" and its children have the level {level} already."),
            tag("p", "There is nothing to do."),
            tag("p", tag("a", "Back to the loggers", href=back)),
        )
    lines = [
        tag(
            "li",
            tag("bdi", each.name, class_="who"),
            " ",
            tag("span", *_levels(each), class_="now"),
            f" will be {level}",
        )
        for each in affected[:_CHILDREN_SHOWN]
    ]
    left = len(affected) - len(lines)
    if left:
        lines.append(tag("li", f"and {left:,} more children"))
    whose = "" if name == ROOT else " and its children"
    text = f"{whose} is set on every worker, until it ends."
    if name == ROOT:
        text += " Loggers without an own level get it too."
    noise = tag("p", "DEBUG may write many lines.") if level == "DEBUG" else None
    return join(
        tag("p", "The level of ", tag("bdi", name), text),
        noise,
        tag("ul", *lines, class_="lines"),
        _silent(found),
        visit.form(
            RUN,
            tag("input", type="hidden", name="logger", value=name),
            tag("input", type="hidden", name="level", value=level),
            tag("button", f"Set to {level}", class_="primary"),
            tag("a", "Cancel", href=back),
            class_="decide",
        ),
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("logger set", name, level, options=("--cluster",)),
                grpc_command(
                    "SetLoggerLevel", {"name": name, "level": level, "cluster_scope": True}
                ),
            ],
        ),
    )


def changed_url(name: str, level: str) -> str:
    """The page after a change."""
    return _url(q="" if name == ROOT else name, logger=name, level=level)


def _url(**fields: str) -> str:
    query = urlencode({key: value for key, value in fields.items() if value})
    return f"{LOGGERS}?{query}" if query else LOGGERS


def _is_set_with(name: str, ancestor: str) -> bool:
    return name == ancestor or (ancestor != ROOT and name.startswith(f"{ancestor}."))


def _silent(found: pb.ListLoggersResponse) -> Html | None:
    if not found.silent_worker_ids:
        return None
    text = "Without these workers, which did not answer: "
    return tag("p", text, tag("bdi", ", ".join(found.silent_worker_ids)), class_="bad")


def _form(visit: Visit, loggers: Sequence[pb.Logger], chosen: str) -> Html:
    names = [tag("option", value=each.name) for each in loggers[:LOGGERS_MAX]]
    levels = [tag("option", each, value=each) for each in LEVELS]
    return visit.form(
        CONFIRM,
        tag(
            "label",
            "Logger",
            tag(
                "input",
                type="text",
                name="logger",
                value=chosen,
                list="logger-names",
                required=True,
                autocomplete="off",
                spellcheck="false",
            ),
        ),
        tag("datalist", *names, id="logger-names"),
        tag("label", "Level", tag("select", *levels, name="level")),
        tag("button", "Set…", class_="primary"),
        id="level",
        class_="plain-filters",
    )


def _rows(loggers: Sequence[pb.Logger], *, may_set: bool) -> list[Html]:
    return [
        tag(
            "tr",
            tag("th", tag("bdi", each.name), scope="row"),
            tag("td", *_levels(each)),
            tag(
                "td",
                time_html(each.last_change_time.ToMilliseconds())
                if each.HasField("last_change_time")
                else None,
            ),
            tag(
                "td",
                tag(
                    "a",
                    "Set",
                    href=f"{_url(q=each.name, logger=each.name)}#level",
                    aria_label=f"Set the level of {each.name}",
                ),
            )
            if may_set
            else None,
        )
        for each in loggers
    ]


def _levels(logger: pb.Logger) -> list[Node]:
    if logger.level:
        return [logger.level]
    parts: list[Node] = []
    for level, workers in levels_of(logger).items():
        parts += [", " if parts else "", f"{level} on ", tag("bdi", workers)]
    return parts
