"""Claims of tasks as a fold of records: who may commit, and what was committed last. Pure.

The rules are in ``drover.model.claims``. State changes in ``replay`` alone: a draft looks at it,
decides, and says which records make it so.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from drover.errors import FailedPreconditionError
from drover.model import claims as rules
from drover.model.claims import ClaimRequest, TaskClaim
from drover.model.ids import TaskId, Term


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """The claim of a task that counts, and the requests that were granted lately, oldest first."""

    task: TaskId
    claim: TaskClaim
    requests: tuple[tuple[str, Term], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The last counted commit of a task."""

    task: TaskId
    claim: Term
    number: int


ClaimsRecord = ClaimRecord | CommitRecord


class TaskClaims:
    """All claims of a cluster's tasks."""

    def __init__(self) -> None:
        self._claims: dict[TaskId, ClaimRecord] = {}
        self._commits: dict[TaskId, CommitRecord] = {}
        self._tasks: dict[str, set[TaskId]] = {}  # by connector

    def replay(self, record: ClaimsRecord) -> None:
        """Take in a record; the last one of a task counts."""
        match record:
            case ClaimRecord(task):
                self._claims[task] = record
                self._tasks.setdefault(task.connector, set()).add(task)
            case CommitRecord(task):
                self._commits[task] = record

    def current(self, task: TaskId) -> Term | None:
        """The claim that counts, or None when the task was never claimed."""
        held = self._claims.get(task)
        return held.claim.term if held is not None else None

    def draft(self) -> "Draft":
        """To decide several claims and commits one after the other; they change nothing here."""
        return Draft(self)

    def claim_record(self, task: TaskId) -> ClaimRecord | None:
        """What counts of a task."""
        return self._claims.get(task)

    def commit_record(self, task: TaskId) -> CommitRecord | None:
        """The last counted commit of a task."""
        return self._commits.get(task)

    def tasks_of(self, connector: str) -> Collection[TaskId]:
        """Every task of a connector that was ever claimed."""
        return self._tasks.get(connector, ())


class Draft:
    """Decisions that are not durable yet, each on top of those before."""

    def __init__(self, claims: TaskClaims) -> None:
        self._base = claims
        self._claims: dict[TaskId, ClaimRecord] = {}
        self._commits: dict[TaskId, CommitRecord] = {}
        self._tasks: dict[str, set[TaskId]] = {}  # by connector, of those in ``_claims``

    @property
    def records(self) -> Sequence[ClaimsRecord]:
        """What makes the decisions so: all of them are appended together, then replayed."""
        return (*self._claims.values(), *self._commits.values())

    def grant(self, request: ClaimRequest) -> Term:
        """Give the owner the task, with a sequence above every earlier one.

        One that is refused changes nothing.

        Raises:
            FailedPreconditionError: STALE_TERM, a later generation holds the task, a later set of
                task configs was claimed, or the request was granted before and has been superseded
                since.
        """
        self._enter_set(request)
        record = self._claim(request.task)
        held = record.claim if record is not None else None
        requests = dict(record.requests) if record is not None else {}
        claim = rules.next_claim(request, held, requests.get(request.request_id))
        if claim is held:
            return claim.term
        if request.request_id:
            requests[request.request_id] = claim.term
        forgotten = rules.forgotten_sequence(claim.term)
        kept = tuple((id_, term) for id_, term in requests.items() if term.sequence > forgotten)
        self._put(ClaimRecord(request.task, claim, kept))
        return claim.term

    def stale_message(self, task: TaskId, claim: Term) -> str | None:
        """None when ``claim`` is the one that counts, else what is wrong with it."""
        record = self._claim(task)
        return rules.stale_message(task, claim, record.claim if record is not None else None)

    def comes_late(self, task: TaskId, claim: Term, number: int) -> bool:
        """Whether a commit under ``claim``, which counts, comes after one of its number or a later
        one; notes the number if it does not.
        """
        last = self._commits.get(task) or self._base.commit_record(task)
        if rules.comes_late(claim, number, (last.claim, last.number) if last else None):
            return True
        if number:
            self._commits[task] = CommitRecord(task, claim, number)
        return False

    def _enter_set(self, request: ClaimRequest) -> None:
        """Make the claim's set of task configs the one that counts, or refuse an older one."""
        connector = request.task.connector
        standing_set = self._standing_set(connector)
        if standing_set is None or not rules.begins_set(request, standing_set):
            return
        tasks = {*self._base.tasks_of(connector), *self._tasks.get(connector, ())}
        records = [self._required(task) for task in sorted(tasks)]
        latest = max(each.claim.term.generation for each in records)
        rules.check_set(request, standing_set, latest)
        for each in records:
            self._put(ClaimRecord(each.task, rules.moved_on(each.claim, request)))

    def _standing_set(self, connector: str) -> int | None:
        """All claims of a connector are of the same set, so that any of them tells."""
        for tasks in (self._tasks.get(connector, ()), self._base.tasks_of(connector)):
            for task in tasks:
                return self._required(task).claim.task_config_generation
        return None

    def _put(self, record: ClaimRecord) -> None:
        self._claims[record.task] = record
        self._tasks.setdefault(record.task.connector, set()).add(record.task)

    def _required(self, task: TaskId) -> ClaimRecord:
        record = self._claim(task)
        assert record is not None
        return record

    def _claim(self, task: TaskId) -> ClaimRecord | None:
        return self._claims.get(task) or self._base.claim_record(task)


def refused_or_granted(
    draft: Draft, requests: Sequence[ClaimRequest]
) -> list[Term | FailedPreconditionError]:
    """The answers to several requests, one after the other."""
    answers: list[Term | FailedPreconditionError] = []
    for request in requests:
        try:
            answers.append(draft.grant(request))
        except FailedPreconditionError as error:
            answers.append(error)
    return answers
