"""The page with all connectors, and the pages of actions on several of them."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from drover_gateway.console.actions import (
    ACTIONS,
    DELETE,
    Action,
    Effect,
    Result,
    counts_of,
    offered,
)
from drover_gateway.console.frame import (
    CONNECTORS,
    Visit,
    commands,
    new_connector_link,
    notice,
)
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.links import connector_url
from drover_gateway.console.rows import PAGE_ROWS, Filters, Row, State, Summary

CONFIRM, RUN = "/ui/connectors/confirm", "/ui/connectors/run"
_PIECE_ROWS = 100
_COMMANDS_MAX = 20
_COLUMNS = ("Connector", "State", "Tasks", "Lag", "Read", "Written", "Worker", "Cause")
_SORT_LABELS = {"failed": "failed first", "name": "name", "lag": "greatest lag"}
_UNKNOWN = "-"


def element_id(name: str) -> str:
    """The id of a connector's row."""
    return f"r-{hashlib.blake2s(name.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def form_value(name: str) -> str:
    """A name as the value of a form's field: browsers would change line ends."""
    return quote(name, safe="")


def row_html(row: Row) -> Html:
    """A row of the table."""
    value = form_value(row.name)
    pick = tag("input", type="checkbox", name="name", value=value, aria_label=f"Select {row.name}")
    cells = (
        ("pick", pick),
        ("status", tag("span", row.state.value, class_=f"state is-{row.state.value}")),
        ("tasks", _tasks_cell(row)),
        ("lag num", _number(row.lag)),
        ("read num", _number(row.read_count)),
        ("written num", _number(row.written_count)),
        ("worker", _workers_cell(row)),
        ("cause", _cause_cell(row)),
    )
    name = tag(
        "span",
        tag("a", tag("bdi", row.name), href=connector_url(row.name)),
        tag("small", f"{row.kind} · ", tag("bdi", row.short_class or "unknown class")),
        role="rowheader",
        class_="name",
    )
    shown = [tag("span", content, role="cell", class_=each) for each, content in cells]
    does = " ".join(each.key for each in offered(row))
    identity = element_id(row.name)
    parts = (shown[0], name, *shown[1:])
    return tag("div", *parts, role="row", class_="row", id=identity, data_does=does)


def removed_row_html(name: str) -> Html:
    """The row of a connector that is no longer there."""
    return tag(
        "div",
        tag("span", role="cell", class_="pick"),
        tag("span", tag("bdi", name), tag("small", "removed"), role="rowheader", class_="name"),
        role="row",
        class_="row removed",
        id=element_id(name),
    )


async def results_html(
    visit: Visit,
    filters: Filters,
    rows: Sequence[Row],
    version: str,
    html_of: Callable[[Row], Html] = row_html,
) -> Html:
    """The table with its actions; it is replaced as a whole when the filters change."""
    found = filters.sorted(rows)
    pages = max(1, -(-len(found) // PAGE_ROWS))
    number = min(filters.page, pages)
    shown = found[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]
    table = (
        await _table(visit, filters, shown, found, html_of)
        if shown
        else _empty(visit, filters, len(rows))
    )
    return tag(
        "div",
        tag("p", _found_text(filters, len(found), len(rows)), id="found", role="status"),
        tag("p", id="news", role="status"),
        table,
        _pages(filters, number, pages),
        id="results",
        data_version=version,
    )


def filters_html(visit: Visit, filters: Filters, summary: Summary) -> Html:
    """The search and the filters, as a form with GET: all of it is in the URL."""
    states = [
        tag(
            "label",
            tag(
                "input",
                type="checkbox",
                name="state",
                value=state.value,
                checked=state in filters.states,
            ),
            tag("span", state.value, class_=f"state is-{state.value}"),
            " ",
            tag("b", f"{summary.states[state]:,}", id=f"n-{state.value}"),
        )
        for state in State
    ]
    return tag(
        "form",
        tag(
            "label",
            "Name contains",
            tag("input", type="search", name="q", value=filters.text, autocomplete="off"),
        ),
        _select("Type", "type", filters.kind, summary.kinds),
        _select("Class", "class", filters.class_name, summary.classes),
        _select("Worker", "worker", filters.worker, dict.fromkeys(summary.workers, 0)),
        _select("Order", "sort", filters.sort, {}, _SORT_LABELS),
        tag("button", "Apply"),
        tag("a", "Clear", href=CONNECTORS) if not filters.selects_all else None,
        new_connector_link(visit),
        tag("fieldset", tag("legend", "State"), *states, class_="states"),
        action=CONNECTORS,
        method="get",
        role="search",
        id="filters",
        aria_label="Filters",
    )


@dataclass(frozen=True, slots=True)
class Origin:
    """The page on which an action was chosen: of a connector, or the list with its filters."""

    query: str
    connector: str = ""
    is_offsets: bool = False

    @property
    def url(self) -> str:
        """The address of the page."""
        if self.connector:
            return connector_url(self.connector, "offsets" if self.is_offsets else "")
        return f"{CONNECTORS}?{self.query}" if self.query else CONNECTORS

    def fields(self) -> list[Html]:
        """Keep it in a form."""
        values = {
            "filter": self.query,
            "of": form_value(self.connector),
            "tab": "offsets" if self.is_offsets else "",
        }
        return [
            tag("input", type="hidden", name=name, value=value)
            for name, value in values.items()
            if value or name == "filter"
        ]

    def link(self) -> Html:
        """A link to it."""
        if not self.connector:
            return tag("a", "Back to the connectors", href=self.url)
        before = "Back to the offsets of " if self.is_offsets else "Back to "
        return tag("a", before, tag("bdi", self.connector), href=self.url)


def confirm_html(visit: Visit, action: Action, effects: Sequence[Effect], origin: Origin) -> Html:
    """What an action will do, before it is done."""
    changing = [each for each in effects if each.is_change]
    if not effects:
        return notice(
            "empty",
            "Nothing is selected",
            tag("p", "Select connectors in the list first."),
            tag("p", origin.link()),
        )
    lines = [_effect_line(each) for each in effects]
    names = [each.name for each in changing]
    hidden = [tag("input", type="hidden", name="name", value=form_value(each)) for each in names]
    button = (
        tag(
            "button",
            f"{action.label}: {len(changing):,} of {len(effects):,}",
            class_="danger" if action.is_destructive else "primary",
        )
        if changing
        else None
    )
    return join(
        tag("p", action.explanation),
        tag("ul", *lines, class_="lines"),
        None if changing else tag("p", "There is nothing to do."),
        visit.form(
            RUN,
            tag("input", type="hidden", name="action", value=action.key),
            *origin.fields(),
            *hidden,
            button,
            tag("a", "Cancel", href=origin.url),
            class_="decide",
        ),
        _equivalents(action, names) if names else None,
    )


def result_line(action: Action, result: Result) -> Html:
    """The result of an action for one connector."""
    if result.error:
        outcome = tag("span", f"not {action.done}: {result.error}", class_="bad")
    else:
        outcome = tag("span", action.done, class_="good")
    name = tag("bdi", result.name, class_="who")
    if result.error or action.key != DELETE.key:
        name = tag("a", name, href=connector_url(result.name))
    return tag("li", name, " ", outcome)


def results_end(
    done: int, failed: Sequence[str], action: Action, origin: Origin, visit: Visit
) -> Html:
    """The part of the page after the lines with the results."""
    again = None
    if failed:
        hidden = [tag("input", type="hidden", name="name", value=form_value(n)) for n in failed]
        again = visit.form(
            CONFIRM,
            *origin.fields(),
            *hidden,
            tag("button", f"Try the {len(failed):,} again", name="action", value=action.key),
        )
    text = f"{done:,} {action.done}, {len(failed):,} failed."
    return join(
        tag("p", tag("strong", text), class_="bad" if failed else "good", role="status"),
        again,
        tag("p", origin.link()),
    )


def _found_text(filters: Filters, found: int, total: int) -> str:
    if filters.selects_all:
        return f"{total:,} connectors" if total != 1 else "1 connector"
    return f"{found:,} of {total:,} connectors"


async def _table(
    visit: Visit,
    filters: Filters,
    rows: Sequence[Row],
    found: Sequence[Row],
    html_of: Callable[[Row], Html],
) -> Html:
    pieces = []
    for at in range(0, len(rows), _PIECE_ROWS):
        pieces.append("".join(html_of(each) for each in rows[at : at + _PIECE_ROWS]))
        await asyncio.sleep(0)
    header = tag(
        "div",
        tag("span", tag("span", "Select", class_="quiet"), role="columnheader", class_="pick"),
        *(
            tag("span", each, role="columnheader", class_=f"head-{each.lower()}")
            for each in _COLUMNS
        ),
        role="row",
        class_="row head",
    )
    table = tag(
        "div",
        tag("div", header, role="rowgroup", class_="heads"),
        tag("div", Html("".join(pieces)), role="rowgroup"),
        role="table",
        aria_label="Connectors",
        class_="table",
    )
    actions = [each for each in ACTIONS.values() if visit.rights.may_for_some(each.rpc)]
    if not actions:
        return tag("div", table, class_="read-only")
    return visit.form(
        CONFIRM,
        tag("input", type="hidden", name="filter", value=urlencode(filters.fields())),
        _bulk(actions, len(found), counts_of(found)),
        table,
        id="selection",
    )


def _bulk(actions: Sequence[Action], found: int, counts: Mapping[str, int]) -> Html:
    """The actions, each with the number of connectors of the list with which it does something;
    ``console.js`` counts the selected ones.
    """
    buttons = [
        tag(
            "button",
            f"{each.label}… ",
            tag("span", f"{counts.get(each.key, 0):,}", class_="count"),
            name="action",
            value=each.key,
            class_="danger" if each.is_destructive else None,
            hidden=not counts.get(each.key),
            data_all=counts.get(each.key, 0),
        )
        for each in actions
    ]
    every = tag(
        "label",
        tag("input", type="checkbox", name="every", value="yes"),
        f" all {found:,} of this list",
    )
    return tag(
        "div",
        tag("span", "With the selected", id="selected"),
        *buttons,
        every,
        class_="bulk",
        role="group",
        aria_labelledby="selected",
    )


def _pages(filters: Filters, number: int, pages: int) -> Html | None:
    if pages == 1:
        return None
    links = [
        tag(
            "li",
            tag(
                "a",
                str(each),
                href=filters.url(page=each),
                aria_current="page" if each == number else None,
            ),
        )
        for each in range(1, pages + 1)
    ]
    return tag("nav", tag("ul", *links), aria_label="Pages of the list", class_="pages")


def _empty(visit: Visit, filters: Filters, total: int) -> Html:
    if total:
        return notice(
            "empty",
            "No connector matches",
            tag("p", tag("a", "Show all connectors", href=CONNECTORS)),
        )
    return notice(
        "empty",
        "There are no connectors that you may see",
        new_connector_link(visit),
        tag("p", "Create one from a file with its config, or list the plugins first:"),
        tag("pre", tag("code", "drover plugin list\ndrover connector create -f FILE"), tabindex=0),
    )


def _select(
    label: str,
    name: str,
    value: str,
    counts: Mapping[str, int],
    labels: Mapping[str, str] | None = None,
) -> Html:
    shown: dict[str, str] = dict(labels or {"": "all"})
    for each, count in counts.items():
        shown[each] = f"{each or 'unknown'} ({count:,})" if count else each
    if value:
        shown.setdefault(value, value)
    options = [
        tag("option", text, value=each, selected=each == value) for each, text in shown.items()
    ]
    return tag("label", label, tag("select", *options, name=name))


def _effect_line(effect: Effect) -> Html:
    remains: Node = None
    if effect.remains:
        remains = (
            tag("p", "It leaves this in its database, until you run:"),
            tag("pre", tag("code", "\n".join(effect.remains)), tabindex=0),
        )
    return tag(
        "li",
        tag("a", tag("bdi", effect.name, class_="who"), href=connector_url(effect.name)),
        " ",
        tag("span", effect.now, class_="now"),
        " ",
        tag("span", effect.then),
        remains,
        class_=None if effect.is_change else "unchanged",
    )


def _equivalents(action: Action, names: Sequence[str]) -> Html:
    shown = names[:_COMMANDS_MAX]
    more = [f"# and {len(names) - len(shown):,} more"] if len(names) > len(shown) else []
    lines = [action.cli(shown), *more, "", *(action.grpc(each) for each in shown), *more]
    return commands("The same from the command line and by gRPC", lines)


def _tasks_cell(row: Row) -> Node:
    running = row.tasks.get(State.RUNNING, 0)
    text = f"{running}/{row.task_count}" if row.task_count else _UNKNOWN
    if not row.failed_tasks:
        return text
    return [text, tag("small", f"{len(row.failed_tasks)} failed", class_="bad")]


def _workers_cell(row: Row) -> Node:
    if not row.workers:
        return _UNKNOWN
    more = f" +{len(row.workers) - 1}" if len(row.workers) > 1 else ""
    return [tag("bdi", row.workers[0]), more]


def _cause_cell(row: Row) -> Node:
    parts: list[Node] = []
    if row.cause:
        parts.append(tag("bdi", row.cause))
    if row.failed_ms:
        parts += [" · failed ", time_html(row.failed_ms)]
    if row.restart_ms:
        parts += [" · restart due ", time_html(row.restart_ms)]
    if row.dead_lettered_count:
        parts.append(tag("small", _counted(row.dead_lettered_count, "dead letter")))
    if row.skipped_count:
        parts.append(tag("small", _counted(row.skipped_count, "skipped record")))
    return parts


def time_html(time_ms: int) -> Html:
    """A time; ``console.js`` shows how long ago it is."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    shown = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return tag("time", shown, datetime=at.isoformat(timespec="seconds"))


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
