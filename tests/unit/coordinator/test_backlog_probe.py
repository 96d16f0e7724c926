"""Sessions do not expire while calls of members wait in this process."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog
from drover_coordinator import backlog_probe
from drover_coordinator.backlog_probe import BacklogProbe
from drover_coordinator.core.groups.events import DescribeGroup, JoinGroup, SyncGroup
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.records import LogValue
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.record_codec import decode_record, encode_record
from tests.support.group_harness import DEFAULT_PROTOCOLS, GROUP, SESSION_MS
from tests.support.waiting import wait_until_async


class Asked:
    """A probe call that is answered while ``open`` is set."""

    def __init__(self) -> None:
        self.count = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self) -> None:
        self.count += 1
        await self.open.wait()


async def test_timers_are_held_while_a_call_waits_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog_probe, "_STEP_S", 0.01)
    asked, held = Asked(), list[int]()
    check = BacklogProbe(asked, held.append, interval_s=0.001, patience_s=0.5)
    check.start()
    await wait_until_async(lambda: asked.count > 20)
    assert held == []
    asked.open.clear()
    await wait_until_async(lambda: len(held) > 5)
    assert set(held) == {20}
    asked.open.set()
    count = asked.count
    await wait_until_async(lambda: asked.count > count + 5)
    told = len(held)
    await wait_until_async(lambda: asked.count > count + 20)
    assert len(held) == told
    await check.close()
    await check.close()


async def test_a_process_that_hears_nobody_judges_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog_probe, "_STEP_S", 0.01)
    monkeypatch.setattr(backlog_probe, "HOLD_MAX_S", 0.05)
    asked, held = Asked(), list[int]()
    asked.open.clear()
    check = BacklogProbe(asked, held.append, interval_s=0.001, patience_s=0.01)
    check.start()
    await wait_until_async(lambda: asked.count >= 3)  # each call timed out
    assert len(held) <= 5 * asked.count
    await check.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def runtime(clock: ManualClock) -> AsyncIterator[Runtime[LogValue]]:
    """One group with one member, which is stable."""
    runtime: Runtime[LogValue] = Runtime(
        GroupsMachine(GroupSettings(initial_rebalance_delay_ms=0)),
        MemoryLog(clock),
        encode=encode_record,
        decode=decode_record,
        clock=clock,
        name="groups",
    )
    await runtime.load()
    for call_id, member_id in (("1", ""), ("2", "m")):
        joining = asyncio.create_task(
            runtime.submit(join(call_id, member_id, clock), call_id=call_id)
        )
        await asyncio.sleep(0)
        await runtime.wait_until_idle()
        clock.advance(1)
        await joining
    await runtime.submit(SyncGroup("3", GROUP, "m", 1), call_id="3")
    yield runtime
    await runtime.close()


def join(call_id: str, member_id: str, clock: ManualClock) -> JoinGroup:
    return JoinGroup(
        call_id=call_id,
        group_id=GROUP,
        member_id=member_id,
        new_member_id="m",
        client_id="c",
        client_host="h",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        protocol_type="connect",
        protocols=DEFAULT_PROTOCOLS,
        parked_until_ms=clock.now_ms() + 60_000,
    )


async def member_count(runtime: Runtime[LogValue]) -> int:
    described = await runtime.submit(DescribeGroup("d", GROUP), call_id="d")
    return len(described.members)  # type: ignore[attr-defined]


async def test_a_session_that_ends_while_timers_are_held_gets_its_time_again(
    runtime: Runtime[LogValue], clock: ManualClock
) -> None:
    clock.advance(SESSION_MS - 1)
    for _ in range(10):
        runtime.hold_timers(2_000)
        clock.advance(1_000)
        assert await member_count(runtime) == 1
    clock.advance(1_000)  # the hold is over; the late timer grants another session
    assert await member_count(runtime) == 1
    clock.advance(SESSION_MS - 1)
    assert await member_count(runtime) == 1
    clock.advance(1)
    await runtime.wait_until_idle()
    assert await member_count(runtime) == 0


async def test_without_a_hold_the_session_is_over_in_time(
    runtime: Runtime[LogValue], clock: ManualClock
) -> None:
    clock.advance(SESSION_MS)
    await runtime.wait_until_idle()
    assert await member_count(runtime) == 0
