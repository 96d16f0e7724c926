"""The steps by which one task at a time publishes each transaction exactly once (ADR 0020). Pure.

A task's claim determines who may publish; the brokers enforce it through the producer's
transactional id. A new owner has a durable claim *before* it initialises its producer. So if a
claim is still current *after* the initialisation, no other owner has taken over before, and a later
one fences this producer. Therefore the claim is checked after every initialisation, and a fenced
producer may initialise again: the check shows whether a later owner or an earlier one fenced it.
"""

from dataclasses import replace
from enum import StrEnum

from drover.dataplane.plane import OutcomeUnknownError
from drover.errors import Reason, UnavailableError
from drover_worker.engine.core.failures import Failure, FailureKind, Fault

#: How often in a row a producer may be fenced while its claim is current; beyond that, a foreign
#: client without claims uses its transactional id.
FENCES_MAX = 5


class PublishingStep(StrEnum):
    """The next step."""

    #: Initialise the producer: ends open transactions of earlier ones, and fences them.
    INIT = "init"
    #: Check the claim with the coordinator's log.
    CHECK_CLAIM = "check the claim"
    #: Read the source's committed offsets, up to the end.
    FETCH = "fetch the offsets"
    #: Wait for a batch.
    READY = "ready"
    #: Start a transaction with the records of the batch.
    PRODUCE = "produce"
    #: Add the offsets of the batch.
    ADD_OFFSETS = "add the offsets"
    #: Commit the transaction.
    COMMIT = "commit"
    #: Stop.
    GIVE_UP = "give up"


class Ended(StrEnum):
    """The result of a step; a stale claim is not among them, because it ends the task."""

    DONE = "done"
    #: Another producer was initialised with the id.
    FENCED = "fenced"
    #: The step was refused, or had no response.
    FAILED = "failed"


_NEXT = {
    PublishingStep.INIT: PublishingStep.CHECK_CLAIM,
    PublishingStep.PRODUCE: PublishingStep.ADD_OFFSETS,
    PublishingStep.ADD_OFFSETS: PublishingStep.COMMIT,
}
_IN_TRANSACTION = frozenset(
    {PublishingStep.PRODUCE, PublishingStep.ADD_OFFSETS, PublishingStep.COMMIT}
)


class Publishing:
    """The state of one task's producer; a batch is published again until it is committed or its
    outcome is unknown. Then only the committed offsets show the outcome, and the task resumes from
    them.
    """

    def __init__(self) -> None:
        self.step = PublishingStep.INIT
        self._knows_offsets = False
        self._has_batch = False
        self._fence_count = 0

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        step = self.step
        assert self._has_batch or step not in _IN_TRANSACTION, f"no batch to {step}"
        assert self._knows_offsets or step not in _IN_TRANSACTION, f"{step} at unknown offsets"
        assert not (self._has_batch and step is PublishingStep.READY), "a batch is left waiting"
        assert not (self._knows_offsets and step is PublishingStep.FETCH), "offsets fetched twice"

    @property
    def has_batch(self) -> bool:
        """Whether a batch is not committed, or not known to be."""
        return self._has_batch

    def begin_batch(self) -> None:
        """Publish a batch, or the previous one again."""
        self._has_batch = True
        if self.step is PublishingStep.READY:
            self.step = PublishingStep.PRODUCE

    def start_over(self) -> None:
        """Restart from the committed offsets; the current batch is dropped."""
        self._has_batch = self._knows_offsets = False
        self.step = PublishingStep.INIT

    def succeeded(self) -> Failure | None:
        """The current step of a batch succeeded; a failure if it is unknown whether the batch was
        published: only the committed offsets show it.
        """
        self.ended(Ended.DONE)
        if self.step is not PublishingStep.FETCH:
            return None
        error = OutcomeUnknownError(
            Reason.STORAGE_UNAVAILABLE,
            "the outcome of a transaction is unknown: the committed offsets show it",
        )
        return Failure(error=error, text=error.message, fault=Fault.UNAVAILABLE)

    def failed(self, failure: Failure) -> Failure | None:
        """The current step of a batch failed; None if another producer fenced this one, which takes
        the steps again. Otherwise the failure of the batch, which may still be publishable.
        """
        if failure.kind is FailureKind.FENCED:
            self.ended(Ended.FENCED)
            return failure if self.step is PublishingStep.GIVE_UP else None
        self.ended(Ended.FAILED)
        is_staged = failure.kind is FailureKind.OTHER and self._has_batch
        if is_staged and isinstance(failure.error, UnavailableError):
            return replace(failure, kind=FailureKind.NOT_PUBLISHED)
        return failure

    def ended(self, how: Ended) -> None:
        """Process the result of the current step."""
        step = self.step
        if how is Ended.DONE:
            self._done(step)
            return
        if step is PublishingStep.COMMIT:
            # the brokers may have committed: the response of a first attempt may be lost
            self._has_batch = self._knows_offsets = False
        if how is Ended.FENCED:
            self._fence_count += 1
            self.step = (
                PublishingStep.INIT if self._fence_count <= FENCES_MAX else PublishingStep.GIVE_UP
            )
        elif step in _IN_TRANSACTION:
            self.step = PublishingStep.INIT

    def _done(self, step: PublishingStep) -> None:
        if step is PublishingStep.COMMIT:
            self._has_batch = False
            self._fence_count = 0
        elif step is PublishingStep.FETCH:
            self._knows_offsets = True
        if step in _NEXT:
            self.step = _NEXT[step]
        elif not self._knows_offsets:
            self.step = PublishingStep.FETCH
        else:
            self.step = PublishingStep.PRODUCE if self._has_batch else PublishingStep.READY
