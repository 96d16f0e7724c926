"""Carries out what ``core.ownership`` decides: looks at the leases, loads and unloads shards."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from drover.clock import Clock
from drover.errors import DroverError, FailedPreconditionError, Reason, UnavailableError
from drover_coordinator.core.ownership.lease_table import Identity
from drover_coordinator.core.ownership.machine import (
    Event,
    Load,
    LoadDone,
    LoadFailed,
    Ownership,
    OwnershipSettings,
    ShardLost,
    StopRequested,
    Unload,
    UnloadDone,
    Write,
)
from drover_coordinator.sharding.leases import SharedLeases
from drover_coordinator.sharding.shards import Fencing, Shards

#: What is decided is written without a pause, so many times in a row at most.
HASTE_MAX = 4
#: How long giving back may take when the process ends; what is left is taken over all the same.
STOP_TIMEOUT_S = 5.0

_log = structlog.get_logger("drover.coordinator")


class Sharing:
    """One coordinator's part in sharing the shards; ``start``, at the end ``stop``.

    Args:
        machine: Decides.
        leases: The table.
        shards: What is loaded and unloaded.
        who: This run of this coordinator.
        clock: The machine's.
        settings: The machine's.
        on_storage: Called with whether the table can be used, at first and when that changes.
    """

    def __init__(
        self,
        machine: Ownership,
        leases: SharedLeases,
        shards: Shards,
        *,
        who: Identity,
        clock: Clock,
        settings: OwnershipSettings,
        on_storage: Callable[[bool], Awaitable[None]] | None = None,
    ) -> None:
        self._on_storage = on_storage
        self._reached: bool | None = None
        self._machine = machine
        self._leases = leases
        self._shards = shards
        self._who = who
        self._clock = clock
        self._look_every_s = settings.look_every_ms / 1_000
        self._writes: list[Write] = []
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._runner = asyncio.create_task(self._run(), name="shard leases")
        self._runner.add_done_callback(lambda _: self._settled.set())

    async def wait_until_settled(self) -> None:
        """Wait until the shards that are free, or this coordinator's by right, are loaded.

        Raises:
            DroverError: It makes no sense to go on.
        """
        await self._settled.wait()
        if self._runner is not None and self._runner.done():
            await self._runner

    async def wait_until_ended(self) -> None:
        """Wait for ``stop``.

        Raises:
            DroverError: It makes no sense to go on.
        """
        if self._runner is not None:
            await asyncio.shield(self._runner)

    async def stop(self) -> None:
        """Unload and release everything, so that others take over at once; idempotent."""
        if self._runner is None:
            return
        self._tell(StopRequested())
        done, _ = await asyncio.wait([self._runner], timeout=STOP_TIMEOUT_S)
        if not done:
            _log.warning("shards were not given back in time", timeout_s=STOP_TIMEOUT_S)
        for task in (self._runner, *self._tasks):
            task.cancel()
        await asyncio.gather(self._runner, *self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        hasty_count = 0
        while True:
            self._wake.clear()
            writes, self._writes = self._writes, []
            try:
                seen = await self._leases.exchange(writes)
            except UnavailableError as error:
                await self._note_storage(error)
            else:
                await self._note_storage(None)
                self._step(seen)
                if self._machine.retired and not self._writes:
                    return
            if self._writes and self._reached and hasty_count < HASTE_MAX:
                hasty_count += 1
                continue
            hasty_count = 0
            await self._pause()

    async def _note_storage(self, error: UnavailableError | None) -> None:
        """Tell once that the leases cannot be renewed, and once that they can be again."""
        reached = error is None
        if reached is self._reached:
            return
        if error is not None:
            _log.warning("the leases cannot be renewed", error=error.message)
        elif self._reached is False:
            _log.info("the leases can be renewed again")
        self._reached = reached
        if self._on_storage is not None:
            await self._on_storage(reached)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._look_every_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _step(self, event: Event) -> None:
        for instruction in self._machine.step(event, self._clock.now_ms()):
            match instruction:
                case Load(shard, epoch):
                    task = self._spawn(self._load(shard, epoch), f"load shard {shard}")
                    self._loads[shard] = task
                case Unload(shard, epoch):
                    self._spawn(self._unload(shard, epoch), f"unload shard {shard}")
                case _:
                    self._writes.append(instruction)
        if self._machine.settled:
            self._settled.set()

    def _tell(self, event: Event) -> None:
        """An event that comes between two looks: what follows is written without a pause."""
        self._step(event)
        self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, shard: int, epoch: int) -> None:
        _log.info("loading a shard", shard=shard, epoch=epoch)
        lost = partial(self._tell, ShardLost(shard, epoch))
        later = partial(asyncio.get_running_loop().call_soon, lost)
        fencing = Fencing(str(self._who), epoch, lost=later)
        result: Event = LoadDone(shard, epoch)
        try:
            runtime = await self._shards.open(shard, fencing)
            await runtime.load()
        except Exception as error:  # noqa: BLE001 - the machine must hear of every end
            result = self._load_failed(shard, epoch, error)
            await self._shards.close(shard)
        else:
            _log.info("loaded a shard", shard=shard, epoch=epoch)
        self._tell(result)

    def _load_failed(self, shard: int, epoch: int, error: Exception) -> LoadFailed:
        if isinstance(error, FailedPreconditionError) and error.reason is Reason.STALE_TERM:
            log_epoch = int(error.metadata["currentTerm"].partition(".")[0])
            return LoadFailed(shard, epoch, log_epoch)
        if isinstance(error, DroverError) and error.reason is Reason.NOT_COORDINATOR:
            _log.info("a shard was lost while it was loaded", shard=shard, epoch=epoch)
        elif isinstance(error, UnavailableError):
            _log.warning("a shard cannot be loaded yet", shard=shard, error=error.message)
        elif isinstance(error, DroverError):
            _log.error("a shard cannot be loaded", shard=shard, error=error.message)
        else:
            _log.error("a shard cannot be loaded by a defect", shard=shard, exc_info=error)
        return LoadFailed(shard, epoch)

    async def _unload(self, shard: int, epoch: int) -> None:
        _log.info("unloading a shard", shard=shard, epoch=epoch)
        why = self._shards.moved(shard)
        loading = self._loads.pop(shard, None)
        try:
            await self._shards.close(shard, why)
            if loading is not None and not loading.done():
                await asyncio.wait([loading])
                await self._shards.close(shard, why)  # its log may have been opened after all
        except Exception:  # noqa: BLE001 - the machine must hear of every end
            _log.exception("a shard was not unloaded in order", shard=shard, epoch=epoch)
        self._tell(UnloadDone(shard, epoch))
