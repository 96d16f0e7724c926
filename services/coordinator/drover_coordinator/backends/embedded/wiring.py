"""A coordinator on the embedded storage directory: alone, or sharing it with others."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from drover.dataplane.store import EmbeddedStore
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.directory import DataDirectory
from drover.rpc.log_service import load
from drover_coordinator.backends.embedded.lease_file import FileLeases, LeaseFile, lock_address
from drover_coordinator.backends.embedded.offsets import EmbeddedOffsets
from drover_coordinator.backends.embedded.retention import RetentionTimer
from drover_coordinator.backends.embedded.shard_files import open_shard_log, open_shards
from drover_coordinator.core.groups.events import Unloaded
from drover_coordinator.settings import UNLIMITED
from drover_coordinator.sharding.shards import Alone, GroupRuntime
from drover_coordinator.wiring import Parts

#: Tried three times; with the wait for its turn shorter than the deadlines of the calls.
STORE_BUSY_TIMEOUT_MS = 1_500


async def serve_embedded(
    parts: Parts, directory: DataDirectory, on_bound: Callable[[str], None]
) -> None:
    """Serve until the process is to stop."""
    settings, stack = parts.settings, parts.stack
    directory.prepare()
    stack.enter_context(directory.lock("coordinator", shared=bool(settings.coordinators)))
    leases = await asyncio.to_thread(open_shards, directory, settings.group_shards)
    stack.callback(leases.close)
    store = await asyncio.to_thread(
        EmbeddedStore, directory.path / "data.db", busy_timeout_ms=STORE_BUSY_TIMEOUT_MS
    )
    offsets = EmbeddedOffsets(store)
    stack.push_async_callback(offsets.close)
    if settings.coordinators:
        await _serve_shared(parts, directory, leases, offsets, on_bound)
    else:
        await _serve_alone(parts, directory, offsets, on_bound)


async def _serve_alone(
    parts: Parts,
    directory: DataDirectory,
    offsets: EmbeddedOffsets,
    on_bound: Callable[[str], None],
) -> None:
    """All shards are this process's: read them, one after the other."""
    alone = Alone()
    shards = parts.shards(partial(open_shard_log, directory.path, parts.clock), alone)
    bound = await parts.listen(shards, offsets)
    alone.address = parts.settings.coordinator_advertised or bound
    on_bound(bound)
    runtimes: list[GroupRuntime] = []
    for shard in range(parts.settings.group_shards):
        runtimes.append(await shards.open(shard))
        if not await load(runtimes[-1], parts.stopping):
            return
        alone.loaded.add(shard)
    await _say_serving(parts, offsets)
    await parts.stopping.wait()
    for runtime in runtimes:
        with suppress(DroverError):  # too busy: the parked calls hear it from the drain
            await runtime.post(Unloaded(_shutting_down()))


async def _serve_shared(
    parts: Parts,
    directory: DataDirectory,
    leases: LeaseFile,
    offsets: EmbeddedOffsets,
    on_bound: Callable[[str], None],
) -> None:
    """The shards are shared with the coordinators that use the same directory."""
    settings = parts.settings
    address = settings.coordinator_advertised or settings.coordinator_listen
    parts.stack.enter_context(await lock_address(directory, address))
    who = parts.identity(address)
    machine = parts.ownership(who)
    shards = parts.shards(partial(open_shard_log, directory.path, parts.clock), machine)
    on_bound(await parts.listen(shards, offsets))
    await parts.share(
        FileLeases(directory, leases, who),
        shards,
        machine=machine,
        who=who,
        on_serving=partial(_say_serving, parts, offsets),
    )


async def _say_serving(parts: Parts, offsets: EmbeddedOffsets) -> None:
    """Health says so, and what runs beside the calls begins."""
    await parts.server.set_serving(True)
    retention = RetentionTimer(
        offsets,
        retention_ms=_limit(parts.settings.topic_retention_ms),
        retention_bytes=_limit(parts.settings.topic_retention_bytes),
    )
    parts.stack.push_async_callback(retention.close)
    retention.start()


def _limit(setting: int) -> int | None:
    return None if setting == UNLIMITED else setting


def _shutting_down() -> UnavailableError:
    return UnavailableError(
        Reason.DRAINING, "the coordinator is shutting down; try again when it is back"
    )
