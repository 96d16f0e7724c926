"""Subscriptions of consumers: parses the head of Kafka's consumer protocol.

A member's metadata starts with a version (two bytes) and the topics: their count (four bytes), then
each name, as its length (two bytes) and UTF-8. The rest depends on the version and is ignored.
"""

import struct

from drover.model.group import OfferedProtocol
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member

CONSUMER = "consumer"


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that any member subscribes to; None (any topic) if metadata cannot be parsed."""
    topics: set[str] = set()
    for member in group.members.values():
        for protocol in _relevant_protocols(group, member):
            subscribed = parse_topics(protocol.metadata)
            if subscribed is None:
                return None
            topics |= subscribed
    return frozenset(topics)


def _relevant_protocols(group: Group, member: Member) -> tuple[OfferedProtocol, ...]:
    """The member's selected protocol, or all its protocols while none is selected."""
    selected = tuple(each for each in member.protocols if each.name == group.protocol_name)
    return selected or member.protocols


def parse_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None if the bytes cannot be parsed."""
    try:
        version, count = struct.unpack_from(">hi", metadata)
        place = struct.calcsize(">hi")
        if version < 0 or count < 0 or count > len(metadata):
            return None
        topics = set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, place)
            place += 2
            name = metadata[place : place + length] if length > 0 else b""
            if not name or len(name) != length:
                return None
            topics.add(name.decode())
            place += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
