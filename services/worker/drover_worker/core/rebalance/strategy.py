"""What a rebalance protocol decides; everything else about membership is the same for all."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.model.group import Joined, OfferedProtocol
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.protocol import Assignment, MemberMetadata
from drover_worker.core.rebalance.stage import Stage


@dataclass(frozen=True, slots=True)
class ComputedAssignments:
    """What the leader assigned in one generation; each mapping is by member id.

    Attributes:
        members: The members' decoded metadata.
        assignments: Everything that each member runs once the generation has settled.
        encoded: The bytes that SyncGroup hands to each member.
    """

    members: Mapping[str, MemberMetadata]
    assignments: Mapping[str, Assignment]
    encoded: Mapping[str, bytes]


class RebalanceStrategy(ABC):
    """One way to move work between the members of the group.

    A strategy may keep state between the generations of one worker. Each method returns at once;
    what it revokes has stopped when it is no longer in the worker's ``Work``.
    """

    #: The preferred protocol, as JoinGroup names it.
    protocol_name: str
    #: Stages in which nothing of this worker's work may be left, because others may run it.
    stages_without_work: frozenset[Stage]

    def __init__(self, work: Work) -> None:
        """``work`` is what the worker runs."""
        self._work = work

    @abstractmethod
    def supported_protocols(self, metadata: MemberMetadata) -> Sequence[OfferedProtocol]:
        """What JoinGroup offers: each protocol with its encoded metadata, preferred first."""

    @abstractmethod
    def revoke_before_join(self) -> None:
        """Revoke what must not run while this worker rejoins.

        Called when a member rejoins; one that lost its membership has all its work revoked.
        """

    @abstractmethod
    def may_join(self) -> bool:
        """Whether everything that had to stop before the join has stopped."""

    @abstractmethod
    def compute_assignments(
        self, joined: Joined, *, task_counts: Mapping[str, int], config_offset: int
    ) -> ComputedAssignments:
        """Leader: assign the work to the members of ``joined``.

        Args:
            joined: The generation with its members, their metadata and the selected protocol.
            task_counts: The number of tasks of every connector.
            config_offset: How far the leader has read the config log.

        Raises:
            InvalidArgumentError: A member's metadata is malformed.
        """

    @abstractmethod
    def decode_assignment(self, data: bytes) -> Assignment:
        """This worker's assignment, as SyncGroup returned it.

        Raises:
            InvalidArgumentError: The bytes are malformed.
        """

    @abstractmethod
    def start_assigned(self, assignment: Assignment) -> None:
        """Bring the work in line with the assignment of the generation that has just settled."""
