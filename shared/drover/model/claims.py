"""Claims: the fencing token of a task, and the rules of who may have one and what it allows.

A later claim makes every earlier one stale. So does a claim of any task of the connector under
another set of task configs, which may have given a file or a topic partition to another task, and
so does a change of the connector's offsets by hand. Every store of claims follows these rules; they
look at what it tells them and keep nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term

#: Requests remembered for each task, so that a late retry of an old one fences nobody.
REMEMBERED_REQUESTS = 32
#: The owner of a claim that fell with those of the whole connector.
NOBODY = ""


class TaskSet(NamedTuple):
    """A set of a connector's task configs; the later one is the greater.

    Numbers of sets are compared within one generation of the group only: they may begin again with
    another config log.
    """

    generation: int
    number: int

    def __str__(self) -> str:
        return f"generation {self.generation} with task configs {self.number}"


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A wish to be the one committer of ``task``.

    ``task_config_generation`` is the set of task configs that the task is of. The same
    ``request_id`` gets the same claim, as long as no later one was granted; empty for one that is
    never repeated.
    """

    task: TaskId
    generation: int
    owner: str
    request_id: str
    task_config_generation: int = -1

    @property
    def task_set(self) -> TaskSet:
        """The set that it is of."""
        return TaskSet(self.generation, self.task_config_generation)


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """The claim of a task that counts.

    ``own_producer``: the task was run, under it or an earlier one, by an owner whose own producer
    commits its offsets, and who has to be fenced beside the claim.
    """

    term: Term
    owner: str
    task_config_generation: int
    own_producer: bool = False


def begins_set(request: ClaimRequest, standing_set: int | None) -> bool:
    """Whether it is of another set of task configs than the connector's claims, if there are any.

    All claims of a connector are of one set: those of the set before move on (``moved_on``).
    """
    return standing_set not in (None, request.task_config_generation)


def check_set(what: str, asked: TaskSet, standing: TaskSet) -> None:
    """Refuse what is of an older set than the one that counts.

    Args:
        what: What is asked for, such as "task c-0 cannot be claimed".
        asked: The set that it is of.
        standing: That of the connector's claims, with the highest generation of them.

    Raises:
        FailedPreconditionError: STALE_TERM.
    """
    if asked < standing:
        raise FailedPreconditionError(
            Reason.STALE_TERM, f"{what} by {asked}: a claim of {standing} came later"
        )


def moved_on(claim: TaskClaim, task_set: TaskSet) -> TaskClaim:
    """What a claim of the connector becomes when all of them fall: a term that nobody was given.

    The requests that are remembered are forgotten with it: one that is repeated gets another claim,
    as the one it was given is stale.
    """
    term = Term(task_set.generation, claim.term.sequence + 1)
    return TaskClaim(term, NOBODY, task_set.number, claim.own_producer)


def next_claim(request: ClaimRequest, held: TaskClaim | None, granted: Term | None) -> TaskClaim:
    """The claim to grant: above every earlier one, or ``held`` itself for a repeated request.

    Args:
        request: After its set of task configs has been entered.
        held: The claim that counts, if there is one.
        granted: What a request of this id was granted before.

    Raises:
        FailedPreconditionError: STALE_TERM, a later generation holds the task, or the request was
            granted before and has been superseded since.
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
    """Requests that were granted this sequence, or an earlier one, are not remembered any more."""
    return term.sequence - REMEMBERED_REQUESTS


def stale_message(task: TaskId, claim: Term, held: TaskClaim | None) -> str | None:
    """None when ``claim`` is the one that counts, else what is wrong with it."""
    if held is None:
        return f"claim {claim} of task {task} was never granted here: claim the task first"
    if held.term == claim:
        return None
    if held.owner == NOBODY:
        why = "the connector's task configs or offsets have changed"
    else:
        why = f"{held.term} counts now"
    return f"claim {claim} of task {task} is stale, {why}: claim the task again"


def comes_late(claim: Term, number: int, last: tuple[Term, int] | None) -> bool:
    """Whether a commit under ``claim``, which counts, comes after one of its number or a later one.

    A coordinator that was stopped in the middle of a call goes on with it when others have taken
    its place: the copy must not set back what they have written.

    Args:
        claim: That of the commit.
        number: That of the commit; 0 is not counted.
        last: The claim and number of the task's last counted commit.
    """
    return bool(number) and last is not None and last[0] == claim and number <= last[1]


def _stale_term(task: TaskId, what: str, later: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        Reason.STALE_TERM,
        f"{what} cannot claim task {task}: {later} came later",
        metadata={"task": str(task)},
    )
