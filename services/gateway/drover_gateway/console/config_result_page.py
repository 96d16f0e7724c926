"""What a config does, before and after it is written: preview, plan, conflict, result."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRecord, PreviewedRow
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.plans import schema_lines
from drover.model.config import TargetState
from drover_gateway.console.config_draft import Draft
from drover_gateway.console.config_form_page import form_path, hidden_html
from drover_gateway.console.frame import Visit, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.json_texts import members_of
from drover_gateway.console.links import connector_url, edit_url
from drover_gateway.console.parts import table_html

_CELL_MAX_CHARS = 2_000
_COLUMNS_MAX = 20
_LINES_MAX = 2_000
_LAST = "write"
_THEN = {
    TargetState.STARTED: "The connector is created and starts.",
    TargetState.PAUSED: "The connector is created, and paused: its tasks process nothing yet.",
    TargetState.STOPPED: "The connector is created, and stopped: it has no tasks yet.",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in the three configs of a conflict; None where it is not set."""

    name: str
    seen: str | None
    now: str | None
    own: str | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A config that another user has changed while this user edited it.

    Attributes:
        revision: The present revision; 0 if the connector was deleted.
        author: Who made the last change; empty if unknown.
        has_seen: Whether the config that this user has seen is known.
        differences: The settings that are not the same in all configs.
    """

    revision: int
    author: str
    has_seen: bool
    differences: Sequence[Difference]


def conflict_of(
    seen: Mapping[str, str] | None,
    now: Mapping[str, str] | None,
    own: Mapping[str, str],
    revision: int,
    author: str,
) -> Conflict:
    """Compare the config that the user has seen, the present one, and the user's own."""
    configs = [seen or {}, now or {}, own]
    names = sorted({name for each in configs for name in each})
    found = []
    for name in names:
        values = [each.get(name) for each in configs]
        compared = values if seen is not None else values[1:]
        if any(each != compared[0] for each in compared):
            found.append(Difference(name, values[0], values[1], values[2]))
    return Conflict(revision, author, seen is not None, found)


def preview_html(visit: Visit, draft: Draft, preview: Preview, sealed: str) -> Html:
    """The records as they were read, and after each step."""
    failed = sum(1 for each in preview.rows if each.failed_step)
    count = len(preview.rows)
    text = f"{count:,} {'record was' if count == 1 else 'records were'} read. Nothing was written."
    if failed:
        text += f" {failed:,} failed."
    return join(
        tag("p", text, class_="bad" if failed else None, role="status"),
        [tag("p", each) for each in preview.notes],
        tag("p", "A limit ended the preview: there may be more records.")
        if preview.truncated
        else None,
        [_step_html(preview, index, step) for index, step in enumerate(preview.steps)],
        _back(visit, draft, sealed, tag("button", "Plan", name="do", value="plan")),
    )


def plan_html(
    visit: Visit, draft: Draft, plan: pb.PlanConnectorConfigResponse, sealed: str, task_count: int
) -> Html:
    """What the config would change, and a button that does exactly this."""
    schemas = list(schema_lines(plan))[:_LINES_MAX]
    decide: Node = None
    if plan.created:
        then = _THEN[draft.state]
    elif plan.changes:
        tasks = f"{task_count:,} {'task' if task_count == 1 else 'tasks'}"
        then = f"The connector restarts with the new config, and its {tasks} too."
    else:
        then = "The connector has this config already: there is nothing to write."
    if plan.created or plan.changes:
        label = "Create the connector" if plan.created else "Apply this plan"
        decide = tag("button", label, name="do", value="apply", class_="primary")
    return join(
        tag("p", then),
        tag("section", tag("h2", "Notes"), tag("ul", *(tag("li", each) for each in plan.notes)))
        if plan.notes
        else None,
        _changes_html(plan) if plan.changes else None,
        tag("section", tag("h2", "Schemas of the records"), _pre(schemas)) if schemas else None,
        tag("details", tag("summary", "Classes with their versions"), _pre(plan.components))
        if plan.components
        else None,
        tag("p", "Plan ", tag("code", plan.plan_hash), class_="quiet-note"),
        _back(
            visit,
            draft,
            sealed,
            tag("input", type="hidden", name="plan", value=plan.plan_hash),
            decide,
        ),
    )


def conflict_html(visit: Visit, draft: Draft, base: Draft, conflict: Conflict, sealed: str) -> Html:
    """Both configs, and what this user can do; nothing was changed.

    Args:
        visit: Who asks.
        draft: The user's input.
        base: The same on top of the present revision.
        conflict: The differences.
        sealed: The secrets that the user typed.
    """
    if draft.is_new:
        what = f"There is a connector with the name {draft.name} already"
    elif not conflict.revision:
        what = "The connector was deleted after you opened the form"
    else:
        by = f" by {conflict.author}" if conflict.author else ""
        what = f"The connector was changed{by} after you opened the form"
        what += f": it has revision {conflict.revision}"
    more: Node
    if draft.is_new:
        more = tag("p", "Choose another name, or edit the connector that exists.")
    elif conflict.revision:
        more = tag(
            "p",
            "If you continue, your config is edited on top of the present revision: what differs is"
            " replaced by your values when you apply it.",
        )
    else:
        more = tag("p", "Create it again, if it is still needed: your config is kept here.")
    return join(
        notice(
            "error", "Nothing was written", tag("p", f"{what}. Your input is kept below."), more
        ),
        _differences_html(conflict) if conflict.differences else None,
        _back(visit, base, sealed, label="Continue with your config"),
    )


def written_html(name: str, revision: int, text: str) -> Html:
    """The result of a write."""
    return join(
        tag(
            "p",
            tag("strong", text),
            f" Its config has revision {revision}." if revision else None,
            class_="good",
            role="status",
        ),
        tag("p", tag("a", "To the connector", href=connector_url(name))),
        tag("p", tag("a", "Edit its config", href=edit_url(name))),
    )


def _back(
    visit: Visit, draft: Draft, sealed: str, *buttons: Node, label: str = "Back to the form"
) -> Html:
    """A form that has the whole input."""
    return visit.form(
        form_path(draft),
        *hidden_html(draft, draft.shown_config, sealed, keeps_passwords=True),
        _new_fields(draft) if draft.is_new else None,
        *buttons,
        tag("button", label, name="do", value="edit"),
        class_="decide",
    )


def _new_fields(draft: Draft) -> Sequence[Html]:
    return [
        tag("input", type="hidden", name="connector", value=draft.name),
        tag("input", type="hidden", name="state", value=draft.state.value),
    ]


def _pre(lines: Iterable[str]) -> Html:
    return tag("pre", tag("code", "\n".join(lines)), tabindex=0)


def _changes_html(plan: pb.PlanConnectorConfigResponse) -> Html:
    rows = [
        tag(
            "tr",
            tag("th", tag("bdi", each.name), scope="row"),
            _value_cell(each.before if each.HasField("before") else None),
            _value_cell(each.after if each.HasField("after") else None),
        )
        for each in plan.changes[:_LINES_MAX]
    ]
    count = len(plan.changes)
    left = count - len(rows)
    return tag(
        "section",
        tag("h2", f"{count:,} {'setting changes' if count == 1 else 'settings change'}"),
        _values_table("Settings that change", ("Setting", "Now", "Then"), rows),
        tag("p", f"and {left:,} more") if left else None,
    )


def _differences_html(conflict: Conflict) -> Html:
    heads = ["Setting", "You saw", "Now", "Yours"]
    rows = []
    for each in conflict.differences[:_LINES_MAX]:
        values = [each.seen, each.now, each.own] if conflict.has_seen else [each.now, each.own]
        rows.append(
            tag("tr", tag("th", tag("bdi", each.name), scope="row"), *map(_value_cell, values))
        )
    if not conflict.has_seen:
        heads.remove("You saw")
    left = len(conflict.differences) - len(rows)
    return tag(
        "section",
        tag("h2", "The differences"),
        _values_table("Settings that differ", heads, rows),
        tag("p", f"and {left:,} more") if left else None,
    )


def _values_table(caption: str, heads: Sequence[str], rows: Sequence[Html]) -> Html:
    return table_html(caption, heads, rows, class_="wide values")


def _value_cell(value: str | None) -> Html:
    if value is None:
        return tag("td", tag("i", "not set"))
    return tag("td", tag("bdi", _cut(value))) if value else tag("td", tag("i", "empty"))


def _step_html(preview: Preview, index: int, step: str) -> Html | None:
    shown = [(each, _record_at(each, index)) for each in preview.rows]
    rows = [
        (row, record)
        for row, record in shown
        if record is not None or step in (row.failed_step, row.dropped_by)
    ]
    if not rows:
        return None
    records = [record for _, record in rows if record is not None]
    columns = _columns(records)
    has_key = any(each.HasField("key") for each in records)
    has_headers = any(each.headers for each in records)
    has_target = step == _LAST and any(row.target for row, _ in rows)
    heads = ["From", "Topic", *(["Key"] if has_key else []), *(columns or ["Value"])]
    heads += ["Headers"] if has_headers else []
    heads += ["Target"] if has_target else []
    lines = []
    for row, record in rows:
        place = tag("th", tag("bdi", row.place), scope="row")
        if record is None:
            lines.append(tag("tr", place, _end_cell(row, step, len(heads) - 1)))
            continue
        cells = [record.topic, *([record.key] if has_key else []), *_values(record, columns)]
        if has_headers:
            cells.append(", ".join(f"{each.key}={each.value}" for each in record.headers))
        if has_target:
            cells.append(row.target)
        lines.append(tag("tr", place, *(tag("td", tag("bdi", _cut(each))) for each in cells)))
    return tag("section", tag("h2", step), _values_table(f"Records after {step}", heads, lines))


def _record_at(row: PreviewedRow, index: int) -> PreviewedRecord | None:
    return row.records[index] if index < len(row.records) else None


def _end_cell(row: PreviewedRow, step: str, width: int) -> Html:
    if row.failed_step == step:
        return tag("td", f"failed: {_cut(row.error)}", colspan=width, class_="bad")
    return tag("td", "dropped", colspan=width)


def _columns(records: Sequence[PreviewedRecord]) -> list[str]:
    """The fields of the values; none if a value is no object, or if there are too many."""
    names: dict[str, None] = {}
    for each in records:
        value = _object(each)
        if value is None:
            return []
        names.update(dict.fromkeys(value))
    return list(names) if len(names) <= _COLUMNS_MAX else []


def _values(record: PreviewedRecord, columns: Sequence[str]) -> list[str]:
    if not columns:
        return [record.value if record.HasField("value") else "null"]
    value = _object(record) or {}
    found = (value.get(each, "null") for each in columns)
    return [json.loads(each) if each.startswith('"') else each for each in found]


def _object(record: PreviewedRecord) -> dict[str, str] | None:
    """The fields of a value, each as JSON: a number keeps its digits."""
    return members_of(record.value) or None if record.HasField("value") else None


def _cut(text: str) -> str:
    left = len(text) - _CELL_MAX_CHARS
    return text if left <= 0 else f"{text[:_CELL_MAX_CHARS]}… ({left:,} more characters)"
