"""What the production shard manager of a simulated coordinator works on: leases, logs, clocks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from drover_coordinator.core.ownership.machine import (
    Event,
    Instruction,
    Load,
    Ownership,
    TableSeen,
    Unload,
    Write,
)
from simulation.disk import DISK_FULL, Disk
from simulation.network import Network
from simulation.process import Process
from simulation.service import LOADING_MAX_MS, DiskLog, validate
from tests.support.lease_table import MemoryLeaseTable


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Response: the name of the coordinator that owns a group."""

    group_id: str


class CheckedOwnership:
    """The ownership machine of a coordinator; validated after every event."""

    def __init__(self, machine: Ownership, process: Process) -> None:
        self._machine = machine
        self._process = process
        self.state_of = machine.state_of
        self.owner_of = machine.owner_of

    @property
    def settled(self) -> bool:
        """As the machine's."""
        return self._machine.settled

    @property
    def retired(self) -> bool:
        """As the machine's."""
        return self._machine.retired

    def step(self, event: Event, now_ms: int) -> Sequence[Instruction]:
        """Step and validate."""
        instructions = self._machine.step(event, now_ms)
        validate(self._process, self._machine)
        for instruction in instructions:
            if isinstance(instruction, Load | Unload):
                name = self._process.name
                items = (name, f"shard{instruction.shard}")
                self._process.world.tell(items, "{}: {}", name, instruction)
        return instructions


class SimulatedLeases:
    """The table of leases, as ``drover_coordinator.sharding.leases.LeaseStore``."""

    def __init__(
        self,
        network: Network,
        process: Process,
        incarnation: str,
        table: MemoryLeaseTable,
        peers: Sequence[Process],
    ) -> None:
        self._network = network
        self._process = process
        self._incarnation = incarnation
        self._table = table
        self._peers = peers

    async def exchange(self, writes: Sequence[Write], started_ms: int) -> TableSeen:
        """Apply the writes and read the table; either may be slow or fail."""
        world, mix = self._network.world, self._network.mix
        await asyncio.sleep(world.between(0, mix.write_ms) / 1000)
        fails = world.chance(mix.write_failure)
        if not fails or world.chance(0.5):  # a failed write may have been applied
            self._table.write(self._process.name, self._incarnation, writes)
        if fails:
            raise DISK_FULL
        leases, peers = tuple(self._table.leases), dict(self._table.peers)
        ended = frozenset(each.name for each in self._peers if not each.alive)
        # the process may be suspended between the read of the table and the decision
        await asyncio.sleep(0)
        return TableSeen(started_ms, leases, peers, ended)

    async def close(self) -> None:
        """Nothing is held."""


async def open_log(network: Network, process: Process, disk: Disk) -> DiskLog:
    """Open the log of a shard; slow, and fails at times."""
    world, mix = network.world, network.mix
    await asyncio.sleep(world.between(0, mix.write_ms) / 1000)
    if world.chance(mix.write_failure):
        raise DISK_FULL
    return DiskLog(process, disk, reading_ms=world.between(0, LOADING_MAX_MS))
