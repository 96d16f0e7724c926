"""Calls that are refused, with deadlines short enough to wait for."""

from collections.abc import Awaitable, Callable

import pytest

from drover.errors import DroverError, Reason

_ASKED_MAX = 5


async def refusal(reason: Reason, ask: Callable[[], Awaitable[object]]) -> DroverError:
    """What ``ask`` is refused with, which has to be ``reason``.

    On a busy machine the deadline may pass before there is an answer: then it asks again.
    """
    for _ in range(_ASKED_MAX):
        with pytest.raises(DroverError) as caught:
            await ask()
        if caught.value.reason is not Reason.DEADLINE_EXCEEDED:
            break
    assert caught.value.reason is reason, caught.value
    return caught.value
