"""The interface of a rebalance strategy: the decisions that depend on the rebalance protocol."""

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
    """The leader's assignments of one generation; each mapping is by member id.

    Attributes:
        members: The members' decoded metadata.
        assignments: Everything that each member runs once the generation has settled.
        encoded: The bytes of each member's assignment for SyncGroup.
    """

    members: Mapping[str, MemberMetadata]
    assignments: Mapping[str, Assignment]
    encoded: Mapping[str, bytes]


class RebalanceStrategy(ABC):
    """Moves work between the members of the group.

    A strategy may keep state between the generations of one worker. Methods do not wait: revoked
    work has stopped when it is no longer in the worker's ``Work``.
    """

    def __init__(self, work: Work, view: ConfigView) -> None:
        """``work`` has the worker's connectors and tasks, ``view`` the config log's state."""
        self._work = work
        self._view = view

    @property
    @abstractmethod
    def protocol_name(self) -> str:
        """The name of the group's protocol; of the preferred one before the first join."""

    @property
    @abstractmethod
    def stages_without_work(self) -> Collection[Stage]:
        """Stages in which this worker must have no work, because other workers may run it."""

    @property
    @abstractmethod
    def stops_for_a_rebalance(self) -> bool:
        """Whether a rebalance interrupts work, so that rebalances should be few."""

    @property
    @abstractmethod
    def hands_over(self) -> bool:
        """Whether a worker drains before it ends, so that its work moves while it is a member."""

    @property
    @abstractmethod
    def signs_calls(self) -> bool:
        """Whether the members of the group sign their calls to each other."""

    @property
    @abstractmethod
    def structure_offset(self) -> int:
        """The config log's offset after the last change that needs a new assignment."""

    @abstractmethod
    def supported_protocols(self, metadata: MemberMetadata) -> Sequence[OfferedProtocol]:
        """The protocols for JoinGroup with their encoded metadata, preferred first."""

    @abstractmethod
    def revoke_before_join(self) -> None:
        """Revoke the work that must not run while this worker rejoins."""

    @abstractmethod
    def membership_lost(self) -> None:
        """Revoke everything, because other workers may run it."""

    @abstractmethod
    def may_join(self) -> bool:
        """Whether all work that must stop before the join has stopped."""

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
            config_offset: The offset up to which the leader has read the config log.
            now_ms: The time.

        Raises:
            InvalidArgumentError: A member's metadata is malformed.
        """

    @abstractmethod
    def assigned(self, synced: Synced, *, generation: int) -> Assignment:
        """All work of this worker in a generation, from the response to SyncGroup.

        Raises:
            InvalidArgumentError: The bytes are malformed.
        """

    @abstractmethod
    def start_assigned(self, assignment: Assignment) -> None:
        """Start and stop work according to the assignment of the settled generation."""

    @abstractmethod
    def task_configs_changed(self, name: str) -> None:
        """Handle a new set of task configs of a connector."""

    @abstractmethod
    def rejoin_reason(self) -> str:
        """Why a settled worker has to rejoin now; empty if it need not."""

    @abstractmethod
    def validate(self, assignment: Assignment) -> None:
        """Raise AssertionError if a settled worker runs work that it must not run."""
