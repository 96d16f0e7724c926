"""The shards that this process serves: each a log, a machine and a runtime of its own."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from drover.clock import Clock
from drover.errors import DroverError, FailedPreconditionError, Reason, UnavailableError
from drover.log.log import Log
from drover.model.group import shard_of
from drover.model.ids import Term
from drover.runtime.runtime import Runtime
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.records import LogValue
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.core.ownership.machine import Standing
from drover_coordinator.record_codec import decode_shard_record, encode_record

GroupRuntime = Runtime[LogValue]

#: In the metadata of NOT_COORDINATOR: host:port of the coordinator to ask, if it is known.
OWNER_KEY = "coordinator"


class Roles(Protocol):
    """What this coordinator is to each shard at a moment; ``Ownership`` is such."""

    def standing(self, shard: int, now_ms: int) -> Standing:
        """Whether it may answer for the shard."""

    def owner_of(self, shard: int, now_ms: int) -> str | None:
        """The address of a shard's owner; None when it is not known."""


class Alone:
    """The roles of a coordinator that shares with nobody: everything is its own for ever."""

    def __init__(self) -> None:
        #: What FindCoordinator answers, host:port, once it is bound.
        self.address = ""
        self.loaded: set[int] = set()

    def standing(self, shard: int, now_ms: int) -> Standing:
        """Never elsewhere."""
        return Standing.SERVING if shard in self.loaded else Standing.LOADING

    def owner_of(self, shard: int, now_ms: int) -> str | None:
        """This one."""
        return self.address or None


@dataclass(frozen=True, slots=True)
class Fencing:
    """How a shard that others may take over is loaded.

    The log is claimed for ``owner`` with ``epoch``; ``lost`` is called once when it has another
    owner.
    """

    owner: str
    epoch: int
    lost: Callable[[], object]


class Companion(Protocol):
    """What is loaded and unloaded with a shard, beside its groups."""

    async def load(self, shard: int, fencing: Fencing) -> None:
        """Claim and read what it keeps for the shard.

        Raises:
            DroverError: As ``Shards.open``.
        """

    async def unload(self, shard: int, why: DroverError | None) -> None:
        """End the calls of the shard with ``why``, by default DRAINING; idempotent."""


@dataclass(frozen=True, slots=True)
class _Shard:
    log: Log
    runtime: GroupRuntime


class Shards:
    """Loads, finds and unloads shards; who decides which is told by ``roles``.

    Args:
        open_log: Opens the log of a shard.
        shard_count: How many there are, of this process or not.
        settings: Bounds and delays of groups.
        clock: The runtimes'.
        roles: Asked at every call; may be replaced.
        companion: Loaded with shards that are claimed.
    """

    def __init__(
        self,
        open_log: Callable[[int], Awaitable[Log]],
        *,
        shard_count: int,
        settings: GroupSettings,
        clock: Clock,
        roles: Roles,
        companion: Companion | None = None,
    ) -> None:
        self.roles = roles
        self._open_log = open_log
        self._shard_count = shard_count
        self._settings = settings
        self._clock = clock
        self._companion = companion
        self._shards: dict[int, _Shard] = {}

    # --- routing -----------------------------------------------------------------------------

    def runtime(self, group_id: str) -> GroupRuntime:
        """The runtime that serves a group here.

        Raises:
            FailedPreconditionError: NOT_COORDINATOR, another coordinator serves it.
            UnavailableError: COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = shard_of(group_id, self._shard_count)
        standing = self.roles.standing(shard, self._clock.now_ms())
        if standing is Standing.SERVING:
            return self._shards[shard].runtime
        if standing is Standing.LOADING:
            raise _loading()
        raise self._elsewhere(shard)

    def is_loading(self, group_id: str) -> bool:
        """Whether a group is of this coordinator, which still reads its log."""
        shard = shard_of(group_id, self._shard_count)
        return self.roles.standing(shard, self._clock.now_ms()) is Standing.LOADING

    def owned(self) -> list[GroupRuntime]:
        """The runtimes of every shard of this coordinator.

        Raises:
            UnavailableError: COORDINATOR_LOAD_IN_PROGRESS, one is not read yet.
        """
        if Standing.LOADING in self._standings().values():
            raise _loading()
        return self._served()

    def hold_timers(self, duration_ms: int) -> None:
        """Let no timer fire for so long; a shard that is not read yet has none."""
        for runtime in self._served():
            runtime.hold_timers(duration_ms)

    def _standings(self) -> dict[int, Standing]:
        now_ms = self._clock.now_ms()
        return {each: self.roles.standing(each, now_ms) for each in range(self._shard_count)}

    def _served(self) -> list[GroupRuntime]:
        standings = self._standings().items()
        return [self._shards[each].runtime for each, how in standings if how is Standing.SERVING]

    def owner_of(self, group_id: str) -> str:
        """host:port of the coordinator that serves a group.

        Raises:
            UnavailableError: COORDINATOR_NOT_AVAILABLE, none does at present.
        """
        shard = shard_of(group_id, self._shard_count)
        owner = self.roles.owner_of(shard, self._clock.now_ms())
        if owner is None:
            raise UnavailableError(
                Reason.COORDINATOR_NOT_AVAILABLE,
                f"no coordinator serves group {group_id!r} at this moment: retry",
                metadata={"groupId": group_id},
            )
        return owner

    def owners(self) -> list[str]:
        """host:port of all coordinators that serve groups, as far as it is known."""
        now_ms = self._clock.now_ms()
        owners = {self.roles.owner_of(shard, now_ms) for shard in range(self._shard_count)}
        return sorted(owner for owner in owners if owner is not None)

    # --- loading and unloading ---------------------------------------------------------------

    async def open(self, shard: int, fencing: Fencing | None = None) -> GroupRuntime:
        """Open a shard's log, and claim it if it is shared; the runtime has to be loaded.

        Raises:
            FailedPreconditionError: STALE_TERM, the log was claimed with a later epoch.
            DataLossError: LOG_CORRUPT.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        log = await self._open_log(shard)
        try:
            runtime = await self._make(shard, log, fencing)
            if self._companion is not None and fencing is not None:
                await self._companion.load(shard, fencing)
        except BaseException:
            await log.close()
            raise
        self._shards[shard] = _Shard(log, runtime)
        return runtime

    async def close(self, shard: int, why: DroverError | None = None) -> None:
        """End a shard's calls and watches with ``why``, by default DRAINING, and close its log."""
        if self._companion is not None:
            await self._companion.unload(shard, why)
        found = self._shards.get(shard)
        if found is not None:
            await found.runtime.close(why)
            await found.log.close()
            self._shards.pop(shard, None)

    async def close_all(self) -> None:
        """Close every shard."""
        for shard in list(self._shards):
            await self.close(shard)

    def moved(self, shard: int) -> DroverError:
        """What the callers of a shard hear that this coordinator gives up."""
        return self._elsewhere(shard)

    async def _make(self, shard: int, log: Log, fencing: Fencing | None) -> GroupRuntime:
        make = partial(
            Runtime[LogValue],
            GroupsMachine(self._settings),
            log,
            encode=encode_record,
            decode=decode_shard_record,
            clock=self._clock,
            name=f"group shard {shard}",
        )
        if fencing is None:
            return make()

        def refusal() -> DroverError | None:
            standing = self.roles.standing(shard, self._clock.now_ms())
            return self._elsewhere(shard) if standing is Standing.ELSEWHERE else None

        def on_fenced() -> DroverError:
            fencing.lost()
            return self._elsewhere(shard)

        epoch = await log.claim(fencing.owner, Term(fencing.epoch, 0))
        return make(writer_epoch=epoch, refusal=refusal, on_fenced=on_fenced)

    def _elsewhere(self, shard: int) -> DroverError:
        now_ms = self._clock.now_ms()
        owner = None  # a shard that was just lost looks like this one's own still
        if self.roles.standing(shard, now_ms) is Standing.ELSEWHERE:
            owner = self.roles.owner_of(shard, now_ms)
        where = f"{owner} does" if owner else "ask FindCoordinator"
        return FailedPreconditionError(
            Reason.NOT_COORDINATOR,
            f"this coordinator does not serve the group (shard {shard}): {where}",
            metadata={OWNER_KEY: owner} if owner else {},
        )


def _loading() -> DroverError:
    return UnavailableError(
        Reason.COORDINATOR_LOAD_IN_PROGRESS,
        "the coordinator is reading its log: try again in a moment",
    )
