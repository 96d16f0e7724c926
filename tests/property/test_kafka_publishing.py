"""Every interleaving of two owners of a task that publishes to Kafka, including late requests.

The model has a broker with one transactional id, a coordinator with claims, and owners that execute
their steps in any order; an owner may pause at any step for any time.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep

_RECORDS_MAX = 2
_STEPS_MAX = 14


class NoSecondCheck(Publishing):
    """Planted: an initialized producer publishes without checking the claim."""

    def ended(self, how: Ended) -> None:
        super().ended(how)
        if self.step is PublishingStep.CHECK_CLAIM:
            super().ended(Ended.DONE)


class FencedIsVerdict(Publishing):
    """Planted: a fenced producer concludes that another owner has the task."""

    def ended(self, how: Ended) -> None:
        super().ended(how)
        if how is Ended.FENCED:
            self.step = PublishingStep.GIVE_UP


class CommitAgain(Publishing):
    """Planted: a commit without a response counts as failed."""

    def ended(self, how: Ended) -> None:
        was_commit = self.step is PublishingStep.COMMIT
        super().ended(how)
        if was_commit and how is not Ended.DONE:
            self._has_batch = self._knows_offsets = True


@dataclass
class Owner:
    """An owner that was granted the task, and its producer's next action."""

    number: int
    protocol: Publishing
    epoch: int = -1
    #: The record to publish next.
    next: int = -1
    open: list[int] = field(default_factory=list)
    stale: bool = False


@dataclass
class World:
    """``offsets_apart`` is a planted bug: offsets are committed after the transaction, not in
    it.
    """

    owners: list[Owner]
    offsets_apart: bool = False
    epoch: int = -1
    claim: int = -1
    published: list[int] = field(default_factory=list)
    committed: int = 0
    answers_lost: int = 0
    takeovers: int = 0

    def moves(self) -> Iterator[tuple[str, int]]:
        """The possible next actions."""
        if self.takeovers < len(self.owners):
            yield "claim", self.takeovers
        for each in self.owners[: self.takeovers]:
            if each.stale or each.protocol.step is PublishingStep.GIVE_UP:
                continue
            if each.protocol.step is PublishingStep.READY and each.next >= _RECORDS_MAX:
                continue
            yield "step", each.number
            if each.protocol.step is PublishingStep.COMMIT and not self.answers_lost:
                yield "lose the answer of", each.number

    def do(self, move: str, number: int) -> None:
        owner = self.owners[number]
        if move == "claim":
            self.claim = number
            self.takeovers += 1
        elif move == "step":
            self._step(owner)
        else:
            self.answers_lost += 1
            if owner.epoch == self.epoch:
                self._commit(owner)
            owner.protocol.ended(Ended.FAILED)

    def _step(self, owner: Owner) -> None:
        protocol = owner.protocol
        step = protocol.step
        if step is PublishingStep.READY:
            protocol.begin_batch()
        elif step is PublishingStep.INIT:
            self.epoch += 1
            owner.epoch, owner.open = self.epoch, []
            protocol.ended(Ended.DONE)
        elif step is PublishingStep.CHECK_CLAIM:
            owner.stale = self.claim != owner.number
            protocol.ended(Ended.FAILED if owner.stale else Ended.DONE)
        elif step is PublishingStep.FETCH:
            owner.next = self.committed
            protocol.ended(Ended.DONE)
        elif owner.epoch != self.epoch:
            protocol.ended(Ended.FENCED)
        elif step is PublishingStep.COMMIT:
            self._commit(owner)
            owner.next += 1
            protocol.ended(Ended.DONE)
        else:
            if step is PublishingStep.PRODUCE:
                owner.open = [owner.next]
            protocol.ended(Ended.DONE)

    def _commit(self, owner: Owner) -> None:
        self.published += owner.open
        if not (self.offsets_apart and self.answers_lost):  # a crash between the two
            self.committed = owner.open[-1] + 1
        owner.open = []

    def fault(self) -> str | None:
        """The violated invariant, if any."""
        if self.published != list(range(len(self.published))):
            return f"published {self.published}"
        rightful = self.owners[self.claim] if self.claim >= 0 else None
        if rightful is not None and (
            rightful.stale or rightful.protocol.step is PublishingStep.GIVE_UP
        ):
            return "the owner whose claim counts has given up"
        return None


def explored(kind: type[Publishing], *, offsets_apart: bool = False) -> str | None:
    """The first violation in any interleaving, with its steps; None without one."""
    start = World([Owner(number, kind()) for number in range(2)], offsets_apart=offsets_apart)
    seen: set[str] = set()
    stack: list[tuple[World, tuple[str, ...]]] = [(start, ())]
    while stack:
        world, course = stack.pop()
        fault = world.fault()
        if fault is not None:
            return f"{fault} after {', '.join(course)}"
        state = _state(world)
        if state in seen or len(course) >= 2 * _STEPS_MAX:
            continue
        seen.add(state)
        for move, number in world.moves():
            following = deepcopy(world)
            step = following.owners[number].protocol.step
            following.do(move, number)
            stack.append((following, (*course, f"{move} {number} ({step})")))
    return None


def _state(world: World) -> str:
    owners = [
        (
            vars(each.protocol),
            each.epoch == world.epoch,
            each.next,
            each.open,
            each.stale,
        )
        for each in world.owners
    ]
    rest = (world.claim, world.published, world.committed, world.answers_lost, world.takeovers)
    return repr((owners, rest))


def test_each_record_is_published_once_whoever_is_suspended_where() -> None:
    assert explored(Publishing) is None


@pytest.mark.parametrize("planted", [NoSecondCheck, FencedIsVerdict, CommitAgain])
def test_a_planted_defect_is_found(planted: type[Publishing]) -> None:
    assert explored(planted) is not None


def test_offsets_outside_of_the_transaction_are_found() -> None:
    assert explored(Publishing, offsets_apart=True) is not None
