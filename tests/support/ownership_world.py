"""A simulation of coordinators that share shards: the real ownership machines, faults, one true
time.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from drover_coordinator.core.ownership.machine import (
    Instruction,
    Load,
    LoadDone,
    LoadFailed,
    Ownership,
    OwnershipSettings,
    OwnershipState,
    ShardLost,
    StopRequested,
    TableSeen,
    Unload,
    UnloadDone,
    Write,
)
from tests.support.lease_table import MemoryLeaseTable

LEASE_MS = 1_000
DELAY_MAX_MS = 80
STORY_LENGTH = 60


@dataclass
class ShardLog:
    """A shard's log: only the last claimer may append."""

    epoch: int = 0
    accepted: list[tuple[int, str]] = field(default_factory=list)

    def claim(self, epoch: int) -> bool:
        if epoch <= self.epoch:
            return False
        self.epoch = epoch
        return True


class Node:
    """One coordinator process: it runs, freezes, is killed, restarts."""

    def __init__(self, world: "OwnershipWorld", address: str) -> None:
        self.world = world
        self.address = address
        self.run = 0
        self.alive = False
        self.frozen = False
        self.kept_up = False
        self.skipped: list[tuple[int, Callable[[], None]]] = []
        self.clock_offset_ms = world.random.randint(0, 10**9)
        self.clock_rate = world.random.uniform(0.98, 1.02)
        self.machine: Ownership
        self.writes: list[Write] = []
        self.writing_since_ms: int | None = None

    @property
    def now_ms(self) -> int:
        return self.clock_offset_ms + int(self.world.now_ms * self.clock_rate)

    def start(self) -> None:
        self.run += 1
        self.alive, self.frozen, self.skipped = True, False, []
        self.writes, self.writing_since_ms = [], None
        self.machine = Ownership(
            address=self.address,
            incarnation=f"run {self.run}",
            shard_count=self.world.shard_count,
            settings=OwnershipSettings(LEASE_MS),
        )
        self.world.tell(f"{self.address} starts, run {self.run}")
        self._look()

    def crash(self) -> None:
        self.world.tell(f"{self.address} is killed")
        self.alive = False

    def freeze(self) -> None:
        if self.alive:
            self.world.tell(f"{self.address} is frozen")
            self.frozen = True

    def thaw(self) -> None:
        self.world.tell(f"{self.address} resumes")
        self.frozen = False
        skipped, self.skipped = self.skipped, []
        self.world.random.shuffle(skipped)  # threads wake in any order
        for run, action in skipped:
            self._act(run, action)

    def answers(self, shard: int) -> bool:
        state = (
            self.machine.state_of(shard, self.now_ms) if self.alive else OwnershipState.ELSEWHERE
        )
        return not self.frozen and state is OwnershipState.SERVING

    def revive(self) -> None:
        """Run again from any state; a process that is stopping restarts after its end."""
        self.kept_up = True
        if not self.alive:
            self.start()
        elif self.frozen:
            self.thaw()

    def append(self, shard: int) -> None:
        """A call's append: checked now, written a little later."""
        if not self.answers(shard):
            return
        run, epoch = self.run, self.machine._held[shard].epoch

        def write() -> None:
            log = self.world.logs[shard]
            if log.epoch == epoch:
                log.accepted.append((epoch, f"{self.address}, run {run}"))
            else:
                self.step(ShardLost(shard, epoch))

        self._later(write)

    def step(self, event: object) -> None:
        instructions: Sequence[Instruction] = self.machine.step(event, self.now_ms)  # type: ignore[arg-type]
        self.machine.validate()
        for instruction in instructions:
            match instruction:
                case Load(shard, epoch):
                    self.world.tell(f"{self.address} loads {shard} with epoch {epoch}")
                    self._later(partial(self._load, shard, epoch))
                case Unload(shard, epoch):
                    self.world.tell(f"{self.address} unloads {shard}, epoch {epoch}")
                    self._later(partial(self.step, UnloadDone(shard, epoch)))
                case _:
                    self.writes.append(instruction)

    def _load(self, shard: int, epoch: int) -> None:
        log = self.world.logs[shard]
        if self.world.faulty and self.world.random.random() < 0.05:
            self.step(LoadFailed(shard, epoch))
        elif log.claim(epoch):
            self._later(lambda: self.step(LoadDone(shard, epoch)))
        else:
            self.step(LoadFailed(shard, epoch, log.epoch))

    def _look(self) -> None:
        """Exchange with the table, then schedule the next exchange; it may fail and be retried."""
        writes, self.writes = self.writes, []
        self.writing_since_ms = started_ms = self.now_ms
        self._later(lambda: self._exchange(writes, started_ms))

    def _exchange(self, writes: list[Write], started_ms: int) -> None:
        world = self.world
        fails = world.faulty and world.random.random() < 0.1
        if not fails or world.random.random() < 0.5:  # a failed write may have been applied
            world.table.write(self.address, f"run {self.run}", writes)
        if fails:
            self._later(lambda: self._exchange(writes, started_ms))
            return
        leases, peers = tuple(world.table.leases), dict(world.table.peers)

        def probe() -> None:
            ended = frozenset(n.address for n in world.nodes if not n.alive)
            seen = TableSeen(started_ms, leases, peers, ended)
            self._later(lambda: self._seen(seen))

        self._later(probe)

    def _seen(self, seen: TableSeen) -> None:
        self.step(seen)
        if not self.machine.retired:
            self._later(self._look, 100)
        else:
            self.world.table.write(self.address, f"run {self.run}", self.writes)
            self.crash()
            if self.kept_up:
                self.start()

    def stop(self) -> None:
        if not self.alive or self.frozen:
            return
        self.kept_up = False
        self.world.tell(f"{self.address} is asked to stop")
        self.step(StopRequested())

    def _later(self, action: Callable[[], None], delay_ms: int = 0) -> None:
        run = self.run
        delay_ms += self.world.random.randint(0, DELAY_MAX_MS)
        self.world.after(delay_ms, lambda: self._act(run, action))

    def _act(self, run: int, action: Callable[[], None]) -> None:
        if not self.alive or run != self.run:
            return
        if self.frozen:
            self.skipped.append((run, action))
        else:
            action()


class OwnershipWorld:
    """Nodes, their table, the logs and the random generator."""

    def __init__(self, seed: int, *, nodes: int, shards: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.faulty = True
        self.shard_count = shards
        self.table = MemoryLeaseTable(shards)
        self.logs = [ShardLog() for _ in range(shards)]
        self._actions: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._story: list[str] = []
        self.nodes = [Node(self, f"node-{number}") for number in range(nodes)]

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._actions, (self.now_ms + delay_ms, self._count, action))

    def run(self, until_ms: int) -> None:
        """Run actions until a time, with a check after each."""
        while self._actions and self._actions[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self._actions)
            action()
            self.check()
        self.now_ms = until_ms
        self.check()

    def check(self) -> None:
        for shard in range(self.shard_count):
            answering = [node.address for node in self.nodes if node.answers(shard)]
            assert len(answering) <= 1, f"{answering} both answer for shard {shard}\n{self.story()}"

    def owners(self) -> list[str | None]:
        return [
            next((node.address for node in self.nodes if node.answers(shard)), None)
            for shard in range(self.shard_count)
        ]

    def tell(self, text: str) -> None:
        self._story = [*self._story[-STORY_LENGTH:], f"{self.now_ms:>7} ms  {text}"]

    def story(self) -> str:
        return "\n".join(self._story)
