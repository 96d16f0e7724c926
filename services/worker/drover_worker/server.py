"""The worker's two servers: one for clients, and one for other workers."""

import asyncio

from drover.api.connect.v1.connect_service_pb2_grpc import add_ConnectServiceServicer_to_server
from drover.api.worker.v1.worker_service_pb2_grpc import add_WorkerServiceServicer_to_server
from drover.clock import Clock
from drover.errors import InternalError
from drover.metrics.endpoint import Metrics
from drover.rpc.interceptors import CheckCall
from drover.rpc.security import PLAINTEXT, Security
from drover.rpc.server import RpcServer
from drover_worker.adapters.connect_service import ConnectServicer
from drover_worker.adapters.worker_service import WorkerServicer
from drover_worker.admin.admin import Admin
from drover_worker.shell.herder_loop import HerderLoop

CONNECT_SERVICE = "drover.api.connect.v1.ConnectService"
WORKER_SERVICE = "drover.api.worker.v1.WorkerService"


class WorkerServers:
    """Serves the admin API, and on a separate port the calls of other workers.

    Without TLS any process can call the internal port, so it belongs on a trusted network.

    Args:
        listen: host:port for clients.
        internal_listen: host:port for other workers.
        security: Certificates and grants of both servers.
        client_certificates: Whether clients must show a certificate; workers always must.
    """

    def __init__(
        self,
        *,
        listen: str,
        internal_listen: str,
        metrics: Metrics,
        security: Security = PLAINTEXT,
        client_certificates: bool = True,
    ) -> None:
        self._public = RpcServer(
            listen=listen,
            internal=False,
            security=security,
            client_certificates=client_certificates,
            metrics=metrics,
            open_files_percent=70,
        )
        self._internal = RpcServer(
            listen=internal_listen,
            internal=True,
            security=security,
            metrics=metrics,
            open_files_percent=10,
        )
        self._opened = False
        self._loop: HerderLoop | None = None
        metrics.add(self._public.health_samples)

    def bind(self) -> tuple[str, str]:
        """Bind both addresses; returns the public and the internal one, each host:port.

        Raises:
            ListenError: A port is in use, or an address is not one of this machine.
        """
        return self._public.bind(), self._internal.bind()

    def add_services(self, admin: Admin, loop: HerderLoop, clock: Clock, check: CheckCall) -> None:
        """Serve these use cases; call it before ``start``. ``check`` verifies calls of other
        workers.
        """
        self._loop = loop
        connect = ConnectServicer(admin)
        self._public.add(add_ConnectServiceServicer_to_server, connect, CONNECT_SERVICE)
        workers = WorkerServicer(admin, loop, clock)
        self._internal.add(add_WorkerServiceServicer_to_server, workers, WORKER_SERVICE)
        self._internal.check_calls(check)
        for server in (self._public, self._internal):
            server.explain_health(self.why_not_serving)

    async def start(self) -> None:
        """Start both servers, the internal one first, as clients' calls may be forwarded."""
        await self._internal.start()
        await self._public.start()

    async def open(self, *, opened: bool) -> None:
        """Set whether the servers may serve, and update the health checks."""
        self._opened = opened
        await self.update_health()

    async def update_health(self) -> None:
        """Update the health checks with the current state."""
        serving = not self.why_not_serving()
        await self._internal.set_serving(serving)
        await self._public.set_serving(serving)

    def why_not_serving(self) -> str:
        """The reason for NOT_SERVING; empty while the worker serves."""
        if self._loop is None:
            raise InternalError("no services were added")
        return self._loop.why_not_serving(opened=self._opened)

    async def drain(self, grace_s: float) -> None:
        """Stop both servers gracefully; idempotent."""
        await asyncio.gather(self._public.drain(grace_s), self._internal.drain(grace_s))
