"""Serves from a storage directory, as its single owner or sharing it with other coordinators."""

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
from drover_coordinator.sharding.shards import GroupRuntime, SingleOwner
from drover_coordinator.wiring import Parts

#: Together with the wait in the queue, this is shorter than the calls' deadlines.
STORE_LOCK_TIMEOUT_MS = 4_500


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
        EmbeddedStore, directory.path / "data.db", lock_timeout_ms=STORE_LOCK_TIMEOUT_MS
    )
    offsets = EmbeddedOffsets(store)
    stack.push_async_callback(offsets.close)
    if settings.coordinators:
        await _serve_shared(parts, directory, leases, offsets, on_bound)
    else:
        await _serve_as_single_owner(parts, directory, offsets, on_bound)


async def _serve_as_single_owner(
    parts: Parts,
    directory: DataDirectory,
    offsets: EmbeddedOffsets,
    on_bound: Callable[[str], None],
) -> None:
    """Own all shards; load them one after the other."""
    single_owner = SingleOwner()
    shards = parts.shards(partial(open_shard_log, directory.path, parts.clock), single_owner)
    bound = await parts.listen(shards, offsets)
    single_owner.address = parts.settings.coordinator_advertised or bound
    on_bound(bound)
    runtimes: list[GroupRuntime] = []
    for shard in range(parts.settings.group_shards):
        runtimes.append(await shards.open(shard))
        if not await load(runtimes[-1], parts.stopping):
            return
        single_owner.loaded.add(shard)
    await _start_serving(parts, offsets)
    await parts.stopping.wait()
    for runtime in runtimes:
        with suppress(DroverError):  # the queue is full: the drain fails the parked calls
            await runtime.post(Unloaded(_shutting_down()))


async def _serve_shared(
    parts: Parts,
    directory: DataDirectory,
    leases: LeaseFile,
    offsets: EmbeddedOffsets,
    on_bound: Callable[[str], None],
) -> None:
    """Share the shards with the coordinators that use the same directory."""
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
        on_serving=partial(_start_serving, parts, offsets),
    )


async def _start_serving(parts: Parts, offsets: EmbeddedOffsets) -> None:
    """Set health to SERVING and start retention."""
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
        Reason.DRAINING, "the coordinator is shutting down: retry after its restart"
    )
