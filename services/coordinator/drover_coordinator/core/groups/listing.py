"""ListGroups (rule A2): the groups by page."""

from collections.abc import Mapping

from drover.model.group import GroupPage
from drover.model.pages import PAGE_SIZE_DEFAULT
from drover_coordinator.core.groups.events import ListGroups
from drover_coordinator.core.groups.group import Group


def page_size(requested: int, first_group_id: str | None) -> int:
    """How many groups a page holds; one more if it starts with the group whose id is empty.

    That group cannot end a page, because an empty token means the first page.
    """
    return (requested or PAGE_SIZE_DEFAULT) + (first_group_id == "")


def page_of(groups: Mapping[str, Group], event: ListGroups) -> GroupPage:
    """The groups that pass the filters, ordered by id, starting behind the token."""
    group_ids = sorted(
        group_id
        for group_id, group in groups.items()
        if (not event.page_token or group_id > event.page_token)
        and (not event.states or group.state in event.states)
        and (not event.protocol_types or group.protocol_type in event.protocol_types)
    )
    size = page_size(event.page_size, next(iter(group_ids), None))
    listings = tuple(groups[group_id].listing() for group_id in group_ids[:size])
    more = listings[-1].group_id if len(group_ids) > size else ""
    return GroupPage(listings, more)
