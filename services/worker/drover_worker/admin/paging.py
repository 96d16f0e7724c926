"""Splits long responses into pages."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from drover.codec.common import invalid_field
from drover.model.pages import PAGE_BYTES_MAX, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX

ItemT = TypeVar("ItemT")


def number_of(page_token: str) -> int:
    """Parse a numeric page token; 0 for the empty token of the first page.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, an invalid token.
    """
    if page_token and not page_token.isdecimal():
        raise invalid_field("page_token", "must be empty or a next_page_token")
    return int(page_token) if page_token else 0


def take_page(
    items: Sequence[ItemT],
    page_token: str,
    *,
    count_max: int = PAGE_SIZE_MAX,
    size_bytes: Callable[[ItemT], int] = lambda _: 0,
) -> tuple[Sequence[ItemT], str]:
    """A page of ``items`` and the next page's token: at most ``count_max``, at most 1 MiB.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, an invalid token.
    """
    start = number_of(page_token)
    end, total = start, 0
    while end < len(items) and end - start < count_max:
        total += size_bytes(items[end])
        if end > start and total > PAGE_BYTES_MAX:
            break
        end += 1
    return items[start:end], str(end) if end < len(items) else ""


def take_page_by_name(
    names: Sequence[str], page_token: str, page_size: int
) -> tuple[Sequence[str], str]:
    """A page of sorted names; the token is the last name, so it stays valid if names change.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, a page size out of range.
    """
    if not 0 <= page_size <= PAGE_SIZE_MAX:
        raise invalid_field("page_size", f"must be from 0 to {PAGE_SIZE_MAX}")
    rest = [name for name in names if name > page_token]
    page = rest[: page_size or PAGE_SIZE_DEFAULT]
    return page, page[-1] if len(page) < len(rest) else ""
