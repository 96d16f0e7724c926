"""The eager strategy: every rebalance stops all work, and every assignment is complete."""

from collections.abc import Mapping, Sequence

from drover.model.group import Joined, OfferedProtocol
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


class EagerStrategy(RebalanceStrategy):
    """Kafka Connect's "default" protocol: stop everything, join, start what is assigned."""

    protocol_name = "default"
    stages_without_work = frozenset(
        {
            Stage.STARTING,
            Stage.JOINING,
            Stage.SYNCING,
            Stage.CATCHING_UP,
            Stage.BACKING_OFF,
            Stage.ENDED,
        }
    )

    def supported_protocols(self, metadata: MemberMetadata) -> Sequence[OfferedProtocol]:
        """The eager protocol alone."""
        return (OfferedProtocol(self.protocol_name, encode_metadata(metadata)),)

    def revoke_before_join(self) -> None:
        """Revoke everything: the next assignment may give it to other members."""
        self._work.revoke_all()

    def may_join(self) -> bool:
        """Whether all work has stopped."""
        return self._work.idle

    def compute_assignments(
        self, joined: Joined, *, task_counts: Mapping[str, int], config_offset: int
    ) -> ComputedAssignments:
        """Assign everything round robin, whoever ran it before."""
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

    def decode_assignment(self, data: bytes) -> Assignment:
        """The complete assignment of this worker."""
        return decode_assignment(data)

    def start_assigned(self, assignment: Assignment) -> None:
        """Start everything that is assigned; what ran before was stopped before the join."""
        self._work.start(
            assignment.connectors, assignment.tasks, config_offset=assignment.config_offset
        )
