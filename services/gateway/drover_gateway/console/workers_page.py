"""The page with the workers, and the page before a worker is drained or resumed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.connectors import worker_health
from drover.cli.output.times import span_text
from drover.cli.output.workers import size_text
from drover.codec.common import decode_duration
from drover.model.command_lines import drover_command
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.frame import CONNECTOR, REBALANCES, WORKERS, Visit, commands, notice
from drover_gateway.console.html import Html, Node, join, tag
from drover_gateway.console.rows import Filters
from drover_gateway.console.usage import CpuUse

CONFIRM, RUN = "/ui/workers/confirm", "/ui/workers/run"
#: The number of connectors and of tasks that are listed of each worker.
_RUNS_SHOWN = 200
_UNKNOWN = "unknown"
_COLUMNS = (
    "Worker", "Health", "State", "Memory", "CPU", "Up for", "Connectors", "Tasks", "Action",
)  # fmt: skip
_STATES: Mapping[int, str] = {
    pb.WORKER_STATE_ACTIVE: "accepts work",
    pb.WORKER_STATE_DRAINING: "draining",
    pb.WORKER_STATE_DRAINED: "drained",
}


@dataclass(frozen=True, slots=True)
class Action:
    """What an operator does with a worker.

    Attributes:
        key: Its name in forms.
        label: The text of its button.
        command: Its command.
        rpc: The method of ``drover.api.connect.v1.ConnectService``.
    """

    key: str
    label: str
    command: str
    rpc: str

    def equivalents(self, worker_id: str) -> Sequence[str]:
        """The same from the command line and by gRPC."""
        return (
            drover_command(f"worker {self.command}", worker_id),
            grpc_command(self.rpc, {"worker_id": worker_id}),
        )


DRAIN = Action("drain", "Drain", "drain", "DrainWorker")
RESUME = Action("resume", "Resume", "resume", "ResumeWorker")
ACTIONS: Mapping[str, Action] = {each.key: each for each in (DRAIN, RESUME)}


def workers_html(
    visit: Visit,
    info: pb.GetClusterInfoResponse,
    uses: Mapping[str, CpuUse | None],
    *,
    changed: str = "",
) -> Html:
    """The page; ``changed`` is the worker that was drained or resumed before, if any."""
    if not info.workers:
        return notice(
            "empty",
            "The group has no leader at present",
            tag("p", f"{info.worker_id} answers: {info.stage or 'it starts'}."),
            _reload(),
        )
    head = [tag("th", each, scope="col") for each in _COLUMNS]
    rows = [_row(visit, each, info, uses.get(each.worker_id)) for each in info.workers]
    leader = info.leader_worker_id or _UNKNOWN
    return join(
        _changed(info, changed),
        tag(
            "p",
            f"Generation {info.generation} of group {info.group_id}, leader ",
            tag("bdi", leader),
            ". ",
            tag("a", "Rebalances", href=REBALANCES),
            class_="quiet-note",
        ),
        tag(
            "div",
            tag(
                "table",
                tag("caption", "The workers of the cluster", class_="quiet"),
                tag("thead", tag("tr", *head)),
                tag("tbody", *rows),
            ),
            class_="wide",
            tabindex=0,
            role="group",
            aria_label="Workers",
        ),
        _reload(),
        tag("h2", "What each worker runs"),
        *(_runs(each) for each in info.workers),
        commands(
            "The same from the command line and by gRPC",
            [
                "drover worker list",
                grpc_command("GetClusterInfo"),
            ],
        ),
    )


def confirm_html(
    visit: Visit, action: Action, worker: pb.WorkerInfo, info: pb.GetClusterInfoResponse
) -> Html:
    """What will happen, before it is done."""
    return join(
        *(tag("p", each) for each in _effects(action, worker, info)),
        visit.form(
            RUN,
            tag("input", type="hidden", name="action", value=action.key),
            tag("input", type="hidden", name="worker", value=worker.worker_id),
            tag("button", action.label, class_="primary"),
            tag("a", "Cancel", href=WORKERS),
            class_="decide",
        ),
        commands(
            "The same from the command line and by gRPC", action.equivalents(worker.worker_id)
        ),
    )


def _effects(
    action: Action, worker: pb.WorkerInfo, info: pb.GetClusterInfoResponse
) -> Sequence[str]:
    others = [
        each.worker_id
        for each in info.workers
        if each.worker_id != worker.worker_id and each.state == pb.WORKER_STATE_ACTIVE
    ]
    held = _held(worker)
    if action is RESUME:
        if worker.state == pb.WORKER_STATE_ACTIVE:
            return (f"{worker.worker_id} accepts work already, so nothing will change.",)
        return (
            f"{worker.worker_id} is {_state(worker)}. It will accept connectors and tasks again,"
            " and a rebalance moves some of them to it.",
        )
    if worker.state != pb.WORKER_STATE_ACTIVE:
        return (f"{worker.worker_id} is {_state(worker)} already, so nothing will change.",)
    if not others:
        return (
            f"No other worker accepts work, so {worker.worker_id} cannot hand over {held}: the"
            " drain will be refused. Start another worker first.",
        )
    return (
        f"{worker.worker_id} hands over {held} to {', '.join(others[:5])}"
        f"{f' and {len(others) - 5} more' if len(others) > 5 else ''}. Each task stops here before"
        " it starts there, and continues from its committed offsets.",
        "It accepts no work until it is resumed or its process starts again.",
    )


def _changed(info: pb.GetClusterInfoResponse, worker_id: str) -> Html | None:
    worker = next((each for each in info.workers if each.worker_id == worker_id), None)
    if worker is None:
        return None
    if worker.state == pb.WORKER_STATE_DRAINING:
        text = f"{worker_id} is draining: it still has {_held(worker)}."
    elif worker.state == pb.WORKER_STATE_DRAINED:
        text = f"{worker_id} is drained: it has no connectors and tasks, and gets none."
    else:
        text = f"{worker_id} accepts work."
    return tag("p", tag("strong", text), role="status")


def _row(
    visit: Visit, worker: pb.WorkerInfo, info: pb.GetClusterInfoResponse, use: CpuUse | None
) -> Html:
    health = worker_health(worker.health).lower().replace("_", " ")
    is_bad = worker.health in (pb.WORKER_HEALTH_NOT_SERVING, pb.WORKER_HEALTH_UNREACHABLE)
    action = DRAIN if worker.state == pb.WORKER_STATE_ACTIVE else RESUME
    marks = [
        *(("leader",) if worker.leader else ()),
        *(("answers this page",) if worker.worker_id == info.worker_id else ()),
    ]
    form = visit.form(
        CONFIRM,
        tag("input", type="hidden", name="worker", value=worker.worker_id),
        tag(
            "button",
            f"{action.label}…",
            name="action",
            value=action.key,
            aria_label=f"{action.label} {worker.worker_id}…",
        ),
    )
    is_known = worker.state != pb.WORKER_STATE_UNSPECIFIED
    is_offered = is_known and visit.rights.may(action.rpc)
    return tag(
        "tr",
        tag(
            "th",
            tag("bdi", worker.worker_id),
            tag("small", ", ".join(marks)) if marks else None,
            scope="row",
        ),
        tag("td", health, class_="bad" if is_bad else None),
        tag("td", _state(worker)),
        tag("td", _memory(worker), class_="num"),
        tag("td", _cpu(worker, use), class_="num"),
        tag(
            "td",
            span_text(decode_duration(worker.usage.uptime))
            if worker.HasField("usage")
            else _UNKNOWN,
            class_="num",
        ),
        tag("td", f"{len(worker.connectors):,}", class_="num"),
        tag("td", f"{len(worker.tasks):,}", class_="num"),
        tag("td", form if is_offered else None),
    )


def _state(worker: pb.WorkerInfo) -> str:
    return _STATES.get(worker.state, _UNKNOWN)


def _held(worker: pb.WorkerInfo) -> str:
    connectors, tasks = len(worker.connectors), len(worker.tasks)
    return (
        f"{connectors:,} connector{'' if connectors == 1 else 's'} and"
        f" {tasks:,} task{'' if tasks == 1 else 's'}"
    )


def _memory(worker: pb.WorkerInfo) -> Node:
    if not worker.HasField("usage") or not worker.HasField("engine_memory"):
        return _UNKNOWN
    memory = worker.engine_memory
    parts = (
        ("worker", worker.usage.worker_bytes),
        ("engine", memory.engine_bytes),
        ("JVM", memory.jvm_bytes),
        ("Python workers", memory.python_workers_bytes),
    )
    total = size_text(sum(size for _, size in parts))
    shown = ", ".join(f"{what} {size_text(size)}" for what, size in parts if size)
    return [total, tag("small", shown)]


def _cpu(worker: pb.WorkerInfo, use: CpuUse | None) -> Node:
    if use is None:
        return _UNKNOWN
    over = span_text(use.over_ms)
    note = f"average of its {over}" if use.since_start else f"over the last {over}"
    return [f"{use.cores:.2f} of {worker.usage.core_count} cores", tag("small", note)]


def _runs(worker: pb.WorkerInfo) -> Html:
    connectors = [(each, "") for each in worker.connectors[:_RUNS_SHOWN]]
    # a task's id is its connector's name, a dash and a number
    tasks = [
        (connector, f" task {number}")
        for connector, _, number in (each.rpartition("-") for each in worker.tasks[:_RUNS_SHOWN])
    ]
    items = [
        tag(
            "li",
            tag("a", tag("bdi", name), href=f"{CONNECTOR}?{urlencode({'name': name})}"),
            what,
        )
        for name, what in (*connectors, *tasks)
    ]
    left_out = len(worker.connectors) + len(worker.tasks) - len(items)
    more = tag(
        "p",
        tag(
            "a",
            f"and {left_out:,} more: the connectors with a part on it",
            href=Filters(worker=worker.worker_id).url(),
        ),
    )
    return tag(
        "details",
        tag("summary", tag("bdi", worker.worker_id), f": {_held(worker)}"),
        tag("ul", *items) if items else tag("p", "Nothing that you may see."),
        more if left_out else None,
        class_="runs",
    )


def _reload() -> Html:
    return tag("p", tag("a", "Show the present state", href=WORKERS))
