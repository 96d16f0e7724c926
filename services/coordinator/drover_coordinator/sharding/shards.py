"""The shards that this process serves; each has its own log, machine and runtime."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from drover.clock import Clock
from drover.errors import OWNER_KEY, DroverError, FailedPreconditionError, Reason, UnavailableError
from drover.log.log import Log
from drover.model.group import shard_of
from drover.model.ids import Term
from drover.runtime.runtime import Runtime
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.records import LogValue
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.core.ownership.machine import OwnershipState
from drover_coordinator.record_codec import decode_shard_record, encode_record

GroupRuntime = Runtime[LogValue]


class OwnershipView(Protocol):
    """Who owns each shard at a moment. ``core.ownership.machine.Ownership`` implements it."""

    def state_of(self, shard: int, now_ms: int) -> OwnershipState:
        """Whether this coordinator may answer for the shard."""

    def owner_of(self, shard: int, now_ms: int) -> str | None:
        """The address of a shard's owner; None if unknown."""


class SingleOwner:
    """The ownership of a coordinator without peers, which owns all shards."""

    def __init__(self) -> None:
        #: The host:port in FindCoordinator responses; set once the server is bound.
        self.address = ""
        self.loaded: set[int] = set()

    def state_of(self, shard: int, now_ms: int) -> OwnershipState:
        """SERVING if the shard is loaded, else LOADING."""
        return OwnershipState.SERVING if shard in self.loaded else OwnershipState.LOADING

    def owner_of(self, shard: int, now_ms: int) -> str | None:
        """This coordinator's address."""
        return self.address or None


@dataclass(frozen=True, slots=True)
class Fencing:
    """The fencing token of a shard that other coordinators may take over.

    The log is claimed for ``owner`` with ``epoch``; ``lost`` is called once if another owner
    fences it.
    """

    owner: str
    epoch: int
    lost: Callable[[], object]


class ShardResource(Protocol):
    """State other than groups that is loaded and unloaded with a shard."""

    async def load(self, shard: int, fencing: Fencing) -> None:
        """Claim and read the state of the shard.

        Raises:
            DroverError: As ``Shards.open``.
        """

    async def unload(self, shard: int, why: DroverError | None) -> None:
        """End the calls of the shard with ``why``, by default DRAINING; idempotent."""


@dataclass(frozen=True, slots=True)
class Shard:
    """An open shard."""

    log: Log
    machine: GroupsMachine
    runtime: GroupRuntime


class Shards:
    """Loads, finds and unloads shards.

    Args:
        open_log: Opens the log of a shard.
        shard_count: How many shards the cluster has.
        settings: Bounds and delays of groups.
        clock: For the runtimes.
        ownership: Decides at every call whether a shard may be served; may be replaced.
        resource: Loaded and unloaded with claimed shards.
    """

    def __init__(
        self,
        open_log: Callable[[int], Awaitable[Log]],
        *,
        shard_count: int,
        settings: GroupSettings,
        clock: Clock,
        ownership: OwnershipView,
        resource: ShardResource | None = None,
    ) -> None:
        self.ownership = ownership
        self._open_log = open_log
        self._shard_count = shard_count
        self._settings = settings
        self._clock = clock
        self._resource = resource
        self._shards: dict[int, Shard] = {}

    # --- routing -----------------------------------------------------------------------------

    def runtime(self, group_id: str) -> GroupRuntime:
        """The runtime that serves a group here.

        Raises:
            FailedPreconditionError: NOT_COORDINATOR, another coordinator serves it.
            UnavailableError: COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = shard_of(group_id, self._shard_count)
        state = self.ownership.state_of(shard, self._clock.now_ms())
        if state is OwnershipState.SERVING:
            return self._shards[shard].runtime
        if state is OwnershipState.LOADING:
            raise _loading()
        raise self._elsewhere(shard)

    def is_loading(self, group_id: str) -> bool:
        """Whether this coordinator owns the group's shard and is still reading its log."""
        shard = shard_of(group_id, self._shard_count)
        return self.ownership.state_of(shard, self._clock.now_ms()) is OwnershipState.LOADING

    def owned(self) -> list[GroupRuntime]:
        """The runtimes of all shards that this coordinator owns.

        Raises:
            UnavailableError: COORDINATOR_LOAD_IN_PROGRESS, a shard is not loaded yet.
        """
        if OwnershipState.LOADING in self._states().values():
            raise _loading()
        return self._served()

    def opened(self) -> list[Shard]:
        """The open shards, including shards that are being loaded."""
        return list(self._shards.values())

    def hold_timers(self, duration_ms: int) -> None:
        """Delay the timers of all served shards by ``duration_ms``; loading ones have none."""
        for runtime in self._served():
            runtime.hold_timers(duration_ms)

    def _states(self) -> dict[int, OwnershipState]:
        now_ms = self._clock.now_ms()
        return {each: self.ownership.state_of(each, now_ms) for each in range(self._shard_count)}

    def _served(self) -> list[GroupRuntime]:
        states = self._states().items()
        return [self._shards[each].runtime for each, how in states if how is OwnershipState.SERVING]

    def owner_of(self, group_id: str) -> str:
        """host:port of the coordinator that serves a group.

        Raises:
            UnavailableError: COORDINATOR_NOT_AVAILABLE, no coordinator serves it at present.
        """
        shard = shard_of(group_id, self._shard_count)
        owner = self.ownership.owner_of(shard, self._clock.now_ms())
        if owner is None:
            raise UnavailableError(
                Reason.COORDINATOR_NOT_AVAILABLE,
                f"no coordinator serves group {group_id!r} at this moment: retry",
                metadata={"groupId": group_id},
            )
        return owner

    def owners(self) -> list[str]:
        """host:port of every known owner of a shard."""
        now_ms = self._clock.now_ms()
        owners = {self.ownership.owner_of(shard, now_ms) for shard in range(self._shard_count)}
        return sorted(owner for owner in owners if owner is not None)

    # --- loading and unloading ---------------------------------------------------------------

    async def open(self, shard: int, fencing: Fencing | None = None) -> GroupRuntime:
        """Open a shard's log and, with ``fencing``, claim it; the caller loads the runtime.

        Raises:
            FailedPreconditionError: STALE_TERM, the log was claimed with a later epoch.
            DataLossError: LOG_CORRUPT.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        log = await self._open_log(shard)
        try:
            machine = GroupsMachine(self._settings)
            runtime = await self._make(shard, log, machine, fencing)
            if self._resource is not None and fencing is not None:
                await self._resource.load(shard, fencing)
        except BaseException:
            await log.close()
            raise
        self._shards[shard] = Shard(log, machine, runtime)
        return runtime

    async def close(self, shard: int, why: DroverError | None = None) -> None:
        """End a shard's calls and watches with ``why``, by default DRAINING, and close its log."""
        if self._resource is not None:
            await self._resource.unload(shard, why)
        opened = self._shards.get(shard)
        if opened is not None:
            await opened.runtime.close(why)
            await opened.log.close()
            self._shards.pop(shard, None)

    async def close_all(self) -> None:
        """Close every shard."""
        for shard in list(self._shards):
            await self.close(shard)

    def moved(self, shard: int) -> DroverError:
        """The error for callers of a shard that this coordinator releases."""
        return self._elsewhere(shard)

    async def _make(
        self, shard: int, log: Log, machine: GroupsMachine, fencing: Fencing | None
    ) -> GroupRuntime:
        make = partial(
            Runtime[LogValue],
            machine,
            log,
            encode=encode_record,
            decode=decode_shard_record,
            clock=self._clock,
            name=f"group shard {shard}",
        )
        if fencing is None:
            return make()

        def refusal() -> DroverError | None:
            state = self.ownership.state_of(shard, self._clock.now_ms())
            return self._elsewhere(shard) if state is OwnershipState.ELSEWHERE else None

        def on_fenced() -> DroverError:
            fencing.lost()
            return self._elsewhere(shard)

        epoch = await log.claim(fencing.owner, Term(fencing.epoch, 0))
        return make(writer_epoch=epoch, refusal=refusal, on_fenced=on_fenced)

    def _elsewhere(self, shard: int) -> DroverError:
        now_ms = self._clock.now_ms()
        owner = None  # the view may still name this coordinator
        if self.ownership.state_of(shard, now_ms) is OwnershipState.ELSEWHERE:
            owner = self.ownership.owner_of(shard, now_ms)
        where = f"call {owner}" if owner else "call FindCoordinator"
        return FailedPreconditionError(
            Reason.NOT_COORDINATOR,
            f"this coordinator does not serve the group (shard {shard}): {where}",
            metadata={OWNER_KEY: owner} if owner else {},
        )


def _loading() -> DroverError:
    return UnavailableError(
        Reason.COORDINATOR_LOAD_IN_PROGRESS,
        "the coordinator is loading its log: retry",
    )
