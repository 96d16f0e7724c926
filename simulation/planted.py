"""Realistic bugs that each violate one rule: they prove that the simulation detects violations."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from drover.connector.offsets import sink_offset
from drover.dataplane import claims
from drover.errors import DroverError
from drover.machine import Complete
from drover.model.claims import ClaimRequest
from drover.model.group import Joined
from drover.model.ids import Term
from drover.model.offsets import TaskOffsets
from drover.runtime.runtime import Runtime
from drover_coordinator.core.groups import fencing
from drover_coordinator.core.groups.group import Group
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.rebalance.protocol import Assignment
from drover_worker.engine.core import events
from drover_worker.engine.core.instructions import SendCommit
from drover_worker.engine.core.phases import Phase
from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep
from drover_worker.engine.core.sink import SinkCore
from drover_worker.engine.core.sink_commits import rewound
from drover_worker.engine.core.source import SourceCore
from drover_worker.engine.core.steps import Step
from drover_worker.engine.core.task import TaskCore, TransitionTable
from simulation.brokers import Staged
from simulation.waits import told
from simulation.writers import Batches, Offsets, ProducerWriter, StoreWriter


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug.

    Attributes:
        rule: The rule that it violates.
        on_kafka: Whether it concerns sources that publish to brokers.
        of_tasks: Whether it is a defect of tasks. Only the history has to show it, so the
            invariants of their cores are not checked.
        target: The dotted name of the replaced attribute.
        replacement: The faulty version.
    """

    rule: str
    target: str
    replacement: object
    on_kafka: bool = False
    of_tasks: bool = False


_grant = claims.grant
_decide = Runtime._decide
_ended = Publishing.ended
_check_claim = ProducerWriter.check_claim
_commit = ProducerWriter.commit
_publish_staged = StoreWriter._transact
_sink_write = SinkCore._write
_end_run = TaskCore._end_run
_requests_read = SinkCore._requests_read


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


async def _commit_offsets_behind(writer: ProducerWriter, offsets: Offsets) -> None:
    """Commits the records first, and the offsets after that."""
    task = writer.task
    await writer.add_offsets(())
    await _commit(writer, offsets)
    await writer._ask(lambda: task.engine.data.write(task.task, task.claim, offsets))


def _commit_and_then_write(core: SinkCore) -> None:
    """Commits the offsets of a batch, and writes its records after that."""
    ends = {**core.positions, **core._plan.next_offsets}
    core._commit([sink_offset(*key, at) for key, at in sorted(ends.items())])
    _sink_write(core)


async def _publish_letters_first(writer: StoreWriter, commit: TaskOffsets, staged: Batches) -> None:
    """Publishes dead letters in a transaction before the one of their batch."""
    engine, data = writer.task.engine, writer.task.engine.data
    letters = [Staged({}, each.letters) for each in staged]
    without_offsets = replace(commit, offsets=())
    await told(
        lambda heard: data.run(engine, lambda: data.publish(without_offsets, letters), heard)
    )
    await _publish_staged(writer, commit, [Staged(each.records, {}) for each in staged])


async def _check_no_claim_after_a_lost_engine(writer: ProducerWriter) -> None:
    """Believes that the claim of a task counts when its engine has started again."""
    if writer.task.engine.incarnation == 1:
        await _check_claim(writer)


def _commit_the_newest_first(core: Any, pause_ms: int | None, step: Step | None = None) -> None:
    """Holds the commit of a batch until the batch that is written ahead is committed."""
    held = getattr(core, "held", None)
    sent = [each for each in core._out if isinstance(each, SendCommit)]
    unsent = [each for each in core.commits._open if not each.is_sent]
    if held is None and pause_ms == 0 and sent and core.commits.open_count == 1:
        core.held = sent[0]
        core._out.remove(core.held)
    elif held is not None and (unsent or pause_ms != 0):
        core.held = None
        for each in unsent:
            each.is_sent = True
            core._emit(SendCommit(each.number, each.offsets))
        core._emit(held)
    _end_run(core, pause_ms, step)


def _keep_the_batch_after_a_rewind(core: SinkCore, event: events.RequestsRead) -> None:
    """Retries the batch for which the plugin was busy, although it asked for earlier records."""
    if event.rewinds and core._retry_plan is not None:
        core._at.positions.update(rewound(event.rewinds, core.positions))
        event = replace(event, rewinds={})
    _requests_read(core, event)


_WITH_THE_BATCH_AFTER_A_REWIND: TransitionTable = {
    **SinkCore.transitions(),
    (Phase.READING_REQUESTS, events.RequestsRead): _keep_the_batch_after_a_rewind,
}

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
        "offsets are committed after their records, or together with them",
        "drover_worker.engine.core.sink.SinkCore._write",
        _commit_and_then_write,
        of_tasks=True,
    ),
    "letters-first": Bug(
        "a dead letter is published in the transaction of its batch",
        "simulation.writers.StoreWriter._transact",
        _publish_letters_first,
        of_tasks=True,
    ),
    "write-ahead-first": Bug(
        "batches are committed in the order of their records",
        "drover_worker.engine.core.task.TaskCore._end_run",
        _commit_the_newest_first,
        of_tasks=True,
    ),
    "batch-after-rewind": Bug(
        "a rewind drops the batches from its position on",
        "drover_worker.engine.core.sink.SinkCore._cached_table",
        _WITH_THE_BATCH_AFTER_A_REWIND,
        of_tasks=True,
    ),
    "no-check-after-lost-engine": Bug(
        "a task checks its claim in a new engine too",
        "simulation.writers.ProducerWriter.check_claim",
        _check_no_claim_after_a_lost_engine,
        on_kafka=True,
        of_tasks=True,
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
        "simulation.writers.ProducerWriter.commit",
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
OF_TASKS = tuple(name for name, bug in BUGS.items() if bug.of_tasks)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with the bug ``name``; an empty name plants no bug."""
    if not name:
        yield
        return
    bug = BUGS[name]
    with ExitStack() as patches:
        patches.enter_context(patch(bug.target, bug.replacement))
        if bug.of_tasks:
            for kind in (SinkCore, SourceCore):
                patches.enter_context(patch.object(kind, "validate", lambda core: None))
        yield
