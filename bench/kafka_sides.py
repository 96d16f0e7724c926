"""Drover and Kafka Connect on a real broker behind one small interface."""

import asyncio
import sys
import tempfile
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from bench.figure import Figure
from drover.cli.output.connectors import run_state
from drover.client import ConnectClient
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.connect import STRING_CONVERTER, ConnectOptions, KafkaConnect
from tests.support.kafka.connect_rest import ConnectRest, ConnectRestError
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.kafka.jars import KafkaJars, find_jars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.waiting import wait_until_async

#: JVM options of the test fixtures for a fast start; they slow long runs, so they are dropped.
_START_SOON = frozenset({"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"})
#: The default of Kafka's own scripts.
_BROKER_HEAP_MIB = 1024
_CONNECT_HEAP_MIB = 2048
_CONNECT_PROGRAM = "org.apache.kafka.connect.cli.ConnectDistributed"
#: Kafka Connect's own defaults; the test fixtures set shorter intervals.
_CONNECT_DEFAULTS = {
    "offset.flush.interval.ms": "60000",
    "heartbeat.interval.ms": "3000",
    "rebalance.timeout.ms": "60000",
    "consumer.session.timeout.ms": "45000",
    "consumer.heartbeat.interval.ms": "3000",
}


class Side(Protocol):
    """A system that runs connectors."""

    name: str

    async def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector; returns once its config is durable."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a connector; returns once this is durable."""
        ...

    async def running_count(self) -> int:
        """The number of connectors that are RUNNING with at least one task, all of them RUNNING."""
        ...


class StoppableSide(Side, Protocol):
    """A side whose connectors can be stopped."""

    async def stop(self, name: str) -> None:
        """Stop a connector; returns once its tasks have ended. Its config is kept."""
        ...

    async def resume(self, name: str) -> None:
        """Resume a connector; returns once this is durable."""
        ...


class ServerJars(KafkaJars):
    """Kafka's programs with the options of its own scripts: full compilation, more memory."""

    def command(
        self,
        main_class: str,
        *arguments: str,
        heap_mib: int,
        properties: Sequence[str] = (),
        classes: Sequence[Path] = (),
    ) -> list[str]:
        """See KafkaJars."""
        enough_mib = _CONNECT_HEAP_MIB if main_class == _CONNECT_PROGRAM else _BROKER_HEAP_MIB
        command = KafkaJars.command(
            self,
            main_class,
            *arguments,
            heap_mib=max(heap_mib, enough_mib),
            properties=properties,
            classes=classes,
        )
        return [each for each in command if each not in _START_SOON]


class DroverSide:
    """A cluster's admin API."""

    name = "Drover"

    def __init__(self, client: ConnectClient) -> None:
        self._client = client

    async def create(self, name: str, config: Mapping[str, str]) -> None:
        """See Side."""
        await self._client.create_connector(name, config)

    async def delete(self, name: str) -> None:
        """See Side."""
        await self._client.delete_connector(name)

    async def stop(self, name: str) -> None:
        """See Side."""
        await self._client.stop_connector(name)

        async def is_stopped() -> bool:
            status = await self._client.get_connector_status(name)
            return _stopped(run_state(status.connector.state), status.tasks)

        await wait_until_async(is_stopped, describe=f"{name} of {self.name} is stopped")

    async def resume(self, name: str) -> None:
        """See Side."""
        await self._client.resume_connector(name)

    async def running_count(self) -> int:
        """See Side."""
        entries = await self._client.list_connectors(include_status=True)
        return sum(
            _all_running(
                run_state(each.status.connector.state),
                [run_state(task.state) for task in each.status.tasks],
            )
            for each in entries
        )


class ConnectSide:
    """The REST interface of a worker."""

    name = "Kafka Connect"

    def __init__(self, rest: ConnectRest) -> None:
        self._rest = rest

    async def create(self, name: str, config: Mapping[str, str]) -> None:
        """See Side."""
        await asyncio.to_thread(self._rest.create, name, config)

    async def delete(self, name: str) -> None:
        """See Side."""
        await asyncio.to_thread(self._rest.delete, name)

    async def stop(self, name: str) -> None:
        """See Side."""
        await asyncio.to_thread(self._rest.stop, name)

        async def is_stopped() -> bool:
            status = await asyncio.to_thread(self._rest.status, name)
            return _stopped(status["connector"]["state"], status["tasks"])

        await wait_until_async(is_stopped, describe=f"{name} of {self.name} is stopped")

    async def resume(self, name: str) -> None:
        """See Side."""
        await asyncio.to_thread(self._rest.resume, name)

    async def running_count(self) -> int:
        """See Side."""
        try:
            found = await asyncio.to_thread(self._rest.call, "GET", "/connectors?expand=status")
        except ConnectRestError as error:  # a connector that has no status yet
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return 0
        statuses = [each["status"] for each in found.values()]
        return sum(
            _all_running(each["connector"]["state"], [task["state"] for task in each["tasks"]])
            for each in statuses
        )


@contextmanager
def measured_broker(part: str) -> Iterator[tuple[KafkaJars, str, Path] | None]:
    """Jars, a broker's address and a folder; without Kafka, prints the reason and yields None."""
    try:
        found = find_jars()
    except KafkaMissingError as error:
        sys.stderr.write(f"{part} is skipped: {error}\n")
        yield None
        return
    jars = ServerJars(found.version, found.directory, found.java)
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        broker = KafkaBroker(jars, Path(folder) / "broker")
        broker.start()
        try:
            yield jars, broker.bootstrap, Path(folder)
        finally:
            broker.stop()


def figures_on_broker(
    part: str, measure: Callable[[KafkaJars, str, Path], Coroutine[Any, Any, Iterable[Figure]]]
) -> Iterator[Figure]:
    """What is measured with jars, a broker's address and a folder; see measured_broker."""
    with measured_broker(part) as found:
        if found is not None:
            yield from asyncio.run(measure(*found))


@asynccontextmanager
async def drover_side(
    bootstrap: str, directory: Path, *, workers: int = 1, env: Mapping[str, str] | None = None
) -> AsyncIterator[StoppableSide]:
    """A Drover cluster; its workers are members and their engines are warm.

    Args:
        bootstrap: The broker.
        directory: A folder that does not exist.
        workers: How many.
        env: Further variables of the services.
    """
    directory.mkdir()
    options = ConnectOptions.named("bench-drover", exactly_once_source="enabled")
    async with drover_on_kafka(bootstrap, options, directory, workers=workers, env=env) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            yield DroverSide(client)


@asynccontextmanager
async def connect_side(
    jars: KafkaJars,
    bootstrap: str,
    directory: Path,
    *,
    workers: int = 1,
    settings: Mapping[str, str] | None = None,
    exactly_once: bool = False,
) -> AsyncIterator[StoppableSide]:
    """A Kafka Connect cluster whose workers have joined; ``settings`` override its defaults."""
    settings = {**_CONNECT_DEFAULTS, **(settings or {})}
    options = replace(
        ConnectOptions.named("bench-connect-once" if exactly_once else "bench-connect"),
        settings=settings,
        exactly_once_source="enabled" if exactly_once else "disabled",
    )
    async with AsyncExitStack() as stack:
        started = []
        for number in range(workers):
            worker = KafkaConnect(jars, bootstrap, directory / str(number), options)
            stack.push_async_callback(asyncio.to_thread, worker.stop)
            await asyncio.to_thread(worker.start)
            started.append(worker)
        yield ConnectSide(started[0].rest)


def source_config(topic: str, path: Path) -> dict[str, str]:
    """For both sides; each knows the class by this name."""
    return {
        "connector.class": "FileStreamSource",
        "topic": topic,
        "file": str(path),
        "value.converter": STRING_CONVERTER,
    }


def sink_config(topic: str, path: Path) -> dict[str, str]:
    """As source_config."""
    return {
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": str(path),
        "value.converter": STRING_CONVERTER,
    }


@asynccontextmanager
async def created_copy(
    side: Side,
    topic: str,
    source: Path,
    target: Path,
    *,
    source_settings: Mapping[str, str] | None = None,
    sink_settings: Mapping[str, str] | None = None,
) -> AsyncIterator[None]:
    """Connectors that copy a file through a topic; deleted unless something fails."""
    await side.create(f"{topic}-sink", {**sink_config(topic, target), **(sink_settings or {})})
    await side.create(
        f"{topic}-source", {**source_config(topic, source), **(source_settings or {})}
    )
    yield
    for kind in ("source", "sink"):
        await side.delete(f"{topic}-{kind}")


def _stopped(connector: str, tasks: Sequence[object]) -> bool:
    return connector == "STOPPED" and not tasks


def _all_running(connector: str, tasks: Sequence[str]) -> bool:
    return {connector, *tasks} == {"RUNNING"} and bool(tasks)
