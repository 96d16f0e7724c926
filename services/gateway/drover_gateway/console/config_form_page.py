"""The form for a connector's config: its fields, its text, and the choice of a class."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.config import TargetState
from drover_gateway.console.config_draft import ADDED_KINDS, TEXT, Draft, encoded
from drover_gateway.console.config_fields import (
    NAME,
    Checked,
    Control,
    Fault,
    Field,
    Show,
    setting_id,
)
from drover_gateway.console.config_settings_page import settings_html
from drover_gateway.console.config_text import Notation, lines_of
from drover_gateway.console.frame import (
    CONNECTORS,
    EDIT_CONNECTOR,
    NEW_CONNECTOR,
    Visit,
    commands,
    notice,
)
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.links import connector_url
from drover_gateway.console.rights import role_of
from drover_gateway.console.sessions import SESSION_S

NEW, EDIT = NEW_CONNECTOR, EDIT_CONNECTOR
#: The number of records in a preview.
PREVIEW_ROWS, PREVIEW_ROWS_MAX = 10, 100
_FAULTS_MAX = 200
_SHOWN = {Show.SET: "only what is set", Show.IMPORTANT: "important", Show.ALL: "all"}
_STATES = {
    TargetState.STARTED: "running",
    TargetState.PAUSED: "paused",
    TargetState.STOPPED: "stopped",
}
_GUARANTEES = {
    pb.GUARANTEE_AT_MOST_ONCE: "at most once",
    pb.GUARANTEE_AT_LEAST_ONCE: "at least once",
    pb.GUARANTEE_EXACTLY_ONCE: "exactly once",
}
_WRITES_NEED = (
    f"A preview, a plan and a change of the config need the role {role_of('PutConnectorConfig')}."
)


def form_path(draft: Draft) -> str:
    """Where the form is sent."""
    return NEW if draft.is_new else EDIT


def form_title(draft: Draft) -> str:
    """The title of the form's page."""
    return "New connector" if draft.is_new else f"Config of {draft.name}"


def classes_html(plugins: Sequence[pb.Plugin], name: str) -> Html:
    """The choice of a class for a new connector."""
    if not plugins:
        return notice(
            "empty",
            "No worker has a connector plugin",
            tag("p", "Install a package with connectors on the workers, then reload the plugins:"),
            tag("pre", tag("code", "drover plugin reload\ndrover plugin list"), tabindex=0),
        )
    kinds = (
        (pb.CONNECTOR_TYPE_SOURCE, "Sources", "They read from another system into topics."),
        (pb.CONNECTOR_TYPE_SINK, "Sinks", "They write the records of topics to another system."),
    )
    sections = []
    for kind, title, text in kinds:
        found = [each for each in plugins if each.type == kind]
        if found:
            lines = [_class_line(each) for each in found]
            sections.append(
                tag("section", tag("h2", title), tag("p", text), tag("ul", *lines, class_="lines"))
            )
    rest = [each for each in plugins if each.type not in {kind for kind, _, _ in kinds}]
    if rest:
        lines = [_class_line(each) for each in rest]
        sections.append(tag("section", tag("h2", "Others"), tag("ul", *lines, class_="lines")))
    return join(
        tag("p", "Choose what reads or writes. The next page has its settings."),
        tag(
            "form",
            tag(
                "p",
                tag("label", "Name of the connector", for_="connector-name"),
                tag("input", id="connector-name", name="name", value=name, autocomplete="off"),
            ),
            *sections,
            method="get",
            action=NEW,
            class_="config",
        ),
        tag(
            "p",
            tag("a", "Start from YAML or JSON", href=f"{NEW}?{urlencode({'notation': 'yaml'})}"),
            " if you have a config already.",
        ),
        commands(
            "The same from the command line", ["drover plugin list", "drover plugin describe CLASS"]
        ),
    )


def form_html(
    visit: Visit,
    draft: Draft,
    checks: Checked,
    plugin: pb.Plugin | None,
    proposals: Mapping[str, Sequence[str]],
    sealed: str,
    *notices: Node,
) -> Html:
    """The form with a field for each setting."""
    exact = {
        each.name: each.value
        for group in checks.groups
        for each in group.fields
        if each.control is Control.EXACT and each.value is not None
    }
    return join(
        *notices,
        [tag("p", each, class_="warning") for each in draft.notes],
        [_was_added(each) for each in draft.added],
        _about(draft, plugin),
        visit.form(
            form_path(draft),
            *hidden_html(draft, exact, sealed, keeps_passwords=False),
            _actions(visit, draft),
            _name_html(draft),
            checks_html(draft, checks),
            _filters(draft),
            settings_html(draft, checks),
            *(_added_class_html(kind, proposals.get(kind, ())) for kind in ADDED_KINDS),
            _added_html(),
            id="config-form",
            class_="config",
            data_live_check=True,
        ),
        _end(visit, draft),
    )


def text_html(
    visit: Visit,
    draft: Draft,
    checks: Checked | None,
    sealed: str,
    *notices: Node,
) -> Html:
    """The form with the config as text, in the notation of the draft."""
    notation = draft.notation or Notation.JSON
    text = draft.as_text(notation)
    error = None
    if draft.text_error:
        error = notice("error", "The text is not a config", tag("p", draft.text_error))
    notes = [tag("p", each, class_="warning") for each in draft.notes]
    return join(
        *notices,
        error,
        visit.form(
            form_path(draft),
            *hidden_html(draft, {}, sealed, keeps_passwords=True),
            _actions(visit, draft),
            _state_html(draft) if draft.is_new else None,
            checks_html(draft, checks, lines_of(text)) if checks is not None else None,
            notes,
            tag(
                "p",
                tag("label", f"The config as {notation.upper()}", for_="config-text"),
                tag(
                    "textarea",
                    "\n",
                    text,
                    id="config-text",
                    name=TEXT,
                    rows=30,
                    spellcheck="false",
                    autocapitalize="off",
                    autocomplete="off",
                    aria_describedby="config-text-note",
                    aria_invalid="true" if draft.text_error else None,
                ),
                class_="text",
            ),
            tag(
                "p",
                "******** keeps the secret that is stored, or that you typed before. The text is"
                " read as by drover connector create.",
                id="config-text-note",
                class_="quiet-note",
            ),
            id="config-form",
            class_="config",
        ),
        _end(visit, draft),
    )


def hidden_html(
    draft: Draft, exact: Mapping[str, str], sealed: str, *, keeps_passwords: bool
) -> list[Html]:
    """The fields with what a page does not show.

    Args:
        draft: The user's input.
        exact: Settings that the page has no field for.
        sealed: The secrets that the user typed.
        keeps_passwords: Whether the page has no fields of passwords.
    """
    fields = {
        "revision": str(draft.revision),
        "show": draft.show.value,
        "notation": draft.notation.value if draft.notation else "",
        "sealed": sealed,
        "config": json.dumps(exact),
    }
    if not draft.is_new:
        fields["known"] = encoded(draft.name)
    found = [tag("input", type="hidden", name=key, value=value) for key, value in fields.items()]
    if keeps_passwords:
        found += [
            tag("input", type="hidden", name="p", value=encoded(each))
            for each in sorted(draft.passwords)
        ]
    return found


def checks_html(draft: Draft, checks: Checked, lines: Mapping[str, int] | None = None) -> Html:
    """The summary of the errors and warnings, with links to their fields.

    ``lines`` are the lines of the settings on a page with text.
    """
    place_of = partial(_place, draft, checks.fields, lines or {})
    parts: list[Node] = []
    if checks.errors:
        count = len(checks.errors)
        parts.append(tag("h2", f"{count:,} {'error' if count == 1 else 'errors'}"))
        parts.append(_fault_list(checks.errors, place_of, "bad"))
    if checks.warnings:
        count = len(checks.warnings)
        parts.append(tag("h2", f"{count:,} {'warning' if count == 1 else 'warnings'}"))
        parts.append(_fault_list(checks.warnings, place_of, "warning"))
    if checks.skipped:
        skipped = [
            tag("li", tag("bdi", each.setting), " " if each.setting else None, each.text)
            for each in checks.skipped[:_FAULTS_MAX]
        ]
        count = len(checks.skipped)
        title = f"{count:,} {'check was' if count == 1 else 'checks were'} not made"
        parts.append(tag("details", tag("summary", title), tag("ul", *skipped)))
    return tag(
        "div",
        tag("p", id="checks-state", role="status"),
        tag("div", *parts, id="checks-list"),
        id="checks",
    )


def session_note(visit: Visit) -> Html:
    """Until when the form can be sent."""
    end = datetime.fromtimestamp(visit.session.begin_s + SESSION_S, UTC)
    return tag(
        "p",
        "Your session ends at ",
        tag("span", f"{end:%Y-%m-%d %H:%M} UTC"),
        ". What you enter is kept on your page only. If the session ends before you submit, the"
        " next page still has your input, and asks you to sign in.",
        class_="quiet-note",
    )


def _about(draft: Draft, plugin: pb.Plugin | None) -> Html | None:
    if plugin is None:
        return None
    guarantees = [
        f"{_GUARANTEES[value]} {where}"
        for value, where in (
            (plugin.guarantee_embedded, "in embedded storage"),
            (plugin.guarantee_kafka, "on Kafka"),
        )
        if value in _GUARANTEES
    ]
    return join(
        tag("p", plugin.description) if plugin.description else None,
        tag(
            "p",
            tag(
                "a",
                tag("bdi", plugin.class_name),
                href=f"/ui/plugin?{urlencode({'class': plugin.class_name})}",
            ),
            f" {plugin.version}",
            f": delivers {', '.join(guarantees)}" if guarantees else None,
            class_="quiet-note",
        ),
        None
        if draft.is_new
        else tag("p", f"You see revision {draft.revision} of the config.", class_="quiet-note"),
    )


def _class_line(plugin: pb.Plugin) -> Html:
    short = plugin.class_name.rpartition(".")[2]
    return tag(
        "li",
        tag("button", tag("bdi", short), name="class", value=plugin.class_name),
        tag("span", plugin.description or "It has no description."),
        tag("small", tag("bdi", plugin.class_name), f" {plugin.version}"),
    )


def _actions(visit: Visit, draft: Draft) -> Html:
    apply_label = "Create" if draft.is_new else "Apply"
    # each of the three calls needs the same role; a new connector may get another name
    rights = visit.rights
    may_write = (
        rights.may_for_some("CreateConnector")
        if draft.is_new
        else rights.may("PutConnectorConfig", draft.name)
    )
    notations = {"Fields": "fields", "YAML": "yaml", "JSON": "json"}
    now = draft.notation.value if draft.notation else "fields"
    return join(
        tag(
            "div",
            tag("button", "Validate", name="do", value="validate", class_="primary"),
            _writes(apply_label) if may_write else None,
            tag(
                "a",
                "Cancel",
                href=CONNECTORS if draft.is_new else connector_url(draft.name, "config"),
            ),
            class_="bulk",
            role="group",
            aria_label="What to do with the config",
        ),
        tag(
            "p",
            _explanation(draft.is_new) if may_write else _WRITES_NEED,
            class_="quiet-note",
        ),
        tag(
            "fieldset",
            tag("legend", "Edit as"),
            *(
                tag(
                    "button",
                    label,
                    name="do",
                    value=value,
                    aria_pressed="true" if value == now else "false",
                )
                for label, value in notations.items()
            ),
            class_="choices",
        ),
    )


def _writes(apply_label: str) -> Html:
    return join(
        tag("button", "Preview", name="do", value="preview"),
        tag(
            "label",
            "records ",
            tag(
                "input",
                type="number",
                name="rows",
                value=PREVIEW_ROWS,
                min=1,
                max=PREVIEW_ROWS_MAX,
            ),
        ),
        tag("button", "Plan", name="do", value="plan"),
        tag("button", apply_label, name="do", value="apply"),
    )


def _explanation(is_new: bool) -> str:
    end = "Create writes the config at once."
    if not is_new:
        end = (
            "Apply writes the config at once, unless another user has changed it since: its tasks"
            " restart."
        )
    return (
        "Validate also asks the systems that the config names. Plan shows what would change, and"
        f" changes nothing. {end}"
    )


def _filters(draft: Draft) -> Html:
    buttons = [
        tag(
            "button",
            label,
            name="filter",
            value=show.value,
            aria_pressed="true" if show is draft.show else "false",
        )
        for show, label in _SHOWN.items()
    ]
    return tag("fieldset", tag("legend", "Settings to show"), *buttons, class_="choices")


def _name_html(draft: Draft) -> Html | None:
    if not draft.is_new:
        return None
    return join(
        tag(
            "p",
            tag("label", "Name of the connector", for_="connector-name"),
            tag(
                "input",
                id="connector-name",
                name="connector",
                value=draft.name,
                autocomplete="off",
            ),
        ),
        _state_html(draft),
    )


def _state_html(draft: Draft) -> Html:
    options = [
        tag("option", label, value=state.value, selected=state is draft.state)
        for state, label in _STATES.items()
    ]
    return tag(
        "p",
        tag("label", "State after its creation", for_="initial-state"),
        tag("select", *options, id="initial-state", name="state"),
    )


def _added_html() -> Html:
    return tag(
        "fieldset",
        tag("legend", "Another setting"),
        tag("label", "Name", tag("input", name="new-name", autocomplete="off")),
        tag("label", "Value", tag("input", name="new-value", autocomplete="off")),
        tag("button", "Add", name="do", value="check"),
        class_="added",
    )


def _added_class_html(kind: str, classes: Sequence[str]) -> Html:
    label = ADDED_KINDS[kind]
    options = [
        tag("option", "choose", value=""),
        *(tag("option", each, value=each) for each in classes),
    ]
    return tag(
        "fieldset",
        tag("legend", f"Another {label}"),
        tag("label", "Class", tag("select", *options, name=f"new-{kind}-class")),
        tag(
            "label",
            "Name",
            tag(
                "input",
                name=f"new-{kind}-name",
                placeholder="from the class",
                autocomplete="off",
                spellcheck="false",
            ),
        ),
        tag("button", f"Add a {label}", name="do", value="check"),
        class_="added",
    )


def _was_added(setting: str) -> Html:
    link = tag("a", tag("bdi", setting), href=f"#{setting_id(setting)}-v")
    return tag("p", "Added: ", link, ". Its settings follow it.", role="status", class_="good")


def _end(visit: Visit, draft: Draft) -> Html:
    name = draft.name or "NAME"
    lines = [
        "drover connector validate -f FILE",
        "drover connector preview FILE",
        "drover connector plan FILE",
        "drover connector create -f FILE"
        if draft.is_new
        else "drover connector apply -f FILE --plan HASH",
        "",
        *(
            f"grpcurl -d @ WORKER drover.api.connect.v1.ConnectService/{each}"
            for each in (
                "ValidateConfig",
                "PreviewConnector",
                "PlanConnectorConfig",
                "CreateConnector" if draft.is_new else "PutConnectorConfig",
            )
        ),
    ]
    return join(
        session_note(visit),
        commands(f"The same for {name} from the command line and by gRPC", lines),
    )


def _place(draft: Draft, fields: Mapping[str, Field], lines: Mapping[str, int], name: str) -> Node:
    """A setting with its line, or with a link to its field."""
    shown = tag("bdi", name)
    if name in lines:
        return [shown, f" (line {lines[name]})"]
    if draft.notation is not None:
        return shown
    if name == NAME and draft.is_new:
        return tag("a", shown, href="#connector-name")
    return tag("a", shown, href=f"#{setting_id(name)}-v") if name in fields else shown


def _fault_list(faults: Sequence[Fault], place_of: Callable[[str], Node], kind: str) -> Html:
    lines = [tag("li", place_of(each.setting), " ", each.text) for each in faults[:_FAULTS_MAX]]
    left = len(faults) - len(lines)
    if left:
        lines.append(tag("li", f"and {left:,} more"))
    return tag("ul", *lines, class_=f"faults {kind}")
