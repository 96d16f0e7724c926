"""The leader's claim of the config log, which fences earlier leaders."""

from drover.errors import DroverError, Reason
from drover.model.ids import Term
from drover_worker.core.causes import Cause
from drover_worker.core.context import Context
from drover_worker.core.events import ClaimWriterDue
from drover_worker.core.instructions import ClaimWriter
from drover_worker.core.rebalance.membership import Membership


class ConfigLogLease:
    """Claims the config log when this worker becomes leader, and again after losing the claim.

    ``epoch`` fences every privileged write. Before its first write the leader reads the log to the
    end that it had at the claim, so its decisions include all writes of earlier leaders.
    """

    def __init__(self, context: Context, membership: Membership) -> None:
        self._context = context
        self._membership = membership
        self.epoch: int | None = None
        self._end_offset = 0
        self._cause_id = ""
        self._waiting = False
        self._attempt = 0
        self._sequence = 0
        self._generation = -1

    @property
    def ready(self) -> bool:
        """Whether this worker may write now."""
        return (
            self.epoch is not None
            and self._membership.leads
            and self._context.view.offset >= self._end_offset
        )

    @property
    def _busy(self) -> bool:
        return self._waiting or bool(self._cause_id)

    def pump(self) -> None:
        """Claim if this worker leads without an epoch; drop the epoch if another worker leads."""
        if self._membership.settled and not self._membership.leads:
            self.epoch = None
        elif self._membership.leads and self.epoch is None and not self._busy:
            self._claim()

    def claimed(self, cause_id: str, epoch: int, end_offset: int) -> None:
        """The claim was granted."""
        if cause_id == self._cause_id:
            self._cause_id = ""
            self._attempt = 0
            if self._membership.leads:
                self.epoch = epoch
                self._end_offset = end_offset

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """The claim was rejected, or the config store did not respond: retry after a back-off."""
        if cause_id != self._cause_id:
            return
        self._cause_id = ""
        if error.reason is Reason.STALE_TERM:
            self._membership.handle_fencing_error(error)
        self._waiting = True
        self._context.set_timer(
            "claim-writer", self._context.call_backoff_ms(self._attempt), ClaimWriterDue()
        )
        self._attempt += 1

    def claim_due(self) -> None:
        """The back-off is over."""
        self._waiting = False

    def lost(self, epoch: int) -> None:
        """A write under ``epoch`` was fenced: claim again if this worker still leads."""
        if self.epoch == epoch:
            self.epoch = None

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        if self._membership.settled and not self._membership.leads:
            assert self.epoch is None, "a follower holds the config log's epoch"

    def _claim(self) -> None:
        generation = self._context.generation
        if generation != self._generation:
            self._generation, self._sequence = generation, 0
        self._sequence += 1
        self._cause_id = self._context.next_cause(Cause.CLAIM_WRITER)
        self._context.emit(ClaimWriter(self._cause_id, Term(generation, self._sequence)))
