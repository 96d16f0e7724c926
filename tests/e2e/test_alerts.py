"""Alerts of a real Prometheus on processes without Spark, each in the situation that it names."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from drover.errors import DroverError
from tests.support.addresses import free_address
from tests.support.alerts import TIMEOUT_S, firing, wait_until_fired, wait_until_silent
from tests.support.group_members import GROUP, GroupMember, RunningCoordinator, form_group
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.faults("coordinator")]

#: No member is removed from the group before the alert fires.
REBALANCE_MS = 600_000


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
                GroupMember(coordinator.address, "a", rebalance_ms=REBALANCE_MS) as a,
                GroupMember(coordinator.address, "b", rebalance_ms=REBALANCE_MS) as b,
                GroupMember(coordinator.address, "c") as c,
            ):
                await form_group(a, b)
                await wait_until_silent(prometheus, [metrics])
                await one_too_many(prometheus, c)
                # only the leader rejoins: a follower's join would not start a rebalance
                leads, follows = (a, b) if a.leads else (b, a)
                joining = asyncio.create_task(leads.join(timeout_s=REBALANCE_MS / 1_000))
                await wait_until_fired(prometheus, "DroverRebalanceStuck")
                await asyncio.gather(joining, follows.join())
                await asyncio.gather(a.sync(), b.sync())
                for _ in range(15):
                    await rebalance(leads, follows)
                await wait_until_fired(prometheus, "DroverRebalancesOften")
                assert "DroverRebalanceStuck" not in await firing(prometheus)
    finally:
        await coordinator.stop()


async def rebalance(leads: GroupMember, follows: GroupMember) -> None:
    """Rejoin both; a follower gets an immediate response until the leader has rejoined."""
    joining = asyncio.create_task(leads.join())
    while not joining.done():
        await follows.join()
    await joining
    await asyncio.gather(leads.sync(), follows.sync())


async def one_too_many(prometheus: Prometheus, member: GroupMember) -> None:
    """A rejected member retries until the alert fires."""

    async def fired() -> bool:
        with suppress(DroverError):
            await member.join(timeout_s=2)
            raise AssertionError(f"{GROUP} took it")
        return "DroverCallsRefused" in await firing(prometheus)

    await wait_until_async(fired, timeout_s=TIMEOUT_S)
