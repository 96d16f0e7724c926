"""The tables of docs/group-states.md, which tests compare with the code."""

from pathlib import Path

from tests.support.repository import text_of

FILE = Path("docs/group-states.md")


def table(corner: str) -> dict[str, dict[str, str]]:
    """The table whose first header cell is ``corner``: its cells by row, then by column.

    A dash is an empty cell; code marks are dropped.
    """
    text = text_of(FILE)
    assert text is not None
    lines = iter(text.splitlines())
    for line in lines:
        header = _cells(line)
        if header and header[0] == corner:
            break
    else:
        raise AssertionError(f"{FILE} has no table with the first cell {corner!r}")
    next(lines)  # the rule below the header
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        cells = _cells(line)
        if not cells:
            break
        assert len(cells) == len(header), f"{FILE}: {line}"
        assert cells[0] not in rows, f"{FILE}: {cells[0]} is duplicated"
        rows[cells[0]] = dict(zip(header[1:], cells[1:], strict=True))
    return rows


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    cells = (cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|"))
    return ["" if cell == "—" else cell for cell in cells]
