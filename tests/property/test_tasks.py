"""Tasks in any order of events, failures, answers and lost claims: their cores keep the guarantees.

The drivers run the cores in a small world; ``validate()`` runs after every step. Each planted bug
is found by the same checks.
"""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.connector.offsets import parse_sink_offsets, sink_offset
from drover.model.offsets import CommitOutcome, TopicPartition
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.commits import Commits
from drover_worker.engine.core.failures import FailureKind
from drover_worker.engine.core.instructions import Operation, TaskInstruction
from drover_worker.engine.core.phases import Phase
from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep
from drover_worker.engine.core.sink import SinkCore
from drover_worker.engine.core.sink_commits import offsets_of
from drover_worker.engine.core.source import SourceCore
from drover_worker.engine.core.transactions import Transactions
from tests.support.task_driver import (
    CLAIM,
    FAILURES,
    OTHER_CLAIM,
    SinkDriver,
    SourceDriver,
    TaskDriver,
    written,
)

_ended = Publishing.ended
T0 = TopicPartition("t", 0)
_STEPS = 60
_CONFIRMED_MS = 1_000
#: Enough runs to finish the work without further failures.
_LAST_RUNS = 120


class Checks:
    """What an observer of a task's instructions can see of its guarantees."""

    def __init__(self, driver: TaskDriver) -> None:
        self.driver = driver
        driver.observer = self.see
        self.has_ended = False
        self.is_fenced = False

    def see(self, instruction: TaskInstruction) -> None:
        """Check one instruction, before it is executed."""
        if self.has_ended:
            assert not isinstance(instruction, Operation), f"{instruction} after the end"
            assert not isinstance(instruction, instructions.BeginTransaction)
            assert not isinstance(instruction, instructions.ContinueTransaction)
        if self.is_fenced:
            assert not isinstance(instruction, instructions.SendCommit), "a commit after the fence"
        if isinstance(instruction, instructions.EndFenced):
            self.is_fenced = True
            assert self.driver.claim != CLAIM, "fenced although it has the claim"
        if isinstance(instruction, instructions.EndFenced | instructions.EndFailed):
            self.has_ended = True


class SinkChecks(Checks):
    """The guarantees of a sink."""

    driver: SinkDriver

    def __init__(self, driver: SinkDriver) -> None:
        super().__init__(driver)
        #: The end of the records that write() has confirmed.
        self.done = 0
        self.batch_count = 0
        self.commit_count = 0
        self.letter_batches: set[int] = set()
        self.sent = 0
        self.rewound_to: int | None = None
        #: The end of the records that the task object has, since its start.
        self.given = 0
        #: After a rewind: the end of the records that were delivered again.
        self.again_up_to: int | None = None
        #: Whether a write ended with an unknown extent.
        self.needs_restart = False
        self.confirmed_ms = -_CONFIRMED_MS

    def see(self, instruction: TaskInstruction) -> None:
        """See Checks."""
        super().see(instruction)
        match instruction:
            case instructions.WriteBatch(plan):
                (part,) = plan.ranges
                assert part.start_offset <= self.done, f"a gap before {part}"
                if self.rewound_to is not None:
                    assert part.start_offset == self.rewound_to, "a rewind was ignored"
                assert not self.needs_restart, "a write after one of unknown extent"
                self._check_claim()
            case instructions.StopInstance():
                self.rewound_to, self.needs_restart = None, False
                self.given, self.again_up_to = 0, None
            case instructions.SendCommit(_, offsets, refreshes_marks, are_starts):
                at = parse_sink_offsets(offsets)[T0].offset
                assert at >= self.sent, f"a commit goes back to {at}"
                if self.again_up_to is not None:
                    assert at <= max(self.sent, self.again_up_to), "a commit above a rewind"
                self.sent = at
                if not are_starts and not refreshes_marks:
                    self.commit_count += 1
                    assert at <= self.done, f"{at} is committed, but {self.done} is written"
                    assert self.commit_count <= self.batch_count, "two commits for a batch"

    def _check_claim(self) -> None:
        driver = self.driver
        if driver.claim != CLAIM:
            age_ms = driver.now_ms - self.confirmed_ms
            assert driver.claim_is_far, "a write under a stale claim"
            assert age_ms < _CONFIRMED_MS, "a write under a claim that was not checked"

    def returned(self, end: int) -> None:
        """write() returned."""
        self.batch_count += 1
        self.done = max(self.done, end)
        self.given = max(self.given, end)
        self.rewound_to = None
        if self.again_up_to is not None:
            self.again_up_to = end if end < self.given else None

    def rewound(self, offset: int) -> None:
        """The task object has asked for records again; of several rewinds the lowest counts."""
        at = self.again_up_to
        self.rewound_to = self.again_up_to = offset if at is None else min(at, offset)


class CheckedSink(SinkDriver):
    """A sink whose writes and claims are checked."""

    checks: SinkChecks

    def perform(self, operation: Operation) -> Any:
        """See TaskDriver."""
        if isinstance(operation, instructions.ReadRequests) and self.rewinds:
            self.checks.rewound(self.rewinds[T0])
        found = super().perform(operation)
        if isinstance(found, events.BatchWritten):
            assert isinstance(operation, instructions.WriteBatch)
            self.checks.returned(operation.plan.ranges[-1].end_offset)
            if found.rewinds:
                self.checks.rewound(found.rewinds[T0])
        elif isinstance(found, events.IdleReturned):
            self.checks.batch_count += 1  # it may be followed by a commit as well
            if found.rewinds:
                self.checks.rewound(found.rewinds[T0])
        elif isinstance(found, events.ClaimConfirmed):
            self.checks.confirmed_ms = self.now_ms
        elif isinstance(found, events.OperationFailed):
            is_write = isinstance(operation, _WRITES)
            retries = found.failure.kind is FailureKind.RETRIABLE
            if is_write and not (retries and isinstance(operation, instructions.WriteBatch)):
                self.checks.needs_restart = True
            if not is_write:
                self.checks.rewound_to = None
        return found

    def answer(self, outcome: CommitOutcome | None = None) -> None:
        """See TaskDriver."""
        if outcome is None and self.claim == CLAIM:
            self.checks.confirmed_ms = self.now_ms
        super().answer(outcome)


_WRITES = (instructions.WriteBatch, instructions.PublishLetters)
_SINK_FAILURES = ("retriable", "unavailable", "lost", "mixed", "engine-ends")
_SINK_OPERATIONS = (
    *("WriteBatch", "PlanRead", "FindTopics", "ReadClaim", "PublishLetters", "StartSink"),
    *("IdentifyTopics", "ConfirmClaim", "StopInstance", "ReadRetention", "FetchOffsets"),
    "CallIdle",
)


def explore_sink(random: Random) -> None:
    """One course of a sink; raises AssertionError if a guarantee is broken."""
    driver = CheckedSink(
        writes_ahead=random.random() < 0.5,
        batch_max_records=random.choice([1, 2, 4]),
        rate_max_records=random.choice([0, 0, 100]),
    )
    checks = driver.checks = SinkChecks(driver)
    driver.claim_is_far = random.random() < 0.5
    driver.retention_ms = random.choice([None, 4_000])
    driver.start()

    def rewind() -> None:
        at = driver.core.positions.get(("t", 0), 0)
        wanted = {T0: random.randint(0, at)}
        match random.randrange(3):
            case 0:
                driver.rewinds = wanted
            case 1:
                driver.rewinds_in_write = {T0: min(wanted[T0], driver.position())}
            case _:
                driver.idle_in_ms, driver.rewinds_in_idle = 0, {T0: min(wanted[T0], checks.given)}

    def idle() -> None:
        driver.idle_in_ms = random.choice([0, 0, 500])
        if random.random() < 0.7:
            driver.idle_returns = written(t=random.randint(0, checks.given))

    def return_less() -> None:
        driver.returns = [written(t=random.randint(0, checks.given))]

    def fail() -> None:
        driver.fail(random.choice(_SINK_OPERATIONS), random.choice(_SINK_FAILURES))

    moves: list[Callable[[], object]] = [
        *[driver.run] * 8,
        *[lambda: _answer(driver, random)] * 4,
        *[lambda: driver.ends.update(t=driver.ends["t"] + random.randint(1, 5))] * 3,
        lambda: driver.step(events.PauseSet(random.random() < 0.3)),
        lambda: setattr(driver, "now_ms", driver.now_ms + random.choice([1, 400, 2_000, 9_000])),
        lambda: setattr(driver, "letter_count", 1),
        *[rewind] * 3,
        *[idle] * 2,
        return_less,
        fail,
        lambda: driver.fail("WriteBatch", "retriable"),
    ]
    _course(driver, random, moves)
    if not driver.is_over:
        driver.rewinds = driver.rewinds_in_write = driver.rewinds_in_idle = {}
        driver.returns, driver.idle_returns = [], None
        driver.ends["t"] += 1  # its batch commits what earlier ones have left
        _finish(driver, lambda: driver.position() == driver.ends["t"])
    assert driver.position() <= checks.done


class SourceChecks(Checks):
    """The guarantees of a source."""

    driver: SourceDriver
    #: When the rates allow the next batch.
    free_at_ms = 0.0

    def see(self, instruction: TaskInstruction) -> None:
        """See Checks."""
        super().see(instruction)
        driver = self.driver
        if isinstance(instruction, instructions.Notify):
            offset = instruction.offsets[0][1]
            assert offset is not None
            assert offset["next"] <= driver.position, "committed() before the commit"
        elif isinstance(instruction, instructions.SendCommit):
            for row in map(_row_of, instruction.offsets):
                assert row <= len({*driver.published}), "offsets ahead of the records"
        elif isinstance(instruction, instructions.Poll):
            assert driver.commit is None, "a poll before the commit of the last batch"
            assert driver.now_ms >= self.free_at_ms, "a poll before its time"
        elif isinstance(instruction, instructions.CountBatch):
            rate = driver.core.settings.limits.rate_max_records
            took_ms = instruction.report.read_count * 1_000 / rate if rate else 0
            self.free_at_ms = instruction.started_ms + took_ms
        elif isinstance(instruction, instructions.BeginTransaction):
            gathers = driver.core.settings.interval_ms > 0
            assert gathers or len(instruction.staged) <= 2, "a transaction grows"

    def check(self) -> None:
        """Check the topic."""
        driver = self.driver
        rows = list(dict.fromkeys(driver.published))
        assert rows == list(range(len(rows))), f"lost or out of order: {driver.published}"
        if not driver.later:
            assert len(rows) == len(driver.published), f"repeated: {driver.published}"
            assert driver.position == len(rows), "the offsets are not the records' offsets"
        assert driver.position <= len(rows), "offsets ahead of the records"


def _row_of(offset: Any) -> int:
    return int(offset.offset_json.partition(":")[2].rstrip("}"))


_SOURCE_FAILURES = ("retriable", "unavailable", "lost", "engine-ends")
_SOURCE_OPERATIONS = (
    *("Poll", "Stage", "Notify", "StopInstance", "TakeStep", "StartSource", "ReadClaim"),
    *("FetchOffsets", "FindStarts"),
)
#: How steps of a transaction end; most of them well.
_STEP_FAILURES = ("", "", "", "", "unavailable", "stage-again", "fenced")


class ConsumingSource(SourceDriver):
    """A source whose task object has consumed rows when a poll fails for good."""

    def perform(self, operation: Operation) -> Any:
        """See TaskDriver."""
        found = super().perform(operation)
        has_failed = isinstance(found, events.OperationFailed) and found.failure in _FATAL
        if has_failed and isinstance(operation, instructions.Poll):
            self.next = min(self.next + 1, self.row_count)
        return found


_FATAL = [FAILURES[each] for each in ("plugin", "lost", "engine-ends")]


def explore_source(random: Random) -> None:
    """One course of a source; raises AssertionError if a guarantee is broken."""
    apart = random.random() < 0.6
    driver = ConsumingSource(
        batch_rows=random.choice([1, 2]),
        later=not apart and random.random() < 0.5,
        prompt=random.random() < 0.5,
        settings={
            "publishes_apart": apart,
            "reads_ahead": random.random() < 0.6,
            "interval_ms": random.choice([0, 0, 500]),
            "rate_max_records": random.choice([0, 0, 100]),
        },
    )
    checks = SourceChecks(driver)
    driver.start()

    def end_transaction() -> None:
        if driver.transaction is not None:
            failure = random.choice([*_STEP_FAILURES, "unknown"])
            driver.end_transaction(failure, applied=random.random() < 0.5)

    def take_step() -> None:
        if driver.transaction is not None:
            driver.take_transaction_step(
                random.choice(_STEP_FAILURES), applied=random.random() < 0.5
            )

    def fail() -> None:
        if random.random() < 0.2:
            driver.fail("Publish", "not-published")
        elif random.random() < 0.1:
            driver.fail("Poll", random.choice(["plugin", "lost"]))
            driver.prompt_failure = random.choice(["", "unavailable"])
        else:
            driver.fail(random.choice(_SOURCE_OPERATIONS), random.choice(_SOURCE_FAILURES))

    def add_rows() -> None:
        driver.row_count += random.randint(1, 4)

    moves: list[Callable[[], object]] = [
        *[driver.run] * 8,
        *[end_transaction] * 3,
        *[take_step] * 4,
        *[lambda: _answer(driver, random)] * 3,
        *[add_rows] * 3,
        lambda: driver.step(events.PauseSet(random.random() < 0.3)),
        lambda: setattr(driver, "now_ms", driver.now_ms + random.choice([1, 400, 2_000])),
        fail,
    ]
    _course(driver, random, moves, checks.check)
    if not driver.is_over:
        _finish(driver, lambda: driver.position == driver.row_count)
    checks.check()


def _answer(driver: TaskDriver, random: Random) -> None:
    if driver.commit is not None:
        refuses = random.random() < 0.05
        driver.answer(CommitOutcome.INVALID if refuses else None)


def _course(
    driver: TaskDriver,
    random: Random,
    moves: list[Callable[[], object]],
    check: Callable[[], None] = lambda: None,
) -> None:
    loses_claim_at = random.randint(0, 4 * _STEPS)
    stops_at = random.randint(0, 4 * _STEPS)
    for number in range(_STEPS):
        if number == loses_claim_at:
            driver.claim = OTHER_CLAIM
        if number == stops_at:
            driver.step(events.StopRequested())
            driver.settle_stop()
            driver.step(events.Abandoned())
        random.choice(moves)()
        check()


def _finish(driver: TaskDriver, is_done: Callable[[], bool]) -> None:
    """Without further failures the task does all its work, or ends."""
    driver.faults.clear()
    driver.step(events.PauseSet(False))
    for _ in range(_LAST_RUNS):
        if driver.is_over or (is_done() and driver.commit is None):
            break
        end = driver.run()
        driver.now_ms += 0 if end is None or end.pause_ms is None else end.pause_ms
        if isinstance(driver, SourceDriver) and driver.transaction is not None:
            driver.end_transaction()
        if driver.commit is not None:
            driver.answer()
    assert driver.is_over or is_done(), "the task does not finish its work"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_sink_keeps_its_guarantees_in_any_order_of_events(seed: int) -> None:
    explore_sink(Random(seed))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_source_keeps_its_guarantees_in_any_order_of_events(seed: int) -> None:
    explore_source(Random(seed))


def _without(table: Any, phase: Phase) -> Any:
    return {key: value for key, value in table.items() if key is not phase}


def _send_at_once(commits: Commits) -> Any:
    """Planted: commits do not wait for the answer to the one before."""
    for each in commits._open:
        if not each.is_sent:
            each.is_sent = True
            return instructions.SendCommit(each.number, each.offsets)
    return None


def _keep_the_plan(core: SinkCore, event: events.RequestsRead) -> None:
    """Planted: a rewind does not drop the batch that is retried."""
    plan = core._retry_plan
    rewinds = {(key.topic, key.partition): at for key, at in event.rewinds.items()}
    core._at.positions.update(rewinds)
    core._held, core._idle_in_ms, core._started_ms = event.paused, event.idle_in_ms, core._now_ms
    if plan is not None:
        core._planned(plan)
    else:
        core._plan_next()


def _drop_the_batches(self: Transactions[Any]) -> Any:
    """Planted: a transaction that was not published is forgotten."""
    current = self._current
    if current is None or not current.has_ended:
        return None
    self._current = None
    return current


def _commit_again(publishing: Publishing, how: Ended) -> None:
    """Planted: a commit without an answer counts as failed."""
    was_commit = publishing.step is PublishingStep.COMMIT
    _ended(publishing, how)
    if was_commit and how is not Ended.DONE:
        publishing._has_batch = publishing._knows_offsets = True


def _commit_with_the_next(core: SinkCore) -> None:
    """Planted: the offsets of a batch are committed before it is written."""
    plan = core._plan
    offsets = [sink_offset(*key, at) for key, at in plan.next_offsets.items()]
    core._send(offsets)
    core._operate(Phase.WRITING, instructions.WriteBatch(plan, False))


def _trust_the_claim(core: SinkCore, _claim: Any) -> bool:
    """Planted: the claim is not checked before a write."""
    return core is not None


def _add_to_the_repeated(self: Transactions[Any], now_ms: int) -> bool:
    """Planted: a transaction that is repeated takes more batches."""
    return not self._gathered or not self._is_due(now_ms)


def _ignore_the_rewind(core: SinkCore, task_result: Any, keys: Any) -> Any:
    """Planted: what the task had before a rewind is committed."""
    highest = core._at.highest_given
    return offsets_of(task_result, keys, core.committed, highest, highest)


def _never_wait(core: SourceCore[Any]) -> bool:
    """Planted: the rates are ignored."""
    return core is None


_PLANTED: dict[str, tuple[Any, str, Any, Callable[[Random], None]]] = {
    "commits out of order": (Commits, "_next", _send_at_once, explore_sink),
    "offsets before records": (SinkCore, "_write", _commit_with_the_next, explore_sink),
    "a claim is not checked": (SinkCore, "_check_read_claim", _trust_the_claim, explore_sink),
    "no restart after a failed write": (
        *(SinkCore, "_RESTARTS", _without(SinkCore._RESTARTS, Phase.WRITING)),
        explore_sink,
    ),
    "no restart after a failed stage": (
        *(SourceCore, "_RESTARTS", _without(SourceCore._RESTARTS, Phase.STAGING)),
        explore_source,
    ),
    "a commit without an answer is repeated": (Publishing, "ended", _commit_again, explore_source),
    "a transaction is forgotten": (Transactions, "settle", _drop_the_batches, explore_source),
    "a transaction grows": (Transactions, "takes_more", _add_to_the_repeated, explore_source),
    "a commit above a rewind": (SinkCore, "_offsets_of", _ignore_the_rewind, explore_sink),
    "no rates": (SourceCore, "_waits_for_rate", _never_wait, explore_source),
}


@pytest.mark.parametrize("name", _PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    owner, attribute, planted, explore = _PLANTED[name]
    with patch.object(owner, attribute, planted):
        for seed in range(400):
            try:
                explore(Random(seed))
            except AssertionError:
                return
    pytest.fail(f"400 courses do not show the planted bug: {name}")


def test_a_batch_that_is_retried_after_a_rewind_is_found() -> None:
    table: dict[tuple[Phase, type[Any]], Any] = dict(SinkCore.transitions())
    table[Phase.READING_REQUESTS, events.RequestsRead] = _keep_the_plan
    with patch.object(SinkCore, "_cached_table", table):
        for seed in range(400):
            try:
                explore_sink(Random(seed))
            except AssertionError:
                return
    pytest.fail("400 courses do not show the planted bug")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(events.TaskEvent.__args__, key=str)), st.booleans())
def test_an_event_without_a_transition_ends_only_the_task_with_its_recent_events(
    kind: type[Any], is_sink: bool
) -> None:
    driver: TaskDriver = SinkDriver() if is_sink else SourceDriver()
    driver.core.step(events.StartRequested(()), 0)
    phase = driver.core.phase
    if (phase, kind) in driver.core.transitions() or kind in _POSSIBLE_ANYWHERE:
        return
    event = object.__new__(kind)
    (ended, *_) = driver.core.step(event, 5)
    assert isinstance(ended, instructions.EndFailed)
    text = str(ended.error)
    assert f"got {kind.__name__} in phase {phase}" in text
    assert f"5 ms, {phase}: {kind.__name__}" in text
    assert "0 ms, NEW: StartRequested" in text
    assert driver.is_over
    assert driver.core.step(event, 6) == ()


_POSSIBLE_ANYWHERE = {
    events.PauseSet,
    events.CommitAnswered,
    events.TransactionStepEnded,
    events.TransactionGivenUp,
    events.StopRequested,
    events.Overdue,
    events.Abandoned,
    events.InstanceReleased,
}
