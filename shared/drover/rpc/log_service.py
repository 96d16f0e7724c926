"""Serves a machine with its log in a file of the embedded storage or in a Kafka topic."""

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from drover.clock import SystemClock
from drover.log.connect_json import UnknownKindError, UnreadableRecordError
from drover.log.directory import DataDirectory
from drover.log.log import StoredRecord
from drover.log.sqlite import SqliteLog
from drover.log.storage import KafkaStorage, Storage
from drover.metrics.endpoint import Metrics, serving_metrics
from drover.rpc.security import Security
from drover.rpc.server import RpcServer
from drover.rpc.stopping import unless_stopped
from drover.rpc.storage_metrics import volume_samples
from drover.rpc.topic_service import DRAIN_GRACE_S, TopicPlace, Wire, serve_topic
from drover.runtime.runtime import Runtime

RecordT = TypeVar("RecordT")

#: The maximum number of unknown record kinds that a service logs.
UNKNOWN_KINDS_MAX = 100

_log = structlog.get_logger("drover.rpc")


async def serve_log(
    *,
    name: str,
    storage: Storage,
    file_name: str,
    topic: TopicPlace,
    listen: str,
    security: Security,
    metrics_listen: str,
    stopping: asyncio.Event,
    wire: Wire,
) -> None:
    """Serve until ``stopping`` is set, then drain; health is NOT_SERVING while the log is read.

    Args:
        name: The service, such as "config-store"; also the name of its lock in the directory.
        storage: The cluster's storage.
        file_name: The log's file in the embedded storage.
        topic: The log's topic on Kafka.
        listen: host:port.
        security: TLS and authorization.
        metrics_listen: host:port of the metrics endpoint; empty for none.
        stopping: Set when the process should end.
        wire: Creates the runtime and adds its servicer to the server.

    Raises:
        DroverError: The storage cannot be used, or belongs to another cluster or process.
        ListenError: The server cannot listen on the address.
    """
    metrics = Metrics(name)
    server = RpcServer(listen=listen, internal=True, security=security, metrics=metrics)
    metrics.add(server.health_samples)
    async with serving_metrics(metrics_listen, metrics):
        if isinstance(storage, KafkaStorage):
            await serve_topic(
                storage, topic, server=server, stopping=stopping, wire=wire, load=_load
            )
            return
        directory = DataDirectory(storage.directory)
        directory.prepare()
        metrics.add(partial(volume_samples, directory.path))
        with directory.lock(name):
            await _serve_file(directory.path / file_name, server, stopping, wire)


async def _serve_file(path: Path, server: RpcServer, stopping: asyncio.Event, wire: Wire) -> None:
    clock = SystemClock()
    log = await SqliteLog.open(path, clock)
    try:
        runtime = wire(log, clock, server)
        server.metrics.add(runtime.samples)
        try:
            await server.start()
            if await load(runtime, stopping):
                await server.set_serving(True)
                _log.info("serving")
                await stopping.wait()
        finally:
            await server.drain(DRAIN_GRACE_S)
            await runtime.close()
    finally:
        await log.close()


async def load(runtime: Runtime[Any], stopping: asyncio.Event) -> bool:
    """Read a runtime's log; False if ``stopping`` was set before the end.

    Raises:
        DroverError: The log cannot be read.
    """
    return await unless_stopped(_load(runtime), stopping)


async def _load(runtime: Runtime[Any]) -> None:
    # loaded objects live until the process ends: collections would take a quarter of the load time
    # here, and a full collection would pause the service later
    gc.disable()
    try:
        await runtime.load()
    finally:
        gc.enable()
    gc.freeze()


def skipping_unreadable(
    decode: Callable[[bytes, bytes | None], RecordT], ignored: RecordT, service: str
) -> Callable[[StoredRecord], RecordT]:
    """Wrap ``decode`` to return ``ignored`` for records that it cannot read.

    The service logs a warning with the place of each such record; for a record kind that this
    version does not know, only for the first record.
    """
    kinds: set[str] = set()

    def decode_stored(stored: StoredRecord) -> RecordT:
        try:
            return decode(stored.record.key, stored.record.value)
        except UnreadableRecordError as error:
            kind = error.kind if isinstance(error, UnknownKindError) else ""
            if not kind:
                log_skipped_record(stored, service, str(error))
            elif kind not in kinds and len(kinds) < UNKNOWN_KINDS_MAX:
                kinds.add(kind)
                log_skipped_record(
                    stored, service, f"{error}; further records of this kind are not logged"
                )
            return ignored

    return decode_stored


def log_skipped_record(stored: StoredRecord, service: str, why: str) -> None:
    """Log a warning about a record that cannot be read, with its place."""
    topic, partition, offset = stored.place or (None, None, stored.offset)
    on_kafka = {} if topic is None else {"topic": topic, "partition": partition}
    _log.warning(
        "a record cannot be read and is skipped",
        log=service,
        **on_kafka,
        offset=offset,
        key=stored.record.key[:200].decode(errors="backslashreplace"),
        why=why,
    )
