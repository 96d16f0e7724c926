"""The protocols that members support, and the size of their metadata."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from drover.model.group import OfferedProtocol
from drover_coordinator.core.groups.member import Member

#: The leader's JoinGroup response has all metadata of one protocol; a message holds 4 MiB.
RESPONSE_MAX_BYTES = 4 * 1024 * 1024 - 64 * 1024
#: The group's record has the metadata of all protocols: the next rebalance may select another.
RECORD_MAX_BYTES = 16 * 1024 * 1024
#: The most that a member adds to a message besides its ids and metadata.
_ENTRY_BYTES = 16


@dataclass(frozen=True, slots=True)
class SizeViolation:
    """A limit that a join would exceed: ``what`` would take ``size_bytes``."""

    what: str
    size_bytes: int
    max_bytes: int


class SupportedProtocols:
    """Counts of members and bytes by protocol, updated as members are added and removed."""

    __slots__ = ("_bytes", "_ids_bytes", "_member_counts", "_total_bytes")

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._member_counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._ids_bytes = 0
        self._total_bytes = 0
        for member in members:
            self.add(member)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SupportedProtocols) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, member: Member) -> None:
        """Count a member."""
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """Stop counting a member."""
        self._count(member, -1)

    def member_count(self, protocol_name: str) -> int:
        """How many members support a protocol."""
        return self._member_counts[protocol_name]

    def supported_by(self, count: int) -> set[str]:
        """The protocols that exactly ``count`` members support."""
        return {name for name, member_count in self._member_counts.items() if member_count == count}

    def size_violation(
        self,
        before: Member | None,
        *,
        member_id: str,
        instance_id: str | None,
        protocols: tuple[OfferedProtocol, ...],
    ) -> SizeViolation | None:
        """The limit that a member with ``protocols`` would exceed; None if it fits.

        The member replaces ``before`` if given. Only the member's protocols are checked, because
        no other protocol can be selected.
        """
        ids_bytes = self._ids_bytes + _ids_bytes(member_id, instance_id)
        total_bytes = self._total_bytes + _metadata_bytes(protocols)
        if before is not None:
            ids_bytes -= _ids_bytes(before.member_id, before.instance_id)
            total_bytes -= _metadata_bytes(before.protocols)
        for protocol in protocols:
            size_bytes = ids_bytes + self._bytes[protocol.name] + len(protocol.metadata)
            if before is not None:
                size_bytes -= len(before.metadata_of(protocol.name))
            if size_bytes > RESPONSE_MAX_BYTES:
                return SizeViolation(
                    f"metadata under {protocol.name!r}", size_bytes, RESPONSE_MAX_BYTES
                )
        if total_bytes > RECORD_MAX_BYTES:
            return SizeViolation("metadata under all protocols", total_bytes, RECORD_MAX_BYTES)
        return None

    def _count(self, member: Member, change: int) -> None:
        for protocol in member.protocols:
            self._member_counts[protocol.name] += change
            self._bytes[protocol.name] += change * len(protocol.metadata)
            if not self._member_counts[protocol.name]:
                del self._member_counts[protocol.name], self._bytes[protocol.name]
        self._ids_bytes += change * _ids_bytes(member.member_id, member.instance_id)
        self._total_bytes += change * _metadata_bytes(member.protocols)


def _ids_bytes(member_id: str, instance_id: str | None) -> int:
    return len(member_id.encode()) + len((instance_id or "").encode()) + _ENTRY_BYTES


def _metadata_bytes(protocols: tuple[OfferedProtocol, ...]) -> int:
    return sum(len(protocol.metadata) for protocol in protocols)
