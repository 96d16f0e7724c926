"""What a group tells its members and its operators."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class GroupState(StrEnum):
    """Where a group is in its life; docs/group-states.md shows what leads from one to the other."""

    EMPTY = "EMPTY"
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    STABLE = "STABLE"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class OfferedProtocol:
    """A protocol that a member can speak, with what it offers under it (opaque)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader sees it; ``metadata`` is under the selected protocol."""

    member_id: str
    metadata: bytes
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """The member is in ``generation``; ``members`` is filled for the leader only, and so is
    ``disconnected_member_ids``: members of the generation before whose process is gone, as their
    connection broke and did not come back.
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
    """The deadline came before the rebalance completed; join again with the same id."""

    member_id: str


JoinOutcome = Joined | MemberIdRequired | RetryJoin


@dataclass(frozen=True, slots=True)
class Synced:
    """The caller's assignment (opaque), which is durable."""

    assignment: bytes
    protocol_type: str
    protocol_name: str


@dataclass(frozen=True, slots=True)
class RebalanceInProgress:
    """A new rebalance began; join again."""


SyncOutcome = Synced | RebalanceInProgress


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What the leader assigns to one member (opaque)."""

    member_id: str
    assignment: bytes


class LeaveOutcome(StrEnum):
    """What became of one leaving member."""

    LEFT = "LEFT"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    FENCED_INSTANCE_ID = "FENCED_INSTANCE_ID"


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One member that leaves; ``member_id`` may be empty when ``instance_id`` is given."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """What became of one leaving member."""

    member_id: str
    outcome: LeaveOutcome
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """A group as its watcher sees it; ``created`` is true in the first message only."""

    created: bool
    state: GroupState
    generation: int
    rejoin_needed: bool


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as an operator sees it; metadata and assignment only while the group is stable."""

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
    """One group; DEAD with no members when it is unknown. ``protocol_name`` only while stable.

    ``details_omitted``: the members' metadata and assignments did not fit in the answer.
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
    """One line of a list of groups."""

    group_id: str
    state: GroupState
    protocol_type: str
    member_count: int
    generation: int


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups, by group id; ``next_page_token`` is empty on the last one.

    ``coordinators`` are the addresses, host:port, of those that list the other groups, too.
    """

    groups: Sequence[GroupListing]
    next_page_token: str = ""
    coordinators: Sequence[str] = ()


def shard_of(group_id: str, shard_count: int) -> int:
    """The shard that keeps a group, from 0: the same in every process and for ever."""
    return zlib.crc32(group_id.encode(errors="surrogatepass")) % shard_count
