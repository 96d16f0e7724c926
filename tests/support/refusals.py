"""Calls that must be rejected, with short deadlines."""

from collections.abc import Awaitable, Callable

import pytest

from drover.errors import DroverError, Reason

_ASKED_MAX = 5


async def refusal(reason: Reason, ask: Callable[[], Awaitable[object]]) -> DroverError:
    """The error of ``ask``, which must have this ``reason``.

    Retries if the deadline passes without a response, as on a busy machine.
    """
    for _ in range(_ASKED_MAX):
        with pytest.raises(DroverError) as caught:
            await ask()
        if caught.value.reason is not Reason.DEADLINE_EXCEEDED:
            break
    assert caught.value.reason is reason, caught.value
    return caught.value
