"""The shards of a simulated coordinator: all of them, or those assigned by leases.

The real ``Ownership`` machine decides the leases; the code around it does what
``services/coordinator/drover_coordinator/sharding`` does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from drover.errors import OWNER_KEY, DroverError, FailedPreconditionError, Reason, UnavailableError
from drover.model.group import shard_of
from drover.model.ids import Term
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.ownership.machine import (
    Event,
    Load,
    LoadDone,
    LoadFailed,
    Ownership,
    OwnershipSettings,
    OwnershipState,
    ShardLost,
    TableSeen,
    Unload,
    UnloadDone,
    Write,
)
from simulation.disk import Disk
from simulation.network import Network
from simulation.process import Process
from simulation.service import SimulatedRuntime
from simulation.world import BrokenRuleError
from tests.support.lease_table import MemoryLeaseTable

IMMEDIATE_EXCHANGES_MAX = 4
GROUPS_LOADING = UnavailableError(Reason.COORDINATOR_LOAD_IN_PROGRESS, "the log is being read")

GroupRuntime = SimulatedRuntime[GroupsMachine]
#: Makes the runtime of a shard from its fence and a callback for the end of loading.
MakeRuntime = Callable[[int, "ShardFence | None", Callable[[], None]], GroupRuntime]


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Response: the name of the coordinator that owns a group."""

    group_id: str


class SimulatedShardManager:
    """One coordinator's shards, and its view of the other coordinators' shards.

    Args:
        process: The coordinator.
        make: Makes the runtime of a shard that is loaded.
        disks: The logs of all shards.
        table: The leases; None for a single coordinator.
        peers: All coordinators, to detect which have ended.
        settings: The leases' durations.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        make: MakeRuntime,
        disks: Sequence[Disk],
        table: MemoryLeaseTable | None,
        peers: Sequence[Process],
        settings: OwnershipSettings,
    ) -> None:
        self._network = network
        self._process = process
        self._make = make
        self._disks = disks
        self._table = table
        self._peers = peers
        self._look_every_ms = settings.look_every_ms
        self.runtimes: dict[int, GroupRuntime] = {}
        self._incarnation = f"run {process.incarnation}"
        self._machine = Ownership(
            address=process.name,
            incarnation=self._incarnation,
            shard_count=len(disks),
            settings=settings,
        )
        #: The epochs of shards whose logs this coordinator is about to claim.
        self._loads: dict[int, int] = {}
        self._writes: list[Write] = []
        self._immediate_count = 0
        self._looking = False
        self._look_id = 0
        if table is None:
            for shard in range(len(disks)):
                self.runtimes[shard] = make(shard, None, lambda: None)
        else:
            self._look(self._look_id)

    # --- routing -----------------------------------------------------------------------------

    def state_of(self, shard: int) -> OwnershipState:
        """Whether this coordinator may answer for a shard."""
        if self._table is None:
            return OwnershipState.SERVING if self.runtimes[shard].loaded else OwnershipState.LOADING
        return self._machine.state_of(shard, self._process.now_ms)

    def runtime(self, group_id: str) -> GroupRuntime | DroverError:
        """The runtime that serves a group here, or the error if this coordinator does not
        serve it.
        """
        shard = shard_of(group_id, len(self._disks))
        match self.state_of(shard):
            case OwnershipState.SERVING:
                return self.runtimes[shard]
            case OwnershipState.LOADING:
                return GROUPS_LOADING
            case OwnershipState.ELSEWHERE:
                return self._elsewhere(shard)

    def owner_of(self, group_id: str) -> str | DroverError:
        """The name of the coordinator that serves a group."""
        if self._table is None:
            return self._process.name
        shard = shard_of(group_id, len(self._disks))
        owner = self._machine.owner_of(shard, self._process.now_ms)
        if owner is None:
            return UnavailableError(Reason.COORDINATOR_NOT_AVAILABLE, "nobody serves it: retry")
        return owner

    def _elsewhere(self, shard: int) -> FailedPreconditionError:
        owner = None
        if self.state_of(shard) is OwnershipState.ELSEWHERE:
            owner = self._machine.owner_of(shard, self._process.now_ms)
        return FailedPreconditionError(
            Reason.NOT_COORDINATOR, "ask the owner", metadata={OWNER_KEY: owner} if owner else {}
        )

    # --- the table ---------------------------------------------------------------------------

    def _look(self, look_id: int) -> None:
        if look_id != self._look_id:
            return
        self._looking = True
        writes, self._writes = self._writes, []
        mix = self._network.mix
        exchange = partial(self._exchange, writes, self._process.now_ms)
        self._process.after(self._process.world.between(0, mix.write_ms), exchange)

    def _exchange(self, writes: Sequence[Write], started_ms: int) -> None:
        assert self._table is not None
        world, mix = self._process.world, self._network.mix
        fails = world.chance(mix.write_failure)
        if not fails or world.chance(0.5):  # a failed write may have been applied
            self._table.write(self._process.name, self._incarnation, writes)
        if fails:
            self._look_again(immediately=False)
            return
        leases, peers = tuple(self._table.leases), dict(self._table.peers)
        ended = frozenset(each.name for each in self._peers if not each.alive)
        seen = TableSeen(started_ms, leases, peers, ended)
        # The process may pause between the read of the table and the decision.
        self._process.after(0, partial(self._seen, seen))

    def _seen(self, seen: TableSeen) -> None:
        self._step(seen)
        self._look_again(immediately=bool(self._writes))

    def _look_again(self, *, immediately: bool) -> None:
        self._looking = False
        self._look_id += 1
        if immediately and self._immediate_count < IMMEDIATE_EXCHANGES_MAX:
            self._immediate_count += 1
            self._look(self._look_id)
        else:
            self._immediate_count = 0
            self._process.after(self._look_every_ms, partial(self._look, self._look_id))

    def _tell(self, event: Event) -> None:
        """Process an event between two polls of the table; resulting writes are sent
        immediately.
        """
        self._step(event)
        if not self._looking:
            self._look_id += 1
            self._look(self._look_id)

    def _step(self, event: Event) -> None:
        instructions = self._machine.step(event, self._process.now_ms)
        try:
            self._machine.validate()
        except AssertionError as error:
            raise BrokenRuleError(
                "a machine's invariants hold", str(error), self._process.name
            ) from error
        for instruction in instructions:
            match instruction:
                case Load(shard, epoch):
                    self._tell_story("loads", shard, epoch)
                    self._load(shard, epoch)
                case Unload(shard, epoch):
                    self._tell_story("unloads", shard, epoch)
                    self._unload(shard, epoch)
                case _:
                    self._writes.append(instruction)

    # --- loading and unloading ---------------------------------------------------------------

    def _load(self, shard: int, epoch: int) -> None:
        world, mix = self._process.world, self._network.mix

        def claim() -> None:
            if self._loads.pop(shard, None) != epoch:
                return  # the lease was released
            if world.chance(mix.write_failure):
                self._step(LoadFailed(shard, epoch))
                return
            owner = f"{self._process.name}/{self._incarnation}"
            try:
                log_epoch = self._disks[shard].claim(owner, Term(epoch, 0))
            except DroverError as error:
                later = int(error.metadata["currentTerm"].partition(".")[0])
                self._step(LoadFailed(shard, epoch, later))
                return
            lost = partial(self._lost, shard, epoch)
            fence = ShardFence(log_epoch, partial(self._refusal, shard), lost)
            loaded = partial(self._step, LoadDone(shard, epoch))
            self.runtimes[shard] = self._make(shard, fence, loaded)

        self._loads[shard] = epoch
        self._process.after(world.between(0, mix.write_ms), claim)

    def _unload(self, shard: int, epoch: int) -> None:
        def closed() -> None:
            if runtime is not None and self.runtimes.get(shard) is runtime:
                del self.runtimes[shard]
            # releasing the file takes a moment
            self._process.after(1, partial(self._tell, UnloadDone(shard, epoch)))

        self._loads.pop(shard, None)
        runtime = self.runtimes.get(shard)
        if runtime is None:
            closed()
        else:
            runtime.close(self._elsewhere(shard), closed)

    def _refusal(self, shard: int) -> DroverError | None:
        elsewhere = self.state_of(shard) is OwnershipState.ELSEWHERE
        return self._elsewhere(shard) if elsewhere else None

    def _lost(self, shard: int, epoch: int) -> DroverError:
        self._process.after(0, partial(self._tell, ShardLost(shard, epoch)))
        return self._elsewhere(shard)

    def _tell_story(self, what: str, shard: int, epoch: int) -> None:
        name = self._process.name
        self._process.world.tell(
            (name, f"shard{shard}"), "{} {} shard {} with epoch {}", name, what, shard, epoch
        )


class ShardFence:
    """Rejects writes to a shard's log by any coordinator but its owner."""

    def __init__(
        self,
        epoch: int,
        refusal: Callable[[], DroverError | None],
        lost: Callable[[], DroverError],
    ) -> None:
        self.epoch = epoch
        self.refusal = refusal
        self.lost = lost
