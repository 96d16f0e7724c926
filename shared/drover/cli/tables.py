"""Lays out tables as lines of text. Pure.

Without a width, as in a pipe, each row is one line. At a terminal, lines break only between words.
If a table would still be too wide, its widest columns are lines below each row, or, if these are
most of the columns, the table becomes a list with one line for each cell.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_GAP = "  "
_WIDE = {"W", "F"}
#: The least number of columns beside the first one in a table with lines below its rows.
_COLUMNS_LEAST = 3
_BELOW_MAX = 3
#: A wrapped column is at least as wide.
_WRAPPED_LEAST = 16


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        columns: The header.
        rows: The cells. The last cell of a row with fewer cells extends over the other columns.
        title: A line above the header; empty for none.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a table is printed.

    Attributes:
        width: Columns of the terminal; None if it is not a terminal.
        bold: Whether titles and headers are bold.
    """

    width: int | None = None
    bold: bool = False

    def emphasized(self, text: str) -> str:
        """The text, in bold if the screen shows it."""
        return f"\x1b[1m{text}\x1b[0m" if self.bold and text else text


def table_lines(table: Table, screen: Screen) -> list[str]:
    """The lines of a table, without spaces at their ends."""
    title = [screen.emphasized(table.title)] if table.title else []
    if screen.width is None:
        table = Table(table.columns, [[_one_line(cell) for cell in row] for row in table.rows])
    below: list[int] = []
    shown = table
    widths = _fitting_widths(table, screen.width)
    while widths is None:
        assert screen.width is not None
        left = [at for at in range(1, len(table.columns)) if at not in below]
        is_list = len(left) < _COLUMNS_LEAST or len(below) == _BELOW_MAX
        if is_list or any(len(row) < len(table.columns) for row in table.rows):
            return title + _list_lines(table, screen.width, screen)
        below.append(max(left, key=lambda at: _least_width(table, at)))
        shown = _without(table, below)
        widths = _fitting_widths(shown, screen.width)
    lines = [screen.emphasized(_joined(list(shown.columns), widths))]
    for row, cells in zip(table.rows, shown.rows, strict=True):
        lines += _row_lines(cells, widths, screen.width)
        for at in sorted(below):
            lines += _lines_below(table.columns[at], row[at], screen)
    return title + lines


def text_width(text: str) -> int:
    """The columns that a text takes at a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in _WIDE)
        for each in text
    )


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, broken between words; a word longer than ``width`` is one line."""
    parts = text.replace("\t", " ").split("\n")
    return [line for part in parts for line in _wrapped_line(part, width)]


def _wrapped_line(text: str, width: int) -> Iterator[str]:
    if text_width(text) <= width:
        yield text
        return
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and text_width(longer) > width:
            yield line
            line = word
        else:
            line = longer
    yield line


def _one_line(cell: str) -> str:
    return " ".join(cell.split()) if "\n" in cell or "\t" in cell else cell


def _without(table: Table, columns: Sequence[int]) -> Table:
    kept = [at for at in range(len(table.columns)) if at not in columns]
    rows = [[row[at] for at in kept] for row in table.rows]
    return Table([table.columns[at] for at in kept], rows)


def _least_width(table: Table, column: int) -> int:
    words = [word for row in table.rows for word in row[column].split()]
    return max(map(text_width, (table.columns[column], *words)))


def _lines_below(name: str, cell: str, screen: Screen) -> list[str]:
    """A cell below its row, with its column's name."""
    if not cell:
        return []
    label = f"{_GAP}{name}{_GAP}"
    first, *others = wrapped(cell, max((screen.width or 0) - text_width(label), 1))
    lines = [f"{_GAP}{screen.emphasized(name)}{_GAP}{first}"]
    return lines + [f"{' ' * text_width(label)}{each}" for each in others]


def _fitting_widths(table: Table, available: int | None) -> list[int] | None:
    """The widths of the columns; None if some word is too long for the available width."""
    count = len(table.columns)
    full = [row for row in table.rows if len(row) == count]
    cells = [[table.columns[at], *(row[at] for row in full)] for at in range(count)]
    for row in table.rows:
        if len(row) < count:
            for at, cell in enumerate(row[:-1]):
                cells[at].append(cell)
    wanted = [max(text_width(line) for cell in each for line in cell.split("\n")) for each in cells]
    if available is None or sum(wanted) + len(_GAP) * (count - 1) <= available:
        return wanted
    # a header has one line, so that it can be found with grep
    least = [
        max(
            text_width(each[0]),
            min(width, _WRAPPED_LEAST),
            *(text_width(word) for cell in each[1:] for word in cell.split()),
        )
        for each, width in zip(cells, wanted, strict=True)
    ]
    left = available - len(_GAP) * (count - 1) - sum(least)
    if left < 0:
        return None
    widths = list(least)
    by_need = sorted(range(count), key=lambda at: wanted[at] - least[at])
    for rank, at in enumerate(by_need):
        more = min(wanted[at] - least[at], left // (count - rank))
        widths[at] += more
        left -= more
    return widths


def _row_lines(row: Sequence[str], widths: Sequence[int], available: int | None) -> list[str]:
    spaces = list(widths)
    if len(row) < len(widths):
        before = sum(widths[: len(row) - 1]) + len(_GAP) * (len(row) - 1)
        rest = text_width(row[-1]) if available is None else available - before
        spaces = [*widths[: len(row) - 1], max(rest, 1)]
    if available is None:
        return [_joined(row, spaces)]
    columns = [wrapped(cell, space) for cell, space in zip(row, spaces, strict=True)]
    height = max(map(len, columns))
    lines = [[each[at] if at < len(each) else "" for each in columns] for at in range(height)]
    return [_joined(line, spaces) for line in lines]


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(
        cell + " " * (width - text_width(cell)) for cell, width in zip(cells, widths, strict=True)
    ).rstrip()


def _list_lines(table: Table, available: int, screen: Screen) -> list[str]:
    """One line per cell, with the column's name; an empty line between rows."""
    label_width = max(text_width(each) for each in table.columns)
    indent = " " * (label_width + len(_GAP))
    lines: list[str] = []
    for number, row in enumerate(table.rows):
        if number:
            lines.append("")
        for label, cell in zip(table.columns, row, strict=False):
            if not cell:
                continue
            padding = " " * (label_width - text_width(label)) + _GAP
            first, *others = wrapped(cell, max(available - len(indent), 1))
            lines.append(f"{screen.emphasized(label)}{padding}{first}".rstrip())
            lines += [f"{indent}{each}".rstrip() for each in others]
    return lines
