"""A gRPC server with what every service needs: health, reflection, interceptors, drain."""

import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from drover.metrics import table
from drover.metrics.endpoint import Metrics
from drover.metrics.metric import Sample
from drover.rpc import MESSAGE_MAX_BYTES
from drover.rpc.health import ExplainedHealth
from drover.rpc.interceptors import CallInterceptor, CheckCall
from drover.rpc.open_files import connections_max
from drover.rpc.security import PLAINTEXT, Security
from drover.rpc.settings import split_address

ServicerT = TypeVar("ServicerT")

CONCURRENT_CALLS_MAX = 20_000
WATCH_MAX_AGE_S = 1800.0
#: What health checks ask for to hear whether the storage can be used; served where it is Kafka.
STORAGE_HEALTH = "drover.storage"

_OPTIONS = (
    # a second server on the same port must fail, not share it
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    # a burst waits its turn; by itself gRPC cancels some calls when 1,000 wait, all above 3,000
    ("grpc.server.max_pending_requests", CONCURRENT_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", CONCURRENT_CALLS_MAX),
    # find dead clients behind a silent network; let clients probe as often
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # who connects and does not finish the handshake is cut off
    ("grpc.server_handshake_timeout_ms", 10_000),
)
_log = structlog.get_logger("drover.rpc")


class ListenError(OSError):
    """The server cannot listen on its address; the message says why and what to do."""


class _Handlers:
    """Takes a servicer's handlers for a server, and does not register its methods one by one.

    For every registered method grpc.aio keeps a wait of its own, and goes through all of them
    whenever a call comes in.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """As the server's."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: Any) -> None:
        """The generic handlers hold these methods too."""


class RpcServer:
    """A grpc.aio server. ``add`` servicers, ``start``, ``set_serving``, at the end ``drain``.

    Health answers NOT_SERVING until ``set_serving(True)``, for "" and for every service.

    Args:
        listen: host:port; port 0 takes a free one.
        internal: Unary calls need a deadline (services of the cluster); else they get 60 s (admin).
        watch_max_age_s: How long a Watch stream lives at most.
        security: What is spoken, and who may call what.
        client_certificates: Over TLS, whether clients must show a certificate; else they need a
            token.
        metrics: Where its calls and its health are told.
        open_files_percent: Of the files that this process may have open, how many its connections
            may be; who connects beyond that is turned away.
    """

    def __init__(
        self,
        *,
        listen: str,
        internal: bool,
        watch_max_age_s: float = WATCH_MAX_AGE_S,
        security: Security = PLAINTEXT,
        client_certificates: bool = True,
        metrics: Metrics | None = None,
        open_files_percent: int = 75,
    ) -> None:
        self._listen = listen
        self._certificate = security.certificate
        self._credentials = security.server_credentials(client_certificates=client_certificates)
        self._address = ""
        self._interceptor = CallInterceptor(
            internal=internal, watch_max_age_s=watch_max_age_s, guard=security.guard
        )
        self._server = grpc.aio.server(
            interceptors=(self._interceptor,),
            options=(
                *_OPTIONS,
                ("grpc.max_allowed_incoming_connections", connections_max(open_files_percent)),
            ),
            maximum_concurrent_rpcs=CONCURRENT_CALLS_MAX,
        )
        #: What the servicers tell of themselves goes here as well.
        self.metrics = metrics or Metrics()
        self.metrics.add(self._interceptor.figures.samples)
        self._serving = False
        self._storage_serving: bool | None = None
        self._health = ExplainedHealth(secure=security.certificate is not None)
        self._names = [health.SERVICE_NAME, reflection.SERVICE_NAME]
        self._handlers = cast("grpc.aio.Server", _Handlers(self._server))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._handlers)

    def add(
        self,
        add_servicer_to_server: Callable[[ServicerT, Any], None],
        servicer: ServicerT,
        full_service_name: str,
    ) -> None:
        """Serve a servicer; before ``start``.

        Args:
            add_servicer_to_server: The generated function.
            servicer: The implementation.
            full_service_name: Such as ``drover.api.coordinator.v1.CoordinatorService``.
        """
        add_servicer_to_server(servicer, self._handlers)
        self._names.append(full_service_name)

    def check_calls(self, check: CheckCall) -> None:
        """Have each unary call looked at whose caller has the role for it; before ``start``.

        ``check`` gets gRPC's name of the call, its request's bytes and its context, and raises the
        DroverError of a call that is refused.
        """
        self._interceptor.check = check

    @property
    def draining(self) -> bool:
        """Whether ``drain`` has begun."""
        return self._interceptor.draining

    def bind(self) -> str:
        """Take the address, for those who have to know it before ``start``; returns host:port.

        Raises:
            ListenError: The port is in use, or the address is not one of this machine.
        """
        host, port = split_address(self._listen)
        try:
            if self._credentials is None:
                bound_port = self._server.add_insecure_port(self._listen)
            else:
                bound_port = self._server.add_secure_port(self._listen, self._credentials)
        except RuntimeError:
            bound_port = 0
        if not bound_port:
            raise _listen_error(self._listen, host, port)
        shown_host = f"[{host}]" if ":" in host else host
        self._address = f"{shown_host}:{bound_port}"
        return self._address

    async def start(self) -> str:
        """Answer calls, once ``bind`` was called or here; returns the bound host:port.

        Raises:
            ListenError: As ``bind``.
        """
        reflection.enable_server_reflection(self._names, self._handlers)
        await self.set_serving(False)
        address = self._address or self.bind()
        await self._server.start()
        _log.info("listening", address=address)
        return address

    async def set_serving(self, serving: bool) -> None:
        """Tell health checks whether calls can be answered now."""
        self._serving = serving
        for name in ("", *self._names):
            await self._health.set(name, _status(serving))

    def explain_health(self, why_not: Callable[[], str]) -> None:
        """Have health checks that are answered NOT_SERVING hear from ``why_not`` what for."""
        self._health.why_not = why_not

    def health_samples(self) -> Iterator[Sample]:
        """What health checks hear, for ``Metrics.add``; of one server of a process."""
        serving = self._serving and not self.draining
        storage = serving if self._storage_serving is None else self._storage_serving
        yield table.SERVING.at(serving)
        yield table.STORAGE_SERVING.at(storage)
        if self._certificate is not None and (ends := self._certificate.present().ends):
            yield table.CERTIFICATE_END.at(ends.timestamp())

    async def set_storage_serving(self, serving: bool) -> None:
        """Tell health checks of ``drover.storage`` whether it can be reached and written."""
        self._storage_serving = serving
        await self._health.set(STORAGE_HEALTH, _status(serving))

    async def drain(self, grace_s: float) -> None:
        """Stop in order; idempotent.

        Health answers NOT_SERVING, Watch streams end with UNAVAILABLE (DRAINING), new calls are
        refused, calls under way get ``grace_s`` to finish and are then cancelled.
        """
        if not self._interceptor.draining:
            _log.info("draining", grace_s=grace_s)
        await self._health.enter_graceful_shutdown()
        self._interceptor.end_watches()
        await self._server.stop(grace_s)


def _status(serving: bool) -> Any:
    response = health_pb2.HealthCheckResponse
    return response.SERVING if serving else response.NOT_SERVING


def _listen_error(listen: str, host: str, port: int) -> ListenError:
    """Ask the system itself why; gRPC does not say."""
    fault: OSError | None = None
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        fault = error
    if fault is None:
        why, code = "gRPC could not bind to it", errno.EIO
    elif fault.errno == errno.EADDRINUSE:
        why = "the port is in use: stop the process that holds it or choose another one"
        code = errno.EADDRINUSE
    else:
        why, code = fault.strerror or str(fault), fault.errno or errno.EIO
    return ListenError(code, f"cannot listen on {listen}: {why}")
