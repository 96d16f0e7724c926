"""Waiting for alerts of a real Prometheus."""

import asyncio
from collections.abc import Sequence

from tests.support.prometheus import Prometheus
from tests.support.waiting import wait_until_async

TIMEOUT_S = 180.0
#: Alerts that a slow machine alone can cause.
NOISE = {"DroverEventLoopStalls", "DroverAppendsSlow"}


async def firing(prometheus: Prometheus) -> set[str]:
    """The names of the firing alerts."""
    return {each["alertname"] for each in await asyncio.to_thread(prometheus.firing)}


async def wait_until_fired(prometheus: Prometheus, *names: str) -> None:
    """Wait until all of these alerts fire."""
    seen: set[str] = set()

    async def fired() -> bool:
        seen.clear()
        seen.update(await firing(prometheus))
        return seen >= set(names)

    await wait_until_async(fired, timeout_s=TIMEOUT_S, describe=lambda: f"{names}, not {seen}")


async def wait_until_over(prometheus: Prometheus, *names: str) -> None:
    """Wait until none of these alerts fires."""

    async def over() -> bool:
        return not await firing(prometheus) & set(names)

    await wait_until_async(over, timeout_s=TIMEOUT_S, describe=f"{names} are over")


async def wait_until_silent(prometheus: Prometheus, targets: Sequence[str]) -> None:
    """Wait until every target was scraped and no alert fires."""
    seen: set[str] = set()

    async def silent() -> bool:
        up = await asyncio.to_thread(prometheus.query, "up == 1")
        seen.clear()
        seen.update(await firing(prometheus) - NOISE)
        return len(up) == len(targets) and not seen

    await wait_until_async(silent, timeout_s=TIMEOUT_S, describe=lambda: f"firing: {seen}")
