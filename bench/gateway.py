"""The gateway's REST API beside Kafka Connect's, both warm, with the same requests.

1,000 connectors that are stopped, so that neither side runs tasks. The gateway is a
separate process; its worker has an engine that runs no plugin. CPU is that of the gateway's
process, and of Kafka Connect's worker.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.figure import Figure, percentile
from bench.kafka_sides import ServerJars
from drover.client import ConnectClient
from drover.local.ports import free_ports
from drover.model.config import TargetState
from drover.python_process import python_command, python_environment
from tests.support.fake_engine import SOURCE
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.connect import FILE_SOURCE, ConnectOptions, KafkaConnect
from tests.support.kafka.jars import find_jars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.raw_http import RawClient, ask, connected
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONNECTOR_COUNT = 1_000
CALLERS = (1, 32)
#: Requests of all callers together in a run; a warm-up has a quarter of them.
STATUS_COUNT, LIST_COUNT = 20_000, 400
ROUNDS = 3
RSS_MAX_MIB = 60
_PATHS = {"status": "/connectors/c-500/status", "expand": "/connectors?expand=status"}


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement.

    Attributes:
        per_second: Requests a second.
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

    async def run(self, path: str, callers: int, count: int) -> Run:
        """Make ``count`` requests by several callers, each over its own connection."""
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()
        left = iter(range(count))
        durations_ms: list[float] = []

        async def call(client: RawClient) -> None:
            for _ in left:
                started_s = time.perf_counter()
                await client.send(request)
                response = await client.response()
                durations_ms.append((time.perf_counter() - started_s) * 1000)
                if response.status != 200:
                    raise RuntimeError(f"{self.address}{path}: {response.status}")

        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(connected(self.address)) for _ in range(callers)
            ]
            before_s, started_s = _cpu_s(self.process), time.perf_counter()
            await asyncio.gather(*(call(each) for each in clients))
            elapsed_s = time.perf_counter() - started_s
            cpu_s = _cpu_s(self.process) - before_s
        return Run(count / elapsed_s, percentile(durations_ms, 0.99), cpu_s / count * 1e6)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@asynccontextmanager
async def gateway_side(directory: Path) -> AsyncIterator[Side]:
    """A gateway with a worker that has the connectors."""
    async with WorkerCluster(directory) as cluster:
        (worker,) = await cluster.settled_workers(1)
        assert worker.channel is not None
        client = ConnectClient(worker.channel)
        for number in range(CONNECTOR_COUNT):
            await client.create_connector(
                f"c-{number}", {"connector.class": SOURCE}, initial_state=TargetState.STOPPED
            )
        address = f"127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
        environment = python_environment({**os.environ})
        environment |= {
            "DROVER_GATEWAY_LISTEN": address,
            "DROVER_GATEWAY_WORKERS": worker.address,
        }
        process = await asyncio.create_subprocess_exec(
            *python_command("drover_gateway"), env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await wait_until_async(lambda: _answers(address))
            yield Side(address, psutil.Process(process.pid))
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def connect_side(directory: Path) -> AsyncIterator[Side]:
    """A worker of Kafka Connect with the same connectors."""
    found = find_jars()
    jars = ServerJars(found.version, found.directory, found.java)
    broker = KafkaBroker(jars, directory / "broker")
    await asyncio.to_thread(broker.start)
    connect = KafkaConnect(
        jars, broker.bootstrap, directory / "connect", ConnectOptions.named("bench")
    )
    try:
        await asyncio.to_thread(connect.start)
        for number in range(CONNECTOR_COUNT):
            config = {"connector.class": FILE_SOURCE, "topic": "t", "file": "/nowhere"}
            await asyncio.to_thread(connect.rest.create, f"c-{number}", config)
            await asyncio.to_thread(connect.rest.stop, f"c-{number}")
        address = connect.rest.url.removeprefix("http://")
        yield Side(address, psutil.Process(connect.process.pid))
    finally:
        await asyncio.to_thread(connect.stop)
        await asyncio.to_thread(broker.stop)


async def _answers(address: str) -> bool:
    request = b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        return (await ask(address, request)).status == 200
    except (OSError, asyncio.IncompleteReadError):
        return False


async def _measured(side: Side, *, scale: float = 1.0) -> dict[str, list[Run]]:
    """The runs of each kind of request, by ``path callers``, after a warm-up."""
    counts = {"status": int(STATUS_COUNT * scale), "expand": int(LIST_COUNT * scale)}
    found: dict[str, list[Run]] = {}
    for kind, path in _PATHS.items():
        await side.run(path, CALLERS[-1], max(counts[kind] // 4, CALLERS[-1]))
        for callers in CALLERS:
            runs = [await side.run(path, callers, counts[kind]) for _ in range(ROUNDS)]
            found[f"{kind}_{callers}"] = runs
    return found


async def _both() -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        async with gateway_side(Path(folder) / "drover") as side:
            figures.append(
                Figure(
                    "gateway_idle_rss",
                    side.process.memory_info().rss / 2**20,
                    "MiB",
                    limit=f"<= {RSS_MAX_MIB}",
                )
            )
            own = await _measured(side)
            own_rss = side.process.memory_info().rss / 2**20
        peer: dict[str, list[Run]] = {}
        peer_rss = 0.0
        try:
            async with connect_side(Path(folder) / "kafka") as connect:
                peer = await _measured(connect)
                peer_rss = connect.process.memory_info().rss / 2**20
        except KafkaMissingError as missing:
            sys.stderr.write(f"no Kafka Connect beside it: {missing}\n")
    for name, runs in own.items():
        others = peer.get(name, [])
        figures += [
            _figure(f"gateway_{name}_cpu", "us", "cpu_us", runs, others, "<= 1.2 x"),
            _figure(f"gateway_{name}_rate", "1/s", "per_second", runs, others, ">= 0.4 x"),
            _figure(f"gateway_{name}_p99", "ms", "p99_ms", runs, others, "<= 3 x at 32 callers"),
        ]
    figures.append(
        Figure(
            "gateway_rss",
            own_rss,
            "MiB",
            peer="Kafka Connect" if peer else "",
            peer_value=peer_rss or None,
            limit="<= 0.25 x",
        )
    )
    return figures


def _figure(
    name: str, unit: str, field: str, runs: Sequence[Run], peers: Sequence[Run], limit: str
) -> Figure:
    """The median of the runs, beside that of Kafka Connect."""
    samples = [float(getattr(each, field)) for each in runs]
    other = sorted(float(getattr(each, field)) for each in peers)
    return Figure(
        name,
        sorted(samples)[len(samples) // 2],
        unit,
        peer="Kafka Connect" if other else "",
        peer_value=other[len(other) // 2] if other else None,
        limit=limit,
        samples=samples,
    )


def figures() -> Iterator[Figure]:
    """CPU, rate and durations of reads, and memory, beside Kafka Connect's."""
    yield from asyncio.run(_both())
