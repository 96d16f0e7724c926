"""Claims of the privileged writer of a log; the rules for all kinds of logs."""

from dataclasses import dataclass

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import Term

_BEFORE_ALL_TERMS = Term(-1, -1)


@dataclass(frozen=True, slots=True)
class WriterClaim:
    """The current claim of a log; epoch 0 for a log that was never claimed."""

    owner: str = ""
    term: Term = _BEFORE_ALL_TERMS
    epoch: int = 0


def next_claim(current: WriterClaim, owner: str, term: Term) -> WriterClaim:
    """The claim of the log after ``owner`` claims it with ``term``.

    Raises:
        FailedPreconditionError: STALE_TERM, the current term is higher, or equal with another
            owner.
    """
    if current.epoch == 0 or term > current.term:
        return WriterClaim(owner, term, current.epoch + 1)
    if term == current.term and owner == current.owner:
        return current
    raise FailedPreconditionError(
        Reason.STALE_TERM,
        f"{owner} cannot claim the log with term {term}: {current.owner} has claimed it with term"
        f" {current.term}; claim it with a later term",
        metadata={"currentTerm": str(current.term), "currentOwner": current.owner},
    )


def check_epoch(current: WriterClaim, epoch: int | None) -> None:
    """Reject a privileged append that a later claim has fenced.

    Raises:
        FailedPreconditionError: STALE_WRITER_EPOCH.
    """
    if epoch is None or (epoch == current.epoch and epoch > 0):
        return
    holder = f"{current.owner} has epoch {current.epoch}" if current.epoch else "it has no claim"
    raise FailedPreconditionError(
        Reason.STALE_WRITER_EPOCH,
        f"writer epoch {epoch} of the log is fenced: {holder}; claim again with a later term",
        metadata={"currentEpoch": str(current.epoch), "currentOwner": current.owner},
    )
