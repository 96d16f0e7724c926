"""The tab with a connector's offsets, and the pages of their change."""

import json
import shlex
from collections.abc import Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.offset_moves import move_text
from drover.cli.output.times import iso_time
from drover.model.command_lines import drover_command
from drover_gateway.console.actions import RESUME, STOP, Action
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import CONFIRM, form_value
from drover_gateway.console.frame import Visit, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.links import connector_url
from drover_gateway.console.offset_edits import Conflict, Edit, field_of, readable

EDIT, EDIT_RUN = "/ui/connector/offsets/edit", "/ui/connector/offsets/edit/run"
MOVE = "/ui/connector/offsets/time"
RESET, RESET_RUN = "/ui/connector/offsets/reset", "/ui/connector/offsets/reset/run"
#: The maximum number of offsets of a page.
OFFSETS_MAX = 500
#: Times before now, as `drover connector offsets --to-time` has them.
AGO_LABELS = {"1h": "An hour", "1d": "A day"}
_UNKNOWN = "-"


def offsets_html(
    visit: Visit,
    name: str,
    offsets: Sequence[pb.ConnectorOffset],
    *,
    has_more: bool,
    is_stopped: bool,
    is_sink: bool,
    digest: str,
    dead_letter_topic: str,
) -> Html:
    """The tab; offsets of a stopped connector can be edited."""
    lags = [each.lag for each in offsets if each.HasField("lag")]
    total = f", lag {sum(lags):,}" if lags else ""
    more = " of more" if has_more else ""
    what = "offset" if len(offsets) == 1 and not has_more else "offsets"
    parts: list[Node] = [tag("p", f"{len(offsets):,}{more} {what}{total}.")]
    if has_more:
        text = f"Only {OFFSETS_MAX:,} are shown; the command below lists all of them."
        parts.append(tag("p", text, class_="quiet-note"))
    if any(_topic(each) == dead_letter_topic for each in offsets if dead_letter_topic):
        queue = tag("bdi", dead_letter_topic)
        text = " is the dead letter queue: its offsets are how far the last replay has read it."
        parts.append(tag("p", queue, text, class_="quiet-note"))
    if not is_stopped:
        parts += [
            _table(offsets) if offsets else _none(),
            _stop_first(visit, name) if visit.rights.may("AlterConnectorOffsets", name) else None,
        ]
    else:
        rights = visit.rights
        if rights.may("AlterConnectorOffsets", name):
            parts.append(_form(visit, name, offsets, is_sink=is_sink))
            parts.append(_move_form(visit, name) if is_sink else None)
        else:
            parts.append(_table(offsets) if offsets else _none())
        if offsets and rights.may("ResetConnectorOffsets", name):
            parts.append(_reset_form(visit, name, digest))
        parts.append(_resume(visit, name))
    parts.append(
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector offsets", name),
                grpc_command("GetConnectorOffsets", {"name": name}),
            ],
        )
    )
    return join(*parts)


def confirm_edit_html(visit: Visit, name: str, edits: Sequence[Edit]) -> Html:
    """What an edit will change, before it is written."""
    if not edits:
        return notice("empty", "Nothing was changed", tag("p", _back(name)))
    return join(
        tag(
            "p",
            f"{_count(edits)} will be written; the others stay. A lower offset repeats records.",
        ),
        _differences(edits),
        _write_form(visit, name, edits),
        commands("The same from the command line and by gRPC", _edit_commands(name, edits)),
    )


def confirm_move_html(
    visit: Visit, name: str, time_ms: int, found: Sequence[pb.FoundOffset], edits: Sequence[Edit]
) -> Html:
    """Where a sink's partitions have the first record at or after a time, before it is written."""
    time = iso_time(time_ms)
    if not found:
        return notice(
            "empty",
            "The sink has no topic partitions",
            tag("p", "It has no committed offset, and none of its topics exists."),
            tag("p", _back(name)),
        )
    rows = [
        _row(
            readable(each.found.partition_json),
            each.committed_offset_json,
            each.found.offset_json or each.committed_offset_json,
            note=move_text(each),
        )
        for each in found
    ]
    lines = [
        drover_command("connector offsets", name, options=("--to-time", time)),
        grpc_command("FindConnectorOffsets", {"name": name, "start_time": time}),
        *(_edit_commands(name, edits)[1:] if edits else ()),
    ]
    what = f"{_count(edits)} will be written; the others stay." if edits else "Nothing to change."
    return join(
        tag("p", "To the first record of each partition at or after ", tag("b", time), "."),
        tag("p", what),
        _wide("The difference", ("Partition", "Now", "Afterwards", "Change"), rows),
        _write_form(visit, name, edits) if edits else tag("p", _back(name)),
        commands("The same from the command line and by gRPC", lines),
    )


def confirm_reset_html(
    visit: Visit, name: str, offsets: Sequence[pb.ConnectorOffset], *, has_more: bool, digest: str
) -> Html:
    """What a reset will remove, before it does."""
    edits = [Edit(each.partition_json, each.offset_json, "") for each in offsets]
    more = f"These {len(edits):,} and all further offsets" if has_more else "All offsets"
    return join(
        tag("p", f"{more} will be removed: the connector starts as its config says."),
        _differences(edits),
        visit.form(
            RESET_RUN,
            tag("input", type="hidden", name="name", value=form_value(name)),
            tag("input", type="hidden", name="digest", value=digest),
            tag("button", "Remove all offsets", class_="danger"),
            tag("a", "Cancel", href=connector_url(name, "offsets")),
            class_="decide",
        ),
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector offsets", name, options=("--reset",)),
                grpc_command("ResetConnectorOffsets", {"name": name}),
            ],
        ),
    )


def conflict_html(name: str, conflicts: Sequence[Conflict]) -> Html:
    """What has changed since the page was shown; nothing was written."""
    rows = [
        _row(readable(each.edit.partition), each.edit.before, each.now, each.edit.after)
        for each in conflicts
    ]
    head = ("Partition", "You saw", "It is now", "You wanted")
    return notice(
        "error",
        "The offsets have changed since the page was loaded",
        tag("p", "Nothing was written."),
        _wide("Offsets that changed", head, rows) if rows else None,
        tag("p", tag("a", "The offsets as they are now", href=connector_url(name, "offsets"))),
    )


def done_html(visit: Visit, name: str, message: str) -> Html:
    """The worker's answer to a change."""
    return join(
        tag("p", message, class_="good", role="status"),
        _resume(visit, name),
        tag("p", _back(name)),
    )


def _count(edits: Sequence[Edit]) -> str:
    return f"{len(edits):,} offset{'' if len(edits) == 1 else 's'}"


def _write_form(visit: Visit, name: str, edits: Sequence[Edit]) -> Html:
    hidden = [
        _hidden(key, value)
        for each in edits
        for key, value in (
            ("partition", each.partition),
            ("before", each.before),
            ("after", each.after),
        )
    ]
    return visit.form(
        EDIT_RUN,
        _hidden("name", name),
        *hidden,
        tag("button", f"Write {_count(edits)}", class_="danger"),
        tag("a", "Cancel", href=connector_url(name, "offsets")),
        class_="decide",
    )


def _resume(visit: Visit, name: str) -> Html:
    text = "The connector is stopped. It reads from its offsets when it is resumed."
    may_resume = visit.rights.may(RESUME.rpc, name)
    return join(tag("p", text), _action_form(visit, name, RESUME) if may_resume else None)


def _action_form(visit: Visit, name: str, action: Action) -> Html:
    return visit.form(
        CONFIRM,
        tag("input", type="hidden", name="name", value=form_value(name)),
        tag("input", type="hidden", name="of", value=form_value(name)),
        tag("input", type="hidden", name="tab", value="offsets"),
        tag("button", f"{action.label}…", name="action", value=action.key),
        class_="decide",
    )


def _back(name: str) -> Html:
    return tag(
        "a", "Back to the offsets of ", tag("bdi", name), href=connector_url(name, "offsets")
    )


def _none() -> Html:
    return notice(
        "empty",
        "There are no offsets yet",
        tag("p", "A connector commits them with its first records."),
    )


def _topic(offset: pb.ConnectorOffset) -> str | None:
    partition = json.loads(offset.partition_json)
    return partition.get("kafka_topic") if isinstance(partition, dict) else None


def _stop_first(visit: Visit, name: str) -> Html:
    return tag(
        "section",
        tag("h2", "Edit or reset"),
        tag("p", "Offsets can be changed while the connector is stopped."),
        _action_form(visit, name, STOP),
    )


def _table(offsets: Sequence[pb.ConnectorOffset]) -> Html:
    rows = [
        _row(
            readable(each.partition_json),
            field_of(each.partition_json, each.offset_json),
            *_end_and_lag(each),
        )
        for each in offsets
    ]
    return _wide("Offsets", ("Partition", "Offset", "End", "Lag"), rows)


def _form(visit: Visit, name: str, offsets: Sequence[pb.ConnectorOffset], *, is_sink: bool) -> Html:
    rows = []
    for at, each in enumerate(offsets, 1):
        label = f"Offset of {readable(each.partition_json)}"
        value = field_of(each.partition_json, each.offset_json)
        end, lag = _end_and_lag(each)
        rows.append(
            tag(
                "tr",
                tag(
                    "th",
                    tag("bdi", readable(each.partition_json)),
                    _hidden("partition", each.partition_json),
                    _hidden("before", each.offset_json),
                    scope="row",
                ),
                tag("td", _field("entered", value, label)),
                tag("td", end, class_="num"),
                tag("td", lag, class_="num"),
                id=f"offset-{at}",
            )
        )
    rows.append(
        tag(
            "tr",
            tag("td", _field("new_partition", "", "Another partition, as JSON")),
            tag("td", _field("new_offset", "", "Its offset")),
            tag("td", _UNKNOWN, class_="num"),
            tag("td", _UNKNOWN, class_="num"),
        )
    )
    return tag(
        "section",
        tag("h2", "Edit"),
        tag(
            "p",
            f"An offset is {'a number' if is_sink else 'a JSON object'}; empty removes it. The last"
            " row adds one. The next page lists the difference; nothing is written before.",
        ),
        visit.form(
            EDIT,
            tag("input", type="hidden", name="name", value=form_value(name)),
            _wide("Offsets to edit", ("Partition", "Offset", "End", "Lag"), rows),
            tag("button", "Review the difference…", class_="primary"),
        ),
    )


def _hidden(key: str, value: str) -> Html:
    return tag("input", type="hidden", name=key, value=form_value(value))


def _field(key: str, value: str, label: str) -> Html:
    return tag(
        "input",
        type="text",
        name=key,
        value=value,
        aria_label=label,
        autocomplete="off",
        spellcheck="false",
        class_="offset",
    )


def _move_form(visit: Visit, name: str) -> Html:
    field = tag("input", type="datetime-local", name="time", step=1)
    return tag(
        "section",
        tag("h2", "Move to a time"),
        tag(
            "p",
            "Each partition continues at its first record at or after the time, or at its end if"
            " there is none. The next page lists the difference; nothing is written before.",
        ),
        visit.form(
            MOVE,
            _hidden("name", name),
            tag("label", "Time (UTC)", field),
            tag("button", "Review the difference…"),
            *(
                tag("button", f"{label} ago…", name="ago", value=value)
                for value, label in AGO_LABELS.items()
            ),
            class_="decide",
        ),
    )


def _reset_form(visit: Visit, name: str, digest: str) -> Html:
    return tag(
        "section",
        tag("h2", "Reset"),
        tag("p", "Removes all offsets, so that the connector starts as its config says."),
        visit.form(
            RESET,
            tag("input", type="hidden", name="name", value=form_value(name)),
            tag("input", type="hidden", name="digest", value=digest),
            tag("button", "Reset…", class_="danger"),
        ),
    )


def _differences(edits: Sequence[Edit]) -> Html:
    rows = [_row(readable(each.partition), each.before, each.after) for each in edits]
    return _wide("The difference", ("Partition", "Now", "Afterwards"), rows)


def _row(partition: str, *cells: str, note: str = "") -> Html:
    return tag(
        "tr",
        tag("th", tag("bdi", partition), scope="row"),
        *(tag("td", tag("code", each) if each else tag("small", "none")) for each in cells),
        tag("td", note) if note else None,
    )


def _wide(label: str, head: Sequence[str], rows: Sequence[Html]) -> Html:
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
        tag("tbody", *rows),
        aria_label=label,
    )
    return tag("div", table, class_="wide", tabindex=0, role="group", aria_label=f"{label}, table")


def _end_and_lag(offset: pb.ConnectorOffset) -> tuple[str, str]:
    if not offset.HasField("end_offset"):
        return _UNKNOWN, _UNKNOWN
    return f"{offset.end_offset:,}", f"{offset.lag:,}"


def _edit_commands(name: str, edits: Sequence[Edit]) -> list[str]:
    document = {
        "offsets": [
            {
                "partition": json.loads(each.partition),
                "offset": json.loads(each.after) if each.after else None,
            }
            for each in edits
        ]
    }
    text = json.dumps(document, ensure_ascii=False)
    sent = [
        {"partition_json": each.partition, **({"offset_json": each.after} if each.after else {})}
        for each in edits
    ]
    written = drover_command("connector offsets", name, options=("-f", "-"))
    return [
        f"echo {shlex.quote(text)} | {written}",
        grpc_command("AlterConnectorOffsets", {"name": name, "offsets": sent}),
    ]
