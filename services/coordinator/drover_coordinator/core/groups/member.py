"""The present state of one member of a group."""

from dataclasses import dataclass, field

from drover.model.group import GroupMember, OfferedProtocol
from drover_coordinator.core.groups.records import MemberRecord


@dataclass(slots=True, eq=False)
class Member:
    """A member: the fields of its last join, and its session, parked calls and watches.

    Only ``assignment`` is hard state; it changes when a record is replayed. ``is_new`` holds until
    the member's first join completes with a generation, which has to happen by ``new_until_ms``.

    The session ends at ``alive_until_ms`` unless a join or sync is parked. The session timer is set
    to ``timer_at_ms``, never later than that. It is often earlier, because a heartbeat only moves
    ``alive_until_ms``; the timer is then set again when it fires.
    """

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]
    instance_id: str | None = None
    assignment: bytes = b""
    join_call_id: str | None = None
    sync_call_id: str | None = None
    is_new: bool = False
    new_until_ms: int = 0
    alive_until_ms: int = 0
    timer_at_ms: int | None = None
    #: the open watches, by the ids of the calls that opened them
    watches: set[str] = field(default_factory=set)
    watch_broken: bool = False

    @property
    def is_parked(self) -> bool:
        """Whether a join or sync of the member waits for its response."""
        return self.join_call_id is not None or self.sync_call_id is not None

    def metadata_of(self, protocol_name: str) -> bytes:
        """The member's metadata for a protocol; empty if it does not support it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def record(self, assignment: bytes = b"") -> MemberRecord:
        """The log record of the member, with ``assignment``."""
        return MemberRecord(
            member_id=self.member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
            instance_id=self.instance_id,
        )

    def describe(self, protocol_name: str | None) -> GroupMember:
        """The member for an operator; without metadata and assignment if no protocol is given."""
        return GroupMember(
            member_id=self.member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            metadata=b"" if protocol_name is None else self.metadata_of(protocol_name),
            assignment=b"" if protocol_name is None else self.assignment,
            instance_id=self.instance_id,
        )


def member_from(record: MemberRecord) -> Member:
    """Restore a member from its log record."""
    return Member(
        member_id=record.member_id,
        client_id=record.client_id,
        client_host=record.client_host,
        session_timeout_ms=record.session_timeout_ms,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        protocols=record.protocols,
        instance_id=record.instance_id,
        assignment=record.assignment,
    )
