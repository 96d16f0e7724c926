"""Commands that the console and the README show exist, with their arguments and options."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.exceptions import TyperException

from drover.cli.main import cli

ROOT = Path(__file__).parents[3]
_CONSOLE = ROOT / "services/gateway/drover_gateway/console"


def _texts(path: Path) -> Iterator[str]:
    """The literal texts of a module; a value that is filled in is VALUE."""
    tree = ast.parse(path.read_text())
    inner = {
        id(part)
        for each in ast.walk(tree)
        if isinstance(each, ast.JoinedStr)
        for part in each.values
    }
    for each in ast.walk(tree):
        if isinstance(each, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "VALUE"
                for part in each.values
            )
        elif (
            isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in inner
        ):
            yield each.value


def _shown() -> list[str]:
    """Every command of the console's modules and of the README's examples."""
    found = {
        line
        for path in _CONSOLE.rglob("*.py")
        for text in _texts(path)
        for line in text.splitlines()
        if line.startswith("drover ")
        and "VALUE" not in line.split()[1:3]
        and ":" not in line.split()[1]
    }
    readme = (ROOT / "README.md").read_text()
    found |= set(re.findall(r"^\$ (drover [^|<>&\n]+)$", readme, re.MULTILINE))
    return sorted(found)


def _fault(line: str) -> str:
    """Why the line is no command of drover; empty if it is one."""
    command = typer.main.get_command(cli)
    context = typer.Context(command, info_name="drover")
    words = shlex.split(line)[1:]
    while hasattr(command, "get_command"):
        found = command.get_command(context, words[0]) if words else None
        if found is None:
            return f"there is no command {words[:1]}"
        command, words = found, words[1:]
        context = typer.Context(command, parent=context, info_name=command.name)
    parser = command.make_parser(context)
    try:
        given, left, _ = parser.parse_args(words)
    except TyperException as error:
        return str(error)
    missing = [each.name for each in command.params if each.required and not given.get(each.name)]
    if left:
        return f"the command takes no {left}"
    return f"missing: {missing}" if missing else ""


@pytest.mark.parametrize("line", _shown())
def test_a_command_that_is_shown_can_be_run(line: str) -> None:
    assert _fault(line) == ""


@pytest.mark.parametrize(
    "line",
    [
        "drover connector creat FILE",
        "drover topic describe",
        "drover connector list --wach",
        "drover up x",
    ],
)
def test_a_wrong_command_is_a_fault(line: str) -> None:
    assert _fault(line) != ""
