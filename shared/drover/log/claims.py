"""Who is the privileged writer of a log: the one rule, shared by every kind of log."""

from dataclasses import dataclass

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import Term

_BEFORE_ALL_TERMS = Term(-1, -1)


@dataclass(frozen=True, slots=True)
class WriterClaim:
    """The standing claim. Epoch 0 means that nobody has claimed the log yet."""

    owner: str = ""
    term: Term = _BEFORE_ALL_TERMS
    epoch: int = 0


def next_claim(standing: WriterClaim, owner: str, term: Term) -> WriterClaim:
    """The claim that stands after ``owner`` claims with ``term``.

    Raises:
        FailedPreconditionError: STALE_TERM, the standing term is higher, or equal with another
        owner.
    """
    if standing.epoch == 0 or term > standing.term:
        return WriterClaim(owner, term, standing.epoch + 1)
    if term == standing.term and owner == standing.owner:
        return standing
    raise FailedPreconditionError(
        Reason.STALE_TERM,
        f"{owner} claims the log with term {term}, but {standing.owner} holds it with term"
        f" {standing.term}: only a later term takes it over",
        metadata={"currentTerm": str(standing.term), "currentOwner": standing.owner},
    )


def check_epoch(standing: WriterClaim, epoch: int | None) -> None:
    """Refuse a privileged append that a later claim has fenced.

    Raises:
        FailedPreconditionError: STALE_WRITER_EPOCH.
    """
    if epoch is None or (epoch == standing.epoch and epoch > 0):
        return
    raise FailedPreconditionError(
        Reason.STALE_WRITER_EPOCH,
        f"writer epoch {epoch} is fenced: {standing.owner or 'nobody'} holds epoch"
        f" {standing.epoch}; claim the log again with a later term",
        metadata={"currentEpoch": str(standing.epoch), "currentOwner": standing.owner},
    )
