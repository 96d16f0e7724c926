"""A series over time as SVG, and as words; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from drover_gateway.console.html import Html, tag

WIDTH, HEIGHT, _PAD = 360, 90, 4


@dataclass(frozen=True, slots=True)
class Summary:
    """The last, the least and the greatest value of a series."""

    last: float
    least: float
    greatest: float


def summary_of(values: Sequence[float | None]) -> Summary | None:
    """The summary of the known values; None if there are none."""
    known = [each for each in values if each is not None]
    return Summary(known[-1], min(known), max(known)) if known else None


def plot_html(values: Sequence[float | None], label: str) -> Html:
    """A line for the known values, from the left to the right edge; 0 is at the bottom."""
    greatest = max((each for each in values if each is not None), default=0.0) or 1.0
    step = (WIDTH - 2 * _PAD) / max(len(values) - 1, 1)
    path: list[str] = []
    dots: list[Html] = []
    is_drawn = False
    for at, value in enumerate(values):
        if value is None:
            is_drawn = False
            continue
        x = _PAD + at * step
        y = HEIGHT - _PAD - value / greatest * (HEIGHT - 2 * _PAD)
        path.append(f"{'L' if is_drawn else 'M'}{x:.1f} {y:.1f}")
        is_alone = not is_drawn and (at + 1 == len(values) or values[at + 1] is None)
        if is_alone:
            dots.append(tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2))
        is_drawn = True
    return tag(
        "svg",
        tag("path", d="".join(path), class_="line"),
        *dots,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=label,
        class_="plot",
        focusable="false",
    )
