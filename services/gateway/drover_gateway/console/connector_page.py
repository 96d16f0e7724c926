"""The page of one connector: its tabs, its state, and the present steps of its tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drover.api.common.v1 import activity_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.activities import step_text
from drover.codec.common import decode_timestamp
from drover.codec.failures import decode_failures
from drover.model.command_lines import drover_command
from drover.model.failures import cause_in
from drover_gateway.console.actions import ACTIONS, offered
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import CONFIRM, form_value, time_html
from drover_gateway.console.frame import CONNECTORS, Visit, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.links import connector_url, dead_letters_url, edit_url, topic_url
from drover_gateway.console.rights import Rights
from drover_gateway.console.rows import Row, State, row_of, state_of

RESTART_TASK, RESTART_TASK_RUN = "/ui/connector/restart-task", "/ui/connector/restart-task/run"
TABS: Mapping[str, str] = {
    "overview": "Overview",
    "config": "Config",
    "offsets": "Offsets",
    "history": "History",
    "topics": "Topics",
    "dead-letters": "Dead letters",
}
#: The maximum number of tasks that are shown, failed ones first.
TASKS_MAX = 100
TOPICS_MAX = 1_000
_CAUSE_MAX_CHARS = 2_000
_TRACE_MAX_CHARS = 16 * 1024
_STATE_ORDER = {state: at for at, state in enumerate(State)}
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Seen:
    """A connector as a page shows it.

    Attributes:
        status: The status, with the activities of tasks if their workers answered.
        connector: The connector; None for a moment after its creation.
        fault: Why the activities are not known; empty if they are.
    """

    status: pb.ConnectorStatus
    connector: pb.Connector | None
    fault: str = ""

    @property
    def row(self) -> Row:
        """As in the list."""
        return row_of(self.status, self.connector)


def tabs_html(visit: Visit, name: str, current: str) -> Html:
    """The links to the tabs, and to the form with the config."""
    links = [
        tag(
            "li",
            tag(
                "a",
                label,
                href=dead_letters_url(name) if key == "dead-letters" else _tab_url(name, key),
                aria_current="page" if key == current else None,
            ),
        )
        for key, label in TABS.items()
    ]
    edit = None
    if visit.rights.may("PutConnectorConfig", name):
        edit = tag("li", tag("a", "Edit", href=edit_url(name)))
    return tag("nav", tag("ul", *links, edit), aria_label="Connector", class_="pages tabs")


def _tab_url(name: str, key: str) -> str:
    return connector_url(name, "" if key == "overview" else key)


def overview_html(visit: Visit, seen: Seen, figures: Html, version: str, now_ms: int) -> Html:
    """The tab with states, counts, tasks and figures."""
    name = seen.status.name
    return join(
        tag("div", *live_parts(seen, now_ms).values(), id="connector", data_version=version),
        _actions(visit, seen.row),
        figures_part(figures),
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector describe", name),
                grpc_command("GetConnectorStatus", {"name": name}),
            ],
        ),
    )


def figures_part(figures: Html) -> Html:
    """The figures, as the part that is updated."""
    return tag("div", figures, id="c-figures")


def live_parts(seen: Seen, now_ms: int) -> dict[str, Html]:
    """The parts that are updated, by the ids of their elements."""
    row = seen.row
    parts = {
        "c-state": _state(seen, row),
        "c-failure": _failures(seen.status, now_ms),
        "c-facts": _facts(row, seen.status),
        "c-tasks": _tasks(seen.status),
        "c-notes": _notes(seen.status, now_ms),
    }
    return {key: tag("div", content, id=key) for key, content in parts.items()}


def buttons_part(row: Row, rights: Rights) -> dict[str, Html]:
    """The caller's actions that would do something now, as the part that is updated."""
    buttons = [
        tag(
            "button",
            f"{each.label}…",
            name="action",
            value=each.key,
            class_="danger" if each.is_destructive else None,
        )
        for each in offered(row)
        if rights.may(each.rpc, row.name)
    ]
    return {"c-actions": tag("span", *buttons, id="c-actions")}


def removed_parts(name: str) -> dict[str, Html]:
    """The parts after the connector's deletion."""
    text = tag("p", tag("bdi", name), " was deleted.", class_="bad", role="status")
    back = tag("p", tag("a", "To the connectors", href=CONNECTORS))
    parts = {"c-state": (text, back), "c-failure": (), "c-facts": (), "c-tasks": (), "c-notes": ()}
    parts["c-figures"] = ()
    found = {key: tag("div", *content, id=key) for key, content in parts.items()}
    return found | {"c-actions": tag("span", id="c-actions")}


def topics_html(name: str, topics: Sequence[str]) -> Html:
    """The tab with the topics that the connector has used."""
    items = [
        tag("li", tag("a", tag("bdi", each), href=topic_url(each))) for each in topics[:TOPICS_MAX]
    ]
    left_out = len(topics) - TOPICS_MAX
    if not items:
        found = notice(
            "empty",
            "It has used no topic yet",
            tag("p", "A topic is listed as soon as a record was written to it or read from it."),
        )
    else:
        found = tag("ul", *items, class_="lines")
    return join(
        tag("p", f"{len(topics):,} topics, since its creation or the last reset of the list."),
        found,
        tag("p", f"{left_out:,} more topics are left out.") if left_out > 0 else None,
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector topics", name),
                grpc_command("GetConnectorTopics", {"name": name}),
            ],
        ),
    )


def restart_task_html(visit: Visit, name: str, task: int, state: str) -> Html:
    """What the restart of a task will do, before it is done."""
    return join(
        tag(
            "ul",
            tag(
                "li",
                tag("bdi", f"{name}, task {task}", class_="who"),
                tag("span", state, class_="now"),
                tag("span", "it will restart from its committed offsets"),
            ),
            class_="lines",
        ),
        visit.form(
            RESTART_TASK_RUN,
            tag("input", type="hidden", name="name", value=form_value(name)),
            tag("input", type="hidden", name="task", value=task),
            tag("button", f"Restart task {task}", class_="primary"),
            tag("a", "Cancel", href=connector_url(name)),
            class_="decide",
        ),
        commands(
            "The same from the command line and by gRPC",
            [
                drover_command("connector restart", name, options=("--task", str(task))),
                grpc_command("RestartTask", {"name": name, "task": task}),
            ],
        ),
    )


def task_state(status: pb.ConnectorStatus, task: int) -> State | None:
    """The state of a task; None if there is no such task."""
    return next((state_of(each.state) for each in status.tasks if each.task == task), None)


def state_html(state: State) -> Html:
    """A state with its sign."""
    return tag("span", state.value, class_=f"state is-{state.value}")


def _state(seen: Seen, row: Row) -> Node:
    instance = seen.status.connector
    facts: list[tuple[str, Node]] = [
        ("type", row.kind),
        ("class", tag("bdi", row.class_name or "unknown")),
        ("plugin version", instance.plugin_version or "unknown"),
        ("connector object", [row.own_state.value, " on ", tag("bdi", instance.worker_id)]),
        ("target", row.target or "unknown"),
        ("revision", f"{row.revision}"),
    ]
    return (
        tag("p", state_html(row.state), class_="state-line"),
        _definitions(facts),
        tag("p", f"What tasks do is not known: {seen.fault}", class_="bad") if seen.fault else None,
    )


def _definitions(facts: Sequence[tuple[str, Node]]) -> Html:
    pairs = (tag("div", tag("dt", what), tag("dd", value)) for what, value in facts)
    return tag("dl", *pairs, class_="facts")


def _facts(row: Row, status: pb.ConnectorStatus) -> Html:
    rate = status.records_per_second if status.HasField("records_per_second") else None
    dead: Node = f"{row.dead_lettered_count:,}"
    if row.dead_lettered_count:
        dead = tag("a", dead, href=dead_letters_url(row.name))
    filtered = status.counts.filtered_count if status.HasField("counts") else None
    return _definitions(
        [
            ("lag", _number(row.lag)),
            ("records read per second, last minute", _UNKNOWN if rate is None else f"{rate:,.1f}"),
            ("read since creation", _number(row.read_count)),
            ("written", _number(row.written_count)),
            ("filtered", _number(filtered)),
            ("dead letters", dead),
            ("skipped", _number(row.skipped_count)),
        ]
    )


def _failures(status: pb.ConnectorStatus, now_ms: int) -> Node:
    """What has failed: the cause in one line, the attempts, and the trace folded."""
    states: list[tuple[str, str, pb.ConnectorState | pb.TaskState]] = [
        ("The connector", "trace-c", status.connector),
        *((f"Task {each.task}", f"trace-{each.task}", each) for each in _shown(status)),
    ]
    found = [
        _failure(what, key, state, now_ms)
        for what, key, state in states
        if state.state == pb.RUN_STATE_FAILED or state.HasField("failures")
    ]
    if not found:
        return None
    return tag("section", tag("h2", "Failures"), tag("ul", *found, class_="lines"))


def _failure(what: str, key: str, state: pb.ConnectorState | pb.TaskState, now_ms: int) -> Html:
    history = decode_failures(state.failures)
    last = history.last
    is_failed = state.state == pb.RUN_STATE_FAILED
    message = last.message if last is not None and last.message else cause_in(state.trace)
    # a history keeps the start of a message; the trace also has its end, with the remedy
    if message.endswith("…") and cause_in(state.trace).startswith(message[:-1]):
        message = cause_in(state.trace)
    message = message[:_CAUSE_MAX_CHARS]
    facts: list[Node] = []
    if last is not None:
        times = "once" if history.count == 1 else f"{history.count:,} times"
        facts.append((f"failed {times}, the last time ", time_html(last.failed_ms)))
        facts.append((" on ", tag("bdi", last.worker_id)))
    if not is_failed:
        facts.append("; runs again")
    elif history.restart_ms:
        facts.append(("; next restart ", _due(history.restart_ms, now_ms)))
    elif history.no_restart_reason:
        facts.append(f"; no automatic restart: {history.no_restart_reason}")
    return tag(
        "li",
        tag("span", what, class_="who"),
        tag("bdi", message or "no cause was reported", class_="bad" if is_failed else None),
        tag("span", *facts, class_="now"),
        _folded(f"Trace of {what[0].lower()}{what[1:]}", key, state.trace),
    )


def _folded(title: str, key: str, text: str) -> Html | None:
    if not text.strip():
        return None
    cut = len(text) - _TRACE_MAX_CHARS
    shown = text if cut <= 0 else f"… {cut:,} characters are left out\n{text[-_TRACE_MAX_CHARS:]}"
    return tag(
        "details",
        tag("summary", title),
        tag("pre", tag("code", shown), tabindex=0),
        id=key,
        class_="trace",
    )


def _shown(status: pb.ConnectorStatus) -> Sequence[pb.TaskState]:
    """The tasks that are shown: failed ones first, then by number."""
    ordered = sorted(status.tasks, key=lambda each: (_rank(each), each.task))
    return ordered[:TASKS_MAX]


def _rank(task: pb.TaskState) -> int:
    state = state_of(task.state)
    return _STATE_ORDER[state] if state is not State.RUNNING else len(State)


def _tasks(status: pb.ConnectorStatus) -> Node:
    heading = tag("h2", "Tasks", id="tasks")
    if not status.tasks:
        text = "It has no tasks: it is stopped, or its connector object has not created them yet."
        return tag("section", heading, tag("p", text))
    head = ("Task", "State", "Does now", "Worker", "Records/s", "Lag", "Read", "Written")
    more = ("Filtered", "Dead letters", "Skipped")
    left_out = len(status.tasks) - TASKS_MAX
    return tag(
        "section",
        heading,
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", *(tag("th", each, scope="col") for each in (*head, *more)))),
                tag("tbody", *(_task(each) for each in _shown(status))),
                aria_labelledby="tasks",
            ),
            class_="wide",
            tabindex=0,
            role="group",
            aria_labelledby="tasks",
        ),
        tag("p", f"{left_out:,} more tasks are left out.") if left_out > 0 else None,
    )


def _task(task: pb.TaskState) -> Html:
    counts = task.counts if task.HasField("counts") else None
    rate = task.records_per_second if task.HasField("records_per_second") else None
    numbers = [
        _UNKNOWN if rate is None else f"{rate:,.1f}",
        _number(task.lag if task.HasField("lag") else None),
        _number(None if counts is None else counts.read_count),
        _number(None if counts is None else counts.written_count),
        _number(None if counts is None else counts.filtered_count),
        _number(None if counts is None else counts.dead_lettered_count),
        _number(None if counts is None else counts.skipped_count),
    ]
    return tag(
        "tr",
        tag("th", task.task, scope="row"),
        tag("td", state_html(state_of(task.state))),
        tag("td", *_activity(task)),
        tag("td", tag("bdi", task.worker_id) if task.worker_id else _UNKNOWN),
        *(tag("td", each, class_="num") for each in numbers),
    )


def _activity(task: pb.TaskState) -> Iterator[Node]:
    """The step, and since when."""
    if not task.HasField("activity") or not task.activity.step:
        yield _UNKNOWN
        return
    yield step_text(task.activity)
    if since_ms := decode_timestamp(task.activity.step_time):
        yield (", since ", time_html(since_ms))


def _notes(status: pb.ConnectorStatus, now_ms: int) -> Node:
    """Retries, the tables that are being read, and where a long step is."""
    lines = [line for task in _shown(status) for line in _task_notes(task, now_ms)]
    if not lines:
        return None
    heading = tag("h2", "Retries, long steps and warnings")
    return tag("section", heading, tag("ul", *lines, class_="lines"))


def _task_notes(task: pb.TaskState, now_ms: int) -> Iterator[Html]:
    activity, who = task.activity, tag("span", f"Task {task.task}", class_="who")
    if activity.HasField("retry"):
        yield tag("li", who, _retry(activity.retry, now_ms))
    if activity.HasField("snapshot"):
        snapshot = activity.snapshot
        of = ""
        if snapshot.HasField("estimated_row_count"):
            of = f" of about {snapshot.estimated_row_count:,}"
        text = f": {snapshot.row_count:,}{of} rows; {snapshot.remaining_table_count:,} tables left"
        yield tag("li", who, tag("span", "reads the table ", tag("bdi", snapshot.table), text))
    if activity.stack:
        yield tag(
            "li", who, _folded("Where the present step is", f"st-{task.task}", activity.stack)
        )
    if activity.process_change:
        yield tag("li", who, tag("bdi", activity.process_change, class_="bad"))


def _retry(retry: activity_pb2.TaskRetry, now_ms: int) -> Node:
    times = "once" if retry.failure_count == 1 else f"{retry.failure_count:,} times"
    return (
        tag(
            "span",
            "retries ",
            tag("bdi", retry.operation),
            f", which failed {times} since ",
            time_html(decode_timestamp(retry.begin_time)),
            "; next attempt ",
            _due(decode_timestamp(retry.next_attempt_time), now_ms),
        ),
        tag("bdi", " ".join(retry.message.split()), class_="bad"),
    )


def _due(time_ms: int, now_ms: int) -> Node:
    return time_html(time_ms) if time_ms > now_ms else "now"


def _actions(visit: Visit, row: Row) -> Html | None:
    """The buttons; each leads to a page that lists what will happen."""
    name, task_count, rights = row.name, row.task_count, visit.rights
    if not any(rights.may(each.rpc, name) for each in ACTIONS.values()):
        return None
    whole = visit.form(
        CONFIRM,
        tag("input", type="hidden", name="name", value=form_value(name)),
        tag("input", type="hidden", name="of", value=form_value(name)),
        buttons_part(row, rights)["c-actions"],
        class_="decide",
    )
    single = visit.form(
        RESTART_TASK,
        tag("input", type="hidden", name="name", value=form_value(name)),
        tag(
            "label",
            "Task ",
            tag("input", type="number", name="task", value=0, min=0, max=max(task_count - 1, 0)),
        ),
        tag("button", "Restart task…"),
        class_="decide",
    )
    return tag(
        "section",
        tag("h2", "Actions"),
        tag("p", "Each opens a page that lists what will happen, before anything does."),
        whole,
        single if task_count and rights.may("RestartTask", name) else None,
        class_="actions",
    )


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"
