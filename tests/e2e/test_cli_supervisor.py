"""The supervisor with stand-ins for the services."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from drover.local import health, ports
from drover.local.process import (
    ProcessPhase,
    ProcessRestartPolicy,
    ProcessSpec,
    StartTimeoutError,
    descendants,
    is_alive,
    wait_until_gone,
)
from drover.local.state import ClusterError, is_held, read_state
from drover.local.supervisor import Supervisor
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.e2e

STAND_IN = Path(__file__).parents[1] / "support" / "stand_in.py"
POLICY = ProcessRestartPolicy(first_s=0.1, max_s=0.4, wait_reported_after_s=600)


def stand_in(name: str, *habits: str, stop_grace_s: float = 10.0) -> ProcessSpec:
    (port,) = ports.free_ports("127.0.0.1", 1)
    address = f"127.0.0.1:{port}"
    return ProcessSpec(
        name,
        [sys.executable, str(STAND_IN), address, *habits],
        address,
        stop_grace_s=stop_grace_s,
    )


Running = Callable[..., AbstractAsyncContextManager[Supervisor]]


@pytest.fixture
def events() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def running(tmp_path: Path, events: list[tuple[str, str]]) -> Running:
    @asynccontextmanager
    async def run(
        *stages: list[ProcessSpec], policy: ProcessRestartPolicy = POLICY
    ) -> AsyncIterator[Supervisor]:
        supervisor = Supervisor(
            tmp_path,
            stages,
            policy=policy,
            on_event=lambda name, text: events.append((name, text)),
        )
        await supervisor.start()
        try:
            yield supervisor
        finally:
            await supervisor.stop()

    return run


async def test_all_processes_serve_and_all_are_gone_after_the_stop(
    running: Running, tmp_path: Path
) -> None:
    async with running([stand_in("a"), stand_in("b")], [stand_in("worker-1", "child")]) as cluster:
        state = read_state(tmp_path)
        assert state is not None
        assert state.supervisor_pid == os.getpid()
        processes = [psutil.Process(p.pid) for p in cluster.processes.values() if p.pid]
        processes += [child for process in processes for child in descendants(process.pid)]
        assert len(processes) == 4
        for address in cluster.addresses(""):
            assert await health.wait_until_serving(address, 60)
    assert not [process for process in processes if is_alive(process)]
    assert read_state(tmp_path) is None
    assert not is_held(tmp_path)
    assert "stopped in good order" in (tmp_path / "logs" / "a.log").read_text()


async def test_stages_start_in_order_and_stop_in_reverse(
    running: Running, events: list[tuple[str, str]], tmp_path: Path
) -> None:
    async with running([stand_in("store")], [stand_in("worker-1")]):
        names = [name for name, _ in events]
        assert names == ["store", "store", "worker-1", "worker-1"]
    logs = tmp_path / "logs"
    ends = {name: (logs / f"{name}.log").stat().st_mtime_ns for name in ("store", "worker-1")}
    assert ends["worker-1"] < ends["store"]


async def test_a_killed_process_comes_back_at_the_same_address(
    running: Running, events: list[tuple[str, str]], tmp_path: Path
) -> None:
    async with running([stand_in("a")]) as cluster:
        first = cluster.process("a").pid
        for kills in (1, 2):
            cluster.process("a").kill()
            await cluster.wait_until_serving("a", start_count=kills + 1)
        process = cluster.process("a")
        assert process.pid != first
        assert await health.wait_until_serving(process.spec.address, 60)
        state = read_state(tmp_path)
        assert state is not None
        assert state.processes["a"].pid == process.pid
    assert ("a", "died (SIGKILL), restart in 0.1 s") in events
    assert ("a", "died (SIGKILL), restart in 0.2 s") in events
    log = (tmp_path / "logs" / "a.log").read_text()
    assert log.count("start of a, log ") == 3


async def test_a_held_process_stays_down_until_it_is_released(running: Running) -> None:
    async with running([stand_in("a")]) as cluster:
        process = cluster.process("a")
        process.hold()
        process.kill()
        await wait_until_async(lambda: process.phase is ProcessPhase.DEAD)
        with pytest.raises(ClusterError, match="a is dead after 1 s"):
            await cluster.wait_until_serving("a", start_count=2, timeout_s=1)
        process.release()
        await cluster.wait_until_serving("a", start_count=2)


async def test_a_process_that_dies_at_its_start_shows_its_last_line_and_ends_the_others(
    running: Running, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError) as caught:
        async with running([stand_in("good")], [stand_in("bad", "die")]):
            pass
    assert str(caught.value) == (
        "bad stopped at its start (exit 3): stand-in: cannot go on: the cause — log: "
        f"{tmp_path}/logs/bad.log"
    )
    assert not is_held(tmp_path)
    assert "stopped in good order" in (tmp_path / "logs" / "good.log").read_text()


async def test_processes_that_never_serve_are_named(running: Running) -> None:
    policy = ProcessRestartPolicy(serving_timeout_s=1.5)
    with pytest.raises(StartTimeoutError) as caught:
        async with running([stand_in("a", "mute"), stand_in("b", "mute")], policy=policy):
            pass
    first, other = ("a", "b") if caught.value.name == "a" else ("b", "a")
    assert str(caught.value).startswith(f"{first} does not serve after 1.5 s, is ")
    assert str(caught.value).endswith(f"{first}.log; does not serve either: {other}")


async def test_a_start_that_takes_long_is_reported_once_for_each_process(
    running: Running, events: list[tuple[str, str]]
) -> None:
    policy = ProcessRestartPolicy(serving_timeout_s=1.5, wait_reported_after_s=0)
    with pytest.raises(StartTimeoutError):
        async with running([stand_in("a", "mute"), stand_in("b", "mute")], policy=policy):
            pass
    for name in ("a", "b"):
        assert events.count((name, "is still starting")) == 1


async def test_the_reason_for_a_long_start_is_reported_once(
    running: Running, events: list[tuple[str, str]], tmp_path: Path
) -> None:
    policy = ProcessRestartPolicy(wait_reported_after_s=0)
    why, up = "its Spark engine is starting", tmp_path / "up"

    async def start() -> None:
        async with running([stand_in("a", str(up), f"why {why}")], policy=policy):
            pass

    starting = asyncio.create_task(start())
    await wait_until_async(lambda: ("a", f"waits: {why}") in events)
    up.touch()
    await starting
    assert events.count(("a", f"waits: {why}")) == 1


async def test_a_process_that_has_served_is_not_killed_for_waiting_at_a_later_start(
    running: Running, events: list[tuple[str, str]], tmp_path: Path
) -> None:
    policy = ProcessRestartPolicy(first_s=0.1, max_s=0.4, serving_timeout_s=10)
    there = tmp_path / "there"
    there.touch()
    async with running([stand_in("a", str(there))], policy=policy) as cluster:
        process = cluster.process("a")
        there.unlink()
        process.kill()
        await wait_until_async(lambda: ("a", "is NOT_SERVING") in events)
        assert (process.phase, process.start_count) == (ProcessPhase.STARTING, 2)
        there.touch()
        await cluster.wait_until_serving("a", start_count=2)
        assert process.start_count == 2


async def test_a_program_that_is_not_there_is_named(running: Running, tmp_path: Path) -> None:
    spec = ProcessSpec("gone", [str(tmp_path / "no-such-program")], "127.0.0.1:1")
    with pytest.raises(ClusterError, match="gone stopped at its start"):
        async with running([spec]):
            pass


async def test_a_process_deaf_to_sigterm_is_killed_with_its_children(
    running: Running, events: list[tuple[str, str]]
) -> None:
    async with running([stand_in("a", "deaf", "child", stop_grace_s=0.5)]) as cluster:
        pid = cluster.process("a").pid
        assert pid is not None
        children = descendants(pid)
        assert len(children) == 1
    assert ("a", "did not stop in 0.5 s: killed") in events
    assert not is_alive(children[0])


async def test_a_suspended_process_is_stopped_too(running: Running) -> None:
    async with running([stand_in("a")]) as cluster:
        process = cluster.process("a")
        assert process.pid is not None
        handle = psutil.Process(process.pid)
        process.send(signal.SIGSTOP)
    assert not is_alive(handle)
    assert process.phase is ProcessPhase.STOPPED


async def test_a_second_supervisor_on_the_directory_is_refused(
    running: Running, tmp_path: Path
) -> None:
    async with running([stand_in("a")]) as cluster:
        second = Supervisor(tmp_path, [[stand_in("b")]])
        with pytest.raises(ClusterError, match=rf"a cluster \(pid {os.getpid()}\) already runs"):
            await second.start()
        assert cluster.process("a").phase is ProcessPhase.SERVING
        assert read_state(tmp_path) is not None


PROGRAM = """
import asyncio, sys
from pathlib import Path
from drover.local.process import ProcessSpec
from drover.local.supervisor import Supervisor, run_until_signal
address = sys.argv[3]
spec = ProcessSpec("a", [sys.executable, sys.argv[2], address, "child"], address)
supervisor = Supervisor(Path(sys.argv[1]), [[spec]])
asyncio.run(run_until_signal(supervisor, lambda: print("up", flush=True)))
print("down", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_nothing_outlives_the_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    spec = stand_in("a")
    supervisor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(tmp_path), str(STAND_IN), spec.address),
        stdout=asyncio.subprocess.PIPE,
    )
    assert supervisor.stdout is not None
    assert await supervisor.stdout.readline() == b"up\n"
    (child,) = psutil.Process(supervisor.pid).children()
    supervisor.send_signal(number)
    rest, _ = await asyncio.wait_for(supervisor.communicate(), 30)
    assert await wait_until_gone([child], 30) == []
    assert not is_held(tmp_path)
    if number is signal.SIGKILL:
        assert supervisor.returncode == -signal.SIGKILL
    else:
        assert (supervisor.returncode, rest) == (0, b"down\n")
