"""The output of `make run`: a live display on a terminal, lines of text elsewhere."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_PLAIN_INTERVAL_S = 2.0
_REFRESH_PER_S = 5


@dataclass(slots=True)
class Progress:
    """The progress of a run."""

    rows_total: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    #: State and tasks of each worker, by its name.
    workers: Mapping[str, str] = field(default_factory=dict)


class DemoView:
    """Prints the progress of a run; use as a context manager around the live display."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress()
        self._started_s = time.monotonic()
        self._next_line_s = 0.0
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
        )

    def __enter__(self) -> "DemoView":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a permanent line with the seconds since the start."""
        elapsed_s = time.monotonic() - self._started_s
        self.console.print(Text(f"{elapsed_s:6.1f} s  {text}"), soft_wrap=True)

    def tick(self) -> None:
        """Print a progress line every few seconds; a terminal has the live display instead."""
        now_s = time.monotonic()
        if self.console.is_terminal or now_s < self._next_line_s:
            return
        self._next_line_s = now_s + _PLAIN_INTERVAL_S
        at = self.progress
        running = "; ".join(f"{name}: {what}" for name, what in at.workers.items())
        self.say(
            f"rows in {at.rows_in:,} ({at.rate_in:,.0f}/s), "
            f"out {at.rows_out:,} ({at.rate_out:,.0f}/s) | {running}"
        )

    def _render(self) -> Group:
        at = self.progress
        rows = Table(box=None, pad_edge=False, show_header=False)
        rows.add_row(*_bar("rows in", at.rows_in, at.rows_total, at.rate_in))
        rows.add_row(*_bar("rows out", at.rows_out, at.rows_total, at.rate_out))
        workers = Table(box=None, pad_edge=False, show_header=False)
        for name, what in at.workers.items():
            workers.add_row(Text(name, style="bold"), Text(what))
        return Group(Text(""), rows, workers)


def _bar(label: str, count: int, total: int, rate: float) -> tuple[Text, ProgressBar, Text, Text]:
    return (
        Text(label, style="bold"),
        ProgressBar(total=max(1, total), completed=count, width=40),
        Text(f"{count:>9,} of {total:,}"),
        Text(f"{rate:>8,.0f} rows/s"),
    )


def summary(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """A table with two columns, label and value."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.show_header = False
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, Text(value))
    return table


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without borders; numbers are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numbers = all(row[index].replace(",", "").isdigit() for row in rows)
        table.add_column(column, header_style="dim", justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
