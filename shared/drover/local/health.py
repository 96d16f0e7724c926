"""Health checks of servers: ``python -m drover.local.health HOST:PORT`` exits 0 when it serves.

A gateway is checked over HTTP: ``http://HOST:PORT`` or ``https://HOST:PORT``.
"""

import asyncio
import os
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from drover.errors import InvalidArgumentError
from drover.rpc import WHY_NOT_SERVING_KEY
from drover.security.certificates import Certificate, TlsFiles, read_certificate

_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
)
_POLL_S = 0.1
#: The first status code of HTTP for a server that cannot serve.
_SERVER_ERROR = 500


def own_certificate(environ: Mapping[str, str]) -> Certificate | None:
    """The certificate of the server with this environment; None for plaintext.

    Raises:
        InvalidArgumentError: A certificate file is missing or invalid.
    """
    names = ("DROVER_TLS_CA", "DROVER_TLS_CERT", "DROVER_TLS_KEY")
    ca, cert, key = (environ.get(name, "") for name in names)
    return read_certificate(TlsFiles(ca, cert, key)) if ca and cert and key else None


@dataclass(frozen=True, slots=True)
class Health:
    """The result of a health check.

    Attributes:
        status: SERVING, NOT_SERVING or UNREACHABLE.
        why: The reason that the server reports; empty for none.
    """

    status: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.why}" if self.why else self.status


class HealthChannel:
    """A channel for health checks of one server; use as an async context manager.

    Args:
        address: host:port.
        certificate: The server's own certificate, which it also accepts from clients; None for
            plaintext.
        service: The full name of the service to check; empty for the server as a whole.
    """

    def __init__(
        self, address: str, certificate: Certificate | None = None, *, service: str = ""
    ) -> None:
        self.address = address
        self._service = service
        options: list[tuple[str, Any]] = list(_CHANNEL_OPTIONS)
        if certificate is None:
            self._channel = grpc.aio.insecure_channel(address, options=options)
        else:
            # the certificate may not cover this address, for example loopback
            options.append(("grpc.ssl_target_name_override", certificate.names[0]))
            credentials = grpc.ssl_channel_credentials(
                certificate.ca_pem, certificate.key_pem, certificate.cert_pem
            )
            self._channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._check = self._channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    async def __aenter__(self) -> "HealthChannel":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._channel.close()

    async def status(self, timeout_s: float = 1.0) -> str:
        """SERVING, NOT_SERVING, or UNREACHABLE if the server does not respond in time."""
        return (await self.ask(timeout_s)).status

    async def ask(self, timeout_s: float = 1.0) -> "Health":
        """The status, and the reason if the server reports one."""
        request = health_pb2.HealthCheckRequest(service=self._service)
        call = self._check(request, timeout=timeout_s)
        try:
            answer = await call
            trailing = await call.trailing_metadata()
        except grpc.aio.AioRpcError:
            return Health("UNREACHABLE")
        name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        why = next((value for key, value in trailing if key == WHY_NOT_SERVING_KEY), "")
        return Health(name, str(why))


class HttpHealth:
    """Health checks of a gateway; use as an async context manager.

    Args:
        address: host:port.
        certificate: A certificate of the authority that signed the server's; None for HTTP.
    """

    def __init__(self, address: str, certificate: Certificate | None = None) -> None:
        self.address = address
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            # the certificate may not cover this address, for example loopback
            self._context = ssl.create_default_context(cadata=certificate.ca_pem.decode())
            self._context.check_hostname = False

    async def __aenter__(self) -> "HttpHealth":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Nothing is kept open."""

    async def status(self, timeout_s: float = 1.0) -> str:
        """As ``HealthChannel.status``."""
        return (await self.ask(timeout_s)).status

    async def ask(self, timeout_s: float = 1.0) -> Health:
        """SERVING for any response to ``/health`` with a status below 500."""
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(timeout_s):
                code = await self._code()
                return Health("SERVING" if code < _SERVER_ERROR else "NOT_SERVING")
        return Health("UNREACHABLE")

    async def _code(self) -> int:
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(
            host.strip("[]"), int(port), ssl=self._context
        )
        try:
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            line = await reader.readline()
            return int(line.split()[1])
        except IndexError:
            raise ValueError("the response is not HTTP") from None
        finally:
            writer.close()


def open_channel(
    address: str, certificate: Certificate | None, *, over_http: bool
) -> HealthChannel | HttpHealth:
    """Health checks of the server at ``address``."""
    return HttpHealth(address, certificate) if over_http else HealthChannel(address, certificate)


async def wait_until_serving(
    address: str,
    timeout_s: float,
    *,
    certificate: Certificate | None = None,
    over_http: bool = False,
    given_up: Callable[[], bool] = lambda: False,
    on_wait: Callable[[Health], None] = lambda _health: None,
) -> bool:
    """Poll until the server at ``address`` serves; False at the timeout or once ``given_up()``.

    ``on_wait`` gets each answer before it serves.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    async with open_channel(address, certificate, over_http=over_http) as channel:
        while not given_up() and loop.time() < end_s:
            answer = await channel.ask()
            if answer.status == "SERVING":
                return True
            on_wait(answer)
            await asyncio.sleep(_POLL_S)
    return False


async def _ask(target: str) -> Health:
    scheme, _, address = target.rpartition("://")
    certificate = None if scheme == "http" else own_certificate(os.environ)
    async with open_channel(address, certificate, over_http=bool(scheme)) as channel:
        return await channel.ask(timeout_s=3.0)


def main(argv: list[str]) -> int:
    """Print the status of the server in ``argv``; returns 0 if it serves, else 1, 2 on misuse."""
    if len(argv) != 1 or ":" not in argv[0]:
        print("usage: python -m drover.local.health [http://]HOST:PORT", file=sys.stderr)
        return 2
    try:
        health = asyncio.run(_ask(argv[0]))
    except InvalidArgumentError as error:
        print(error.message, file=sys.stderr)
        return 1
    print(f"{argv[0]} {health}")
    return 0 if health.status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
