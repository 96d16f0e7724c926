"""The records of the group log. A record replaces the earlier ones of its key.

A group's record is appended when it is created, when a generation begins (before any response),
when the leader's assignment arrives, and when the last member is removed. Each offset has its own
record.
"""

from dataclasses import dataclass

from drover.model.group import OfferedProtocol
from drover.model.offsets import GroupOffset, TopicPartition


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One member of a generation, with every protocol it offers and its assignment.

    All protocols are kept, not only the selected one, so that a rebalance after a restart can
    select another one.
    """

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]
    assignment: bytes = b""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group at one generation.

    ``assigned`` is true if the members' assignments belong to this generation. A group without
    members has an empty ``protocol_name`` and ``leader_id``.
    """

    protocol_type: str
    generation: int
    protocol_name: str
    leader_id: str
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...] = ()
    assigned: bool = False


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group's state; ``metadata`` None removes the group."""

    group_id: str
    metadata: GroupMetadata | None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A group's position in a topic partition; ``offset`` None removes it."""

    group_id: str
    partition: TopicPartition
    offset: GroupOffset | None


@dataclass(frozen=True, slots=True)
class FloorRecord:
    """The highest generation of any removed group. New groups start from it, so that no
    generation of a group id is issued twice.
    """

    generation: int


#: Any record of the group log.
LogValue = GroupRecord | OffsetRecord | FloorRecord
