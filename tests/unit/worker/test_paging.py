import pytest

from drover.errors import InvalidArgumentError
from drover_worker.admin.paging import take_page, take_page_by_name


def test_pages_are_bounded_by_count_and_size() -> None:
    page, token = take_page(range(10), "", count_max=4)
    assert (list(page), token) == ([0, 1, 2, 3], "4")
    page, token = take_page(range(10), "8", count_max=4)
    assert (list(page), token) == ([8, 9], "")
    page, token = take_page(range(3), "", size_bytes=lambda _: 600_000)
    assert (list(page), token) == ([0], "1")
    page, token = take_page(range(3), "1", size_bytes=lambda _: 3_000_000)
    assert (list(page), token) == ([1], "2")


def test_a_token_of_somebody_else_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        take_page([], "abc")


def test_pages_by_name_are_safe_against_changes() -> None:
    page, token = take_page_by_name(["a", "b", "c"], "", 2)
    assert (list(page), token) == (["a", "b"], "b")
    page, token = take_page_by_name(["a", "bb", "c"], token, 2)
    assert (list(page), token) == (["bb", "c"], "")


@pytest.mark.parametrize("size", [-1, 1001])
def test_a_page_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgumentError):
        take_page_by_name([], "", size)
