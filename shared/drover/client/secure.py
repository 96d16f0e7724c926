"""Channels over TLS; new calls use a renewed certificate."""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self, cast

import grpc
import grpc.aio

from drover.client.calls import channel
from drover.security.renewed import Renewed

if TYPE_CHECKING:  # it loads cryptography, which a client without TLS does not need
    from drover.security.certificates import Certificate

#: Opens a channel to host:port.
Connect = Callable[[str], grpc.aio.Channel]


def plaintext(address: str) -> grpc.aio.Channel:
    """A channel without TLS."""
    return channel(address)


def connect_by(certificate: "Renewed[Certificate] | None", *, server_name: str = "") -> Connect:
    """The function that opens a service's channels: over TLS with its certificate, else plaintext.

    Args:
        certificate: The service's certificate; None for plaintext.
        server_name: The name in the servers' certificates, if it is not their host.
    """
    if certificate is None:
        return plaintext

    def connect(address: str) -> grpc.aio.Channel:
        return RenewingChannel(address, certificate, server_name=server_name).as_channel()

    return connect


def channel_credentials(certificate: "Certificate", token: str = "") -> grpc.ChannelCredentials:
    """The credentials of a client: its certificate, if any, and a token for each call, if any."""
    credentials = grpc.ssl_channel_credentials(
        certificate.ca_pem, certificate.key_pem or None, certificate.cert_pem or None
    )
    if not token:
        return credentials
    return grpc.composite_channel_credentials(
        credentials, grpc.access_token_call_credentials(token)
    )


class _Connection:
    """A channel and the number of its calls in flight."""

    def __init__(self, opened: grpc.aio.Channel) -> None:
        self.channel = opened
        self.call_count = 0
        self.retired = False

    async def __aenter__(self) -> grpc.aio.Channel:
        self.call_count += 1
        return self.channel

    async def __aexit__(self, *exc_info: object) -> None:
        self.call_count -= 1
        if self.retired and not self.call_count:
            await self.channel.close()


class RenewingChannel:
    """A channel for generated stubs; connects at the first call.

    After a renewal of the certificate, new calls use a new connection. The previous connection is
    closed when its last call has ended.

    Args:
        address: host:port.
        certificate: The client's certificate.
        server_name: The name in the server's certificate, if it is not the host.
    """

    def __init__(
        self, address: str, certificate: "Renewed[Certificate]", *, server_name: str = ""
    ) -> None:
        self._address = address
        self._certificate = certificate
        self._server_name = server_name
        self._used: Certificate | None = None
        self._present: _Connection | None = None
        self._retired: list[_Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close every connection."""
        connections = [*self._retired, *([self._present] if self._present else [])]
        self._present, self._retired = None, []
        for each in connections:
            await each.channel.close(grace)

    def as_channel(self) -> grpc.aio.Channel:
        """This object with the type that clients expect."""
        return cast("grpc.aio.Channel", self)

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """See ``grpc.aio.Channel``."""
        return self._for_one_response(lambda c: c.unary_unary(method, *codecs, **options))

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """See ``grpc.aio.Channel``."""
        return self._for_one_response(lambda c: c.stream_unary(method, *codecs, **options))

    def _for_one_response(
        self, multicallable: Callable[[grpc.aio.Channel], Any]
    ) -> Callable[..., Any]:
        def call(request: Any, *, timeout: float, metadata: Any = None) -> Coroutine[Any, Any, Any]:
            async def response() -> Any:
                async with self._connection() as opened:
                    return await multicallable(opened)(request, timeout=timeout, metadata=metadata)

            return response()

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """See ``grpc.aio.Channel``."""

        def call(request: Any, *, timeout: float | None, metadata: Any = None) -> "_Stream":
            connection = self._connection()
            start = connection.channel.unary_stream(method, *codecs, **options)
            return _Stream(connection, start(request, timeout=timeout, metadata=metadata))

        return call

    def _connection(self) -> _Connection:
        certificate = self._certificate.present()
        if self._present is None or certificate is not self._used:
            if self._present is not None:
                self._retire(self._present)
            credentials = channel_credentials(certificate)
            opened = channel(self._address, credentials, server_name=self._server_name)
            self._present, self._used = _Connection(opened), certificate
        return self._present

    def _retire(self, connection: _Connection) -> None:
        """Keep a connection until its calls end; without calls, dropping it closes it."""
        self._retired = [each for each in self._retired if each.call_count]
        connection.retired = True
        if connection.call_count:
            self._retired.append(connection)


class _Stream:
    """The part of gRPC's stream that ``drover.client.calls`` uses."""

    def __init__(self, connection: _Connection, call: Any) -> None:
        self._connection = connection
        self._call = call

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async with self._connection:
            async for message in self._call:
                yield message
