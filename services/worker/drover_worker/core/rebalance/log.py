"""The last rebalances that this worker led, for operators; bounded."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.rebalance.protocol import AssignmentError
from drover_worker.core.rebalance.stage import Stage
from drover_worker.core.rebalance.strategy import ComputedAssignments

REBALANCES_MAX = 200
#: The number of moves that are kept of each rebalance; all are counted.
MOVES_MAX = 25

#: Stages of a generation whose assignments are known, before its leader has settled.
_BEFORE_SETTLED = frozenset({Stage.SYNCING, Stage.CATCHING_UP})


@dataclass(frozen=True, slots=True)
class Move:
    """A connector or a task that another worker runs after a rebalance.

    Attributes:
        key: The connector or the task.
        from_worker: The worker url that ran it last; empty if it is new or if that is unknown.
        to_worker: The worker url that runs it now; empty if it is not assigned.
    """

    key: StatusKey
    from_worker: str
    to_worker: str


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance, as its leader saw it.

    Attributes:
        begin_ms: When the leader left the previous generation.
        duration_ms: How long it took until the leader settled; None if it did not.
        generation: The generation that began.
        reason: Why the leader joined.
        workers: The worker urls of the generation, sorted.
        draining: The ones that were draining, sorted.
        moves: The first moves, at most ``MOVES_MAX``.
        moved_connector_count: The number of connectors that moved.
        moved_task_count: The number of tasks that moved.
    """

    begin_ms: int
    duration_ms: int | None
    generation: int
    reason: str
    workers: Sequence[str]
    draining: Sequence[str]
    moves: Sequence[Move]
    moved_connector_count: int
    moved_task_count: int


class RebalanceLog:
    """Keeps the last rebalances of a worker while it leads the group."""

    def __init__(self) -> None:
        self._rebalances: deque[Rebalance] = deque(maxlen=REBALANCES_MAX)
        #: Worker urls by the work that they had after the last rebalance.
        self._owners: dict[StatusKey, str] = {}
        #: The last owners of work that no worker has.
        self._revoked: dict[StatusKey, str] = {}
        self._begin_ms: int | None = None
        #: Whether the last rebalance is in progress.
        self._is_open = False

    def all(self) -> Sequence[Rebalance]:
        """The rebalances, oldest first."""
        return tuple(self._rebalances)

    def entered(self, stage: Stage, now_ms: int) -> None:
        """The worker has entered a stage."""
        if stage is Stage.SETTLED:
            if self._is_open:
                last = self._rebalances[-1]
                duration_ms = max(now_ms - last.begin_ms, 0)
                self._rebalances[-1] = replace(last, duration_ms=duration_ms)
            self._is_open, self._begin_ms = False, None
        elif self._begin_ms is None or (self._is_open and stage not in _BEFORE_SETTLED):
            self._is_open, self._begin_ms = False, now_ms

    def followed(self) -> None:
        """Another worker leads: what moves is no longer known here."""
        self._owners, self._revoked = {}, {}

    def led(
        self,
        computed: ComputedAssignments,
        task_counts: Mapping[str, int],
        generation: int,
        reason: str,
        *,
        now_ms: int,
    ) -> None:
        """This worker has computed the assignments of a generation, which it joined for ``reason``.

        ``task_counts`` has the number of tasks of every connector.
        """
        parts = computed.assignments.values()
        if any(each.error is not AssignmentError.NO_ERROR for each in parts):
            return  # nothing is assigned: the members join again after they have read the log
        members = computed.members
        held = {key: member.worker_url for member in members.values() for key in member.held or ()}
        owners = {
            key: members[member_id].worker_url
            for member_id, assignment in computed.assignments.items()
            for key in assignment.keys
        }
        moves = self._moves(held, owners, task_counts)
        task_count = sum(isinstance(each.key, TaskId) for each in moves)
        self._rebalances.append(
            Rebalance(
                begin_ms=now_ms if self._begin_ms is None else self._begin_ms,
                duration_ms=None,
                generation=generation,
                reason=reason,
                workers=sorted(each.worker_url for each in members.values()),
                draining=sorted(each.worker_url for each in members.values() if each.draining),
                moves=tuple(moves[:MOVES_MAX]),
                moved_connector_count=len(moves) - task_count,
                moved_task_count=task_count,
            )
        )
        self._is_open = True

    def _moves(
        self,
        held: Mapping[StatusKey, str],
        owners: dict[StatusKey, str],
        task_counts: Mapping[str, int],
    ) -> list[Move]:
        """What moves to other workers; ``owners`` are the owners from now on."""
        before = {**self._revoked, **self._owners, **held}
        moves = [
            Move(key, before.get(key, ""), worker)
            for key, worker in owners.items()
            if before.get(key, "") != worker
        ]
        revoked = {
            key: worker
            for key, worker in before.items()
            if key not in owners and _exists(key, task_counts)
        }
        moves += [
            Move(key, worker, "")
            for key, worker in revoked.items()
            if key not in self._revoked or key in held
        ]
        self._owners, self._revoked = owners, revoked
        return moves


def _exists(key: StatusKey, task_counts: Mapping[str, int]) -> bool:
    if isinstance(key, TaskId):
        return key.task < task_counts.get(key.connector, 0)
    return key in task_counts
