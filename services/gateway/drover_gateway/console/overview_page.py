"""The first page: what fails, how the cluster is, and what flows where."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.connectors import worker_health
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import Visit, commands, new_connector_link, notice
from drover_gateway.console.graph import NODE_HEIGHT, NODE_WIDTH, Graph, Node, Placed
from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.links import connector_url
from drover_gateway.console.rows import Filters, Row, State, Summary, Totals
from drover_gateway.console.shown import Shown

_FAILED_SHOWN = 10
_LABEL_MAX_CHARS = 30
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster, or why it is unknown: exactly one of both."""

    info: pb.GetClusterInfoResponse | None = None
    fault: str = ""


def live_html(shown: Shown, version: str) -> Html:
    """The part of the page that is updated, after ``Shown.refresh``."""
    return tag(
        "div",
        _numbers(shown.summary(), shown.totals(), shown.records_per_second()),
        _failed(shown.failed()),
        id="overview",
        data_version=version,
    )


def overview_html(
    visit: Visit, rows: Sequence[Row], live: Html, cluster: Cluster, graph: Graph
) -> Html:
    """The page; ``live`` is ``live_html``."""
    if not rows:
        return join(
            notice(
                "empty",
                "There are no connectors that you may see",
                new_connector_link(visit),
                tag("p", "Create one from a file with its config:"),
                tag("pre", tag("code", "drover connector create -f FILE"), tabindex=0),
            ),
            _cluster(cluster),
        )
    return join(
        live,
        _flow(graph),
        _cluster(cluster),
        commands(
            "The same from the command line and by gRPC",
            [
                "drover connector list",
                "drover cluster info",
                grpc_command("WatchStatuses"),
                grpc_command("GetClusterInfo"),
            ],
        ),
    )


def _numbers(summary: Summary, totals: Totals, records_per_second: float | None) -> Html:
    tiles = [
        tag(
            "li",
            tag(
                "a",
                tag("b", f"{count:,}"),
                tag("span", state.value, class_=f"state is-{state.value}"),
                href=Filters(states=(state,)).url(),
            ),
        )
        for state, count in summary.states.items()
        if count or state in (State.FAILED, State.RUNNING)
    ]
    facts = [
        ("connectors", f"{summary.total:,}"),
        ("tasks", f"{totals.task_count:,}"),
        (
            "records read per second",
            "unknown" if records_per_second is None else f"{records_per_second:,.0f}",
        ),
        (
            "records that sinks have not delivered",
            "unknown" if totals.lag is None else f"{totals.lag:,}",
        ),
        ("dead letters since creation", f"{totals.dead_lettered_count:,}"),
        ("skipped records since creation", f"{totals.skipped_count:,}"),
    ]
    return join(
        tag("ul", *tiles, class_="tiles"),
        tag(
            "dl",
            *(tag("div", tag("dt", what), tag("dd", value)) for what, value in facts),
            class_="facts",
        ),
    )


def _failed(failed: Sequence[Row]) -> Html:
    if not failed:
        return tag("section", tag("h2", "Failed"), tag("p", "Nothing has failed.", class_="good"))
    lines = [
        tag(
            "li",
            tag("a", tag("bdi", each.name), class_="who", href=connector_url(each.name)),
            tag("span", time_html(each.failed_ms), class_="now") if each.failed_ms else None,
            tag("bdi", each.cause, class_="bad"),
        )
        for each in nlargest(_FAILED_SHOWN, failed, key=lambda row: row.failed_ms)
    ]
    more = len(failed) - len(lines)
    url = Filters(states=(State.FAILED,)).url()
    return tag(
        "section",
        tag("h2", "Failed, the latest first"),
        tag("ul", *lines, class_="lines"),
        tag("p", tag("a", f"and {more:,} more", href=url)) if more else None,
    )


def _flow(graph: Graph) -> Html:
    if not graph.nodes:
        return Html("")
    note = "Grouped by class, since there are many." if graph.is_grouped else None
    return tag(
        "section",
        tag("h2", "From sources through topics to sinks"),
        tag("p", note, class_="quiet-note") if note else None,
        tag("div", _drawing(graph), class_="graph", tabindex=0, role="group", aria_label="Graph"),
        _flow_list(graph),
    )


def _drawing(graph: Graph) -> Html:
    edges = [
        tag("path", d=_curve(graph.nodes[start], graph.nodes[end]), class_="edge")
        for start, end in graph.edges
    ]
    return tag(
        "svg",
        *edges,
        *(_node(each) for each in graph.nodes.values()),
        viewBox=f"0 0 {graph.width} {graph.height}",
        width=graph.width,
        height=graph.height,
        # the list below has the same
        aria_hidden="true",
        focusable="false",
    )


def _node(placed: Placed) -> Html:
    node, x, y = placed.node, placed.x, placed.y
    kind = f"is-{node.state.value}" if node.state is not None else "is-topic"
    drawn = tag(
        "g",
        tag("title", f"{node.label} {node.note}".strip()),
        tag("rect", x=x, y=y, width=NODE_WIDTH, height=NODE_HEIGHT, rx=4),
        tag("text", _short(node.label), x=x + 12, y=y + (17 if node.note else 25), class_="label"),
        tag("text", _short(node.note), x=x + 12, y=y + 33, class_="note") if node.note else None,
        class_=f"node {kind}",
    )
    # the list has the links for a keyboard
    return tag("a", drawn, href=node.href, tabindex=-1) if node.href else drawn


def _curve(start: Placed, end: Placed) -> str:
    x1, y1 = start.x + NODE_WIDTH, start.y + NODE_HEIGHT // 2
    x2, y2 = end.x, end.y + NODE_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def _flow_list(graph: Graph) -> Html:
    """The graph as text."""
    names = {key: _linked(each.node) for key, each in graph.nodes.items()}
    items = [tag("li", names[start], " → ", names[end]) for start, end in graph.edges]
    alone = graph.nodes.keys() - {key for edge in graph.edges for key in edge}
    items += [tag("li", names[each], ": no topics yet") for each in sorted(alone)]
    return tag("details", tag("summary", "The graph as a list"), tag("ul", *items))


def _linked(node: Node) -> Html:
    label = tag("bdi", node.label)
    return tag("a", label, href=node.href) if node.href else label


def _cluster(cluster: Cluster) -> Html:
    heading = tag("h2", "Cluster")
    info = cluster.info
    if info is None:
        return tag("section", heading, tag("p", cluster.fault, class_="bad"))
    rows = [_worker(each, info) for each in info.workers]
    head = ("Worker", "Health", "State", "Connectors", "Tasks", "Memory of engines")
    number = f"generation {info.generation} of group {info.group_id}"
    leader = info.leader_worker_id or "unknown"
    return tag(
        "section",
        heading,
        tag("p", f"Drover {info.version}, {number}, leader {leader}", class_="quiet-note"),
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
                tag("tbody", *rows),
            ),
            class_="wide",
            tabindex=0,
            role="group",
            aria_label="Workers",
        ),
    )


def _worker(worker: pb.WorkerInfo, info: pb.GetClusterInfoResponse) -> Html:
    health = worker_health(worker.health).lower().replace("_", " ")
    state = pb.WorkerState.Name(worker.state) if worker.state in pb.WorkerState.values() else ""
    memory = worker.engine_memory
    total = memory.engine_bytes + memory.jvm_bytes + memory.python_workers_bytes
    known = worker.HasField("engine_memory")
    is_bad = worker.health in (pb.WORKER_HEALTH_NOT_SERVING, pb.WORKER_HEALTH_UNREACHABLE)
    return tag(
        "tr",
        tag(
            "th",
            tag("a", worker.worker_id, href=Filters(worker=worker.worker_id).url()),
            scope="row",
        ),
        tag("td", health, class_="bad" if is_bad else None),
        tag("td", state.removeprefix("WORKER_STATE_").lower()),
        tag("td", f"{len(worker.connectors):,}", class_="num"),
        tag("td", f"{len(worker.tasks):,}", class_="num"),
        tag("td", f"{total // _MIB:,} MiB" if known else "unknown", class_="num"),
    )


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_MAX_CHARS else f"{label[: _LABEL_MAX_CHARS - 1]}…"
