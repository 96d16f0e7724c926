"""The eager strategy: every rebalance stops all work, and every assignment is complete."""

from collections.abc import Collection, Mapping, Sequence

from drover.model.group import Joined, OfferedProtocol, Synced
from drover_worker.core.rebalance.assignor import perform_assignment
from drover_worker.core.rebalance.protocol import (
    Assignment,
    MemberMetadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
)
from drover_worker.core.rebalance.stage import Stage
from drover_worker.core.rebalance.strategy import ComputedAssignments, RebalanceStrategy

#: Kafka Connect's name.
EAGER_PROTOCOL = "default"


class EagerStrategy(RebalanceStrategy):
    """Kafka Connect's "default" protocol: stop everything, join, start the assignment."""

    @property
    def protocol_name(self) -> str:
        """See RebalanceStrategy."""
        return EAGER_PROTOCOL

    @property
    def stages_without_work(self) -> Collection[Stage]:
        """All stages but those in which work runs or stops."""
        return (
            Stage.STARTING,
            Stage.JOINING,
            Stage.SYNCING,
            Stage.CATCHING_UP,
            Stage.BACKING_OFF,
            Stage.ENDED,
        )

    @property
    def stops_for_a_rebalance(self) -> bool:
        """True: a rebalance stops everything."""
        return True

    @property
    def hands_over(self) -> bool:
        """False: a drain needs an additional rebalance, which would stop every worker."""
        return False

    @property
    def signs_calls(self) -> bool:
        """False."""
        return False

    @property
    def structure_offset(self) -> int:
        """Every new set of task configs needs an assignment."""
        return self._view.structure_offset

    def supported_protocols(self, metadata: MemberMetadata) -> Sequence[OfferedProtocol]:
        """The eager protocol alone."""
        return (OfferedProtocol(EAGER_PROTOCOL, encode_metadata(metadata)),)

    def revoke_before_join(self) -> None:
        """Revoke everything: the next generation may assign it to other members."""
        self._work.revoke_all()

    def membership_lost(self) -> None:
        """See RebalanceStrategy."""
        self._work.revoke_all()

    def may_join(self) -> bool:
        """Whether all work has stopped."""
        return self._work.idle

    def compute_assignments(
        self,
        joined: Joined,
        *,
        task_counts: Mapping[str, int],
        config_offset: int,
        now_ms: int,
    ) -> ComputedAssignments:
        """Assign everything round robin, regardless of previous owners."""
        members = {m.member_id: decode_metadata(m.metadata) for m in joined.members}
        assigned = perform_assignment(
            members=members,
            leader_id=joined.leader_id,
            task_counts=task_counts,
            config_offset=config_offset,
        )
        return ComputedAssignments(
            members=members,
            assignments=assigned,
            encoded={member_id: encode_assignment(part) for member_id, part in assigned.items()},
        )

    def assigned(self, synced: Synced, *, generation: int) -> Assignment:
        """The complete assignment of this worker."""
        return decode_assignment(synced.assignment)

    def start_assigned(self, assignment: Assignment) -> None:
        """Start the assignment and stop all other work, which only another protocol leaves."""
        self._work.revoke_others(assignment.keys)
        self._work.start(
            assignment.connectors, assignment.tasks, config_offset=assignment.config_offset
        )

    def task_configs_changed(self, name: str) -> None:
        """Stop the connector's tasks, which may overlap with new tasks on other workers."""
        self._work.revoke_tasks(name)

    def rejoin_reason(self) -> str:
        """Always empty."""
        return ""

    def validate(self, assignment: Assignment) -> None:
        """See RebalanceStrategy."""
        for task, item in self._work.tasks.items():
            configs_offset = self._view.tasks_offset(task.connector)
            assert item.revoked or configs_offset <= assignment.config_offset, (
                f"{task} may run with a config that is later than its assignment"
            )
