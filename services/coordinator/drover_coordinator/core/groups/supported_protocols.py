"""What the members of a group offer: which protocols all of them speak, and how much it is."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from drover.model.group import OfferedProtocol
from drover_coordinator.core.groups.member import Member

#: The leader gets every member's metadata under one protocol in one message of 4 MiB.
ANSWER_MAX_BYTES = 4 * 1024 * 1024 - 64 * 1024
#: The group's record holds it under all protocols, since another one may be selected next time.
RECORD_MAX_BYTES = 16 * 1024 * 1024
#: What a member takes in a message beside its texts and metadata, at most.
_ENTRY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Excess:
    """A group would hold more than fits: ``size_bytes`` of ``what``."""

    what: str
    size_bytes: int
    max_bytes: int


class Offers:
    """Counts that follow the members as they come and go."""

    __slots__ = ("_bytes", "_ids_bytes", "_speakers", "_total_bytes")

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._speakers: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._ids_bytes = 0
        self._total_bytes = 0
        for member in members:
            self.add(member)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offers) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, member: Member) -> None:
        """A member has come."""
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """A member goes."""
        self._count(member, -1)

    def speaker_count(self, protocol_name: str) -> int:
        """How many members speak a protocol."""
        return self._speakers[protocol_name]

    def spoken_by(self, count: int) -> set[str]:
        """The protocols that ``count`` members speak."""
        return {name for name, speakers in self._speakers.items() if speakers == count}

    def excess(
        self,
        before: Member | None,
        *,
        member_id: str,
        instance_id: str | None,
        protocols: tuple[OfferedProtocol, ...],
    ) -> Excess | None:
        """What would not fit if a member offered ``protocols``, in the place of ``before`` if that
        is one; None if all does.

        Only a protocol that it speaks itself can be selected.
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
            if size_bytes > ANSWER_MAX_BYTES:
                return Excess(f"metadata under {protocol.name!r}", size_bytes, ANSWER_MAX_BYTES)
        if total_bytes > RECORD_MAX_BYTES:
            return Excess("metadata under all protocols", total_bytes, RECORD_MAX_BYTES)
        return None

    def _count(self, member: Member, change: int) -> None:
        for protocol in member.protocols:
            self._speakers[protocol.name] += change
            self._bytes[protocol.name] += change * len(protocol.metadata)
            if not self._speakers[protocol.name]:
                del self._speakers[protocol.name], self._bytes[protocol.name]
        self._ids_bytes += change * _ids_bytes(member.member_id, member.instance_id)
        self._total_bytes += change * _metadata_bytes(member.protocols)


def _ids_bytes(member_id: str, instance_id: str | None) -> int:
    return len(member_id.encode()) + len((instance_id or "").encode()) + _ENTRY_BYTES


def _metadata_bytes(protocols: tuple[OfferedProtocol, ...]) -> int:
    return sum(len(protocol.metadata) for protocol in protocols)
