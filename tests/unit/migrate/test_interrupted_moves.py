"""The scripts of a move end at any command, and are run again.

The commands ``drover`` and ``curl`` are replaced by programs that keep a small world in files:
each side has a state and an offset. A side that starts reads ten records, and notes if the other
side runs too, or if it does not start where the other one has ended. tests/kafka/test_migrate.py
runs the scripts with Drover and Kafka Connect.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from drover.migrate.checks import Report
from drover.migrate.files import connector_id
from drover.migrate.report import definition_text
from drover.migrate.scripts import Access, scripts_of
from tests.support.kafka_connect_api import ScriptedConnect
from tests.unit.migrate.test_checks import SOURCE

BASH = shutil.which("bash") or "bash"
NAME = "orders in"
_COMMON = f"""#!{BASH}
cd "$WORLD"
count=$(($(cat count) + 1))
echo "$count" > count
if [ "$count$MODE" = "${{FAIL_AT}}before" ]; then echo "fails before its effect" >&2; exit 1; fi
start() {{  # side, other side
  if [ "$(cat "$1.state")" = RUNNING ]; then return; fi
  if [ "$(cat "$2.state" 2> /dev/null)" = RUNNING ]; then echo "both run" >> faults; fi
  if [ "$(cat "$1.offset")" != "$(cat position)" ]; then echo "$1 starts elsewhere" >> faults; fi
  echo $(($(cat position) + 10)) > position
  cp position "$1.offset"
  echo RUNNING > "$1.state"
}}
end() {{
  if [ "$count$MODE" = "${{FAIL_AT}}after" ]; then echo "fails after its effect" >&2; exit 1; fi
  exit 0
}}
"""
_DROVER = f"""{_COMMON}
exists() {{ [ -e drover.state ] || {{ echo "CONNECTOR_NOT_FOUND" >&2; exit 1; }}; }}
case "$2 $3" in
  "create -f")
    if [ -e drover.state ]; then echo "it exists" >&2; exit 1; fi
    echo STOPPED > drover.state; echo 0 > drover.offset ;;
  "offsets -f")
    exists
    if [ "$(cat drover.state)" != STOPPED ]; then echo "it is not stopped" >&2; exit 1; fi
    grep -o '[0-9]*' "$MOVE/$4" > drover.offset ;;
  "offsets -o")
    exists; echo '{{"offsets":[{{"partition":{{}},"offset":'"$(cat drover.offset)"'}}]}}' ;;
  "status -o") exists; echo '{{ "tasks": [] }}' ;;
  "status --") exists ;;
  "stop --") exists; echo STOPPED > drover.state ;;
  "resume --") exists; start drover connect ;;
  "delete --yes") exists; rm drover.state drover.offset ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
end
"""
_CURL = f"""{_COMMON}
method=GET
for each; do
  if [ "$last" = -X ]; then method=$each; fi
  if [ "$last" = --data-binary ]; then file=${{each#@}}; fi
  last=$each
done
case "$method ${{last##*/}}" in
  "PUT stop") echo STOPPED > connect.state ;;
  "PUT resume") start connect drover ;;
  "GET status") echo '{{"connector":{{"state":"STOPPED"}},"tasks":[]}}' ;;
  "GET offsets") echo '{{"offsets":[{{"partition":{{}},"offset":'"$(cat connect.offset)"'}}]}}' ;;
  "PATCH offsets") grep -o '[0-9]*' "$MOVE/$file" > connect.offset ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
end
"""


class World:
    """The two clusters with one connector, and the directory of the move."""

    def __init__(self, directory: Path, report: Report) -> None:
        self.move = directory / "move"
        self._world = directory / "world"
        self._programs = directory / "programs"
        for each in (self.move / "connectors", self._world, self._programs):
            each.mkdir(parents=True)
        for name, text in (("drover", _DROVER), ("curl", _CURL)):
            (self._programs / name).write_text(text)
            (self._programs / name).chmod(0o700)
        for name, text in scripts_of(report, Access()).items():
            (self.move / name).write_text(text)
        (self.move / "connectors" / f"{connector_id(NAME)}.yaml").write_text(
            definition_text(report.connectors[0])
        )
        (self._world / "position").write_text("10\n")
        (self._world / "connect.state").write_text("RUNNING\n")
        (self._world / "connect.offset").write_text("10\n")

    def run(self, script: str, *, fail_at: int = 0, mode: str = "") -> tuple[int, str]:
        """The exit code and the errors of a script whose command number ``fail_at`` fails."""
        (self._world / "count").write_text("0")
        environment = {
            **os.environ,
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            "WORLD": str(self._world),
            "MOVE": str(self.move),
            "FAIL_AT": str(fail_at),
            "MODE": mode,
        }
        done = subprocess.run(
            [BASH, self.move / script], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    def states(self) -> tuple[str, str]:
        """The states in Kafka Connect and in Drover."""
        return self._text("connect.state"), self._text("drover.state")

    def faults(self) -> str:
        """What should not have happened."""
        return self._text("faults")

    def marks(self) -> list[str]:
        """The files that note what was done."""
        directories = ("created", "copied", "done", "returned")
        return sorted(each for each in directories if any((self.move / each).glob("*")))

    def _text(self, name: str) -> str:
        file = self._world / name
        return file.read_text().strip() if file.exists() else ""


@pytest.fixture
def world(script: ScriptedConnect, check: Callable[..., Report], tmp_path: Path) -> World:
    script.add(NAME, SOURCE)
    return World(tmp_path, check())


def test_a_connector_moves_and_returns_where_it_was(world: World) -> None:
    for _ in range(2):
        assert world.run("to-drover.sh") == (0, "")
        assert world.states() == ("STOPPED", "RUNNING")
        assert world.run("back.sh") == (0, "")
        assert world.states() == ("RUNNING", "")
        assert world.marks() == []
    assert world.run("back.sh") == (0, "")
    assert world.faults() == ""


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("fail_at", range(1, 7))
def test_an_interrupted_move_continues(fail_at: int, mode: str, world: World) -> None:
    code, error = world.run("to-drover.sh", fail_at=fail_at, mode=mode)
    assert (code != 0, f"fails {mode}" in error) == (True, True)
    if (fail_at, mode) == (1, "after"):  # nothing shows who has created the connector
        assert "it exists" in world.run("to-drover.sh")[1]
        assert world.states() == ("RUNNING", "STOPPED")
        return
    assert world.run("to-drover.sh") == (0, "")
    assert world.states() == ("STOPPED", "RUNNING")
    assert world.run("back.sh") == (0, "")
    assert world.states() == ("RUNNING", "")
    assert world.faults() == ""


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("fail_at", range(2, 7))
def test_an_interrupted_move_is_taken_back(fail_at: int, mode: str, world: World) -> None:
    world.run("to-drover.sh", fail_at=fail_at, mode=mode)
    assert world.run("back.sh") == (0, "")
    assert (world.states(), world.marks(), world.faults()) == (("RUNNING", ""), [], "")


@pytest.mark.parametrize("next_script", ["back.sh", "to-drover.sh"])
@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("fail_at", range(1, 8))
def test_an_interrupted_return_continues_or_is_taken_back(
    fail_at: int, mode: str, next_script: str, world: World
) -> None:
    world.run("to-drover.sh")
    code, error = world.run("back.sh", fail_at=fail_at, mode=mode)
    assert (code != 0, f"fails {mode}" in error) == (True, True)
    code, error = world.run(next_script)
    if next_script == "back.sh":
        assert (code, world.states(), world.marks()) == (0, ("RUNNING", ""), [])
    elif code == 0:
        assert world.states() == ("STOPPED", "RUNNING")
    assert world.faults() == ""


@pytest.mark.parametrize("answer", ["", "<html>Sign in</html>", "{}"])
def test_an_answer_without_offsets_ends_the_move(answer: str, world: World) -> None:
    curl = world.move.parent / "programs" / "curl"
    text = curl.read_text()
    curl.write_text(text.replace('"GET offsets") echo', f"\"GET offsets\") echo '{answer}'; end"))
    code, error = world.run("to-drover.sh")
    assert (code, "has no offsets of a connector" in error) == (1, True)
    assert world.states() == ("STOPPED", "STOPPED")
    curl.write_text(text)
    assert world.run("to-drover.sh") == (0, "")
    assert world.faults() == ""
