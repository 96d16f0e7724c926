"""Tables break no words at a terminal, and are whole lines in a pipe."""

import pytest

from drover.cli.tables import Screen, Table, table_lines, text_width

CONNECTORS = Table(
    ("NAME", "TYPE", "CLASS", "STATE", "TASKS"),
    [
        ("shop-copy", "sink", "io.confluent.connect.jdbc.JdbcSinkConnector", "RUNNING", "1 FAILED"),
        ("lines", "source", "FileStreamSource", "RUNNING", "3 RUNNING, 1 FAILED"),
    ],
)
FAULTS = Table(
    ("SETTING", "FAULT"),
    [
        ("topic", "must be a topic of connectors, and this one is of the cluster"),
        ("transforms.mask.fields", "is required, because the transform has no other way to choose"),
    ],
    title="faults",
)
WIDE = Table(("NAME", "TEXT"), [("日本語", "grüße aus köln und noch etwas mehr"), ("e\u0301", "x")])
EMPTY_CELLS = Table(("A", "B", "C"), [("", "", ""), ("1", "", "3")])
ERRORS = Table(
    ("FROM", "id", "at"),
    [("row 1", "1", "2026-01-01"), ("row 2", "failed: the field at is no timestamp of the form x")],
    title="cast",
)
TABLES = [CONNECTORS, FAULTS, WIDE, EMPTY_CELLS, ERRORS]


def words(lines: list[str]) -> list[str]:
    return [word for line in lines for word in line.split()]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("width", [200, 80, 60, 40, 20, 1])
def test_no_word_is_broken(table: Table, width: int) -> None:
    lines = table_lines(table, Screen(width))
    given = {*table.title.split(), *words([cell for row in table.rows for cell in row])}
    assert given <= {*words(lines)}
    for line in lines:
        # a name and a single word may be too long
        assert text_width(line) <= width or len(line.split()) <= 2
        assert line == line.rstrip()


@pytest.mark.parametrize("table", TABLES)
def test_each_row_is_one_line_in_a_pipe(table: Table) -> None:
    lines = table_lines(table, Screen())
    assert len(lines) == bool(table.title) + 1 + len(table.rows)
    for line, row in zip(lines[-len(table.rows) :], table.rows, strict=True):
        assert all(cell in line for cell in row)


def test_columns_are_aligned_by_what_the_terminal_shows() -> None:
    lines = table_lines(WIDE, Screen(200))
    assert lines == [
        "NAME    TEXT",
        "日本語  grüße aus köln und noch etwas mehr",
        "e\u0301       x",
    ]


def test_a_long_text_is_wrapped_beside_the_other_columns() -> None:
    assert table_lines(FAULTS, Screen(60)) == [
        "faults",
        "SETTING                 FAULT",
        "topic                   must be a topic of connectors, and",
        "                        this one is of the cluster",
        "transforms.mask.fields  is required, because the transform",
        "                        has no other way to choose",
    ]


def test_the_widest_columns_are_below_the_rows_of_a_table_that_is_too_wide() -> None:
    assert table_lines(CONNECTORS, Screen(60)) == [
        "NAME       TYPE    STATE    TASKS",
        "shop-copy  sink    RUNNING  1 FAILED",
        "  CLASS  io.confluent.connect.jdbc.JdbcSinkConnector",
        "lines      source  RUNNING  3 RUNNING, 1 FAILED",
        "  CLASS  FileStreamSource",
    ]


def test_a_table_of_which_few_columns_fit_becomes_a_list() -> None:
    assert table_lines(CONNECTORS, Screen(24)) == [
        "NAME   shop-copy",
        "TYPE   sink",
        "CLASS  io.confluent.connect.jdbc.JdbcSinkConnector",
        "STATE  RUNNING",
        "TASKS  1 FAILED",
        "",
        "NAME   lines",
        "TYPE   source",
        "CLASS  FileStreamSource",
        "STATE  RUNNING",
        "TASKS  3 RUNNING, 1",
        "       FAILED",
    ]


def test_lines_in_a_cell_stay_lines_only_at_a_terminal() -> None:
    table = Table(("CAUSE", "AT"), [("first\nsecond\tpart", "w1")])
    assert table_lines(table, Screen(80))[1:] == ["first        w1", "second part"]
    assert table_lines(table, Screen())[1:] == ["first second part  w1"]


def test_the_last_cell_of_a_short_row_extends_over_the_other_columns() -> None:
    assert table_lines(ERRORS, Screen(30)) == [
        "cast",
        "FROM   id  at",
        "row 1  1   2026-01-01",
        "row 2  failed: the field at is",
        "       no timestamp of the",
        "       form x",
    ]


def test_only_titles_and_headers_are_bold() -> None:
    lines = table_lines(FAULTS, Screen(200, bold=True))
    assert [line.startswith("\x1b[1m") for line in lines] == [True, True, False, False]
    assert not any("\x1b" in line for line in table_lines(FAULTS, Screen(200)))
