"""Random kills and freezes while a cluster on three brokers works."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from drover.local.process import descendants
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.cluster import KafkaCluster
from tests.support.waiting import pause

SERVICES = ("coordinator", "coordinator-2", "config-store", "status-store")
#: Finds a worker's child processes: the engine, its JVM, and the parent of its Python workers.
ENGINE_PARTS = ("drover_worker.engine.process", "java", "drover_worker.engine.python_daemon")
#: Longer than the test's transaction timeout, and the sessions of groups and brokers.
LONG_S = (12.0, 20.0)
SHORT_S = (0.2, 5.0)
_BETWEEN_BROKERS_S = 5.0


@dataclass
class Harm:
    """Harms one process of Drover and one broker at a time; ``done`` and ``log`` record the
    actions.
    """

    cluster: EmbeddedCluster
    brokers: KafkaCluster
    chance: random.Random
    log: Path
    done: list[str] = field(default_factory=list)

    async def one_of_drover(self) -> None:
        """Kill a process, or freeze and resume it; returns once it runs or restarts."""
        self.cluster.note_processes()
        worker = self.chance.choice(["worker-1", "worker-2"])
        part = self.chance.choice([*SERVICES, "herder", *ENGINE_PARTS, "whole engine"])
        found = self._processes(worker, part)
        chosen = found if part == "whole engine" else found[:1]
        frozen_s = self._away_s() if self.chance.random() < 0.5 else 0
        self._note(f"{worker} {part}", frozen_s, len(chosen))
        await _hit(chosen, frozen_s)

    @asynccontextmanager
    async def to_brokers(self) -> AsyncIterator[None]:
        """Take down one broker after another for a while; all are up afterwards."""
        going = asyncio.Event()
        going.set()

        async def run() -> None:
            while going.is_set():
                await self._one_broker()
                await pause(self.chance.uniform(0, _BETWEEN_BROKERS_S))

        task = asyncio.create_task(run())
        try:
            yield
        finally:
            going.clear()
            await task

    async def _one_broker(self) -> None:
        node = self.chance.choice(list(self.brokers.brokers))
        broker = self.brokers.brokers[node]
        freezes = self.chance.random() < 0.5
        away_s = self._away_s()
        self._note(f"broker {node}", away_s if freezes else 0, 1)
        await asyncio.to_thread(broker.freeze if freezes else broker.kill)
        try:
            await pause(away_s)
        finally:
            await asyncio.to_thread(broker.revive)
        await asyncio.to_thread(self.brokers.wait_until_all_whole)

    def _away_s(self) -> float:
        return self.chance.uniform(*(LONG_S if self.chance.random() < 0.25 else SHORT_S))

    def _processes(self, worker: str, part: str) -> list[psutil.Process]:
        name = part if part in SERVICES else worker
        pid = self.cluster.process(name).pid
        if pid is None:
            return []
        if part in (*SERVICES, "herder"):
            with contextlib.suppress(psutil.NoSuchProcess):
                return [psutil.Process(pid)]
            return []
        below = descendants(pid)
        return below if part == "whole engine" else [each for each in below if _is(each, part)]

    def _note(self, what: str, frozen_s: float, count: int) -> None:
        how = f"frozen for {frozen_s:.1f} s" if frozen_s else "killed"
        self.done.append(f"{what} {how if count else 'is not there'}")
        with self.log.open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {self.done[-1]}\n")


async def _hit(processes: list[psutil.Process], frozen_s: float) -> None:
    """Kill or freeze all of them together."""
    _send(processes, signal.SIGSTOP if frozen_s else signal.SIGKILL)
    try:
        await pause(frozen_s)
    finally:
        if frozen_s:
            _send(processes, signal.SIGCONT)


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def _is(process: psutil.Process, part: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        return any(part in word for word in words[:3])
    return False
