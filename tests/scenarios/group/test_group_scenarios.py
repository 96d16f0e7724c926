"""Every scenario file beside this one; see tests/support/group_scenario.py for the commands."""

from pathlib import Path

import pytest

from tests.support.group_scenario import GroupScenario
from tests.support.scenario import (
    ScenarioError,
    parse_command,
    parse_steps,
    run_scenario,
)

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_scenario(path: Path) -> None:
    run_scenario(path, GroupScenario().execute)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 8


def test_another_trace_fails_with_a_diff_and_is_rewritten_when_blessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txt"
    path.write_text("# why\nsay hello\nsay you\n----\nold\n")
    monkeypatch.delenv("DROVER_BLESS", raising=False)
    with pytest.raises(ScenarioError, match="-old\n\\+hello\n\\+you"):
        run_scenario(path, lambda command: command.words)
    monkeypatch.setenv("DROVER_BLESS", "1")
    run_scenario(path, lambda command: command.words)
    assert path.read_text() == "# why\nsay hello\nsay you\n----\nhello\nyou\n"
    monkeypatch.delenv("DROVER_BLESS")
    run_scenario(path, lambda command: command.words)


def test_files_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no ----"):
        parse_steps("join a\n")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(ScenarioError, match="no steps"):
        run_scenario(empty, lambda command: command.words)


def test_commands_have_words_and_options() -> None:
    command = parse_command("sync a generation=3 b=x=y")
    assert (command.name, command.words) == ("sync", ("a",))
    assert command.options == {"generation": "3", "b": "x=y"}
    assert command.number("generation", 0) == 3
    assert command.number("missing", 7) == 7
