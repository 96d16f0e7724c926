"""What a rebalance protocol decides; everything else about membership is the same for all."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from drover.model.group import Joined, OfferedProtocol, Synced
from drover_worker.core.config.view import ConfigView
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

    def __init__(self, work: Work, view: ConfigView) -> None:
        """``work`` is what the worker runs, ``view`` what should run."""
        self._work = work
        self._view = view

    @property
    @abstractmethod
    def protocol_name(self) -> str:
        """The protocol that the group speaks, as JoinGroup names it; at first the preferred one."""

    @property
    @abstractmethod
    def stages_without_work(self) -> Collection[Stage]:
        """Stages in which nothing of this worker's work may be left, because others may run it."""

    @property
    @abstractmethod
    def stops_for_a_rebalance(self) -> bool:
        """Whether a rebalance interrupts work, so that few of them are better."""

    @property
    @abstractmethod
    def hands_over(self) -> bool:
        """Whether a worker that ends says so first, so that its work moves while it is a member."""

    @property
    @abstractmethod
    def signs_calls(self) -> bool:
        """Whether the members of the group sign what they ask of each other."""

    @property
    @abstractmethod
    def structure_offset(self) -> int:
        """The end of the config log right after the last change that needs a new assignment."""

    @abstractmethod
    def supported_protocols(self, metadata: MemberMetadata) -> Sequence[OfferedProtocol]:
        """What JoinGroup offers: each protocol with its encoded metadata, preferred first."""

    @abstractmethod
    def revoke_before_join(self) -> None:
        """Revoke what must not run while this worker rejoins."""

    @abstractmethod
    def membership_lost(self) -> None:
        """Revoke everything: others may run it."""

    @abstractmethod
    def may_join(self) -> bool:
        """Whether everything that had to stop before the join has stopped."""

    @abstractmethod
    def compute_assignments(
        self,
        joined: Joined,
        *,
        task_counts: Mapping[str, int],
        config_offset: int,
        now_ms: int,
    ) -> ComputedAssignments:
        """Leader: assign the work to the members of ``joined``.

        Args:
            joined: The generation with its members, their metadata and the selected protocol.
            task_counts: The number of tasks of every connector.
            config_offset: How far the leader has read the config log.
            now_ms: The time.

        Raises:
            InvalidArgumentError: A member's metadata is malformed.
        """

    @abstractmethod
    def assigned(self, synced: Synced, *, generation: int) -> Assignment:
        """Everything that this worker shall run in a generation, as SyncGroup returned it.

        Raises:
            InvalidArgumentError: The bytes are malformed.
        """

    @abstractmethod
    def start_assigned(self, assignment: Assignment) -> None:
        """Bring the work in line with the assignment of the generation that has just settled."""

    @abstractmethod
    def task_configs_changed(self, name: str) -> None:
        """A connector has another set of task configs."""

    @abstractmethod
    def rejoin_reason(self) -> str:
        """Why a settled worker has to rejoin by itself now; empty if it has not."""

    @abstractmethod
    def validate(self, assignment: Assignment) -> None:
        """Raise AssertionError when a settled worker runs what it must not."""
