"""Gateways in the test's process, over real workers with engines that run no plugin."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import yaml

from drover.rpc.settings import load_settings
from drover.security.development_ca import ACCESS_FILE, GATEWAY, ROLES, files_of
from drover.security.grants import token_sha256
from drover_gateway.__main__ import serve
from drover_gateway.settings import GatewaySettings
from tests.support.addresses import free_address
from tests.support.waiting import wait_until_async

#: The tokens that ``grant_tokens`` grants, by role.
TOKENS = {"admin": "token-of-ann", "operator": "token-of-ben", "viewer": "token-of-cat"}


@dataclass
class RunningGateway:
    """A gateway and its HTTP clients."""

    address: str
    task: "asyncio.Task[None]"
    stopping: asyncio.Event
    ca: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    #: As in its settings; empty if it made a key.
    session_keys: str = ""

    @property
    def url(self) -> str:
        return f"{'https' if self.ca else 'http'}://{self.address}"

    async def ask(self, method: str, path: str, *, role: str = "", **options: Any) -> Any:
        """One request, from a thread."""
        headers = dict(options.pop("headers", {}))
        if role:
            headers["Authorization"] = f"Bearer {TOKENS[role]}"

        def send() -> requests.Response:
            return requests.request(
                method,
                self.url + path,
                headers=headers,
                verify=self.ca or True,
                timeout=60,
                **options,
            )

        return await asyncio.to_thread(send)


@asynccontextmanager
async def running_gateway(
    workers: list[str], *, certificates: Path | None = None, **settings: Any
) -> AsyncIterator[RunningGateway]:
    """Run a gateway, with the certificate ``gateway`` of a folder of certificates."""
    tls = {}
    if certificates is not None:
        files = files_of(certificates, GATEWAY)
        tls = {"tls_ca": files.ca, "tls_cert": files.cert, "tls_key": files.key}
    address = settings.pop("gateway_listen", "") or free_address()
    given = {"gateway_listen": address, "gateway_workers": ",".join(workers), **tls, **settings}
    stopping = asyncio.Event()
    task = asyncio.create_task(serve(load_settings(GatewaySettings, **given), stopping))
    keys = settings.get("gateway_session_keys", "")
    gateway = RunningGateway(address, task, stopping, tls.get("tls_ca", ""), session_keys=keys)
    try:
        await wait_until_async(lambda: _listens(address, task))
        yield gateway
    finally:
        stopping.set()
        await asyncio.wait({task}, timeout=60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _listens(address: str, task: "asyncio.Task[None]") -> bool:
    if task.done():
        await task
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


def grant_tokens(certificates: Path, *more: dict[str, object], roles: bool = True) -> None:
    """Write an access file with the grants of certificates, and of ``TOKENS``."""
    grants: list[dict[str, object]] = [
        {"certificate": f"drover-{name}", "role": role} for name, role in ROLES.items()
    ]
    if roles:
        grants += [
            {"token_sha256": token_sha256(token), "name": f"the-{role}", "role": role}
            for role, token in TOKENS.items()
        ]
    (certificates / ACCESS_FILE).write_text(yaml.safe_dump({"grants": [*grants, *more]}))


def shown_certificate(address: str) -> bytes:
    """The certificate that a server shows, as PEM."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=20).encode()
