"""Outages of a system: connectors and tasks run again when it answers, without a command.

The clock is simulated, so an outage may take an hour.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from drover.model.failures import FailureCause, FailureHistory
from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey
from drover_worker.core import events, instructions
from drover_worker.core.context import HerderSettings
from drover_worker.core.instructions import HerderInstruction
from tests.support.herder_driver import ME, HerderDriver, connector_config, entry

C0, C1 = TaskId("c", 0), TaskId("c", 1)
KEYS: tuple[StatusKey, ...] = ("c", C0, C1)
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
#: The longest pause between two attempts, restart.backoff.max.ms, with its jitter.
PAUSE_MAX_MS = 72_000
OUTAGE, CREDENTIALS = FailureCause.OUTAGE, FailureCause.CREDENTIALS
ALL_RUN = {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"

#: Why the system refuses a connection at a time; None if it accepts it.
Refusal = Callable[[int], FailureCause | None]


class Outage(HerderDriver):
    """A worker with connector c and two tasks, whose system may refuse connections."""

    def __init__(self, **settings: str) -> None:
        # heartbeats are not answered
        super().__init__(HerderSettings(worker_id=ME, group_id="drover", session_timeout_ms=10**9))
        self.refusal: Refusal = lambda _now_ms: None
        #: When a connection was tried, by connector or task.
        self.attempts: dict[StatusKey, list[int]] = {}
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.ready(entry("c", tasks=2, config={**connector_config("c"), **named}))
        self.settle_as_leader()
        self.run_engine()
        self.echo_statuses()
        assert self.states() == ALL_RUN
        self.attempts.clear()

    def break_off(self, *keys: StatusKey, cause: FailureCause = OUTAGE) -> None:
        """The connections of running connectors and tasks end."""
        for key in keys:
            item = self.herder.work.find(key)
            assert item is not None
            if isinstance(key, TaskId):
                self.step(events.TaskFailed(key, item.run_id, REFUSED, cause))
            else:
                self.step(events.ConnectorFailed(key, item.run_id, REFUSED, cause))
        self.echo_statuses()

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; the engine carries out each instruction at once."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            due = [
                timer.deadline_ms
                for key, timer in self.timers.items()
                if key.startswith(("restart-", "reconfigure:"))
            ]
            self.advance(max(0, min([end_ms, *due]) - self.now_ms))
            self.run_engine()
            self.echo_statuses()

    def history(self, key: StatusKey) -> FailureHistory:
        found = self.statuses[key].failures
        assert found is not None
        return found

    def run_ids(self) -> dict[StatusKey, int]:
        return {key: item.run_id for key in KEYS if (item := self.herder.work.find(key))}

    def _engine_answer(
        self, instruction: HerderInstruction, task_counts: Mapping[str, int]
    ) -> events.HerderEvent | None:
        answer = super()._engine_answer(instruction, task_counts)
        match instruction:
            case instructions.StartConnector(name, run_id):
                if cause := self._tried(name):
                    return events.ConnectorFailed(name, run_id, REFUSED, cause)
            case instructions.GenerateTaskConfigs(name, run_id):
                if self.refusal(self.now_ms):
                    return events.TaskConfigsNotGenerated(name, run_id, REFUSED)
            case instructions.StartTask(task, run_id):
                if cause := self._tried(task):
                    return events.TaskFailed(task, run_id, REFUSED, cause)
        return answer

    def _tried(self, key: StatusKey) -> FailureCause | None:
        self.attempts.setdefault(key, []).append(self.now_ms)
        return self.refusal(self.now_ms)


def until(end_ms: int, cause: FailureCause = OUTAGE) -> Refusal:
    return lambda now_ms: cause if now_ms < end_ms else None


@pytest.mark.parametrize("duration_ms", [SECOND, MINUTE, 10 * MINUTE, HOUR, 24 * HOUR])
def test_everything_runs_again_after_an_outage(duration_ms: int) -> None:
    system = Outage()
    system.refusal = until(system.now_ms + duration_ms)
    system.break_off(*KEYS)
    system.pass_time(duration_ms)
    for key in KEYS:
        assert system.history(key).no_restart_reason == ""
    system.pass_time(PAUSE_MAX_MS)
    assert system.states() == ALL_RUN
    for key in KEYS:
        # the pauses double up to a minute, with a jitter of a fifth
        assert len(system.attempts[key]) <= 7 + (duration_ms + PAUSE_MAX_MS) / 48_000


def test_pauses_are_short_at_first_and_at_most_a_minute() -> None:
    system = Outage()
    began_ms = system.now_ms
    system.refusal = until(began_ms + HOUR)
    system.break_off(C0)
    system.pass_time(HOUR)
    tried = [began_ms, *system.attempts[C0]]
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[0] <= 1_200
    assert max(pauses) <= PAUSE_MAX_MS
    assert all(later > earlier for earlier, later in pairwise(pauses[:5]))


def test_a_second_outage_begins_with_short_pauses_again() -> None:
    system = Outage()
    system.refusal = until(system.now_ms + 10 * MINUTE)
    system.break_off(*KEYS)
    system.pass_time(15 * MINUTE)
    assert system.states() == ALL_RUN
    system.attempts.clear()
    began_ms = system.now_ms
    system.refusal = until(began_ms + SECOND)
    system.break_off(*KEYS)
    system.pass_time(5 * SECOND)
    assert system.states() == ALL_RUN
    assert system.attempts[C0][0] - began_ms <= 1_200


def test_a_database_that_returns_with_another_password_is_tried_until_it_is_accepted() -> None:
    system = Outage()
    down_until_ms = system.now_ms + 10 * MINUTE
    accepted_ms = down_until_ms + 2 * HOUR

    def refusal(now_ms: int) -> FailureCause | None:
        if now_ms < down_until_ms:
            return OUTAGE
        return CREDENTIALS if now_ms < accepted_ms else None

    system.refusal = refusal
    system.break_off(*KEYS)
    system.pass_time(10 * MINUTE + PAUSE_MAX_MS)
    rejected_ms = system.now_ms
    for key in KEYS:
        last = system.history(key).last
        assert last is not None
        assert last.cause is CREDENTIALS
    system.pass_time(accepted_ms - system.now_ms)
    for key in KEYS:
        # always after the longest pause, so that an account is not locked
        tries = [at for at in system.attempts[key] if at > rejected_ms]
        assert len(tries) <= 1 + 2 * HOUR / 48_000
    system.pass_time(PAUSE_MAX_MS)
    assert system.states() == ALL_RUN


def test_a_system_that_refuses_every_second_connection_is_used() -> None:
    system = Outage()
    calls = iter(range(10_000))
    system.refusal = lambda _now_ms: OUTAGE if next(calls) % 2 == 0 else None
    system.break_off(*KEYS)
    system.pass_time(5 * MINUTE)
    assert system.states() == ALL_RUN


def test_a_system_that_breaks_off_again_and_again_is_never_given_up() -> None:
    system = Outage(restart_attempts_max="3")
    for _ in range(200):
        system.break_off(*KEYS)
        system.pass_time(PAUSE_MAX_MS)
        assert system.states() == ALL_RUN
    assert system.history(C0).count == 200


def test_tasks_keep_running_while_the_connector_object_cannot_start() -> None:
    system = Outage()
    before = system.run_ids()
    system.refusal = until(system.now_ms + HOUR)
    system.break_off("c")
    system.pass_time(HOUR)
    assert system.states() == {**ALL_RUN, "c": "FAILED"}
    assert {key: system.run_ids()[key] for key in (C0, C1)} == {C0: before[C0], C1: before[C1]}
    system.pass_time(PAUSE_MAX_MS)
    assert system.states() == ALL_RUN
    assert {key: system.run_ids()[key] for key in (C0, C1)} == {C0: before[C0], C1: before[C1]}
    assert system.attempts.keys() == {"c"}


def test_task_configs_that_an_outage_prevents_are_generated_later() -> None:
    system = Outage()
    before = system.run_ids()
    system.refusal = until(system.now_ms + HOUR)
    system.step(events.ReconfigurationRequested("c", before["c"]))
    system.run_engine()
    assert system.states() == ALL_RUN
    assert system.statuses["c"].trace == REFUSED, "the status shows what is tried again"
    system.pass_time(HOUR + PAUSE_MAX_MS)
    assert system.states() == ALL_RUN
    assert system.statuses["c"].trace == ""
    assert system.run_ids() == before, "nothing was restarted"


def test_a_connector_created_during_an_outage_gets_its_tasks_after_it() -> None:
    system = Outage()
    system.refusal = until(system.now_ms + 10 * MINUTE)
    system.put("late")
    system.gather()
    system.run_engine()
    system.settle_as_leader(generation=2)
    system.run_engine()
    assert system.states()["late"] == "FAILED"
    system.pass_time(10 * MINUTE + PAUSE_MAX_MS)
    assert system.states()["late"] == "RUNNING"


def test_a_fault_of_the_connector_counts_beside_outages() -> None:
    system = Outage(restart_attempts_max="2")
    system.refusal = until(system.now_ms + HOUR)
    system.break_off(C0)
    system.pass_time(HOUR + PAUSE_MAX_MS)
    assert system.states() == ALL_RUN
    for _ in range(3):
        assert system.states()["c-0"] == "RUNNING"
        system.break_off(C0, cause=FailureCause.PLUGIN)
        system.pass_time(10 * SECOND)
    assert system.states()["c-0"] == "FAILED"
    assert "restart.attempts.max=2" in system.history(C0).no_restart_reason


def test_never_leaves_an_outage_to_the_operator() -> None:
    system = Outage(restart_policy="never")
    system.break_off(*KEYS)
    system.pass_time(HOUR)
    assert set(system.states().values()) == {"FAILED"}
    system.restart_requested("c", only_failed=True, include_tasks=True)
    system.run_engine()
    assert system.states() == ALL_RUN


def test_the_next_owner_of_a_task_continues_its_back_off() -> None:
    system = Outage()
    system.refusal = until(system.now_ms + HOUR)
    system.break_off(*KEYS)
    system.pass_time(30 * MINUTE)
    system.step(events.GroupPushed("member-a", 1, True))
    system.run_engine()
    system.settle_as_leader(generation=2)
    tried = len(system.attempts[C0])
    system.pass_time(10 * SECOND)
    assert len(system.attempts[C0]) - tried <= 1, "it does not try at once and often"
    system.pass_time(30 * MINUTE + PAUSE_MAX_MS)
    assert system.states() == ALL_RUN
    assert system.statuses[C0].state is RunState.RUNNING
