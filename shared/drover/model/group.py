"""Values that a group returns to its members and to operators."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class GroupState(StrEnum):
    """The state of a group; docs/group-states.md shows the transitions."""

    EMPTY = "EMPTY"
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    STABLE = "STABLE"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class OfferedProtocol:
    """A protocol that a member supports, with its metadata for it (opaque)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member, for the leader; ``metadata`` is for the selected protocol."""

    member_id: str
    metadata: bytes
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """The member is in ``generation``.

    ``members`` and ``disconnected_member_ids`` are set for the leader only. The latter are members
    of the previous generation whose process is gone: their connection broke, and they did not
    reconnect.
    """

    generation: int
    member_id: str
    leader_id: str
    protocol_type: str
    protocol_name: str
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False
    disconnected_member_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class MemberIdRequired:
    """Join again with this id (KIP-394)."""

    member_id: str


@dataclass(frozen=True, slots=True)
class RetryJoin:
    """The deadline is near and the rebalance has not completed; join again with the same id."""

    member_id: str


JoinOutcome = Joined | MemberIdRequired | RetryJoin


@dataclass(frozen=True, slots=True)
class Synced:
    """The caller's assignment (opaque); it is durable."""

    assignment: bytes
    protocol_type: str
    protocol_name: str


@dataclass(frozen=True, slots=True)
class RebalanceInProgress:
    """A new rebalance has started; join again."""


SyncOutcome = Synced | RebalanceInProgress


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The leader's assignment for one member (opaque)."""

    member_id: str
    assignment: bytes


class LeaveOutcome(StrEnum):
    """The result for one leaving member."""

    LEFT = "LEFT"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    FENCED_INSTANCE_ID = "FENCED_INSTANCE_ID"


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One member that leaves; ``member_id`` may be empty if ``instance_id`` is set."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The result for one leaving member."""

    member_id: str
    outcome: LeaveOutcome
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """A group, for a watcher; ``created`` is true in the first message only."""

    created: bool
    state: GroupState
    generation: int
    rejoin_needed: bool


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member, for operators; metadata and assignment are set only while the group is stable."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes = b""
    assignment: bytes = b""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group; DEAD without members if it is unknown. ``protocol_name`` is set only while stable.

    ``details_omitted``: the members' metadata and assignments would exceed the size of a response.
    """

    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol_name: str = ""
    generation: int = 0
    leader_id: str = ""
    members: Sequence[GroupMember] = ()
    state_change_time_ms: int = 0
    details_omitted: bool = False


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One entry in a list of groups."""

    group_id: str
    state: GroupState
    protocol_type: str
    member_count: int
    generation: int


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups, by group id; ``next_page_token`` is empty on the last one.

    ``coordinators`` are the addresses, host:port, of all coordinators; the others list other
    groups.
    """

    groups: Sequence[GroupListing]
    next_page_token: str = ""
    coordinators: Sequence[str] = ()


def shard_of(group_id: str, shard_count: int) -> int:
    """The shard of a group, from 0; the same in every process and in every version."""
    return zlib.crc32(group_id.encode(errors="surrogatepass")) % shard_count
