"""The figures of a connector over the last hour: plots, words and a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import decode_timestamp
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import commands
from drover_gateway.console.html import Html, Node, tag
from drover_gateway.console.plots import plot_html, summary_of

#: The points of the table, the latest ones.
_TABLE_ROWS_MAX = 60
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class _Series:
    title: str
    value: Callable[[pb.FigurePoint], float | None]
    digits: int = 1


def _lag(point: pb.FigurePoint) -> float | None:
    return point.lag if point.HasField("lag") else None


def _duration_ms(name: str) -> Callable[[pb.FigurePoint], float | None]:
    def value(point: pb.FigurePoint) -> float | None:
        duration: Duration = getattr(point, name)
        return duration.ToMicroseconds() / 1000 if point.HasField(name) else None  # type: ignore[arg-type]

    return value


_SERIES = (
    _Series("Records read per second", lambda point: point.read_per_second),
    _Series("Records written per second", lambda point: point.written_per_second),
    _Series("Dead letters per second", lambda point: point.dead_lettered_per_second),
    _Series("Lag", _lag, 0),
    _Series("A batch, ms", _duration_ms("batch_duration")),
    _Series("A poll, ms", _duration_ms("poll_duration")),
    _Series("A write, ms", _duration_ms("write_duration")),
    _Series("A commit, ms", _duration_ms("commit_duration")),
)


def figures_html(name: str, found: pb.GetConnectorFiguresResponse | None, fault: str) -> Html:
    """The section; ``fault`` is the reason if there are no figures."""
    heading = tag("h2", "Over the last hour", id="figures")
    if found is None:
        return tag("section", heading, tag("p", fault, class_="bad"))
    if not found.points:
        text = "There are no figures yet: the first is there 10 s after a task has started."
        return tag("section", heading, tag("p", text))
    silent = ", ".join(found.silent_worker_ids)
    points = found.points
    plots = [_plot(each, points) for each in _SERIES]
    return tag(
        "section",
        heading,
        tag(
            "p",
            "A point for 10 s, in the memory of the workers, since ",
            time_html(decode_timestamp(points[0].begin_time)),
            ". They are lost when a task moves or its worker restarts.",
            class_="quiet-note",
        ),
        tag("p", f"Without the tasks of {silent}, which did not answer.", class_="bad")
        if silent
        else None,
        tag("div", *plots, class_="plots"),
        _table(points),
        commands("The same by gRPC", [grpc_command("GetConnectorFigures", {"name": name})]),
    )


def _plot(series: _Series, points: Sequence[pb.FigurePoint]) -> Html | None:
    values = [series.value(each) for each in points]
    summary = summary_of(values)
    if summary is None:
        return None
    words = (
        f"last {_number(summary.last, series)}, least {_number(summary.least, series)},"
        f" greatest {_number(summary.greatest, series)}"
    )
    return tag(
        "figure",
        tag("figcaption", tag("b", series.title), " ", tag("span", words)),
        plot_html(values, f"{series.title}: {words}"),
    )


def _table(points: Sequence[pb.FigurePoint]) -> Html:
    shown = list(reversed(points[-_TABLE_ROWS_MAX:]))
    left_out = len(points) - len(shown)
    rows = [
        tag(
            "tr",
            tag("th", time_html(decode_timestamp(each.begin_time)), scope="row"),
            *(tag("td", _number(series.value(each), series), class_="num") for series in _SERIES),
        )
        for each in shown
    ]
    head = ("Begin", *(each.title for each in _SERIES))
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
        tag("tbody", *rows),
        aria_label="Figures",
    )
    more: Node = None
    if left_out > 0:
        more = tag("p", f"{left_out} earlier points are left out: the RPC has all.")
    return tag(
        "details",
        tag("summary", "The figures as a table, the latest first"),
        tag("div", table, class_="wide", tabindex=0, role="group", aria_label="Figures, table"),
        more,
        id="figures-table",
    )


def _number(value: float | None, series: _Series) -> str:
    return _UNKNOWN if value is None else f"{value:,.{series.digits}f}"
