"""Realistic bugs that each violate one rule: they prove that the simulation detects violations."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from drover.dataplane import claims
from drover.errors import DroverError
from drover.machine import Complete
from drover.model.claims import ClaimRequest
from drover.model.group import Joined
from drover.model.ids import Term
from drover.model.offsets import CommitOutcome, CommitResult, TaskOffsets
from drover.runtime.runtime import Runtime
from drover_coordinator.core.groups import fencing
from drover_coordinator.core.groups.group import Group
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.rebalance.protocol import Assignment
from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep
from simulation.brokers import Batch
from simulation.network import Heard
from simulation.publishing_task import PublishingTask
from simulation.tasks import SinkTask, SourceTask


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug.

    Attributes:
        rule: The rule that it violates.
        on_kafka: Whether it concerns sources that publish to brokers.
        target: The dotted name of the replaced attribute.
        replacement: The faulty version.
    """

    rule: str
    target: str
    replacement: object
    on_kafka: bool = False


_grant = claims.grant
_decide = Runtime._decide
_ended = Publishing.ended
_check_claim = PublishingTask._check_claim
_rewind = SinkTask._rewind


def _grant_with_the_same_sequence(
    connection: sqlite3.Connection, request: ClaimRequest, now_ms: int
) -> Term:
    held = claims.current(connection, request.task)
    if held is not None and held.generation == request.generation:
        return held
    return _grant(connection, request, now_ms)


def _decide_and_tell(runtime: Any, event: object, call_id: str) -> None:
    """Releases join responses before the generation's records are durable."""
    _decide(runtime, event, call_id)
    if runtime._in_flight is None:
        return
    joins = [
        instruction
        for instruction in runtime._in_flight.outcome.instructions
        if isinstance(instruction, Complete) and isinstance(instruction.response, Joined)
    ]
    runtime._delivery.release(joins)


def _refuse_no_generation(
    group: Group, member_id: str, instance_id: str | None, generation: int | None
) -> DroverError | None:
    return fencing.member_error(group, member_id, instance_id, None)


def _settle_at_once(membership: Membership, assignment: Assignment) -> None:
    membership._settle()


def _all_take_work(loads: Sequence[Any], draining: object) -> Sequence[Any]:
    return loads


def _ended_without_a_check(protocol: Publishing, how: Ended) -> None:
    _ended(protocol, how)
    if protocol.step is PublishingStep.CHECK_CLAIM:
        _ended(protocol, Ended.DONE)


def _ended_for_good(protocol: Publishing, how: Ended) -> None:
    _ended(protocol, how)
    if how is Ended.FENCED:
        protocol.step = PublishingStep.GIVE_UP


def _ended_to_commit_again(protocol: Publishing, how: Ended) -> None:
    was_commit = protocol.step is PublishingStep.COMMIT
    _ended(protocol, how)
    if was_commit and how is not Ended.DONE:
        protocol._has_batch = protocol._knows_offsets = True


def _commit_offsets_behind(task: PublishingTask, heard: Heard) -> None:
    """Commits the records first, and the offsets after that."""
    brokers, offsets = task._brokers, task._commit_of(task._batch).offsets

    def committed(result: object) -> None:
        if isinstance(result, Exception):
            heard(result)
        else:
            task._ask(lambda: task._engine.data.write(task.task, task.claim, offsets), heard)

    def commit_records() -> None:
        brokers.add_offsets(task.task, task._epoch, ())
        brokers.commit(task.task, task._epoch)

    task._ask(commit_records, committed)


def _commit_offsets_first(
    task: SourceTask, commit: TaskOffsets, records: Batch, letters: Batch, heard: Heard
) -> None:
    """Commits the offsets of a batch, and publishes its records after that."""
    data = task._engine.data

    def committed(result: object) -> None:
        if isinstance(result, CommitResult) and result.outcome is CommitOutcome.COMMITTED:
            data.run(task._engine, lambda: publish(result), heard)
        else:
            heard(result)

    def publish(result: CommitResult) -> CommitResult:
        data.append(task.task, task.claim, records)
        data.append_letters(task.task, task.claim, letters)
        return result

    data.run(task._engine, lambda: data.commit([commit])[0], committed)


def _publish_letters_first(
    task: SourceTask, commit: TaskOffsets, records: Batch, letters: Batch, heard: Heard
) -> None:
    """Publishes dead letters in a transaction before the one of their batch."""
    data = task._engine.data

    def published(result: object) -> None:
        if isinstance(result, DroverError):
            heard(result)
        else:
            data.run(task._engine, lambda: data.publish(commit, records, {}), heard)

    data.run(task._engine, lambda: data.append_letters(task.task, task.claim, letters), published)


def _check_no_claim_after_a_lost_engine(task: PublishingTask, heard: Heard) -> None:
    """Believes that the claim of a task counts when its engine has started again."""
    if task._engine.incarnation == 1:
        _check_claim(task, heard)
    else:
        done = CommitResult(task.task, CommitOutcome.COMMITTED)
        task._engine.deliver(1, lambda: heard(done))


def _commit_the_newest_first(task: SinkTask) -> None:
    """Commits the batch that was written ahead before the batch in front of it."""
    newest, task._waiting = task._waiting, None
    if newest is None:
        return
    held: TaskOffsets | None = getattr(task, "held", None)
    task.held = newest if held is None else None  # type: ignore[attr-defined]
    if held is not None:
        task._send(newest)
        task._send(held)


def _rewind_and_write_the_batch_again(task: SinkTask) -> None:
    """Writes the last batch again after a rewind, in place of the records that were asked for."""
    _rewind(task)
    if task._batch:
        task._write(task._batch)


BUGS: Mapping[str, Bug] = {
    "same-sequence": Bug(
        "a claim that is granted makes every earlier one of the task stale",
        "drover.dataplane.claims.grant",
        _grant_with_the_same_sequence,
    ),
    "claims-of-two-sets": Bug(
        "the first claim of another set of task configs makes those of the set before stale",
        "drover.dataplane.claims._enter_set",
        lambda *arguments: None,
    ),
    "late-commits": Bug(
        "a copy of a commit that comes after a later one writes nothing",
        "drover.dataplane.claims.comes_late",
        lambda *arguments: False,
    ),
    "told-before-durable": Bug(
        "a generation is durable before any member hears of it",
        "drover.runtime.runtime.Runtime._decide",
        _decide_and_tell,
    ),
    "any-epoch": Bug(
        "a log accepts privileged records of its last claimant only",
        "drover.log.memory.check_epoch",
        lambda *arguments: None,
    ),
    "no-sessions-after-restart": Bug(
        "a coordinator that has loaded its log arms the session of every member",
        "drover_coordinator.core.groups.machine.set_session_end",
        lambda *arguments: None,
    ),
    "any-generation": Bug(
        "only members of the present generation are given its assignment",
        "drover_coordinator.core.groups.sync.member_error",
        _refuse_no_generation,
    ),
    "no-catching-up": Bug(
        "a worker reads the config log as far as its leader had before it starts work",
        "drover_worker.core.rebalance.membership.Membership._assigned",
        _settle_at_once,
    ),
    "drained-worker-takes-work": Bug(
        "a worker that is draining is given no work",
        "drover_worker.core.rebalance.cooperative_assignor._takers",
        _all_take_work,
    ),
    "compaction-spares-nothing": Bug(
        "compaction spares the config under which task configs were committed",
        "drover_config_store.core.machine.ConfigMachine.needed_offsets",
        lambda machine: (),
    ),
    "offsets-first": Bug(
        "offsets are committed together with their records",
        "simulation.tasks.SourceTask._publish",
        _commit_offsets_first,
    ),
    "letters-first": Bug(
        "a dead letter is published in the transaction of its batch",
        "simulation.tasks.SourceTask._publish",
        _publish_letters_first,
    ),
    "write-ahead-first": Bug(
        "batches are committed in the order of their records",
        "simulation.tasks.SinkTask._commit_next",
        _commit_the_newest_first,
    ),
    "batch-after-rewind": Bug(
        "a rewind drops the batches from its position on",
        "simulation.tasks.SinkTask._rewind",
        _rewind_and_write_the_batch_again,
    ),
    "no-check-after-lost-engine": Bug(
        "a task checks its claim in a new engine too",
        "simulation.publishing_task.PublishingTask._check_claim",
        _check_no_claim_after_a_lost_engine,
        on_kafka=True,
    ),
    "no-second-check": Bug(
        "whoever has begun as a task's producer asks whether its claim counts",
        "drover_worker.engine.core.publishing.Publishing.ended",
        _ended_without_a_check,
        on_kafka=True,
    ),
    "fenced-is-verdict": Bug(
        "whoever is fenced and has the claim begins again",
        "drover_worker.engine.core.publishing.Publishing.ended",
        _ended_for_good,
        on_kafka=True,
    ),
    "commit-again": Bug(
        "a commit without an answer may have been carried out: only the offsets tell",
        "drover_worker.engine.core.publishing.Publishing.ended",
        _ended_to_commit_again,
        on_kafka=True,
    ),
    "offsets-apart": Bug(
        "a source's records and offsets are one transaction",
        "simulation.publishing_task.PublishingTask._commit",
        _commit_offsets_behind,
        on_kafka=True,
    ),
    "old-sets-unfenced": Bug(
        "a new set of task configs fences the producers of the old one before any claim of it",
        "simulation.brokers.Brokers.fence",
        lambda *arguments: None,
        on_kafka=True,
    ),
}
ON_KAFKA = frozenset(name for name, bug in BUGS.items() if bug.on_kafka)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with the bug ``name``; an empty name plants no bug."""
    if not name:
        yield
        return
    bug = BUGS[name]
    with patch(bug.target, bug.replacement):
        yield
