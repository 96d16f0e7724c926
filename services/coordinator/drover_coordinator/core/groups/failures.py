"""The errors of the coordinator's rules; each message tells the caller how to proceed."""

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
        "stop its work and rejoin with an empty member id",
        metadata={"groupId": group_id, "memberId": member_id},
    )


def fenced_instance(group_id: str, member_id: str, instance_id: str) -> DroverError:
    """FENCED_INSTANCE_ID."""
    return FailedPreconditionError(
        Reason.FENCED_INSTANCE_ID,
        f"another process joined group {group_id!r} with instance id {instance_id!r} and fenced "
        f"{member_id!r}: end this process, or configure a unique instance id",
        metadata={"groupId": group_id, "memberId": member_id, "instanceId": instance_id},
    )


def illegal_generation(group_id: str, given: int, current: int) -> DroverError:
    """ILLEGAL_GENERATION."""
    return FailedPreconditionError(
        Reason.ILLEGAL_GENERATION,
        f"group {group_id!r} is at generation {current}, not {given}: rejoin",
        metadata={"groupId": group_id, "currentGeneration": str(current)},
    )


def not_available(group_id: str) -> DroverError:
    """COORDINATOR_NOT_AVAILABLE."""
    return UnavailableError(
        Reason.COORDINATOR_NOT_AVAILABLE,
        f"this coordinator no longer serves group {group_id!r}: retry",
        metadata={"groupId": group_id},
    )


def superseded(group_id: str, member_id: str) -> DroverError:
    """COORDINATOR_NOT_AVAILABLE, for a parked sync that a later one of the member replaces."""
    return UnavailableError(
        Reason.COORDINATOR_NOT_AVAILABLE,
        f"a later SyncGroup of member {member_id!r} replaced this one: retry",
        metadata={"groupId": group_id, "memberId": member_id},
    )


def group_full(group_id: str, max_size: int) -> DroverError:
    """GROUP_MAX_SIZE_REACHED."""
    return ResourceExhaustedError(
        Reason.GROUP_MAX_SIZE_REACHED,
        f"group {group_id!r} is full, its limit is {max_size} members: back off",
        metadata={"groupId": group_id, "groupMaxSize": str(max_size)},
    )


def group_has_no_room(group_id: str, violation: SizeViolation) -> DroverError:
    """GROUP_MAX_SIZE_REACHED."""
    return ResourceExhaustedError(
        Reason.GROUP_MAX_SIZE_REACHED,
        f"group {group_id!r} cannot accept this member: the {violation.what} of all members would "
        f"take {violation.size_bytes} bytes, and the limit is {violation.max_bytes}: send less "
        "metadata, or use several groups",
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
        f"group {group_id!r} cannot be created: its shard has {GROUPS_MAX} groups, the maximum; "
        "delete unused groups (ListGroups, DeleteGroup)",
        metadata={"groupId": group_id},
    )


def too_many_offsets(group_id: str) -> DroverError:
    """QUEUE_FULL."""
    return ResourceExhaustedError(
        Reason.QUEUE_FULL,
        f"offsets of group {group_id!r} cannot be added: its shard has {OFFSETS_MAX}, the maximum; "
        "delete unused offsets and groups (DeleteGroupOffsets, DeleteGroup)",
        metadata={"groupId": group_id},
    )


def too_many_watches(group_id: str, member_id: str) -> DroverError:
    """QUEUE_FULL."""
    return ResourceExhaustedError(
        Reason.QUEUE_FULL,
        f"member {member_id!r} of group {group_id!r} has {WATCHES_PER_MEMBER_MAX} watches open, "
        "the maximum: close the unused ones, a member needs one",
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
        f"group {group_id!r} does not exist: ListGroups lists the groups",
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
    """INVALID_REQUEST, an invalid page token."""
    return InvalidArgumentError.listing(
        [Violation("page_token", "must be empty or the next_page_token of the previous page")]
    )
