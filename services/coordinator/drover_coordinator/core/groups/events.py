"""The events of the group machine: calls, ends of calls and streams, timers, failed appends.

A call is answered through ``Complete`` or ``Fail`` with its ``call_id``. All others have no answer.
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
    """A member wants to be in the next generation; answered with a ``JoinOutcome``.

    ``new_member_id`` is the id to hand out when ``member_id`` is empty. A parked call is answered
    ``RetryJoin`` at ``parked_until_ms``. ``instance_id`` names the place that a static member
    takes, across its restarts (KIP-345).
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
    """A member hands in or asks for assignments; answered with a ``SyncOutcome``."""

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
    """A sign of life; answered with True when the member has to join again."""

    call_id: str
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Members leave together; answered with a ``LeaveResult`` for each."""

    call_id: str
    group_id: str
    leaving: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Answered with a ``GroupDescription``."""

    call_id: str
    group_id: str


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Answered with a ``GroupPage``; empty filters let everything through."""

    call_id: str
    states: frozenset[GroupState] = frozenset()
    protocol_types: frozenset[str] = frozenset()
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class CheckMember:
    """Is this a member in this generation? Answered with None, or the error that says why not."""

    call_id: str
    group_id: str
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class WatchOpened:
    """A member opened a watch; answered with a ``WatchStarted``."""

    call_id: str
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Remove an empty group with its offsets; answered with None."""

    call_id: str
    group_id: str


@dataclass(frozen=True, slots=True)
class CommitGroupOffsets:
    """Commit a group's positions; answered with a ``GroupCommit``.

    A ``generation`` below 0 and no member id: not a member's commit.
    """

    call_id: str
    group_id: str
    member_id: str
    generation: int
    offsets: tuple[GroupOffset, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class FetchGroupOffsets:
    """Answered with a ``GroupOffsetPage``: the given partitions, or a page of all."""

    call_id: str
    group_id: str
    partitions: tuple[TopicPartition, ...] = ()
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class DeleteGroupOffsets:
    """Remove positions of a group; answered with a ``GroupOffsetDeleted`` for each."""

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
    """The caller of the parked join or sync ``call_id`` has gone."""

    group_id: str
    member_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class MemberStreamBroken:
    """A member's watch broke from its side: its process may be gone.

    ``watch_id`` is the ``call_id`` that opened it.
    """

    group_id: str
    member_id: str
    watch_id: str


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """This server ended the watch ``watch_id``, which says nothing about the member."""

    group_id: str
    member_id: str
    watch_id: str


@dataclass(frozen=True, slots=True)
class Unloaded:
    """This server stops serving its groups; parked calls are answered with ``error``."""

    error: DroverError


# --- timers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionDue:
    """A member's session may have timed out."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingDue:
    """A pending member id has expired unless a member joined with it."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ParkedJoinDue:
    """A parked join has to be answered now."""

    group_id: str
    member_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """A rebalance, or its initial delay, has waited long enough."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SyncDue:
    """Members of ``generation`` that have not synced are late."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class ExpiryDue:
    """Time for the next step of the sweep for expired offsets, or (``begins``) for a new sweep."""

    begins: bool = True


# --- failed appends (inside AppendFailed) ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreationNotDurable:
    """The append that creates the group failed; ``member_id`` is its first member or pending id."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class StaticMemberJoin:
    """A process joined as a static member with ``member_id``; it replaced ``replaced``, if any."""

    member_id: str
    replaced: Member | None


@dataclass(frozen=True, slots=True)
class StaticMemberNotDurable:
    """The append of a static member's new member id failed."""

    group_id: str
    static_join: StaticMemberJoin


@dataclass(frozen=True, slots=True)
class GenerationNotDurable:
    """The append of the next generation failed, and so did the joins that waited for it.

    ``static_join`` is the static member's join that completed the rebalance, if one did.
    """

    group_id: str
    static_join: StaticMemberJoin | None = None


@dataclass(frozen=True, slots=True)
class AssignmentNotDurable:
    """The append of the leader's assignment failed, and so did the syncs that waited for it."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ExpiryNotDurable:
    """The append of tombstones for expired offsets failed: the next sweep tries again."""


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

# --- what watchers get -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WatchStarted:
    """The first answer to a watch. Notifications up to ``change`` are older than it."""

    watched: WatchedGroup
    change: int


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """To all watchers: the group has another state or generation.

    Notifications of one event may arrive out of order: ignore one whose ``change`` is not above the
    last.
    """

    change: int
    watched: WatchedGroup


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """To the member's own watchers: it has been removed.

    ``fenced_instance_id`` is set if another process with that instance id replaced it.
    """

    member_id: str
    fenced_instance_id: str | None = None


def watch_channel(group_id: str) -> str:
    """The channel on which a group's changes are announced."""
    return f"group/{group_id}"


def member_channel(group_id: str, member_id: str) -> str:
    """The channel for one member's notifications. A shared channel would fill the queues of all
    watchers when thousands of members leave at once. Ids hold no control characters.
    """
    return f"member\0{group_id}\0{member_id}"
