"""Figures over time as SVG, as words and as a table."""

import re

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_gateway.console.connector_figures_page import figures_html
from drover_gateway.console.plots import HEIGHT, WIDTH, Summary, plot_html, summary_of


def test_a_summary_has_the_last_the_least_and_the_greatest_value() -> None:
    assert summary_of([3.0, None, 1.0, 2.0, None]) == Summary(2.0, 1.0, 3.0)
    assert summary_of([None, None]) is None
    assert summary_of([]) is None


def test_a_line_stays_in_its_picture_and_has_gaps_where_nothing_is_known() -> None:
    for values in ([0.0, 5.0, 1e12], [0.0, 0.0], [7.0], [None, 1.0, None, 2.0, 3.0]):
        drawn = plot_html(values, "a")
        (path,) = re.findall(r' d="([^"]*)"', drawn)
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", path)]
        assert all(0 <= x <= WIDTH for x in numbers[::2]), path
        assert all(0 <= y <= HEIGHT for y in numbers[1::2]), path
    assert path.count("M") == 2
    # a single value is a dot
    assert drawn.count("<circle") == 1
    assert "nan" not in plot_html([], "a")


def test_the_section_has_words_and_tells_since_when() -> None:
    points = []
    for at in range(70):
        point = pb.FigurePoint(read_per_second=at / 2, lag=at)
        point.begin_time.FromSeconds(1_700_000_000 + 10 * at)
        points.append(point)
    found = pb.GetConnectorFiguresResponse(points=points, silent_worker_ids=["w<1>"])
    shown = figures_html("c", found, "")
    assert "last 34.5, least 0.0, greatest 34.5" in shown
    assert "last 69, least 0, greatest 69" in shown
    assert "2023-11-14 22:13:20 UTC" in shown
    assert "Without the tasks of w&lt;1&gt;" in shown
    assert "10 earlier points are left out" in shown
    # a series without a value is not drawn
    assert shown.count("<svg") == 4
    assert "no figures yet" in figures_html("c", pb.GetConnectorFiguresResponse(), "")
    assert "&lt;b&gt;" in figures_html("c", None, "<b>")
