"""The incremental cooperative strategy (KIP-415): a rebalance stops only revoked work."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from drover.model.group import Joined, OfferedProtocol, Synced
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.config.view import ConfigView
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.assignor import config_mismatch
from drover_worker.core.rebalance.cooperative_assignor import CooperativeAssignor
from drover_worker.core.rebalance.eager import EAGER_PROTOCOL, EagerStrategy
from drover_worker.core.rebalance.protocol import (
    Assignment,
    AssignmentError,
    MemberMetadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
)
from drover_worker.core.rebalance.protocol import encode_metadata as encode
from drover_worker.core.rebalance.stage import Stage
from drover_worker.core.rebalance.strategy import ComputedAssignments, RebalanceStrategy

#: Kafka Connect's names. The second is the first in which members sign their calls (KIP-507).
COOPERATIVE_PROTOCOL = "compatible"
SESSIONED_PROTOCOL = "sessioned"


class CooperativeStrategy(RebalanceStrategy):
    """Kafka Connect's "sessioned" and "compatible" protocols.

    The eager protocol is used while a member supports no other. Workers report their connectors and
    tasks to the leader and keep running them. The leader returns what each worker starts and stops.
    A worker with revocations rejoins after it has stopped them, so that they start elsewhere. Two
    workers may briefly run the same task: only the later one holds its claim.
    """

    def __init__(
        self, work: Work, view: ConfigView, *, delay_max_ms: int, sessioned: bool = False
    ) -> None:
        """Create the strategy of one worker.

        Args:
            work: The connectors and tasks of this worker.
            view: The worker's view of the config log.
            delay_max_ms: How long the work of a departed worker waits for its return
                (``scheduled.rebalance.max.delay.ms``).
            sessioned: Prefer the protocol in which members sign their calls to each other.
        """
        super().__init__(work, view)
        self._eager = EagerStrategy(work, view)
        self._assignor = CooperativeAssignor(delay_max_ms)
        #: The offered cooperative protocols, preferred first.
        self._offered: Sequence[str] = (
            *((SESSIONED_PROTOCOL,) if sessioned else ()),
            COOPERATIVE_PROTOCOL,
        )
        #: The protocol of the last generation; the preferred one before the first.
        self._protocol: str = self._offered[0]
        #: The connectors and tasks that the last join reported.
        self._reported: Sequence[StatusKey] = ()
        self._last_generation = -1
        #: What the present generation revokes from this worker, until it has stopped.
        self._revoking: set[StatusKey] = set()
        self._has_to_stop = False

    @property
    def protocol_name(self) -> str:
        """See RebalanceStrategy."""
        return self._protocol

    @property
    def _is_eager(self) -> bool:
        return self._protocol == EAGER_PROTOCOL

    @property
    def stages_without_work(self) -> Collection[Stage]:
        """Only the stages outside of the group: work continues during a rebalance."""
        if self._is_eager and not self._reported:  # it stopped its work before the join
            return self._eager.stages_without_work
        return (Stage.STARTING, Stage.ENDED)

    @property
    def stops_for_a_rebalance(self) -> bool:
        """True under the eager protocol only."""
        return self._is_eager

    @property
    def hands_over(self) -> bool:
        """False under the eager protocol only."""
        return not self._is_eager

    @property
    def signs_calls(self) -> bool:
        """True under the protocol "sessioned" only."""
        return self._protocol == SESSIONED_PROTOCOL

    @property
    def structure_offset(self) -> int:
        """A new set of as many tasks needs no new assignment: its tasks restart in place."""
        if self._is_eager:
            return self._eager.structure_offset
        return self._view.shape_offset

    def supported_protocols(self, metadata: MemberMetadata) -> Sequence[OfferedProtocol]:
        """The cooperative protocols, and the eager one for members that support no other."""
        self._reported = self._work.held
        cooperative = encode(replace(metadata, held=self._reported))
        return (
            *(OfferedProtocol(name, cooperative) for name in self._offered),
            OfferedProtocol(EAGER_PROTOCOL, encode(metadata)),
        )

    def revoke_before_join(self) -> None:
        """Revoke everything under the eager protocol, otherwise nothing."""
        if self._is_eager:
            self._eager.revoke_before_join()

    def membership_lost(self) -> None:
        """See RebalanceStrategy."""
        self._has_to_stop = True
        self._work.revoke_all()

    def may_join(self) -> bool:
        """Whether work that others may run has stopped here."""
        if self._work.idle:
            self._has_to_stop = False
        return not self._has_to_stop and (not self._is_eager or self._eager.may_join())

    def compute_assignments(
        self,
        joined: Joined,
        *,
        task_counts: Mapping[str, int],
        config_offset: int,
        now_ms: int,
    ) -> ComputedAssignments:
        """Assign new and lost work, and move as little as balances the loads."""
        if joined.protocol_name == EAGER_PROTOCOL:
            return self._eager.compute_assignments(
                joined, task_counts=task_counts, config_offset=config_offset, now_ms=now_ms
            )
        members = {m.member_id: decode_metadata(m.metadata) for m in joined.members}
        mismatch = config_mismatch(members, joined.leader_id, config_offset)
        if mismatch is not None:
            unchanged = {
                member_id: _with_work(mismatch, member.held or ())
                for member_id, member in members.items()
            }
            encoded = dict.fromkeys(members, encode_assignment(mismatch))
            return ComputedAssignments(members, unchanged, encoded)
        configured: set[StatusKey] = set(task_counts)
        configured.update(
            TaskId(name, index) for name, count in task_counts.items() for index in range(count)
        )
        round_ = self._assignor.assign(
            {member_id: member.held or () for member_id, member in members.items()},
            configured,
            generation=joined.generation,
            last_generation=self._last_generation,
            now_ms=now_ms,
            draining={member_id for member_id, member in members.items() if member.draining},
            disconnected=frozenset(joined.disconnected_member_ids),
        )
        leader = members[joined.leader_id]
        base = Assignment(
            error=AssignmentError.NO_ERROR,
            leader_id=joined.leader_id,
            leader_url=leader.worker_url,
            leader_internal_url=leader.internal_url,
            config_offset=config_offset,
            delay_ms=round_.delay_ms,
        )
        return ComputedAssignments(
            members=members,
            assignments={
                member_id: _with_work(base, change.runs)
                for member_id, change in round_.changes.items()
            },
            encoded={
                member_id: encode_assignment(
                    replace(_with_work(base, change.starts), stops=change.stops)
                )
                for member_id, change in round_.changes.items()
            },
        )

    def assigned(self, synced: Synced, *, generation: int) -> Assignment:
        """The work that this worker reported when it joined, with the changes applied."""
        self._protocol = synced.protocol_name
        self._has_to_stop = False
        self._revoking = set()
        if self._is_eager:
            return self._eager.assigned(synced, generation=generation)
        change = decode_assignment(synced.assignment)
        if change.error is AssignmentError.NO_ERROR:
            self._last_generation = generation
            self._revoking = set(change.stops)
        keys = [key for key in self._reported if key not in self._revoking]
        return _with_work(change, dict.fromkeys([*keys, *change.keys]))

    def start_assigned(self, assignment: Assignment) -> None:
        """Start new work and stop revoked work; other work continues."""
        if self._is_eager:
            self._eager.start_assigned(assignment)
            return
        self._work.revoke_others(assignment.keys)
        self._work.start(assignment.connectors, assignment.tasks)

    def task_configs_changed(self, name: str) -> None:
        """Restart the connector's tasks with their new configs, without a rebalance.

        The first claim under the new set revokes all claims under the old one, on every worker.
        """
        if self._is_eager:
            self._eager.task_configs_changed(name)
        else:
            self._work.renew_tasks(name)

    def rejoin_reason(self) -> str:
        """Rejoin once the revoked work has stopped, so that it starts elsewhere."""
        if not self._revoking or any(map(self._work.find, self._revoking)):
            return ""
        self._revoking = set()
        return "the revoked work has stopped"

    def validate(self, assignment: Assignment) -> None:
        """See RebalanceStrategy."""
        if self._is_eager:
            self._eager.validate(assignment)


def _with_work(assignment: Assignment, keys: Collection[StatusKey]) -> Assignment:
    return replace(
        assignment,
        connectors=tuple(key for key in keys if not isinstance(key, TaskId)),
        tasks=tuple(key for key in keys if isinstance(key, TaskId)),
    )
