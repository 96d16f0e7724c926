"""The gRPC server of all services, with health, reflection, interceptors and drain."""

import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from drover.metrics import table
from drover.metrics.endpoint import Metrics
from drover.metrics.metric import Sample
from drover.rpc import MESSAGE_MAX_BYTES
from drover.rpc.bounds import INTERNAL_BOUNDS, Bounds
from drover.rpc.health import ExplainedHealth
from drover.rpc.interceptors import CallInterceptor, CheckCall
from drover.rpc.open_files import connections_max
from drover.rpc.security import PLAINTEXT, Security
from drover.rpc.settings import split_address

ServicerT = TypeVar("ServicerT")

CONCURRENT_CALLS_MAX = 20_000
WATCH_MAX_AGE_S = 1800.0
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
#: The service name in health checks of the storage; only served if the storage is Kafka.
STORAGE_HEALTH = "drover.storage"

_OPTIONS = (
    # a second server on the same port must fail, not share it
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    # queue bursts of calls: by default gRPC cancels some above 1,000 pending, and all above 3,000
    ("grpc.server.max_pending_requests", CONCURRENT_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", CONCURRENT_CALLS_MAX),
    # detect dead clients behind a silent network, and allow clients to probe as often
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # with a maximum of streams, gRPC also rejects calls while it frees the objects of ended ones
    ("grpc.http.overload_protection", 0),
    # close connections that do not finish the handshake
    ("grpc.server_handshake_timeout_ms", 10_000),
)
_log = structlog.get_logger("drover.rpc")


class ListenError(OSError):
    """The server cannot listen on its address; the message has the cause and the remedy."""


class _Handlers:
    """Adds a servicer's generic handlers to a server, without registering each method.

    grpc.aio keeps one pending wait per registered method, and iterates over all of them at each
    call.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """See ``grpc.aio.Server``."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: Any) -> None:
        """Do nothing: the generic handlers contain these methods too."""


class RpcServer:
    """A grpc.aio server. ``add`` servicers, ``start``, ``set_serving``, at the end ``drain``.

    Health is NOT_SERVING until ``set_serving(True)``, for "" and for every service.

    Args:
        listen: host:port; port 0 selects a free port.
        internal: Whether unary calls must have a deadline (services of the cluster); otherwise they
            get 60 s (admin).
        watch_max_age_s: The maximum age of a Watch stream, and of gRPC's health watches and
            reflection streams.
        security: TLS and authorization.
        client_certificates: Over TLS, whether clients must have a certificate; otherwise they may
            use a token instead.
        metrics: The registry for the metrics of calls and health.
        open_files_percent: The maximum number of client connections, as a percentage of the
            process's open files. The server rejects further connections.
        bounds: The bounds on calls; by default ``INTERNAL_BOUNDS`` for an internal port,
            otherwise ``Bounds()``.
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
        bounds: Bounds | None = None,
    ) -> None:
        bounds = bounds or (INTERNAL_BOUNDS if internal else Bounds())
        self._listen = listen
        self._certificate = security.certificate
        self._credentials = security.server_credentials(client_certificates=client_certificates)
        self._address = ""
        self._interceptor = CallInterceptor(
            internal=internal,
            watch_max_age_s=watch_max_age_s,
            guard=security.guard,
            bounds=bounds,
        )
        self._server = grpc.aio.server(
            interceptors=(self._interceptor,),
            options=(
                *_OPTIONS,
                ("grpc.max_concurrent_streams", bounds.streams_per_connection_max),
                ("grpc.max_allowed_incoming_connections", connections_max(open_files_percent)),
            ),
            maximum_concurrent_rpcs=CONCURRENT_CALLS_MAX,
        )
        #: The registry; servicers add their own metrics.
        self.metrics = metrics or Metrics()
        self.metrics.add(self._interceptor.figures.samples)
        self._serving = False
        self._storage_serving: bool | None = None
        self._health = ExplainedHealth()
        self._names = [_HEALTH, reflection.SERVICE_NAME]
        self._handlers = cast("grpc.aio.Server", _Handlers(self._server))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._handlers)

    def add(
        self,
        add_servicer_to_server: Callable[[ServicerT, Any], None],
        servicer: ServicerT,
        full_service_name: str,
    ) -> None:
        """Add a servicer; call before ``start``.

        Args:
            add_servicer_to_server: The generated function.
            servicer: The implementation.
            full_service_name: The service's name with its package, such as
                ``drover.api.coordinator.v1.CoordinatorService``.
        """
        add_servicer_to_server(servicer, self._handlers)
        self._names.append(full_service_name)

    def check_calls(self, check: CheckCall) -> None:
        """Set a further check of authorized unary calls; call before ``start``.

        ``check`` gets gRPC's method name, the request's bytes and the call's context. It raises a
        DroverError to reject the call.
        """
        self._interceptor.check = check

    @property
    def draining(self) -> bool:
        """Whether ``drain`` was called."""
        return self._interceptor.draining

    def bind(self) -> str:
        """Bind the address; returns host:port. Optional, for callers that need it before ``start``.

        Raises:
            ListenError: The port is in use, or the address does not belong to this machine.
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
        """Bind the address if ``bind`` was not called, and serve calls; returns host:port.

        Raises:
            ListenError: As ``bind``.
        """
        # `enable_server_reflection` would add the servicer that holds a thread per stream
        add_reflection: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
        add_reflection(reflection.aio.ReflectionServicer(self._names), self._handlers)
        await self.set_serving(False)
        address = self._address or self.bind()
        await self._server.start()
        _log.info("listening", address=address)
        return address

    async def set_serving(self, serving: bool) -> None:
        """Set the health status of all services."""
        self._serving = serving
        self._health.set(("", *self._names), _status(serving))

    def explain_health(self, why_not: Callable[[], str]) -> None:
        """Set the function that returns the reason of NOT_SERVING for health checks."""
        self._health.why_not = why_not

    def health_samples(self) -> Iterator[Sample]:
        """The health status as samples for ``Metrics.add``; call for one server per process."""
        serving = self._serving and not self.draining
        storage = serving if self._storage_serving is None else self._storage_serving
        yield table.SERVING.at(serving)
        yield table.STORAGE_SERVING.at(storage)
        if self._certificate is not None and (ends := self._certificate.present().ends):
            yield table.CERTIFICATE_END.at(ends.timestamp())

    async def set_storage_serving(self, serving: bool) -> None:
        """Set the health status of ``drover.storage``: whether it can be reached and written."""
        self._storage_serving = serving
        self._health.set((STORAGE_HEALTH,), _status(serving))

    async def drain(self, grace_s: float) -> None:
        """Stop the server gracefully; idempotent.

        Sets health to NOT_SERVING, ends Watch streams with UNAVAILABLE (DRAINING) and rejects new
        calls. Calls in flight have ``grace_s`` to finish, then they are cancelled.
        """
        if not self._interceptor.draining:
            _log.info("draining", grace_s=grace_s)
        self._health.shut_down()
        self._interceptor.end_watches()
        await self._server.stop(grace_s)


def _status(serving: bool) -> Any:
    response = health_pb2.HealthCheckResponse
    return response.SERVING if serving else response.NOT_SERVING


def _listen_error(listen: str, host: str, port: int) -> ListenError:
    """Find the cause by binding a socket, since gRPC does not report it."""
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
        why = "the port is in use: stop the process that uses it, or choose another port"
        code = errno.EADDRINUSE
    else:
        why, code = fault.strerror or str(fault), fault.errno or errno.EIO
    return ListenError(code, f"cannot listen on {listen}: {why}")
