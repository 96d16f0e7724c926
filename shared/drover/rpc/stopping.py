"""Work that is given up when its process should end."""

import asyncio
from collections.abc import Awaitable


async def unless_stopped(work: Awaitable[None], stopping: asyncio.Event) -> bool:
    """Wait until ``work`` is done; False when ``stopping`` was set before, and it was cancelled.

    Raises:
        DroverError: What ``work`` raised.
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
