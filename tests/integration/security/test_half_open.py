"""Many half-open connections: other clients get responses, and the memory in use is bounded."""

import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.client import channel
from drover.client.secure import channel_credentials
from drover.security.certificates import read_certificate
from tests.support.certificates import files_of, init_certificates
from tests.support.cluster import EmbeddedCluster, running_cluster
from tests.support.half_open import first_message
from tests.support.idle_worker import idle_stages
from tests.support.repository import REPOSITORY
from tests.support.service_process import limited
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

ANSWER_S = 60.0
#: Open-file limit of a process in the small tests, and the half-open connections to each.
OPEN_FILES, FEW = 400, 500
MANY = 10_000
#: The processes that receive the half-open connections.
VICTIMS = ("coordinator", "worker-1")
_MIB = 1024 * 1024
#: Memory limit of one connection; a stuck TLS handshake takes 90 kB (measured).
_OF_ONE_BYTES = 256 * 1024


class Victims:
    """A cluster, and clients that connected before the half-open connections."""

    def __init__(self, cluster: EmbeddedCluster, certificates: Path | None) -> None:
        self.cluster = cluster
        self.tls = certificates is not None
        self._files = files_of(certificates, "admin") if certificates else None
        self._clients = {name: self.client(name) for name in VICTIMS}
        self._before = {name: (self.open_files(name), self.memory_bytes(name)) for name in VICTIMS}

    def client(self, name: str) -> grpc.aio.Channel:
        credentials = channel_credentials(read_certificate(self._files)) if self._files else None
        return channel(self.address(name), credentials)

    def address(self, name: str) -> str:
        return self.cluster.process(name).spec.address

    def _process(self, name: str) -> psutil.Process:
        pid = self.cluster.process(name).pid
        assert pid is not None
        return psutil.Process(pid)

    def open_files(self, name: str) -> int:
        return self._process(name).num_fds()

    def memory_bytes(self, name: str) -> int:
        rss: int = self._process(name).memory_info().rss
        return rss

    def grown(self, name: str) -> tuple[int, int]:
        """The increase of a process's open files, and of its memory in bytes."""
        files, memory = self._before[name]
        return self.open_files(name) - files, self.memory_bytes(name) - memory

    async def wait_until_there(self, count: int) -> None:
        """Wait until each process has at least ``count`` more open files than before."""
        await wait_until_async(
            lambda: min(self.grown(name)[0] for name in VICTIMS) >= count, describe=self._all_grown
        )

    async def wait_until_gone(self) -> None:
        """Wait until each process has about as many open files as before."""
        await wait_until_async(
            lambda: max(self.grown(name)[0] for name in VICTIMS) < 20, describe=self._all_grown
        )

    def _all_grown(self) -> object:
        return {name: self.grown(name) for name in VICTIMS}

    async def answer_those_who_were_there(self) -> None:
        for client in self._clients.values():
            await ask(client)

    async def answer_others(self) -> None:
        for name in VICTIMS:
            async with self.client(name) as client:
                await ask(client)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


async def ask(client: grpc.aio.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(client)
    request = health_pb2.HealthCheckRequest()
    answer = await stub.Check(request, timeout=ANSWER_S, wait_for_ready=True)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@asynccontextmanager
async def victims(
    directory: Path, *, tls: bool, open_files: int | None = None
) -> AsyncIterator[Victims]:
    certificates = directory / "certs" if tls else None
    if certificates:
        init_certificates(certificates)
    stages = idle_stages(directory, workers=1, certificates=certificates)
    if open_files:
        stages = [
            [replace(spec, argv=limited(spec.argv, open_files)) for spec in stage]
            for stage in stages
        ]
    async with running_cluster(directory, stages) as cluster:
        found = Victims(cluster, certificates)
        await found.answer_those_who_were_there()
        yield found
        await found.close()


@contextmanager
def crowd(victims: Victims, kind: str, counts: Sequence[int]) -> Iterator[None]:
    """Open connections to each victim, from one process for each of ``counts``."""
    more = ["tls"] if victims.tls else []
    with ExitStack() as stack:
        started = []
        for name in VICTIMS:
            for count in counts:
                process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "tests.support.half_open"),
                        *(victims.address(name), kind, str(count), *more),
                    ],
                    cwd=REPOSITORY,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                stack.enter_context(process)
                started.append((process, count))
        for process, count in started:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{count}\n".encode()
        yield


async def recovered(victims: Victims) -> None:
    await victims.wait_until_gone()
    await victims.answer_others()
    assert [victims.cluster.process(name).start_count for name in VICTIMS] == [1, 1]


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[False, True], ids=["plain", "tls"]
)
async def those(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Victims]:
    directory = tmp_path_factory.mktemp("victims")
    async with victims(directory, tls=request.param, open_files=OPEN_FILES) as found:
        yield found


async def test_a_crowd_that_takes_every_place_takes_nothing_from_those_who_are_there(
    those: Victims,
) -> None:
    for kind in ("silent", "stuck", "slow"):
        with crowd(those, kind, [FEW]):
            await those.wait_until_there(150)
            for _ in range(20):
                await those.answer_those_who_were_there()
                # each process has file descriptors left for its own use
                assert max(map(those.open_files, VICTIMS)) < OPEN_FILES - 20
        await recovered(those)
    assert "Too many open files" not in those.cluster.log("worker-1")


async def test_who_does_not_get_on_with_the_handshake_is_cut_off(those: Victims) -> None:
    text = first_message(tls=those.tls)
    host, _, port = those.address("worker-1").rpartition(":")
    with ExitStack() as stack:
        connections = []
        for sent in (b"", text[: len(text) // 2]):
            connection = socket.create_connection((host, int(port)), timeout=ANSWER_S)
            stack.enter_context(connection).sendall(sent)
            connections.append(connection)
        for connection in connections:
            while connection.recv(4096):  # a plaintext server sends its settings first
                pass


@pytest.mark.faults("coordinator")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_ten_thousand_hold_up_nobody(tmp_path: Path, tls: bool) -> None:
    raise_hard_limit(20_000)
    async with victims(tmp_path, tls=tls) as those:
        for kind in ("silent", "stuck", "slow"):
            with crowd(those, kind, [MANY // 4] * 4):
                await those.wait_until_there(MANY // 2)
                for _ in range(20):
                    await those.answer_those_who_were_there()
                    await those.answer_others()
                    for name in VICTIMS:
                        files, memory_bytes = those.grown(name)
                        assert files < MANY + 200
                        assert memory_bytes < 64 * _MIB + MANY * _OF_ONE_BYTES
            await recovered(those)


def raise_hard_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, wanted))
        except (ValueError, OSError):
            pytest.skip(f"processes may have {hard} open files here, not {wanted}: see ulimit -Hn")
