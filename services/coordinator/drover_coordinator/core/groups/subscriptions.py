"""Subscriptions of consumers: parses the head of Kafka's consumer protocol.

A member's metadata begins with a version (two bytes) and the topics: their number (four bytes),
then each name, as its length (two bytes) and UTF-8. What follows differs from version to version
and does not matter here.
"""

import struct

from drover.model.group import OfferedProtocol
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member

CONSUMER = "consumer"


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that any member subscribes to; None, so perhaps any, if a member's metadata cannot
    be parsed.
    """
    topics: set[str] = set()
    for member in group.members.values():
        for protocol in _counting(group, member):
            read = parse_topics(protocol.metadata)
            if read is None:
                return None
            topics |= read
    return frozenset(topics)


def _counting(group: Group, member: Member) -> tuple[OfferedProtocol, ...]:
    """The member's metadata of the selected protocol, or of all while none is selected."""
    selected = tuple(each for each in member.protocols if each.name == group.protocol_name)
    return selected or member.protocols


def parse_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None if these bytes are none."""
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
