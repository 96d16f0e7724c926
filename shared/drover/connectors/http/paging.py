"""Reads an API page by page: computes the next request from the last response."""

import decimal
import json
import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin

NONE, LINK, CURSOR, OFFSET, PAGE = "none", "link", "cursor", "offset", "page"

_NO_NEXT = "the API announces more pages, but no next one"


class PagingError(Exception):
    """A response that contradicts the paging settings; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Paging:
    """How pages follow each other.

    ``pointer`` locates the cursor in a response (JSON pointer, RFC 6901); ``parameter`` of the next
    request takes the cursor, the page number or the number of the first item. ``size_parameter``,
    if any, requests ``size`` items. ``more_pointer`` locates whether there are more pages; with
    ``empty_ends`` a page without items is the last one.
    """

    mode: str = NONE
    pointer: str = ""
    parameter: str = ""
    size_parameter: str | None = None
    size: int = 100
    first: int = 0
    pages_max: int = 10_000
    more_pointer: str = ""
    empty_ends: bool = False

    @property
    def pointers(self) -> tuple[str, ...]:
        """The locations in a response of the values that describe further pages."""
        return tuple(each for each in (self.pointer, self.more_pointer) if each)


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the pages: the request for ``at`` (a URL, a cursor or a number; None for the
    first page), which is page ``number``, from 0. ``before`` is a checksum of the items of the
    page before it, and ``count_before`` their number.
    """

    at: str | int | float | None = None
    number: int = 0
    before: int | None = None
    count_before: int = 0

    def to_offset(self) -> dict[str, Any]:
        """The position as an offset."""
        return {
            "at": self.at,
            "page": self.number,
            "before": self.before,
            "count": self.count_before,
        }

    @classmethod
    def of_offset(cls, offset: Mapping[str, Any]) -> "Place":
        """The position in an offset."""
        return cls(offset["at"], offset["page"], offset.get("before"), offset.get("count", 0))


@dataclass(frozen=True, slots=True)
class Following:
    """The page after a response, None if the pass ends; ``gap`` is the reason if it ends before
    the last page.
    """

    place: Place | None
    gap: str | None = None


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
    paging: Paging, place: Place, document: Any, items: list[Any], *, link: str | None, url: str
) -> Following:
    """The page after a response.

    A page that names itself as the next one is the last one.

    Raises:
        PagingError: The parameter for the next page has no effect.
    """
    at = _next_at(paging, place, document, len(items), link, url)
    more = resolved(document, paging.more_pointer) if paging.more_pointer else None
    is_last = _is_false(more) or (paging.empty_ends and not items)
    if is_last or at is None:
        return Following(None, _NO_NEXT if more and not is_last else None)
    checksum = _checksum(items)
    if at == place.at:
        if place.number == 1 and checksum is not None and checksum == place.before:
            raise PagingError(
                "the API returned the same page again: check paging.mode, paging.parameter and "
                "paging.cursor.pointer"
            )
        return Following(None, _NO_NEXT if more else None)
    if place.number + 1 >= paging.pages_max:
        return Following(None, f"the API has more than {paging.pages_max} pages (paging.max.pages)")
    return Following(Place(at, place.number + 1, checksum, len(items)))


def _next_at(
    paging: Paging, place: Place, document: Any, item_count: int, link: str | None, url: str
) -> str | int | float | None:
    if paging.mode == LINK:
        if link is not None or not paging.pointer:
            return link
        found = resolved(document, paging.pointer)
        return urljoin(url, str(found)) if found else None
    if paging.mode == CURSOR:
        found = resolved(document, paging.pointer)
        if isinstance(found, decimal.Decimal):
            found = str(found)
        is_cursor = isinstance(found, str | int | float) and not isinstance(found, bool)
        return found if is_cursor and found != "" else None
    if paging.mode == NONE:
        return None
    has_more = paging.more_pointer and resolved(document, paging.more_pointer)
    # the API may have a smaller limit than the size asked for: then all pages are partial
    is_partial = paging.size_parameter is not None and item_count < paging.size
    is_last = is_partial and place.number > 0 and item_count < place.count_before
    if not item_count or (is_last and not has_more):
        return None
    now = paging.first if place.at is None else int(place.at)
    return now + (item_count if paging.mode == OFFSET else 1)


def _is_false(more: Any) -> bool:
    if isinstance(more, str):
        return more.strip().lower() in ("false", "no", "0")
    return more is False or (isinstance(more, int | float) and more == 0)


def _checksum(items: list[Any]) -> int | None:
    """A checksum of a page's items; None without items."""
    return zlib.crc32(json.dumps(items, default=str).encode()) if items else None


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


def items_of(
    document: Any, pointer: str, beside: Sequence[str] = (), fields_before: Set[str] = frozenset()
) -> list[Any]:
    """The items of a response: a list, or a single object.

    A response without them has no items if it describes the paging, that is, has a value or null at
    one of the pointers ``beside``, or if it has only fields of the page before it.

    Raises:
        PagingError: The pointer locates nothing.
    """
    found = resolved(document, pointer)
    if isinstance(found, list):
        return found
    if isinstance(found, Mapping):
        return [found]
    if found is None and isinstance(document, Mapping) and pointer:
        is_paging = set(document) <= fields_before or any(
            _is_present(document, each) for each in beside
        )
        if _is_present(document, pointer) or (is_paging and _may_be_missing(document, pointer)):
            return []
    raise PagingError(
        f"the response has no list at {pointer or 'its root'} (check http.response.items)"
    )


def _is_present(document: Any, pointer: str) -> bool:
    """Whether there is a value or null at the pointer, or null above it."""
    parent, _, name = pointer.rpartition("/")
    holder = resolved(document, parent)
    if isinstance(holder, Mapping):
        return name.replace("~1", "/").replace("~0", "~") in holder
    return bool(parent) and holder is None and _is_present(document, parent)


def _may_be_missing(document: Any, pointer: str) -> bool:
    """Whether only fields of objects are missing on the way to the pointer."""
    parent = pointer.rpartition("/")[0]
    holder = resolved(document, parent)
    return isinstance(holder, Mapping) or (
        bool(parent) and holder is None and _may_be_missing(document, parent)
    )


def greatest(items: list[Any], pointer: str, before: Any) -> Any:
    """The greatest value of a field of items, including the greatest value ``before``.

    Numbers are compared as numbers, and times in ISO 8601 as times.

    Raises:
        PagingError: The values have different types.
    """
    values = [each for each in (resolved(item, pointer) for item in items) if each is not None]
    if not values:
        return before
    if before is not None:
        values.append(before)
    try:
        found = max(values, key=_order_of(values))
    except (TypeError, ArithmeticError):
        raise PagingError(
            f"items have values of different types at {pointer}: they cannot be compared"
        ) from None
    return str(found) if isinstance(found, decimal.Decimal) else found


def _order_of(values: list[Any]) -> Any:
    if any(_is_number(each) for each in values):
        return decimal.Decimal  # the first value is a text, and so is one of too many digits
    if not all(isinstance(each, str) for each in values):
        return None
    try:
        times = {each: datetime.fromisoformat(each) for each in values}
    except ValueError:
        return None
    return lambda each: (times[each].replace(tzinfo=times[each].tzinfo or UTC), each)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)
