"""Kills of workers' processes: single ones, or at random for a while."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import psutil

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.client.failover import FailoverChannel
from drover.errors import DroverError
from drover.local.process import descendants
from tests.support.cluster import EmbeddedCluster
from tests.support.flow import Flow
from tests.support.histories import FlowHistory
from tests.support.waiting import pause, wait_until_async

#: The kinds of a worker's processes, with a part of their command lines; a guard's contains its
#: engine's.
KINDS = {
    "herder": "drover_worker",
    "guard": "drover_worker.engine",
    "engine": "drover_worker.engine.process",
    "JVM": "org.apache.spark.deploy.SparkSubmit",
    "daemon": "drover_worker.engine.python_daemon",
}
SEED = 12
KILLING_S = 180.0
PAUSE_S = (2.0, 8.0)
#: The recovery after the last kill, on a shared machine.
RECOVERY_MAX_S = 600.0


async def assert_all_survive(cluster: EmbeddedCluster, flow: Flow) -> FlowHistory:
    """Kill for three minutes while lines flow through existing connectors; then everything runs
    again, no line is lost or duplicated, and the history keeps the guarantees.

    Returns:
        The history until then, for the lines that a reader of the topic finds.
    """
    kills = RandomKills(cluster, SEED)
    history = flow.history()
    async with flow.feeding(), history.observing(cluster.workers):
        await flow.wait_until_passed("before anything is killed")
        await kills.kill_for(KILLING_S)
        seconds = await kills.wait_until_running([flow.source, flow.sink])
        await flow.wait_until_passed("after the last kill")
    await flow.assert_equal()
    history.assert_kept(flow.sink, flow.output_lines())
    await cluster.wait_until_members()
    sys.stdout.write(f"killed {dict(kills.counts)}; all ran {seconds:.1f} s after the last one\n")
    return history


def kill_part_of_a_worker(cluster: EmbeddedCluster, rng: random.Random, *, whole: bool) -> None:
    """Kill one of two workers, or one of its child processes.

    The worker itself is killed with ``whole`` or without child processes; otherwise a guard,
    engine, JVM or Python process. Does nothing while the worker does not run.
    """
    cluster.note_processes()
    process = cluster.process(rng.choice(["worker-1", "worker-2"]))
    if process.pid is None:
        return
    below = descendants(process.pid)
    if whole or not below:
        process.kill()
        return
    victim = rng.choice(below)
    if victim.is_running():
        victim.kill()


async def kill_in_turn(
    cluster: EmbeddedCluster, rng: random.Random, turn: int, kill_server: Callable[[], object]
) -> None:
    """Of four turns, kill a worker in the first, the server in the last, and a part of a worker in
    others.
    """
    if turn % 4 == 3:
        cluster.note_processes()
        await asyncio.to_thread(kill_server)
    else:
        kill_part_of_a_worker(cluster, rng, whole=turn % 4 == 0)


class RandomKills:
    """Kills one process after another by SIGKILL, and waits until the connectors run again."""

    def __init__(self, cluster: EmbeddedCluster, seed: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        #: How often each kind was killed.
        self.counts: Counter[str] = Counter()
        self._killed_s = 0.0

    async def kill_for(self, duration_s: float) -> None:
        """Kill until the time is over, then each kind that was not killed yet.

        Between quick kills a busy machine may never start a process of some kind.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + duration_s
        while loop.time() < end_s:
            self._kill_one(KINDS)
            await pause(self._rng.uniform(*PAUSE_S))
        for kind in [each for each in KINDS if not self.counts[each]]:
            await wait_until_async(
                partial(self._kill_one, [kind]),
                timeout_s=RECOVERY_MAX_S,
                describe=f"a {kind} runs; killed {dict(self.counts)}",
            )

    async def wait_until_running(self, connectors: Sequence[str]) -> float:
        """Wait until all connectors and tasks run; returns the seconds since the last kill."""
        shown: dict[str, str] = {}

        async def run() -> bool:
            async with FailoverChannel(self._cluster.workers) as workers:
                client = ConnectClient(workers.as_channel())
                try:
                    for name in connectors:
                        status = await client.get_connector_status(name, timeout_s=5)
                        shown[name] = str(status)
                        states = [status.connector.state, *(task.state for task in status.tasks)]
                        if len(states) < 2 or set(states) != {pb.RUN_STATE_RUNNING}:
                            return False
                except DroverError as error:
                    shown["error"] = error.message
                    return False
            return True

        await wait_until_async(run, timeout_s=RECOVERY_MAX_S, describe=lambda: shown)
        return asyncio.get_running_loop().time() - self._killed_s

    def _kill_one(self, kinds: Iterable[str]) -> bool:
        """Kill a process of the least often killed kind that currently runs; False without one."""
        self._cluster.note_processes()
        rarest_first = sorted(kinds, key=lambda kind: (self.counts[kind], self._rng.random()))
        workers = [self._cluster.worker_name(each) for each in self._cluster.workers]
        self._rng.shuffle(workers)
        for kind in rarest_first:
            for worker in workers:
                victim = find_of_kind(self._cluster, worker, kind)
                if victim is not None and victim.is_running():
                    victim.kill()
                    self.counts[kind] += 1
                    self._killed_s = asyncio.get_running_loop().time()
                    return True
        return False


def find_of_kind(cluster: EmbeddedCluster, worker: str, kind: str) -> psutil.Process | None:
    """The topmost process of that kind in a worker; None without one."""
    root = cluster.process(worker).pid
    if root is None:
        return None
    with suppress(psutil.NoSuchProcess):
        if kind == "herder":
            return psutil.Process(root)
        for each in descendants(root):
            is_guard = each.ppid() == root
            if KINDS[kind] in " ".join(each.cmdline()) and is_guard is (kind == "guard"):
                return each
    return None
