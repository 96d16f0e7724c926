"""Claims: the fencing tokens of tasks, and the rules for granting and checking them.

A later claim of a task makes every earlier one stale. Two other events make the claims of all tasks
of a connector stale: a claim of any of its tasks under another set of task configs (which may have
assigned a file or topic partition to another task), and a change of the connector's offsets by an
operator. All claim stores follow these rules. The functions are pure: a store passes its state to
them.
"""

from dataclasses import dataclass
from typing import NamedTuple

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term

#: The number of requests that are remembered for each task, so that a late retry fences no one.
REMEMBERED_REQUESTS = 32
#: The owner of a claim that was invalidated together with all claims of the connector.
NOBODY = ""


class TaskSet(NamedTuple):
    """A set of a connector's task configs; a later set is greater.

    Numbers are comparable only within one generation of the group: with another config log they may
    start again.
    """

    generation: int
    number: int

    def __str__(self) -> str:
        return f"generation {self.generation} with task configs {self.number}"


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request to become the only committer of ``task``.

    ``task_config_generation`` is the task's set of task configs. The same ``request_id`` is granted
    the same claim until a later claim is granted; empty for a request that is never retried.
    """

    task: TaskId
    generation: int
    owner: str
    request_id: str
    task_config_generation: int = -1

    @property
    def task_set(self) -> TaskSet:
        """The task's set of task configs."""
        return TaskSet(self.generation, self.task_config_generation)


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """The current claim of a task.

    ``own_producer``: under this claim or an earlier one, the task's own producer has committed its
    offsets, so this producer has to be fenced too.
    """

    term: Term
    owner: str
    task_config_generation: int
    own_producer: bool = False


def begins_set(request: ClaimRequest, standing_set: int | None) -> bool:
    """Whether the request is for another set of task configs than the connector's current claims.

    All claims of a connector belong to one set: claims of the previous set are invalidated
    (``moved_on``).
    """
    return standing_set not in (None, request.task_config_generation)


def check_set(what: str, asked: TaskSet, standing: TaskSet) -> None:
    """Reject a request for an older set than the current one.

    Args:
        what: The rejected operation, such as "task c-0 cannot be claimed".
        asked: The set of the request.
        standing: The set of the connector's claims, with their highest generation.

    Raises:
        FailedPreconditionError: STALE_TERM.
    """
    if asked < standing:
        raise FailedPreconditionError(
            Reason.STALE_TERM, f"{what} by {asked}: a claim of {standing} came later"
        )


def moved_on(claim: TaskClaim, task_set: TaskSet) -> TaskClaim:
    """The claim after all claims of the connector were invalidated: a term that no owner was
    granted.

    Remembered requests are dropped with it: the claim that they were granted is stale, so a
    repeated request is granted a new one.
    """
    term = Term(task_set.generation, claim.term.sequence + 1)
    return TaskClaim(term, NOBODY, task_set.number, claim.own_producer)


def next_claim(request: ClaimRequest, held: TaskClaim | None, granted: Term | None) -> TaskClaim:
    """The claim to grant: above every earlier one, or ``held`` itself for a repeated request.

    Args:
        request: The request; its set of task configs has been entered.
        held: The current claim; None if there is none.
        granted: The claim that a request with this id was granted before.

    Raises:
        FailedPreconditionError: STALE_TERM: a later generation holds the task, or the request was
            granted before and has been superseded.
    """
    if granted is not None:
        if held is not None and granted == held.term:
            return held
        counting = held.term if held is not None else None
        raise _stale_term(request.task, f"claim {granted} of this request", f"claim {counting}")
    if held is None:
        sequence = 1
    elif request.generation < held.term.generation:
        raise _stale_term(request.task, f"generation {request.generation}", f"claim {held.term}")
    else:
        sequence = held.term.sequence + 1
    term = Term(request.generation, sequence)
    own_producer = held is not None and held.own_producer
    return TaskClaim(term, request.owner, request.task_config_generation, own_producer)


def forgotten_sequence(term: Term) -> int:
    """Requests that were granted this sequence or a lower one are no longer remembered."""
    return term.sequence - REMEMBERED_REQUESTS


def stale_message(task: TaskId, claim: Term, held: TaskClaim | None) -> str | None:
    """Why ``claim`` is stale; None if it is the current claim."""
    if held is None:
        return f"claim {claim} of task {task} is unknown: claim the task first"
    if held.term == claim:
        return None
    if held.owner == NOBODY:
        why = "the connector's task configs or offsets have changed"
    else:
        why = f"{held.term} is the current claim"
    return f"claim {claim} of task {task} is stale, {why}: claim the task again"


def comes_late(claim: Term, number: int, last: tuple[Term, int] | None) -> bool:
    """Whether a commit under the current claim arrives after a commit with its number or a later
    one.

    A coordinator that was suspended in the middle of a call continues it after other coordinators
    have taken over. This delayed copy must not overwrite later commits.

    Args:
        claim: The claim of the commit.
        number: The number of the commit; 0 for none.
        last: The claim and number of the task's last numbered commit.
    """
    return bool(number) and last is not None and last[0] == claim and number <= last[1]


def _stale_term(task: TaskId, what: str, later: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        Reason.STALE_TERM,
        f"{what} cannot claim task {task}: {later} came later",
        metadata={"task": str(task)},
    )
