"""The errors that the coordinator's rules name, each saying what the caller should do."""

from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from drover_coordinator.core.groups.settings import GROUPS_MAX, OFFSETS_MAX, WATCHES_PER_MEMBER_MAX
from drover_coordinator.core.groups.supported_protocols import SizeViolation


def unknown_member(group_id: str, member_id: str) -> DroverError:
    """UNKNOWN_MEMBER_ID."""
    return NotFoundError(
        Reason.UNKNOWN_MEMBER_ID,
        f"{member_id!r} is not a member of group {group_id!r}: "
        "give up its work and join again with an empty member id",
        metadata={"groupId": group_id, "memberId": member_id},
    )


def fenced_instance(group_id: str, member_id: str, instance_id: str) -> DroverError:
    """FENCED_INSTANCE_ID."""
    return FailedPreconditionError(
        Reason.FENCED_INSTANCE_ID,
        f"another process joined group {group_id!r} with the instance id {instance_id!r} and took "
        f"the place of {member_id!r}: end this one, or give it an instance id of its own",
        metadata={"groupId": group_id, "memberId": member_id, "instanceId": instance_id},
    )


def illegal_generation(group_id: str, given: int, current: int) -> DroverError:
    """ILLEGAL_GENERATION."""
    return FailedPreconditionError(
        Reason.ILLEGAL_GENERATION,
        f"group {group_id!r} is at generation {current}, not {given}: join again",
        metadata={"groupId": group_id, "currentGeneration": str(current)},
    )


def not_available(group_id: str) -> DroverError:
    """COORDINATOR_NOT_AVAILABLE."""
    return UnavailableError(
        Reason.COORDINATOR_NOT_AVAILABLE,
        f"this coordinator does not serve group {group_id!r} any more: retry",
        metadata={"groupId": group_id},
    )


def superseded(group_id: str, member_id: str) -> DroverError:
    """COORDINATOR_NOT_AVAILABLE, for a parked sync whose member called again."""
    return UnavailableError(
        Reason.COORDINATOR_NOT_AVAILABLE,
        f"a later SyncGroup of member {member_id!r} took the place of this one: retry",
        metadata={"groupId": group_id, "memberId": member_id},
    )


def group_full(group_id: str, max_size: int) -> DroverError:
    """GROUP_MAX_SIZE_REACHED."""
    return ResourceExhaustedError(
        Reason.GROUP_MAX_SIZE_REACHED,
        f"group {group_id!r} is full, it takes {max_size} members: back off",
        metadata={"groupId": group_id, "groupMaxSize": str(max_size)},
    )


def group_has_no_room(group_id: str, violation: SizeViolation) -> DroverError:
    """GROUP_MAX_SIZE_REACHED."""
    return ResourceExhaustedError(
        Reason.GROUP_MAX_SIZE_REACHED,
        f"with this member the {violation.what} of all members of group {group_id!r} would be "
        f"{violation.size_bytes} bytes, and {violation.max_bytes} fit: send less metadata, or "
        "spread the members over several groups",
        metadata={
            "groupId": group_id,
            "sizeBytes": str(violation.size_bytes),
            "maxBytes": str(violation.max_bytes),
        },
    )


def too_many_groups(group_id: str) -> DroverError:
    """QUEUE_FULL."""
    return ResourceExhaustedError(
        Reason.QUEUE_FULL,
        f"there is no room for group {group_id!r}: its shard has {GROUPS_MAX} groups; remove those "
        "that are not used (ListGroups, DeleteGroup)",
        metadata={"groupId": group_id},
    )


def too_many_offsets(group_id: str) -> DroverError:
    """QUEUE_FULL."""
    return ResourceExhaustedError(
        Reason.QUEUE_FULL,
        f"there is no room for more offsets of group {group_id!r}: its shard has {OFFSETS_MAX}; "
        "remove those that are not used (DeleteGroupOffsets, DeleteGroup)",
        metadata={"groupId": group_id},
    )


def too_many_watches(group_id: str, member_id: str) -> DroverError:
    """QUEUE_FULL."""
    return ResourceExhaustedError(
        Reason.QUEUE_FULL,
        f"member {member_id!r} of group {group_id!r} has {WATCHES_PER_MEMBER_MAX} watches open: "
        "end them, one is enough",
        metadata={"groupId": group_id, "memberId": member_id},
    )


def inconsistent_protocol(field: str, description: str) -> DroverError:
    """INCONSISTENT_GROUP_PROTOCOL."""
    return InvalidArgumentError.listing(
        [Violation(field, description)], reason=Reason.INCONSISTENT_GROUP_PROTOCOL
    )


def group_not_found(group_id: str) -> DroverError:
    """GROUP_ID_NOT_FOUND."""
    return NotFoundError(
        Reason.GROUP_ID_NOT_FOUND,
        f"there is no group {group_id!r}: ListGroups names those that there are",
        metadata={"groupId": group_id},
    )


def non_empty_group(group_id: str, member_count: int) -> DroverError:
    """NON_EMPTY_GROUP."""
    return FailedPreconditionError(
        Reason.NON_EMPTY_GROUP,
        f"group {group_id!r} has {member_count} members: stop them first",
        metadata={"groupId": group_id, "memberCount": str(member_count)},
    )


def bad_page_token() -> DroverError:
    """INVALID_REQUEST, a token that no page gave."""
    return InvalidArgumentError.listing(
        [Violation("page_token", "give the next_page_token of the page before")]
    )
