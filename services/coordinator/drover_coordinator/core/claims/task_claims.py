"""Claims of tasks as a fold of records: the owner of each task and its last commit. Pure.

Beside them are the marks: which topic partitions of sinks had a committed offset. Brokers may lose
such an offset, and a sink must not take that for a new start.

The rules are in ``drover.model.claims``. Only ``replay`` changes state: a draft makes decisions on
top of it and yields the records to append.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from drover.errors import FailedPreconditionError
from drover.model import claims as rules
from drover.model.claims import ClaimRequest, TaskClaim, TaskSet
from drover.model.ids import TaskId, Term
from drover.model.offsets import TopicPartition
from drover.model.sink_outputs import OutputMark


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """The current claim of a task, and the recently granted requests, oldest first."""

    task: TaskId
    claim: TaskClaim
    requests: tuple[tuple[str, Term], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The last numbered commit of a task."""

    task: TaskId
    claim: Term
    number: int


@dataclass(frozen=True, slots=True)
class MarkRecord:
    """A topic partition of a sink had a committed offset in a group; ``mark`` None forgets it.

    ``marked_ms`` is the time of the record, since the epoch.
    """

    connector: str
    group_id: str
    partition: TopicPartition
    mark: OutputMark | None
    marked_ms: int = 0

    @property
    def key(self) -> "MarkKey":
        """What a later record of the same key replaces."""
        return self.connector, self.group_id, self.partition


MarkKey = tuple[str, str, TopicPartition]
ClaimsRecord = ClaimRecord | CommitRecord | MarkRecord


class TaskClaims:
    """All claims of a cluster's tasks."""

    def __init__(self) -> None:
        self._claims: dict[TaskId, ClaimRecord] = {}
        self._commits: dict[TaskId, CommitRecord] = {}
        self._tasks: dict[str, set[TaskId]] = {}  # by connector
        self._marks: dict[MarkKey, MarkRecord] = {}
        self._marked: dict[str, set[MarkKey]] = {}  # by connector

    def replay(self, record: ClaimsRecord) -> None:
        """Apply a record; it replaces the task's earlier record of its kind."""
        match record:
            case ClaimRecord(task):
                self._claims[task] = record
                self._tasks.setdefault(task.connector, set()).add(task)
            case CommitRecord(task):
                self._commits[task] = record
            case MarkRecord(connector, mark=None):
                if self._marks.pop(record.key, None) is not None:
                    keys = self._marked[connector]
                    keys.remove(record.key)
                    if not keys:
                        del self._marked[connector]
            case MarkRecord(connector):
                self._marks[record.key] = record
                self._marked.setdefault(connector, set()).add(record.key)

    def mark_record(self, key: MarkKey) -> MarkRecord | None:
        """The mark of a topic partition."""
        return self._marks.get(key)

    def marks(self, connector: str, group_id: str) -> dict[TopicPartition, OutputMark]:
        """The marks of a sink's group."""
        records = [self._marks[key] for key in self._marked.get(connector, ())]
        return {
            each.partition: each.mark
            for each in records
            if each.group_id == group_id and each.mark is not None
        }

    def marks_before(self, marked_ms: int) -> list[MarkRecord]:
        """The marks that were last refreshed before a time."""
        return [each for each in self._marks.values() if each.marked_ms < marked_ms]

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        marked = {key for keys in self._marked.values() for key in keys}
        assert marked == self._marks.keys(), "the index of marks by connector is wrong"
        assert all(each.mark is not None for each in self._marks.values()), "a mark without content"

    def current(self, task: TaskId) -> Term | None:
        """The current claim, or None if the task was never claimed."""
        record = self._claims.get(task)
        return record.claim.term if record is not None else None

    def draft(self) -> "Draft":
        """A draft for several decisions in sequence; it changes nothing here."""
        return Draft(self)

    def claim_record(self, task: TaskId) -> ClaimRecord | None:
        """The claim record of a task."""
        return self._claims.get(task)

    def commit_record(self, task: TaskId) -> CommitRecord | None:
        """The last numbered commit of a task."""
        return self._commits.get(task)

    def tasks_of(self, connector: str) -> Collection[TaskId]:
        """All tasks of a connector that were ever claimed."""
        return self._tasks.get(connector, ())

    def have_own_producers(self, connectors: Iterable[str]) -> bool:
        """Whether any task of these connectors commits, or committed, by its own producer."""
        tasks = (task for connector in connectors for task in self.tasks_of(connector))
        return any(self._claims[task].claim.own_producer for task in tasks)

    def revoked_producers(self, connector: str) -> dict[TaskId, Term]:
        """Tasks with a revoked claim and their own producer, and the term of the revocation.

        The producer of such a task can still write until it is fenced.
        """
        claims = {task: self._claims[task].claim for task in self.tasks_of(connector)}
        return {
            task: claim.term
            for task, claim in claims.items()
            if claim.own_producer and claim.owner == rules.NOBODY
        }


class Draft:
    """Decisions that are not durable yet, each on top of the ones before."""

    def __init__(self, claims: TaskClaims) -> None:
        self._base = claims
        self._claims: dict[TaskId, ClaimRecord] = {}
        self._commits: dict[TaskId, CommitRecord] = {}
        self._tasks: dict[str, set[TaskId]] = {}  # by connector, of those in ``_claims``
        self._marks: dict[MarkKey, MarkRecord] = {}

    @property
    def records(self) -> Sequence[ClaimsRecord]:
        """The records of the decisions, to append together and then replay."""
        return (*self._claims.values(), *self._commits.values(), *self._marks.values())

    def grant(self, request: ClaimRequest) -> Term:
        """Grant the owner the task, with a sequence above every earlier one.

        A rejected request changes nothing.

        Raises:
            FailedPreconditionError: STALE_TERM, a later generation holds the task, a later set of
                task configs was claimed, or this request was granted before and a later claim
                superseded it.
        """
        self.enter_set(request)
        record = self._claim(request.task)
        current = record.claim if record is not None else None
        requests = dict(record.requests) if record is not None else {}
        claim = rules.next_claim(request, current, requests.get(request.request_id))
        if claim is current:
            return claim.term
        if request.request_id:
            requests[request.request_id] = claim.term
        forgotten = rules.forgotten_sequence(claim.term)
        recent = tuple((id_, term) for id_, term in requests.items() if term.sequence > forgotten)
        self._put(ClaimRecord(request.task, claim, recent))
        return claim.term

    def fence(self, connector: str, task_set: TaskSet, what: str) -> None:
        """Revoke all claims of a connector, on behalf of a set of task configs.

        Args:
            connector: The connector.
            task_set: The set of task configs of the request.
            what: Describes the rejected request in the error, such as "task c-0 cannot be claimed".

        Raises:
            FailedPreconditionError: STALE_TERM, there is a claim of a later set. Nothing changed.
        """
        tasks = {*self._base.tasks_of(connector), *self._tasks.get(connector, ())}
        records = [self._required(task) for task in sorted(tasks)]
        for each in records:
            claimed_set = TaskSet(each.claim.term.generation, each.claim.task_config_generation)
            rules.check_set(what, task_set, claimed_set)
        for each in records:
            self._put(ClaimRecord(each.task, rules.moved_on(each.claim, task_set)))

    def stale_message(self, task: TaskId, claim: Term) -> str | None:
        """Why ``claim`` is stale; None if it is the current one."""
        record = self._claim(task)
        return rules.stale_message(task, claim, record.claim if record is not None else None)

    def note_own_producer(self, task: TaskId) -> None:
        """Record that a task with a valid claim commits its offsets by its own producer."""
        record = self._required(task)
        if not record.claim.own_producer:
            self._put(replace(record, claim=replace(record.claim, own_producer=True)))

    def comes_late(self, task: TaskId, claim: Term, number: int) -> bool:
        """Whether a commit is a late duplicate; records its number if it is not.

        It is one if the current claim already has a commit with this or a later number.
        """
        last = self._commits.get(task) or self._base.commit_record(task)
        if rules.comes_late(claim, number, (last.claim, last.number) if last else None):
            return True
        if number:
            self._commits[task] = CommitRecord(task, claim, number)
        return False

    def note_offset(self, found: MarkRecord, *, refreshes: bool = False) -> None:
        """Record a committed offset in its mark: the first one of an output, or any one if it
        ``refreshes`` the mark.
        """
        earlier = self._marks.get(found.key) or self._base.mark_record(found.key)
        mark = earlier.mark if earlier is not None else None
        assert found.mark is not None
        if refreshes or mark is None or mark.is_reset or mark.output != found.mark.output:
            self._marks[found.key] = found

    def forget_marks(self, before_ms: int) -> None:
        """Forget the marks that were last refreshed before a time."""
        for each in self._base.marks_before(before_ms):
            self._marks[each.key] = replace(each, mark=None)

    def enter_set(self, request: ClaimRequest) -> None:
        """Make the request's set of task configs the current one; revoke claims of earlier sets.

        Raises:
            FailedPreconditionError: STALE_TERM, the current set is later. Nothing changed.
        """
        connector = request.task.connector
        current_set = self._current_set(connector)
        if rules.begins_set(request, current_set):
            self.fence(connector, request.task_set, f"task {request.task} cannot be claimed")

    def _current_set(self, connector: str) -> int | None:
        """The current set of task configs, which all claims of a connector share."""
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


def grant_or_reject(
    draft: Draft, requests: Sequence[ClaimRequest]
) -> list[Term | FailedPreconditionError]:
    """Decide several requests in sequence: a term or an error for each."""
    answers: list[Term | FailedPreconditionError] = []
    for request in requests:
        try:
            answers.append(draft.grant(request))
        except FailedPreconditionError as error:
            answers.append(error)
    return answers
