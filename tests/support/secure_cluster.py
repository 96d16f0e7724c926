"""A secure cluster with one worker and users with different rights, for attacks."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import yaml

from drover.client import ConnectClient
from drover.client.secure import channel_credentials
from drover.errors import DroverError
from drover.local.cluster import ClusterOptions, cluster_stages
from drover.security.certificates import read_certificate
from drover.security.development_ca import ACCESS_FILE
from drover.security.grants import token_sha256
from tests.support.certificates import Authority, init_certificates, issue
from tests.support.cluster import (
    READY_TIMEOUT_S,
    TEST_ENVIRONMENT,
    EmbeddedCluster,
    running_cluster,
)
from tests.support.waiting import wait_until_async

#: Each user's grant; a stranger has a certificate, but no grant.
USERS: Mapping[str, Mapping[str, object] | None] = {
    "admin": {"role": "admin"},
    "admin-of-a": {"role": "admin", "connectors": ["a-*"]},
    "operator-of-a": {"role": "operator", "connectors": ["a-*"]},
    "viewer": {"role": "viewer"},
    "stranger": None,
}


def token_of(user: str) -> str:
    """The user's token, which a gateway forwards."""
    return f"token-of-{user}"


#: What a provider of secrets returns, ``${env:CANARY}``.
SECRET = "Canary-Of-The-Provider"
#: The time limit of a validation in this cluster.
LIMIT_MS = 8_000


@dataclass(frozen=True, slots=True)
class SecureCluster:
    """The running cluster and the folder of its certificates."""

    cluster: EmbeddedCluster
    certificates: Path
    audit_log: Path

    @asynccontextmanager
    async def client(self, user: str) -> AsyncIterator[ConnectClient]:
        """The API of the worker for a user."""
        files = issue(self.certificates / user, Authority.read(self.certificates), name=user)
        credentials = channel_credentials(read_certificate(files))
        address = self.cluster.process("worker-1").spec.address
        async with grpc.aio.secure_channel(address, credentials) as channel:
            yield ConnectClient(channel)


@asynccontextmanager
async def secure_cluster(directory: Path) -> AsyncIterator[SecureCluster]:
    """Start the cluster in ``directory``; the worker serves when it is entered."""
    certificates = directory / "certs"
    init_certificates(certificates)
    access = certificates / ACCESS_FILE
    document = yaml.safe_load(access.read_text())
    document["grants"] += [
        {**by, **grant}
        for user, grant in USERS.items()
        if grant is not None
        for by in (
            {"certificate": user},
            {"token_sha256": token_sha256(token_of(user)), "name": user},
        )
    ]
    access.write_text(yaml.safe_dump(document))
    audit_log = directory / "audit.log"
    environment = {
        **TEST_ENVIRONMENT,
        "CANARY": SECRET,
        "DROVER_AUDIT_LOG": str(audit_log),
        "DROVER_CONFIG_PROVIDERS": '{"env": {"allowlist.pattern": "CANARY"}}',
        "DROVER_FILE_ROOTS": str(directory / "files"),
        "DROVER_PLUGIN_CALL_TIMEOUT_MS": str(LIMIT_MS),
        "DROVER_PLUGIN_MODULES": "tests.support",
    }
    options = ClusterOptions(directory, worker_count=1, certificates=certificates, env=environment)
    async with running_cluster(directory, cluster_stages(options)) as cluster:
        secure = SecureCluster(cluster, certificates, audit_log)
        await _wait_until_serving(secure)
        yield secure


async def _wait_until_serving(secure: SecureCluster) -> None:
    async def serves() -> bool:
        async with secure.client("admin") as client:
            with suppress(DroverError):
                return bool((await client.get_cluster_info(timeout_s=5)).spark_version)
        return False

    await wait_until_async(serves, timeout_s=READY_TIMEOUT_S, describe="the cluster serves")
