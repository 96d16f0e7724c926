"""Serves one MCP client on stdio: ``python -m drover_gateway.mcp [--write]``.

``drover mcp`` starts it. It has the rights of the user who started it.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc.aio

from drover.client import ConnectClient
from drover.client.calls import channel
from drover.client.failover import FailoverChannel
from drover.client.secure import channel_credentials
from drover.errors import DroverError
from drover.rpc.logs import configure_logging
from drover.rpc.settings import split_addresses
from drover.security.certificates import TlsFiles, read_certificate
from drover_gateway.mcp.app import McpServer
from drover_gateway.mcp.plans import PlanSeal
from drover_gateway.mcp.tools import CallerAccess

WRITE_OPTION = "--write"
#: The identity of the only client in the hashes of plans.
_IDENTITY = "stdio"
_EXIT_USAGE = 2


@dataclass(frozen=True, slots=True)
class StdioSettings:
    """From the environment; ``drover mcp`` sets them from its options and its context.

    Attributes:
        workers: host:port of the workers (DROVER_GATEWAY_WORKERS).
        tls: The TLS files (DROVER_TLS_CA, DROVER_TLS_CERT, DROVER_TLS_KEY); None for plaintext.
        token: The user's token (DROVER_TOKEN); empty for none.
        author: The author of changes (DROVER_AUTHOR).
    """

    workers: Sequence[str]
    tls: TlsFiles | None
    token: str
    author: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "StdioSettings":
        """Read the settings."""
        ca, cert, key = (
            environment.get(f"DROVER_TLS_{each}", "") for each in ("CA", "CERT", "KEY")
        )
        return cls(
            workers=split_addresses(environment.get("DROVER_GATEWAY_WORKERS", "127.0.0.1:7411")),
            tls=TlsFiles(ca, cert, key) if ca else None,
            token=environment.get("DROVER_TOKEN", ""),
            author=environment.get("DROVER_AUTHOR", "mcp"),
        )

    def connect(self, address: str) -> grpc.aio.Channel:
        """Open a channel to a worker.

        Raises:
            InvalidArgumentError: INVALID_CONFIG: a TLS file is missing or invalid.
        """
        if self.tls is None:
            return channel(address)
        certificate = read_certificate(self.tls, of_cluster=False)
        return channel(address, channel_credentials(certificate, self.token))


async def serve(settings: StdioSettings, *, with_writes: bool) -> None:
    """Serve until standard input ends."""
    async with FailoverChannel(settings.workers, connect=settings.connect) as workers:
        client = ConnectClient(workers.as_channel(), author=settings.author)
        access = CallerAccess(client, _IDENTITY)
        server = McpServer(lambda _context: access, PlanSeal(), with_writes=with_writes)
        await server.serve_stdio()


def main(arguments: Sequence[str]) -> int:
    """Run the server; standard output has nothing but the protocol."""
    configure_logging("mcp", "WARNING", "text")
    if any(each != WRITE_OPTION for each in arguments):
        sys.stderr.write(f"usage: python -m drover_gateway.mcp [{WRITE_OPTION}]\n")
        return _EXIT_USAGE
    settings = StdioSettings.from_environment(os.environ)
    try:
        if settings.tls is not None:
            read_certificate(settings.tls, of_cluster=False)
        asyncio.run(serve(settings, with_writes=WRITE_OPTION in arguments))
    except DroverError as error:
        sys.stderr.write(f"drover mcp: {error.message}\n")
        return _EXIT_USAGE
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
