"""The steps by which one task at a time publishes, each batch once (ADR 0020). Pure.

A task's claim says who may publish; its producer's transactional id has the brokers hold everybody
else to it. Whoever takes a task over has a durable claim *before* it begins as producer. So when
my claim still counts *after* I have begun, nobody has taken over before, and whoever does so later
fences me. That is why the claim is checked behind every beginning, and why a producer that was
fenced may begin again: the check tells whether it was by an owner or by one of before.
"""

from enum import StrEnum

#: Times in a row that a producer is fenced though its claim counts; then somebody else, who knows
#: nothing of claims, has its transactional id.
FENCES_MAX = 5


class Step(StrEnum):
    """What to do next."""

    #: Begin as the id's producer: ends transactions of earlier ones, and fences them.
    INIT = "init"
    #: Ask, with what is written down, whether the claim counts.
    CHECK_CLAIM = "check the claim"
    #: Read how far the source has come: committed offsets only, to the end.
    FETCH = "fetch the offsets"
    #: Nothing, before there is a batch.
    READY = "ready"
    #: Begin a transaction with the records of the batch.
    PRODUCE = "produce"
    #: Add the offsets of the batch.
    ADD_OFFSETS = "add the offsets"
    #: Have all of it count.
    COMMIT = "commit"
    #: Nothing any more.
    GIVE_UP = "give up"


class Ended(StrEnum):
    """How a step ended; a claim that does not count ends the task, and comes not here."""

    DONE = "done"
    #: Another producer has begun under the id since.
    FENCED = "fenced"
    #: It was refused, or nobody answered.
    FAILED = "failed"


_NEXT = {
    Step.INIT: Step.CHECK_CLAIM,
    Step.PRODUCE: Step.ADD_OFFSETS,
    Step.ADD_OFFSETS: Step.COMMIT,
}
_IN_TRANSACTION = frozenset({Step.PRODUCE, Step.ADD_OFFSETS, Step.COMMIT})


class TaskProtocol:
    """Where one task's producer is; a batch is published again until it is committed or its outcome
    unknown. Then only the offsets tell, and the task goes on from these.
    """

    def __init__(self) -> None:
        self.step = Step.INIT
        self._knows_offsets = False
        self._has_batch = False
        self._fence_count = 0

    @property
    def has_batch(self) -> bool:
        """Whether a batch is under way that is certainly not committed, or not yet known to be."""
        return self._has_batch

    def begin_batch(self) -> None:
        """There is a batch to publish, or the one before again."""
        self._has_batch = True
        if self.step is Step.READY:
            self.step = Step.PRODUCE

    def start_over(self) -> None:
        """The task starts again from its committed offsets; a batch that it had is forgotten."""
        self._has_batch = self._knows_offsets = False
        self.step = Step.INIT

    def ended(self, how: Ended) -> None:
        """The step has ended."""
        step = self.step
        if how is Ended.DONE:
            self._done(step)
            return
        if step is Step.COMMIT:
            # the brokers may have done it: a first attempt whose answer was lost, say
            self._has_batch = self._knows_offsets = False
        if how is Ended.FENCED:
            self._fence_count += 1
            self.step = Step.INIT if self._fence_count <= FENCES_MAX else Step.GIVE_UP
        elif step in _IN_TRANSACTION:
            self.step = Step.INIT

    def _done(self, step: Step) -> None:
        if step is Step.COMMIT:
            self._has_batch = False
            self._fence_count = 0
        elif step is Step.FETCH:
            self._knows_offsets = True
        if step in _NEXT:
            self.step = _NEXT[step]
        elif not self._knows_offsets:
            self.step = Step.FETCH
        else:
            self.step = Step.PRODUCE if self._has_batch else Step.READY
