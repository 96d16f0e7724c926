"""The events of the group machine: calls, ends of calls and streams, timers, failed appends.

Each call gets a response through ``Complete`` or ``Fail`` with its ``call_id``; other events get
none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drover.errors import DroverError
from drover.machine import AppendFailed
from drover.model.group import (
    GroupState,
    LeavingMember,
    MemberAssignment,
    OfferedProtocol,
    WatchedGroup,
)
from drover.model.offsets import GroupOffset, TopicPartition
from drover_coordinator.core.groups.member import Member

# --- calls -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Join the next generation; the response is a ``JoinOutcome``.

    ``new_member_id`` is the id to issue if ``member_id`` is empty. A parked call gets ``RetryJoin``
    at ``parked_until_ms``. ``instance_id`` identifies a static member across its restarts
    (KIP-345).
    """

    call_id: str
    group_id: str
    member_id: str
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    parked_until_ms: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Send the leader's assignments, or get the member's; the response is a ``SyncOutcome``."""

    call_id: str
    group_id: str
    member_id: str
    generation: int
    protocol_type: str = ""
    protocol_name: str = ""
    assignments: Sequence[MemberAssignment] = ()
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Extend the session; the response is True if the member has to rejoin."""

    call_id: str
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Remove members; the response is a ``LeaveResult`` for each."""

    call_id: str
    group_id: str
    leaving: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Describe a group; the response is a ``GroupDescription``."""

    call_id: str
    group_id: str


@dataclass(frozen=True, slots=True)
class ListGroups:
    """List groups; the response is a ``GroupPage``. An empty filter matches every group."""

    call_id: str
    states: frozenset[GroupState] = frozenset()
    protocol_types: frozenset[str] = frozenset()
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class CheckMember:
    """Check membership in a generation; the response is None, or an error if the check fails."""

    call_id: str
    group_id: str
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class WatchOpened:
    """Open a watch for a member; the response is a ``WatchStarted``."""

    call_id: str
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete an empty group and its offsets; the response is None."""

    call_id: str
    group_id: str


@dataclass(frozen=True, slots=True)
class CommitGroupOffsets:
    """Commit a group's offsets; the response is a ``GroupCommit``.

    A commit without a member has a ``generation`` below 0 and no member id.
    """

    call_id: str
    group_id: str
    member_id: str
    generation: int
    offsets: tuple[GroupOffset, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class FetchGroupOffsets:
    """Fetch offsets of the given partitions, or a page of all; the response is a
    ``GroupOffsetPage``.
    """

    call_id: str
    group_id: str
    partitions: tuple[TopicPartition, ...] = ()
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class DeleteGroupOffsets:
    """Delete a group's offsets; the response is a ``GroupOffsetDeleted`` for each."""

    call_id: str
    group_id: str
    partitions: tuple[TopicPartition, ...]


Call = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | DescribeGroup
    | ListGroups
    | CheckMember
    | WatchOpened
    | DeleteGroup
    | CommitGroupOffsets
    | FetchGroupOffsets
    | DeleteGroupOffsets
)

# --- ends of calls and streams -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallAbandoned:
    """The caller of the parked join or sync ``call_id`` cancelled it or disconnected."""

    group_id: str
    member_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class MemberStreamBroken:
    """The client of a member's watch disconnected: its process may have ended.

    ``watch_id`` is the ``call_id`` that opened it.
    """

    group_id: str
    member_id: str
    watch_id: str


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """This server ended the watch ``watch_id``; the member is unaffected."""

    group_id: str
    member_id: str
    watch_id: str


@dataclass(frozen=True, slots=True)
class Unloaded:
    """This server stops serving its groups; parked calls fail with ``error``."""

    error: DroverError


# --- timers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionDue:
    """A member's session may have timed out."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingDue:
    """A pending member id may have expired."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ParkedJoinDue:
    """A parked join has to complete now."""

    group_id: str
    member_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """The wait for joins, or a round of the initial delay, may be over."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SyncDue:
    """The wait for syncs of ``generation`` is over."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class ExpiryDue:
    """The next step of the sweep for expired offsets is due, or a new sweep if ``begins``."""

    begins: bool = True


# --- failed appends (inside AppendFailed) ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreationNotDurable:
    """The append that creates the group failed; ``member_id`` is its first member or pending id."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class StaticMemberJoin:
    """A static member joined with ``member_id`` and replaced the member ``replaced``, if any."""

    member_id: str
    replaced: Member | None


@dataclass(frozen=True, slots=True)
class StaticMemberNotDurable:
    """The append of a static member's new member id failed."""

    group_id: str
    static_join: StaticMemberJoin


@dataclass(frozen=True, slots=True)
class GenerationNotDurable:
    """The append of the next generation failed, and with it the parked joins.

    ``static_join`` is set if a static member's join completed the rebalance.
    """

    group_id: str
    static_join: StaticMemberJoin | None = None


@dataclass(frozen=True, slots=True)
class AssignmentNotDurable:
    """The append of the leader's assignment failed, and with it the parked syncs."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ExpiryNotDurable:
    """The append of tombstones for expired offsets failed; the next sweep retries."""


Event = (
    Call
    | CallAbandoned
    | MemberStreamBroken
    | WatchEnded
    | Unloaded
    | SessionDue
    | PendingDue
    | ParkedJoinDue
    | RebalanceDue
    | SyncDue
    | ExpiryDue
    | AppendFailed
)

# --- messages to watchers ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WatchStarted:
    """The first message of a watch; notifications up to ``change`` are older."""

    watched: WatchedGroup
    change: int


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """To all watchers of a group: its state or generation changed.

    Notifications of one event may arrive out of order; ignore one with a ``change`` that is not
    above the last.
    """

    change: int
    watched: WatchedGroup


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """To the member's own watchers: the member was removed.

    ``fenced_instance_id`` is set if another process with that instance id replaced it.
    """

    member_id: str
    fenced_instance_id: str | None = None


def watch_channel(group_id: str) -> str:
    """The channel on which a group's changes are announced."""
    return f"group/{group_id}"


def member_channel(group_id: str, member_id: str) -> str:
    """The channel for one member's notifications.

    A shared channel would fill the queues of all watchers when thousands of members leave at once.
    Ids contain no control characters.
    """
    return f"member\0{group_id}\0{member_id}"
