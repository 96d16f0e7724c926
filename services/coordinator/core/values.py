"""A group's durable state: what its record in the log says.

The record is written when a generation begins (before anybody hears of it), when the leader's
assignment comes, when the last member is gone, and when a group is created.
"""

from dataclasses import dataclass

from drover.model.group import OfferedProtocol


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

    ``assigned`` says that the members' assignments belong to this generation. A group without
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
    """A record of the group log; ``metadata`` None removes the group."""

    group_id: str
    metadata: GroupMetadata | None
