"""ListGroups (rule A2): which groups there are, by page."""

from collections.abc import Mapping

from drover.model.group import GroupPage
from drover.model.pages import PAGE_SIZE_DEFAULT
from drover_coordinator.core.groups.events import ListGroups
from drover_coordinator.core.groups.group import Group


def page_size(asked: int, first_group_id: str | None) -> int:
    """How many groups a page takes. A group without a name is one more: no token could name it as
    the last one of a page.
    """
    return (asked or PAGE_SIZE_DEFAULT) + (first_group_id == "")


def page_of(groups: Mapping[str, Group], event: ListGroups) -> GroupPage:
    """The groups that pass the filters, in order of their ids, from the token on."""
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
