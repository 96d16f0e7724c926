"""Blocking calls in separate threads."""

import threading

import pytest

from drover.security.own_thread import in_own_thread


async def test_a_thread_that_cannot_start_is_an_error_and_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the requests to an issuer run out of places for good."""
    ended = []

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await in_own_thread(lambda: 1, "issuer", lambda: ended.append(1))
    assert ended == [1]
    monkeypatch.undo()
    assert await in_own_thread(lambda: 1, "issuer", lambda: ended.append(2)) == 1
    assert ended == [1, 2]
