"""Reads an API page by page: computes the next request from the last response."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

NONE, LINK, CURSOR, OFFSET, PAGE = "none", "link", "cursor", "offset", "page"


class PagingError(Exception):
    """A response that contradicts the paging settings; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Paging:
    """How pages follow each other.

    ``pointer`` locates the cursor in a response (JSON pointer, RFC 6901); ``parameter`` of the next
    request takes the cursor, the page number or the number of the first item. ``size_parameter``,
    if any, requests ``size`` items.
    """

    mode: str = NONE
    pointer: str = ""
    parameter: str = ""
    size_parameter: str | None = None
    size: int = 100
    first: int = 0
    pages_max: int = 10_000


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the pages: the request for ``at`` (a URL, a cursor or a number; None for the
    first page), which is page ``number``, from 0.
    """

    at: str | int | None = None
    number: int = 0

    def to_offset(self) -> dict[str, Any]:
        """The position as an offset."""
        return {"at": self.at, "page": self.number}

    @classmethod
    def of_offset(cls, offset: Mapping[str, Any]) -> "Place":
        """The position in an offset."""
        return cls(offset["at"], offset["page"])


def parameters_of(paging: Paging, place: Place) -> dict[str, str]:
    """The query parameters of a page's request, in addition to the common ones."""
    found: dict[str, str] = {}
    if paging.size_parameter:
        found[paging.size_parameter] = str(paging.size)
    if paging.mode == CURSOR and place.at is not None:
        found[paging.parameter] = str(place.at)
    if paging.mode in (OFFSET, PAGE):
        found[paging.parameter] = str(paging.first if place.at is None else place.at)
    return found


def next_place(
    paging: Paging, place: Place, document: Any, *, item_count: int, link: str | None, url: str
) -> Place | None:
    """The page after a response; None if it was the last one.

    Raises:
        PagingError: The next page is the same one, or there are too many.
    """
    at: str | int | None = None
    if paging.mode == LINK:
        at = link
        if at is None and paging.pointer:
            found = resolved(document, paging.pointer)
            at = urljoin(url, str(found)) if found else None
    elif paging.mode == CURSOR:
        found = resolved(document, paging.pointer)
        at = found if isinstance(found, str | int) and found != "" else None
    elif paging.mode in (OFFSET, PAGE) and item_count >= (paging.size if _sized(paging) else 1):
        now = paging.first if place.at is None else int(place.at)
        at = now + (item_count if paging.mode == OFFSET else 1)
    if at is None or isinstance(at, bool):
        return None
    if at == place.at:
        raise PagingError(
            "the API returned the same page again: check paging.mode and paging.cursor.pointer"
        )
    if place.number + 1 >= paging.pages_max:
        raise PagingError(
            f"the API has more than {paging.pages_max} pages (paging.max.pages): paging may "
            "never end: check paging.mode"
        )
    return Place(at, place.number + 1)


def _sized(paging: Paging) -> bool:
    """Whether a page that is not full is the last one."""
    return paging.size_parameter is not None


def resolved(document: Any, pointer: str) -> Any:
    """The value at a JSON pointer (RFC 6901); None if there is none."""
    found = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def pointer_fault(pointer: str) -> str | None:
    """The error in a JSON pointer, or None."""
    if not pointer or pointer.startswith("/"):
        return None
    return f"must be a JSON pointer such as /data/items, not {pointer[:60]!r}"


def items_of(document: Any, pointer: str) -> list[Any]:
    """The items of a response: a list, or a single object.

    Raises:
        PagingError: The pointer locates nothing.
    """
    found = resolved(document, pointer)
    if isinstance(found, list):
        return found
    if isinstance(found, Mapping):
        return [found]
    if found is None and isinstance(document, Mapping) and pointer:
        parent, _, name = pointer.rpartition("/")
        holder = resolved(document, parent)
        if isinstance(holder, Mapping) and name in holder:
            return []  # null means no items
    raise PagingError(
        f"the response has no list at {pointer or 'its root'} (check http.response.items)"
    )


def greatest(items: list[Any], pointer: str, before: Any) -> Any:
    """The greatest value of a field of items, including the greatest value ``before``.

    Raises:
        PagingError: The values have different types.
    """
    values = [each for each in (resolved(item, pointer) for item in items) if each is not None]
    try:
        return max([*values, *([] if before is None else [before])], default=None)
    except TypeError:
        raise PagingError(
            f"items have values of different types at {pointer}: they cannot be compared"
        ) from None
