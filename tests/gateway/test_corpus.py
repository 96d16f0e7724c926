"""Every recorded request to Kafka Connect 4.4's REST API has the same answer here."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from drover.local.cluster import ClusterOptions, cluster_stages
from drover.rpc.settings import split_address
from tests.support.addresses import free_address
from tests.support.child_process import ChildProcess
from tests.support.cluster import TEST_ENVIRONMENT, EmbeddedCluster, running_cluster

CORPUS = Path(__file__).parents[1] / "data" / "rest_corpus"
#: Settings of each profile, as its recording had them.
PROFILES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "configured": {
        "DROVER_GATEWAY_ALLOW_ORIGINS": "https://console.example",
        "DROVER_GATEWAY_ALLOW_METHODS": "GET,PUT,DELETE",
        "DROVER_GATEWAY_RESPONSE_HEADERS": (
            "set X-Content-Type-Options: nosniff, add Cache-Control: no-store"
        ),
        "DROVER_GATEWAY_TOPICS": "read",
    },
    "names": {},
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("gateway"),
]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A cluster and the folder that its connectors may use."""

    cluster: EmbeddedCluster
    files: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorded]:
    directory = tmp_path_factory.mktemp("rest-corpus")
    files = directory / "rc"
    files.mkdir()
    options = ClusterOptions(
        directory / "data", worker_count=1, file_roots=[files], env=TEST_ENVIRONMENT
    )
    async with running_cluster(directory, cluster_stages(options)) as cluster:
        await cluster.wait_until_members()
        yield Recorded(cluster, files)


async def run_corpus(*arguments: str) -> str:
    """Run the program; its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CORPUS / "corpus"), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return f"{out.decode()}\nexit {process.returncode}"


async def differences(base: str, profile: str, files: Path, *more: str) -> str:
    """Record a profile and compare it: what differs and is not allowed."""
    out = files.parent / f"{profile}.jsonl"
    told = await run_corpus(
        *("record", "--base", base, "--files", str(files), "--out", str(out)),
        *("--profile", profile, "--logger", "drover", *more),
    )
    assert told.endswith("exit 0"), told
    reference = CORPUS / f"kafka-connect-4.4.0.{profile}.jsonl"
    allowed = CORPUS / "differences.json"
    return told + await run_corpus("compare", str(reference), str(out), "--allow", str(allowed))


@pytest.mark.parametrize("profile", PROFILES)
async def test_the_recorded_requests_have_the_recorded_answers(
    recorded: Recorded, profile: str
) -> None:
    address = free_address()
    environment = {
        "DROVER_GATEWAY_LISTEN": address,
        "DROVER_GATEWAY_WORKERS": ",".join(recorded.cluster.workers),
        **PROFILES[profile],
    }
    gateway = ChildProcess(
        f"the gateway at {address}",
        [sys.executable, "-m", "drover_gateway"],
        log_path=recorded.files.parent / f"gateway-{profile}.log",
        environment=environment,
    )

    def serves() -> bool:
        with suppress(OSError), socket.create_connection(split_address(address)):
            return True
        return False

    await asyncio.to_thread(gateway.start, ready=serves)
    try:
        told = await differences(f"http://{address}", profile, recorded.files)
    finally:
        assert await asyncio.to_thread(gateway.stop) == 0
    assert " 0 failed" in told, told
    assert told.endswith("exit 0"), told
