"""The gateway's REST API beside Kafka Connect's, both warm, with the same requests.

1,000 connectors that are stopped, so that neither side runs tasks. Both sides run during all
rounds, which alternate. The gateway is a separate process; its worker has an engine that runs no
plugin. CPU is that of the gateway's process, and of Kafka Connect's worker.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.figure import Figure
from bench.http_load import load, response_ms
from bench.kafka_sides import ServerJars
from drover.client import ConnectClient
from drover.local.ports import free_ports
from drover.model.config import TargetState
from drover.python_process import python_command, python_environment
from drover.rpc.logs import configure_logging
from tests.support.fake_engine import SOURCE
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.clients import create_topic, is_listening, produce
from tests.support.kafka.connect import FILE_SOURCE, ConnectOptions, KafkaConnect
from tests.support.kafka.connect_rest import ConnectRestError
from tests.support.kafka.jars import KafkaJars, find_jars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.waiting import pause, wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONNECTOR_COUNT = 1_000
CALLERS = (1, 32)
PATHS = {"status": "/connectors/c-500/status", "expand": "/connectors?expand=status"}
ROUNDS = 5
ROUND_S = 2.0
#: The requests after which the JVM has compiled the code for them, and their time limit.
WARM_UP_COUNTS, WARM_UP_MAX_S = {"status": 20_000, "expand": 1_000}, 240.0
#: Starts of a gateway, for the first request.
STARTS = 5
#: How long a gateway is idle before its memory is read.
IDLE_S = 5.0
IDLE_MAX_MIB, IDLE_WITH_TOOLS_MAX_MIB, FIRST_MAX_MS = 60, 110, 50
_STOPPED_TIMEOUT_S = 300.0
_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement.

    Attributes:
        per_second: Requests per second.
        p99_ms: The duration that 99 % of the requests do not exceed.
        cpu_us: CPU of the server's process for one request.
    """

    per_second: float
    p99_ms: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Side:
    """A REST API and its process."""

    address: str
    process: psutil.Process

    @property
    def rss_mib(self) -> float:
        """The resident memory."""
        return float(self.process.memory_info().rss / _MEBIBYTE)

    async def run(self, path: str, callers: int, seconds: float) -> Run:
        """GET a path by several callers for a time."""
        before_s = self.cpu_s()
        done = await asyncio.to_thread(load, self.address, path, callers=callers, seconds=seconds)
        cpu_s = self.cpu_s() - before_s
        return Run(done.count / done.seconds, done.p99_ms, cpu_s / done.count * 1e6)

    async def warm_up(self) -> None:
        """Make each kind of request many times."""
        for kind, path in PATHS.items():
            end_s = time.monotonic() + WARM_UP_MAX_S
            left = WARM_UP_COUNTS[kind]
            while left > 0 and time.monotonic() < end_s:
                done = await self.run(path, CALLERS[-1], ROUND_S)
                left -= round(done.per_second * ROUND_S)

    def cpu_s(self) -> float:
        """The CPU time of the process."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Started:
    """A gateway that has answered its first request."""

    side: Side
    first_ms: float


@asynccontextmanager
async def worker_with_connectors(directory: Path) -> AsyncIterator[str]:
    """A worker that has the connectors; its address."""
    async with WorkerCluster(directory) as cluster:
        (worker,) = await cluster.settled_workers(1)
        assert worker.channel is not None
        client = ConnectClient(worker.channel)
        for number in range(CONNECTOR_COUNT):
            await client.create_connector(
                f"c-{number}", {"connector.class": SOURCE}, initial_state=TargetState.STOPPED
            )
        yield worker.address


@asynccontextmanager
async def gateway(worker: str, **settings: str) -> AsyncIterator[Started]:
    """A gateway; ``settings`` are further ones, without their prefix."""
    (port,) = free_ports("127.0.0.1", 1)
    address = f"127.0.0.1:{port}"
    environment = python_environment({**os.environ})
    environment |= {"DROVER_GATEWAY_LISTEN": address, "DROVER_GATEWAY_WORKERS": worker}
    environment |= {f"DROVER_GATEWAY_{name}": value for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        *python_command("drover_gateway"), env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await wait_until_async(lambda: process.returncode is not None or is_listening(port))
        first_ms = await asyncio.to_thread(response_ms, address, PATHS["status"])
        yield Started(Side(address, psutil.Process(process.pid)), first_ms)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def connect_side(jars: KafkaJars, directory: Path) -> AsyncIterator[Side]:
    """A worker of Kafka Connect with the same connectors.

    They are written to its config topic before it starts: each creation by REST would start a
    rebalance, which takes longer with each connector.
    """
    options = ConnectOptions.named("bench")
    async with AsyncExitStack() as stack:
        broker = KafkaBroker(jars, directory / "broker")
        stack.push_async_callback(asyncio.to_thread, broker.stop)
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(_write_connectors, broker.bootstrap, options.config_topic)
        connect = KafkaConnect(jars, broker.bootstrap, directory / "connect", options)
        stack.push_async_callback(asyncio.to_thread, connect.stop)
        await asyncio.to_thread(connect.start)
        await wait_until_async(
            lambda: asyncio.to_thread(_all_stopped, connect),
            timeout_s=_STOPPED_TIMEOUT_S,
            describe=f"{CONNECTOR_COUNT} connectors of Kafka Connect are STOPPED",
        )
        address = connect.rest.url.removeprefix("http://")
        yield Side(address, psutil.Process(connect.process.pid))


def _write_connectors(bootstrap: str, topic: str) -> None:
    """Write the connectors as Kafka Connect does: the target state before the config."""
    create_topic(bootstrap, topic, config={"cleanup.policy": "compact"})
    records: list[tuple[str, Mapping[str, object]]] = []
    for number in range(CONNECTOR_COUNT):
        name = f"c-{number}"
        config = {"name": name, "connector.class": FILE_SOURCE, "topic": "t", "file": "/nowhere"}
        # STOPPED is in the second field: releases before 3.5 read only the first one
        records.append((f"target-state-{name}", {"state": "PAUSED", "state.v2": "STOPPED"}))
        records.append((f"connector-{name}", {"properties": config}))
    produce(
        bootstrap, topic, ((key.encode(), json.dumps(value).encode()) for key, value in records)
    )


def _all_stopped(connect: KafkaConnect) -> bool:
    try:
        found = connect.rest.call("GET", "/connectors?expand=status")
    except ConnectRestError:  # a connector that has no status yet
        return False
    states = [each["status"]["connector"]["state"] for each in found.values()]
    return states == ["STOPPED"] * CONNECTOR_COUNT


async def _first_requests(worker: str) -> Figure:
    """The first request to a gateway, several times."""
    samples = []
    for _ in range(STARTS):
        async with gateway(worker) as started:
            samples.append(started.first_ms)
    return Figure(
        "gateway_first_request",
        statistics.median(samples),
        "ms",
        limit=f"<= {FIRST_MAX_MS}",
        samples=samples,
    )


async def _idle(name: str, side: Side, max_mib: int) -> Sequence[Figure]:
    """The memory of a gateway that has answered one request."""
    await pause(IDLE_S)
    found = side.process.memory_full_info()
    return [
        Figure(f"{name}_rss", found.rss / _MEBIBYTE, "MiB", limit=f"<= {max_mib}"),
        Figure(f"{name}_pss", found.pss / _MEBIBYTE, "MiB"),
    ]


async def _rounds(own: Side, peer: Side | None) -> Sequence[Figure]:
    """All kinds of requests to both sides, alternately."""
    sides = [own] if peer is None else [peer, own]
    for side in sides:
        await side.warm_up()
    figures: list[Figure] = []
    for kind, path in PATHS.items():
        for callers in CALLERS:
            runs: dict[Side, list[Run]] = defaultdict(list)
            for _ in range(ROUNDS):
                for side in sides:
                    runs[side].append(await side.run(path, callers, ROUND_S))
            others = [] if peer is None else runs[peer]
            name = f"gateway_{kind}_{callers}"
            p99_limit = "<= 3 x" if callers == CALLERS[-1] else ""
            figures += [
                _figure(f"{name}_cpu", "us", "cpu_us", runs[own], others, "<= 1.2 x"),
                _figure(f"{name}_rate", "1/s", "per_second", runs[own], others, ">= 0.4 x"),
                _figure(f"{name}_p99", "ms", "p99_ms", runs[own], others, p99_limit),
            ]
    return figures


async def _measured() -> Sequence[Figure]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drover-bench-")))
        peer = None
        try:
            found = find_jars()
        except KafkaMissingError as missing:
            sys.stderr.write(f"no Kafka Connect beside it: {missing}\n")
        else:
            jars = ServerJars(found.version, found.directory, found.java)
            peer = await stack.enter_async_context(connect_side(jars, folder / "kafka"))
        worker = await stack.enter_async_context(worker_with_connectors(folder / "drover"))
        figures = [await _first_requests(worker)]
        async with gateway(worker, MCP="read") as with_tools:
            figures += await _idle("gateway_idle_mcp", with_tools.side, IDLE_WITH_TOOLS_MAX_MIB)
        started = await stack.enter_async_context(gateway(worker))
        figures += await _idle("gateway_idle", started.side, IDLE_MAX_MIB)
        figures += await _rounds(started.side, peer)
        memory = Figure(
            "gateway_rss",
            started.side.rss_mib,
            "MiB",
            peer="" if peer is None else "Kafka Connect",
            peer_value=None if peer is None else peer.rss_mib,
            limit="<= 0.25 x",
        )
        return [*figures, memory]


def _figure(
    name: str, unit: str, field: str, runs: Sequence[Run], peers: Sequence[Run], limit: str
) -> Figure:
    """The median of the runs, beside that of Kafka Connect."""
    samples = [float(getattr(each, field)) for each in runs]
    return Figure(
        name,
        statistics.median(samples),
        unit,
        peer="Kafka Connect" if peers else "",
        peer_value=statistics.median(getattr(each, field) for each in peers) if peers else None,
        limit=limit,
        samples=samples,
    )


def figures() -> Iterator[Figure]:
    """CPU, rate and durations of reads, the first request, and memory, beside Kafka Connect's."""
    configure_logging("bench", "ERROR")  # the worker is in this process
    yield from asyncio.run(_measured())
