"""Alerts of a real Prometheus in the situations that they name, on processes without Spark."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from drover.errors import DroverError
from tests.support.addresses import free_address
from tests.support.group_members import GROUP, GroupMember, RunningCoordinator, form_group
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.faults("coordinator")]

TIMEOUT_S = 120.0
#: Of those that a slow machine alone may be the reason for.
NOISE = {"DroverEventLoopStalls", "DroverAppendsSlow"}


async def firing(prometheus: Prometheus) -> set[str]:
    alerts = await asyncio.to_thread(prometheus.firing)
    return {each["alertname"] for each in alerts} - NOISE


async def wait_until_fired(prometheus: Prometheus, *names: str) -> None:
    """Until all of these fire."""
    seen: set[str] = set()

    async def fired() -> bool:
        seen.clear()
        seen.update(await firing(prometheus))
        return seen >= set(names)

    await wait_until_async(fired, timeout_s=TIMEOUT_S, describe=lambda: f"{names}, not {seen}")


async def wait_until_silent(prometheus: Prometheus, targets: Sequence[str]) -> None:
    """Until every target was asked, and nothing fires."""
    seen: set[str] = set()

    async def silent() -> bool:
        up = await asyncio.to_thread(prometheus.query, "up == 1")
        seen.clear()
        seen.update(await firing(prometheus))
        return len(up) == len(targets) and not seen

    await wait_until_async(silent, timeout_s=TIMEOUT_S, describe=lambda: f"firing: {seen}")


async def test_a_group_that_waits_for_a_member_rebalances_often_and_takes_no_more(
    tmp_path: Path,
) -> None:
    metrics = free_address()
    coordinator = RunningCoordinator(
        tmp_path, metrics_listen=metrics, group_max_size=2, initial_rebalance_delay_ms=3_000
    )
    await coordinator.start()
    try:
        (tmp_path / "prometheus").mkdir()
        with running_prometheus(tmp_path / "prometheus", [metrics]) as prometheus:
            async with (
                GroupMember(coordinator.address, "a") as a,
                GroupMember(coordinator.address, "b") as b,
                GroupMember(coordinator.address, "c") as c,
            ):
                await form_group(a, b)
                await wait_until_silent(prometheus, [metrics])
                await one_too_many(prometheus, c)
                # one joins again, the other does not
                joining = asyncio.create_task(a.join())
                await wait_until_fired(prometheus, "DroverRebalanceStuck")
                await asyncio.gather(joining, b.join())
                await asyncio.gather(a.sync(), b.sync())
                for _ in range(15):
                    await asyncio.gather(a.join(), b.join())
                    await asyncio.gather(a.sync(), b.sync())
                await wait_until_fired(prometheus, "DroverRebalancesOften")
                assert "DroverRebalanceStuck" not in await firing(prometheus)
    finally:
        await coordinator.stop()


async def one_too_many(prometheus: Prometheus, member: GroupMember) -> None:
    """It tries again and again, until that fires."""

    async def fired() -> bool:
        with suppress(DroverError):
            await member.join(timeout_s=2)
            raise AssertionError(f"{GROUP} took it")
        return "DroverCallsRefused" in await firing(prometheus)

    await wait_until_async(fired, timeout_s=TIMEOUT_S)
