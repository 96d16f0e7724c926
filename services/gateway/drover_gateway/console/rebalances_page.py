"""The page with the rebalances."""

from collections.abc import Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.rebalances import duration_text, move_text, moved_text
from drover.codec.common import decode_duration
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.connectors_page import time_html
from drover_gateway.console.frame import REBALANCES, commands, notice
from drover_gateway.console.html import Html, join, tag

#: The number of rebalances that are listed on a page.
ROWS = 50
_WIDTH, _HEIGHT, _BASE = 1_000, 96, 80
_BAR_WIDTH_MIN, _BAR_HEIGHT_MIN = 3, 8
_COLUMNS = ("Began", "Generation", "Took", "Reason", "Moved", "Workers")


def rebalances_html(found: pb.ListRebalancesResponse, number: int) -> Html:
    """The page with the given part of the list; the timeline has all rebalances."""
    silent = (
        tag(
            "p",
            "These workers did not answer, so the rebalances that they led are missing: ",
            tag("bdi", ", ".join(found.silent_worker_ids)),
            class_="bad",
        )
        if found.silent_worker_ids
        else None
    )
    if not found.rebalances:
        return join(
            silent,
            notice(
                "empty",
                "No rebalance is known",
                tag("p", "Each worker keeps the rebalances that it led since it started."),
                _reload(),
            ),
        )
    shown = found.rebalances[(number - 1) * ROWS : number * ROWS]
    return join(
        silent,
        _timeline(found.rebalances),
        _table(shown),
        _pages(len(found.rebalances), number),
        _reload(),
        commands(
            "The same from the command line and by gRPC",
            [
                "drover cluster rebalances",
                grpc_command("ListRebalances"),
            ],
        ),
    )


def _timeline(rebalances: Sequence[pb.Rebalance]) -> Html:
    """The rebalances by time: as wide as long they took, as high as much moved."""
    newest, oldest = rebalances[0], rebalances[-1]
    begin_ms = oldest.begin_time.ToMilliseconds()
    end_ms = newest.begin_time.ToMilliseconds() + decode_duration(newest.duration)
    span_ms = max(end_ms - begin_ms, 1)
    most = max((_moved(each) for each in rebalances), default=0)
    bars = [_bar(each, begin_ms, span_ms, max(most, 1)) for each in rebalances]
    return tag(
        "section",
        tag("h2", f"The last {len(rebalances):,}"),
        tag(
            "div",
            tag(
                "svg",
                tag("path", d=f"M0 {_BASE}H{_WIDTH}", class_="axis"),
                *bars,
                viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
                width=_WIDTH,
                height=_HEIGHT,
                # the list below has the same
                aria_hidden="true",
                focusable="false",
            ),
            class_="timeline",
            tabindex=0,
            role="group",
            aria_label="Timeline",
        ),
        tag(
            "p",
            "From ",
            time_html(begin_ms),
            " to ",
            time_html(end_ms),
            ". A bar is as wide as the rebalance took, and as high as much moved; it is red where a"
            " worker left or was lost.",
            class_="quiet-note",
        ),
    )


def _bar(rebalance: pb.Rebalance, begin_ms: int, span_ms: int, most: int) -> Html:
    at_ms = rebalance.begin_time.ToMilliseconds() - begin_ms
    x = min(at_ms * _WIDTH // span_ms, _WIDTH - _BAR_WIDTH_MIN)
    width = max(decode_duration(rebalance.duration) * _WIDTH // span_ms, _BAR_WIDTH_MIN)
    height = _BAR_HEIGHT_MIN + _moved(rebalance) * (_BASE - 2 * _BAR_HEIGHT_MIN) // most
    kind = "lost" if rebalance.left_worker_ids else "other"
    return tag(
        "rect",
        tag("title", f"generation {rebalance.generation}: {rebalance.reason}"),
        x=x,
        y=_BASE - height,
        width=min(width, _WIDTH - x),
        height=height,
        class_=f"bar {kind}",
    )


def _moved(rebalance: pb.Rebalance) -> int:
    return rebalance.moved_connector_count + rebalance.moved_task_count


def _table(rebalances: Sequence[pb.Rebalance]) -> Html:
    return tag(
        "div",
        tag(
            "table",
            tag("caption", "Rebalances, the newest first", class_="quiet"),
            tag("thead", tag("tr", *(tag("th", each, scope="col") for each in _COLUMNS))),
            tag("tbody", *(_row(each) for each in rebalances)),
        ),
        class_="wide",
        tabindex=0,
        role="group",
        aria_label="Rebalances",
    )


def _row(rebalance: pb.Rebalance) -> Html:
    left = bool(rebalance.left_worker_ids)
    return tag(
        "tr",
        tag("td", time_html(rebalance.begin_time.ToMilliseconds())),
        tag("th", str(rebalance.generation), scope="row"),
        tag("td", duration_text(rebalance), class_="num"),
        tag("td", tag("bdi", rebalance.reason), class_="long bad" if left else "long"),
        tag("td", _moves(rebalance), class_="long"),
        tag("td", _workers(rebalance), class_="long"),
    )


def _moves(rebalance: pb.Rebalance) -> Html:
    text = moved_text(rebalance)
    if not rebalance.moves:
        return join(text)
    left_out = _moved(rebalance) - len(rebalance.moves)
    return tag(
        "details",
        tag("summary", text),
        tag("ul", *(tag("li", tag("bdi", move_text(each))) for each in rebalance.moves)),
        tag("p", f"and {left_out:,} more") if left_out > 0 else None,
    )


def _workers(rebalance: pb.Rebalance) -> Html:
    return tag(
        "details",
        tag("summary", f"{len(rebalance.worker_ids):,}"),
        tag(
            "ul",
            *(
                tag("li", tag("bdi", each), " (leader)" if each == leader else "")
                for leader in (rebalance.leader_worker_id,)
                for each in rebalance.worker_ids
            ),
        ),
    )


def _pages(count: int, number: int) -> Html | None:
    pages = -(-count // ROWS)
    if pages <= 1:
        return None
    links = [
        tag(
            "li",
            tag(
                "a",
                str(each),
                href=f"{REBALANCES}?page={each}",
                aria_current="page" if each == number else None,
            ),
        )
        for each in range(1, pages + 1)
    ]
    return tag("nav", tag("ul", *links), aria_label="Pages of the list", class_="pages")


def _reload() -> Html:
    return tag("p", tag("a", "Show the present state", href=REBALANCES))
