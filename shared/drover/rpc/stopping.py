"""Cancels work when the process should end."""

import asyncio
from collections.abc import Awaitable


async def unless_stopped(work: Awaitable[None], stopping: asyncio.Event) -> bool:
    """Run ``work``; if ``stopping`` is set before its end, cancel it and return False.

    Raises:
        DroverError: The exception of ``work``.
    """
    task = asyncio.ensure_future(work)
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        task.cancel()
        stopped.cancel()
        await asyncio.wait({task, stopped})
