"""Commands in messages are built in one place, which quotes the names in them."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.repository import python_files, text_of

#: A command of `drover` that a value follows, with words between them.
_COMMAND = re.compile(r"\bdrover (?:[a-z-]+ )+(?:[A-Za-z=-]+ )*$")
#: Writes a shell script, whose functions quote their names.
_SCRIPTS = "shared/drover/migrate/scripts.py"
PROGRAMS = [
    path
    for path in python_files("shared", "services")
    if path.as_posix() != _SCRIPTS and "drover " in (text_of(path) or "")
]


def unquoted_commands(program: str) -> list[str]:
    """The commands that a formatted text continues with a value."""
    found = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.JoinedStr):
            for part, following in zip(node.values, node.values[1:], strict=False):
                if isinstance(part, ast.Constant) and isinstance(following, ast.FormattedValue):
                    found += _COMMAND.findall(str(part.value))
    return found


@pytest.mark.parametrize("path", PROGRAMS, ids=str)
def test_a_name_in_a_command_is_quoted(path: Path) -> None:
    assert unquoted_commands(text_of(path) or "") == []


def test_an_unquoted_name_is_found() -> None:
    assert unquoted_commands("f'run `drover connector stop {name}` first'") != []
    assert unquoted_commands("f'drover {version} runs'") == []
