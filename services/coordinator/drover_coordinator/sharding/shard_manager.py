"""Executes the decisions of ``core.ownership``: exchanges leases, loads and unloads shards."""

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
from drover_coordinator.sharding.leases import LeaseClient
from drover_coordinator.sharding.shards import Fencing, Shards

#: Decisions are written at once, without the usual pause; at most this many exchanges in a row.
IMMEDIATE_EXCHANGES_MAX = 4
#: Limit for releasing all leases at shutdown; others take over the remaining leases on expiry.
STOP_TIMEOUT_S = 5.0

_log = structlog.get_logger("drover.coordinator")


class ShardManager:
    """Renews this coordinator's leases and loads or unloads its shards, from ``start`` to ``stop``.

    Args:
        machine: Makes the decisions.
        leases: The table of leases.
        shards: Loaded and unloaded as decided.
        who: This run of this coordinator.
        clock: For the machine.
        settings: For the machine.
        on_storage: Called with whether the table is reachable, at the start and at each change.
    """

    def __init__(
        self,
        machine: Ownership,
        leases: LeaseClient,
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
        """Start in the background."""
        self._runner = asyncio.create_task(self._run(), name="shard leases")
        self._runner.add_done_callback(lambda _: self._settled.set())

    async def wait_until_settled(self) -> None:
        """Wait until the shards of the first assignment to this coordinator are loaded.

        Raises:
            DroverError: The coordinator cannot continue.
        """
        await self._settled.wait()
        if self._runner is not None and self._runner.done():
            await self._runner

    async def wait_until_ended(self) -> None:
        """Wait for ``stop``.

        Raises:
            DroverError: The coordinator cannot continue.
        """
        if self._runner is not None:
            await asyncio.shield(self._runner)

    async def stop(self) -> None:
        """Unload all shards and release their leases for others to claim; idempotent."""
        if self._runner is None:
            return
        self._notify(StopRequested())
        done, _ = await asyncio.wait([self._runner], timeout=STOP_TIMEOUT_S)
        if not done:
            _log.warning("shards were not released in time", timeout_s=STOP_TIMEOUT_S)
        for task in (self._runner, *self._tasks):
            task.cancel()
        await asyncio.gather(self._runner, *self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        immediate_count = 0
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
            if self._writes and self._reached and immediate_count < IMMEDIATE_EXCHANGES_MAX:
                immediate_count += 1
                continue
            immediate_count = 0
            await self._pause()

    async def _note_storage(self, error: UnavailableError | None) -> None:
        """Log and report when the table becomes reachable or unreachable."""
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

    def _notify(self, event: Event) -> None:
        """Handle an event between two exchanges, and write its decisions at once."""
        self._step(event)
        self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, shard: int, epoch: int) -> None:
        _log.info("loading a shard", shard=shard, epoch=epoch)
        lost = partial(self._notify, ShardLost(shard, epoch))
        later = partial(asyncio.get_running_loop().call_soon, lost)
        fencing = Fencing(str(self._who), epoch, lost=later)
        result: Event = LoadDone(shard, epoch)
        try:
            runtime = await self._shards.open(shard, fencing)
            await runtime.load()
        except Exception as error:  # noqa: BLE001 - the machine needs an event on every outcome
            result = self._load_failed(shard, epoch, error)
            await self._shards.close(shard)
        else:
            _log.info("loaded a shard", shard=shard, epoch=epoch)
        self._notify(result)

    def _load_failed(self, shard: int, epoch: int, error: Exception) -> LoadFailed:
        if isinstance(error, FailedPreconditionError) and error.reason is Reason.STALE_TERM:
            log_epoch = int(error.metadata["currentTerm"].partition(".")[0])
            return LoadFailed(shard, epoch, log_epoch)
        if isinstance(error, DroverError) and error.reason is Reason.NOT_COORDINATOR:
            _log.info("a shard was lost during its load", shard=shard, epoch=epoch)
        elif isinstance(error, UnavailableError):
            _log.warning("a shard cannot be loaded yet", shard=shard, error=error.message)
        elif isinstance(error, DroverError):
            _log.error("a shard cannot be loaded", shard=shard, error=error.message)
        else:
            _log.error("a shard cannot be loaded because of a defect", shard=shard, exc_info=error)
        return LoadFailed(shard, epoch)

    async def _unload(self, shard: int, epoch: int) -> None:
        _log.info("unloading a shard", shard=shard, epoch=epoch)
        why = self._shards.moved(shard)
        loading = self._loads.pop(shard, None)
        try:
            await self._shards.close(shard, why)
            if loading is not None and not loading.done():
                await asyncio.wait([loading])
                await self._shards.close(shard, why)  # the load may have opened the log before
        except Exception:  # noqa: BLE001 - the machine needs an event on every outcome
            _log.exception("a shard was not unloaded cleanly", shard=shard, epoch=epoch)
        self._notify(UnloadDone(shard, epoch))
