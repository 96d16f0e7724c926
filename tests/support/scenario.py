"""Scenario files: commands and their expected trace, easy to read, diff and write.

A file is a list of steps. A step has one or more command lines, a line ``----``, and the expected
trace up to an empty line. Lines that start with ``#`` before a step belong to it.

    # a newcomer gets its id first
    first-join a
    ----
    a: join with the id a

When a scenario fails, read the diff. If the new trace is intended, run the test again with
``DROVER_BLESS=1`` in the environment, which rewrites the file, and review the change.
"""

import difflib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

BLESS_VARIABLE = "DROVER_BLESS"
SEPARATOR = "----"
NOTHING = "(nothing)"


@dataclass(slots=True)
class Step:
    """Commands, and their expected trace."""

    line_number: int
    comments: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The step in the file's format."""
        return "\n".join([*self.comments, *self.commands, SEPARATOR, *self.trace, ""])


class ScenarioError(AssertionError):
    """A scenario's trace differs from its file, or the file is invalid."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``name word word key=value``."""

    name: str
    words: tuple[str, ...]
    options: dict[str, str]

    def number(self, key: str, default: int) -> int:
        """An option that is a number."""
        return int(self.options.get(key, default))


def parse_command(line: str) -> Command:
    """Split a command line."""
    name, *rest = line.split()
    words = tuple(each for each in rest if "=" not in each)
    options = dict(each.split("=", 1) for each in rest if "=" in each)
    return Command(name, words, options)


def parse_steps(text: str) -> list[Step]:
    """The steps of a file.

    Raises:
        ScenarioError: Commands without a trace.
    """
    steps: list[Step] = []
    step = Step(1)
    in_trace = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if in_trace and not line.strip():
            steps.append(step)
            step, in_trace = Step(number + 1), False
        elif in_trace:
            step.trace.append(line)
        elif line.startswith("#"):
            step.comments.append(line)
        elif line == SEPARATOR:
            in_trace = True
        elif line.strip():
            step.commands.append(line.strip())
    if step.commands or step.comments:
        raise ScenarioError(f"line {step.line_number}: no {SEPARATOR} after the commands")
    return steps


def run_scenario(path: Path, execute: Callable[[Command], Iterable[str]]) -> None:
    """Run a file's commands and compare traces, or rewrite the file when blessed.

    Raises:
        ScenarioError: With a diff.
    """
    before = path.read_text()
    steps = parse_steps(before)
    if not steps:
        raise ScenarioError(f"{path.name} has no steps")
    for step in steps:
        trace: list[str] = []
        for line in step.commands:
            trace += execute(parse_command(line))
        step.trace = trace or [NOTHING]
    after = "\n".join(step.text() for step in steps)
    if after == before:
        return
    if os.environ.get(BLESS_VARIABLE) == "1":
        path.write_text(after)
        return
    diff = difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        f"{path.name} (expected)",
        "(came out)",
        lineterm="",
    )
    raise ScenarioError(
        "\n".join([*diff, "", f"run again with {BLESS_VARIABLE}=1 if that is what you want"])
    )
