"""The incremental cooperative strategy (KIP-415): a rebalance stops only what has to move."""

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
    """Kafka Connect's "sessioned" and "compatible" protocols, and the eager one while a member
    speaks only that.

    Workers tell the leader what they hold and go on running it. The leader answers with what each
    starts and stops; who had to stop something rejoins when that is done, so that it starts
    elsewhere. Two that run the same task for a moment do no harm: its claim is of the later one.
    """

    def __init__(
        self, work: Work, view: ConfigView, *, delay_max_ms: int, sessioned: bool = False
    ) -> None:
        """Make the strategy of one worker.

        Args:
            work: What it runs.
            view: What should run.
            delay_max_ms: How long the work of a worker that is gone waits for its return.
            sessioned: Whether it prefers a group whose members sign what they ask of each other.
        """
        super().__init__(work, view)
        self._eager = EagerStrategy(work, view)
        self._assignor = CooperativeAssignor(delay_max_ms)
        #: The cooperative protocols that it offers, preferred first.
        self._offered: Sequence[str] = (
            *((SESSIONED_PROTOCOL,) if sessioned else ()),
            COOPERATIVE_PROTOCOL,
        )
        #: The protocol of the last generation; before the first the preferred one.
        self._protocol: str = self._offered[0]
        #: What the last join told the leader.
        self._told: Sequence[StatusKey] = ()
        self._last_generation = -1
        #: What the present generation takes from this worker, until it has stopped.
        self._giving_up: set[StatusKey] = set()
        self._has_to_stop = False

    @property
    def protocol_name(self) -> str:
        """See RebalanceStrategy."""
        return self._protocol

    @property
    def _speaks_eager(self) -> bool:
        return self._protocol == EAGER_PROTOCOL

    @property
    def stages_without_work(self) -> Collection[Stage]:
        """Work goes on while the worker is in the group, or about to be again."""
        if self._speaks_eager and not self._told:  # it stopped before it joined
            return self._eager.stages_without_work
        return (Stage.STARTING, Stage.ENDED)

    @property
    def stops_for_a_rebalance(self) -> bool:
        """Only under the eager protocol."""
        return self._speaks_eager

    @property
    def hands_over(self) -> bool:
        """Unless the group is eager."""
        return not self._speaks_eager

    @property
    def signs_calls(self) -> bool:
        """While the group is sessioned."""
        return self._protocol == SESSIONED_PROTOCOL

    @property
    def structure_offset(self) -> int:
        """Another set of as many tasks needs no assignment: they restart where they are."""
        if self._speaks_eager:
            return self._eager.structure_offset
        return self._view.shape_offset

    def supported_protocols(self, metadata: MemberMetadata) -> Sequence[OfferedProtocol]:
        """The cooperative protocols, and the eager one for members that know no other."""
        self._told = self._work.held
        cooperative = encode(replace(metadata, held=self._told))
        return (
            *(OfferedProtocol(name, cooperative) for name in self._offered),
            OfferedProtocol(EAGER_PROTOCOL, encode(metadata)),
        )

    def revoke_before_join(self) -> None:
        """Nothing, unless the group is eager: then others may be given what runs here."""
        if self._speaks_eager:
            self._eager.revoke_before_join()

    def membership_lost(self) -> None:
        """See RebalanceStrategy."""
        self._has_to_stop = True
        self._work.revoke_all()

    def may_join(self) -> bool:
        """Whether what others may run by now has stopped here."""
        if self._work.idle:
            self._has_to_stop = False
        return not self._has_to_stop and (not self._speaks_eager or self._eager.may_join())

    def compute_assignments(
        self,
        joined: Joined,
        *,
        task_counts: Mapping[str, int],
        config_offset: int,
        now_ms: int,
    ) -> ComputedAssignments:
        """Assign what is new or was lost, and move as little as makes the loads even."""
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
        found = self._assignor.assign(
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
            delay_ms=found.delay_ms,
        )
        return ComputedAssignments(
            members=members,
            assignments={
                member_id: _with_work(base, change.runs)
                for member_id, change in found.changes.items()
            },
            encoded={
                member_id: encode_assignment(
                    replace(_with_work(base, change.starts), stops=change.stops)
                )
                for member_id, change in found.changes.items()
            },
        )

    def assigned(self, synced: Synced, *, generation: int) -> Assignment:
        """What this worker told that it holds, with the changes."""
        self._protocol = synced.protocol_name
        self._has_to_stop = False
        self._giving_up = set()
        if self._speaks_eager:
            return self._eager.assigned(synced, generation=generation)
        change = decode_assignment(synced.assignment)
        if change.error is AssignmentError.NO_ERROR:
            self._last_generation = generation
            self._giving_up = set(change.stops)
        keys = [key for key in self._told if key not in self._giving_up]
        return _with_work(change, dict.fromkeys([*keys, *change.keys]))

    def start_assigned(self, assignment: Assignment) -> None:
        """Start what does not run yet, and stop what is given up; the rest goes on."""
        if self._speaks_eager:
            self._eager.start_assigned(assignment)
            return
        self._work.revoke_others(assignment.keys)
        self._work.start(assignment.connectors, assignment.tasks)

    def task_configs_changed(self, name: str) -> None:
        """Its tasks restart with their new configs, without a rebalance.

        The first claim under the new set makes those of the old one stale, wherever they run.
        """
        if self._speaks_eager:
            self._eager.task_configs_changed(name)
        else:
            self._work.renew_tasks(name)

    def rejoin_reason(self) -> str:
        """Once what was given up has stopped, it can start elsewhere."""
        if not self._giving_up or any(map(self._work.find, self._giving_up)):
            return ""
        self._giving_up = set()
        return "what moves to other workers has stopped"

    def validate(self, assignment: Assignment) -> None:
        """See RebalanceStrategy."""
        if self._speaks_eager:
            self._eager.validate(assignment)


def _with_work(assignment: Assignment, keys: Collection[StatusKey]) -> Assignment:
    return replace(
        assignment,
        connectors=tuple(key for key in keys if not isinstance(key, TaskId)),
        tasks=tuple(key for key in keys if isinstance(key, TaskId)),
    )
