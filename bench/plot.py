"""Draws how long groups take from the first join to Stable, beside as many empty calls.

``python -m bench.plot`` measures and draws; ``python -m bench.plot FILE`` draws what
``python -m bench --only joins`` has printed.
"""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import joins

TARGET = Path(__file__).parents[1] / "docs" / "benchmarks" / "join_to_stable.svg"
_WIDTH, _HEIGHT = 720, 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 56, 50
_OURS, _THEIRS, _INK, _GRID = "#1f6feb", "#8a6d3b", "#333333", "#dddddd"


@dataclass(frozen=True, slots=True)
class Series:
    """A line of the plot: seconds by member count."""

    name: str
    colour: str
    seconds: dict[int, float]


@dataclass(frozen=True, slots=True)
class _Axes:
    """Both are logarithmic, so that a constant ratio is a constant distance."""

    counts: Sequence[int]
    low_s: float
    high_s: float

    def x(self, count: float) -> float:
        first, last = math.log(self.counts[0]), math.log(self.counts[-1])
        share = (math.log(count) - first) / ((last - first) or 1)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, seconds: float) -> float:
        low, high = math.log(self.low_s), math.log(self.high_s)
        share = (math.log(seconds) - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def series_of(lines: Iterable[str]) -> list[Series]:
    """The two series that the benchmark's lines hold; other figures are passed over."""
    ours: dict[int, float] = {}
    theirs: dict[int, float] = {}
    for line in lines:
        figure = json.loads(line)
        name, _, count = str(figure["figure"]).rpartition("_")
        if name == joins.NAME:
            ours[int(count)] = figure["value"]
            theirs[int(count)] = figure["peer_value"]
    if not ours:
        raise ValueError(f"no {joins.NAME} figure: run python -m bench --only joins")
    return [
        Series("first join to Stable", _OURS, ours),
        Series("as many empty calls", _THEIRS, theirs),
    ]


def drawing(series: Sequence[Series]) -> str:
    """The plot as SVG."""
    everything = [value for each in series for value in each.seconds.values()]
    axes = _Axes(
        counts=sorted(series[0].seconds),
        low_s=10 ** math.floor(math.log10(min(everything))),
        high_s=10 ** math.ceil(math.log10(max(everything) * 1.001)),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' font-family="sans-serif" font-size="12" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 24, "A group from its first join to Stable", size=15),
        _text(_LEFT, 42, "median seconds, by members; three calls a member; both axes logarithmic"),
        *_grid(axes),
    ]
    highest_first = sorted(series, key=lambda each: -each.seconds[axes.counts[-1]])
    for each, label_shift in zip(highest_first, (-4, 12), strict=True):  # no label on the other
        parts += _line(axes, each, label_shift)
    return "\n".join([*parts, "</svg>", ""])


def _grid(axes: _Axes) -> Iterable[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    decades = round(math.log10(axes.high_s / axes.low_s))
    for step in range(decades + 1):
        seconds = axes.low_s * 10**step
        y = axes.y(seconds)
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="{_GRID}"/>'
        yield _text(_LEFT - 8, y + 4, f"{seconds:g} s", anchor="end")
    for count in axes.counts:
        x = axes.x(count)
        yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="{_GRID}"/>'
        yield _text(x, bottom + 18, f"{count:,}", anchor="middle")
    yield _text((_LEFT + right) / 2, bottom + 38, "members", anchor="middle")


def _line(axes: _Axes, series: Series, label_shift: float) -> Iterable[str]:
    points = [(axes.x(count), axes.y(s)) for count, s in sorted(series.seconds.items())]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{series.colour}" stroke-width="2"/>'
    for (x, y), (count, seconds) in zip(points, sorted(series.seconds.items()), strict=True):
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{series.colour}">'
            f"<title>{count} members: {seconds:g} s</title></circle>"
        )
    x, y = points[-1]
    yield _text(x + 10, y + label_shift, series.name, colour=series.colour)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = _INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' fill="{colour}">{text}</text>'
    )


def main() -> None:
    """Draw the plot of the docs."""
    if len(sys.argv) > 1:
        lines = Path(sys.argv[1]).read_text().splitlines()
    else:
        lines = [figure.line() for figure in joins.figures()]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(drawing(series_of(lines)))
    sys.stdout.write(f"drawn: {TARGET}\n")


if __name__ == "__main__":
    main()
