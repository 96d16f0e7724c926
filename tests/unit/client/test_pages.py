from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from drover.client import calls
from drover.client.calls import pages
from drover.errors import Reason
from drover.testing import raises_reason


@dataclass(frozen=True)
class Page:
    next_page_token: str


async def tokens_asked(next_tokens: Mapping[str, str]) -> list[str]:
    """The page tokens of the requests, if the responses have these ``next_tokens``."""
    asked: list[str] = []

    async def fetch(token: str) -> Page:
        asked.append(token)
        return Page(next_tokens[token])

    async for page in pages(fetch):
        assert page.next_page_token == next_tokens[asked[-1]]
    return asked


async def test_one_page() -> None:
    assert await tokens_asked({"": ""}) == [""]


async def test_pages_follow_their_tokens() -> None:
    assert await tokens_asked({"": "b", "b": "a", "a": ""}) == ["", "b", "a"]


@pytest.mark.parametrize(
    "next_tokens", [{"": "a", "a": "a"}, {"": "a", "a": "b", "b": "a"}], ids=["same", "circle"]
)
async def test_a_token_that_comes_again_ends_the_list(next_tokens: Mapping[str, str]) -> None:
    with raises_reason(Reason.INTERNAL, "does not end", "'a'"):
        await tokens_asked(next_tokens)


async def test_a_list_has_a_last_page_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PAGES_MAX", 3)
    assert len(await tokens_asked({"": "1", "1": "2", "2": ""})) == 3
    with raises_reason(Reason.INTERNAL, "does not end"):
        await tokens_asked({"": "1", "1": "2", "2": "3", "3": ""})
