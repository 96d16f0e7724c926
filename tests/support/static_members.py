"""Groups of static members for tests: a has the instance id A, and so on."""

from drover.model.group import OfferedProtocol
from tests.support.group_harness import Call, GroupHarness

DELAY_MS = 3_000
LONG_MS = 1_800_000


def offer(*names: str, metadata: bytes = b"meta") -> tuple[OfferedProtocol, ...]:
    """These protocols, all with the same metadata."""
    return tuple(OfferedProtocol(name, metadata) for name in names)


BOTH = offer("p", "q")


def completing(group: GroupHarness, *member_ids: str, **options: object) -> dict[str, Call]:
    """The first generation, whose joins have been answered; the first id leads."""
    calls = {each: group.join_static(each, each.upper(), **options) for each in member_ids}
    group.advance(2 * DELAY_MS)
    for call in calls.values():
        assert call.joined.leader_id == member_ids[0]
    return calls


def stable(group: GroupHarness, *member_ids: str, **options: object) -> None:
    """The first generation with its assignment: ``to-<id>``."""
    completing(group, *member_ids, **options)
    group.assign(*member_ids)


def keep_alive(group: GroupHarness, *member_ids: str, duration_ms: int) -> None:
    """Send heartbeats of these members only, once a second."""
    for _ in range(duration_ms // 1_000):
        group.advance(1_000)
        for member_id in member_ids:
            group.heartbeat(member_id)
