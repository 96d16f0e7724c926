"""The progress of a replay of dead letters as HTML."""

from collections.abc import Sequence

from drover.model.letter_states import LetterState
from drover_gateway.console.html import Html, join, tag
from drover_gateway.console.letter_groups import Group, list_url
from drover_gateway.console.parts import table_html

_COLUMNS = ("Cause", "Stage", "Replayed", "Left")


def progress_html(
    connector: str,
    *,
    total: int,
    left: int,
    chosen: Sequence[Group],
    again: Sequence[Group],
    is_started: bool,
    error: str,
) -> Html:
    """How far a replay is, and the results by cause."""
    failed = {each.cause: sum(each.counts.values()) for each in again}
    done = total - left
    if not total:
        text = "Nothing is replayed: no open dead letter was selected, or all were skipped."
    elif left:
        text = f"{done:,} of {total:,} replayed. The page is loaded again every 2 s."
    else:
        text = f"All {total:,} replayed."
    rows = []
    for group in chosen:
        counts = group.counts
        rows.append(
            tag(
                "tr",
                tag("th", tag("bdi", group.cause.error_class or "unknown"), scope="row"),
                tag("td", tag("bdi", group.cause.stage or "-")),
                tag("td", f"{counts[LetterState.REPLAYED]:,}", class_="num"),
                tag("td", f"{counts[LetterState.REPLAYING]:,}", class_="num"),
            )
        )
    new = [
        tag(
            "li",
            tag(
                "a",
                tag("bdi", cause.error_class or "unknown"),
                class_="who",
                href=list_url(connector, cause),
            ),
            f" {count:,} ",
            tag("bdi", cause.stage),
            class_="bad",
        )
        for cause, count in failed.items()
    ]
    return join(
        tag("progress", value=done, max=max(total, 1), aria_label="Progress of the replay"),
        tag("p", text, role="status", class_=None if left or not total else "good"),
        tag("p", "The connector is not started: it replays when it is resumed.", class_="bad")
        if left and not is_started
        else None,
        tag("p", error, class_="bad") if error else None,
        table_html("Results by cause", ("Cause", "Stage", "Replayed", "Left"), rows)
        if rows
        else None,
        tag("h2", "New dead letters since the start") if new else None,
        tag("ul", *new, class_="lines") if new else None,
        tag("p", tag("a", "Back to the dead letters", href=list_url(connector))),
    )
