"""docs/task-rules.md names existing tests and scenarios, and each rule has one."""

import re
from pathlib import Path

import pytest

from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.phases import Phase
from drover_worker.engine.core.sink import SinkCore
from drover_worker.engine.core.source import SourceCore
from drover_worker.engine.core.task import TaskCore
from tests.contract.test_coordinator_rules import NAME, existing
from tests.support.repository import text_of

FILE = Path("docs/task-rules.md")
SCENARIOS = Path("tests/scenarios/task")
#: The sections, and the minimum number of rules in each.
RULES_MIN = {"Every task": 14, "Sinks": 11, "Sources": 7}


def rules(section: str) -> dict[str, tuple[list[str], list[str]]]:
    """The scenarios and the tests in each row of a section."""
    text = text_of(FILE)
    assert text is not None
    table = re.split(r"\n##", text.split(f"\n### {section}\n", 1)[1], maxsplit=1)[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")][2:]
    return {row[1].strip(): (re.findall(r"`(\w+)`", row[2]), NAME.findall(row[3])) for row in rows}


def test_every_rule_has_a_scenario_or_a_test() -> None:
    for section, at_least in RULES_MIN.items():
        found = rules(section)
        assert len(found) >= at_least
        assert [rule for rule, (scenarios, tests) in found.items() if not scenarios + tests] == []


def test_what_is_named_exists_and_every_scenario_is_named() -> None:
    found = [each for section in RULES_MIN for each in rules(section).values()]
    assert {name for _, tests in found for name in tests} - existing() == set()
    assert {name for scenarios, _ in found for name in scenarios} == {
        path.stem for path in SCENARIOS.glob("*.txt")
    }


@pytest.mark.parametrize("core", [SinkCore, SourceCore])
def test_the_table_of_a_core_has_events_and_phases_that_both_can_reach(
    core: type[TaskCore],
) -> None:
    table = core.transitions()
    for phase, kind in table:
        assert isinstance(phase, Phase)
        assert kind in events.TaskEvent.__args__
    # every phase of an operation handles a result besides a failure
    own = {phase for phase, kind in core._OWN_TRANSITIONS if kind is not events.OperationFailed}
    assert {phase for phase, _ in core._OWN_TRANSITIONS} == own


def test_every_instruction_has_an_execution() -> None:
    pytest.importorskip("pyspark")
    from drover_worker.engine.tasks.sink_runner import SinkRunner
    from drover_worker.engine.tasks.source_runner import SourceRunner
    from drover_worker.engine.tasks.task_runner import EXECUTIONS

    executed = {*EXECUTIONS, *SinkRunner._OWN_EXECUTIONS, *SourceRunner._OWN_EXECUTIONS}
    # the loops of a run and of a transaction handle these themselves
    handled = {instructions.EndRun, instructions.EndStop, instructions.RefuseStart}
    handled.add(instructions.ContinueTransaction)
    assert {*instructions.TaskInstruction.__args__} == executed | handled
