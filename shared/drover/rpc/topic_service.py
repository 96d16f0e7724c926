"""Serves a machine with its log in a Kafka topic, also while the brokers are unreachable.

The service listens from its start. Calls fail with LOADING until it has reached its topics and read
its log. If the brokers are unreachable later, reads and watches continue from memory, and writes
fail with STORAGE_UNAVAILABLE.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from drover.backoff import Backoff
from drover.clock import Clock, SystemClock
from drover.errors import DroverError, InternalError, Reason
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.control import ControlTopic
from drover.log.kafka.log import FollowedKafkaLog, KafkaLog, KafkaLogSpec
from drover.log.kafka.topics import TopicSpec, ensure_topics
from drover.log.log import Log
from drover.log.storage import KafkaStorage
from drover.rpc.deferred_log import DeferredLog
from drover.rpc.server import RpcServer
from drover.rpc.stopping import unless_stopped
from drover.rpc.storage_health import StorageHealth
from drover.runtime.runtime import Runtime

RETRY_FIRST_S = 0.5
RETRY_MAX_S = 5.0
DRAIN_GRACE_S = 5.0

T = TypeVar("T")

Wire = Callable[[Log, Clock, RpcServer], Runtime[Any]]

_log = structlog.get_logger("drover.rpc")


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """The topic of a service's log, and the transactional id of its privileged writer, if any."""

    topic: Callable[[KafkaStorage], TopicSpec]
    transactional_id: Callable[[KafkaStorage], str] = lambda storage: ""


async def serve_topic(
    storage: KafkaStorage,
    place: TopicPlace,
    *,
    server: RpcServer,
    stopping: asyncio.Event,
    wire: Wire,
    load: Callable[[Runtime[Any]], Awaitable[None]],
) -> None:
    """Serve until ``stopping`` is set, then drain.

    Args:
        storage: The brokers and topics.
        place: The log's topic.
        server: The server, not yet started.
        stopping: Set when the process should end.
        wire: Creates the runtime and adds its servicer to the server.
        load: Loads the runtime.

    Raises:
        InvalidArgumentError: INVALID_CONFIG, the settings of Kafka clients are invalid.
        DroverError: A topic has wrong settings or belongs to another cluster, or the log cannot be
            read or followed.
        ListenError: The server cannot listen on the address.
    """
    topic = place.topic(storage)
    async with AsyncExitStack() as stack:
        client = KafkaClient(storage)
        stack.push_async_callback(client.close)
        control_stack = await stack.enter_async_context(AsyncExitStack())
        health = StorageHealth(server, client, topic.name)
        log = DeferredLog(health.write_ended)
        stack.push_async_callback(log.close)
        clock = SystemClock()
        runtime = wire(log, clock, server)
        server.metrics.add(runtime.samples)
        stack.push_async_callback(runtime.close)
        stack.push_async_callback(server.drain, DRAIN_GRACE_S)
        await server.start()
        await server.set_storage_serving(False)
        spec = KafkaLogSpec(topic=topic.name, transactional_id=place.transactional_id(storage))

        async def serve() -> None:
            control = await _retry(lambda: ControlTopic.open(client), health)
            control_stack.push_async_callback(control.close)
            await _retry(lambda: control.check_cluster(storage.group_id, None), health)
            await _retry(lambda: ensure_topics(client, [topic]), health)
            opened = await _retry(lambda: KafkaLog.open(client, control, spec, clock), health)
            log.set_log(_followed(opened))
            await _retry(lambda: load(runtime), health)
            await server.set_serving(True)
            _log.info("serving")
            watching = asyncio.create_task(health.watch())
            try:
                raise await runtime.wait_until_failed()
            finally:
                watching.cancel()
                await asyncio.wait([watching])

        await unless_stopped(serve(), stopping)


async def _retry(step: Callable[[], Awaitable[T]], health: StorageHealth) -> T:
    """The result of ``step``, which is retried with back-off while the storage is unavailable."""
    backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
    while True:
        try:
            return await step()
        except DroverError as error:
            if error.reason is not Reason.STORAGE_UNAVAILABLE:
                raise
            await health.report_failure(error)
        await asyncio.sleep(backoff.next_pause_s())


def _followed(log: KafkaLog) -> FollowedKafkaLog:
    if not isinstance(log, FollowedKafkaLog):
        raise InternalError("the log of a store must be a FollowedKafkaLog")
    return log
