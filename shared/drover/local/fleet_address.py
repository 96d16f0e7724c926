"""A TCP proxy before all workers: ``python -m drover.local.fleet_address HOST:PORT WORKERS``.

It listens on HOST:PORT and forwards each connection to one worker. TLS is passed through. WORKERS
is a comma-separated list of name:port; a name may resolve to several addresses. A worker that does
not respond, for example a suspended one, is skipped.
"""

import asyncio
import contextlib
import random
import socket
import sys
from collections.abc import Coroutine, Sequence

import structlog

from drover.rpc.logs import configure_logging
from drover.rpc.settings import split_address, split_addresses

#: Further connections are closed at once.
CONNECTIONS_MAX = 2_000
#: Time-outs of a client's first bytes, and of a worker's accept and first response bytes.
CLIENT_S = 10.0
WORKER_S = 5.0
_CHUNK_BYTES = 65_536

_log = structlog.get_logger("drover.forwarder")

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Forwarder:
    """Forwards each connection to one of ``workers``, each host:port."""

    def __init__(self, workers: Sequence[str], *, worker_s: float = WORKER_S) -> None:
        self._workers = [split_address(each) for each in workers]
        self._worker_s = worker_s
        self._open = 0

    async def serve(self, host: str, port: int) -> asyncio.Server:
        """Listen; the caller closes the server."""
        return await asyncio.start_server(self._connected, host, port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            if self._open >= CONNECTIONS_MAX:
                _log.warning("connection refused: too many connections", most=CONNECTIONS_MAX)
                return
            self._open += 1
            try:
                await self._forward(reader, writer)
            except OSError:
                return  # one side closed: close both
            finally:
                self._open -= 1

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CLIENT_S):
                first = await reader.read(_CHUNK_BYTES)
        except TimeoutError:
            return
        if not first:
            return
        connected = await self._worker(first)
        if connected is None:
            _log.warning("no worker answers")
            return
        (worker_reader, worker_writer), answer = connected
        with contextlib.closing(worker_writer):
            writer.write(answer)
            await _until_first_ends(_copy(reader, worker_writer), _copy(worker_reader, writer))

    async def _worker(self, first: bytes) -> tuple[_Stream, bytes] | None:
        """A connection to a worker that responded to ``first``, and its response bytes."""
        for host, port in await self._addresses():
            try:
                async with asyncio.timeout(self._worker_s):
                    stream = await asyncio.open_connection(host, port)
            except (OSError, TimeoutError):
                continue
            try:
                async with asyncio.timeout(self._worker_s):
                    stream[1].write(first)
                    answer = await stream[0].read(_CHUNK_BYTES)
            except (OSError, TimeoutError):
                answer = b""
            if answer:
                return stream, answer
            stream[1].close()
        return None

    async def _addresses(self) -> list[tuple[str, int]]:
        """The present addresses of all names, in random order."""
        loop = asyncio.get_running_loop()
        addresses: set[tuple[str, int]] = set()
        for host, port in self._workers:
            with contextlib.suppress(socket.gaierror):
                resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses |= {(str(each[4][0]), port) for each in resolved}
        return random.sample(sorted(addresses), len(addresses))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


async def _until_first_ends(*directions: Coroutine[None, None, None]) -> None:
    """Copy in both directions until one side closes."""
    tasks = [asyncio.create_task(each) for each in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(listen: str, workers: Sequence[str]) -> None:
    server = await Forwarder(workers).serve(*split_address(listen))
    _log.info("forwarding connections", address=listen, to=",".join(workers))
    async with server:
        await server.serve_forever()


def main(argv: list[str]) -> int:
    """Serve until a signal ends the process; returns 2 on misuse, 1 if it cannot listen."""
    try:
        listen, workers = argv
        split_address(listen)
        for each in split_addresses(workers):
            split_address(each)
    except ValueError as error:
        print(
            f"usage: python -m drover.local.fleet_address HOST:PORT WORKERS ({error})",
            file=sys.stderr,
        )
        return 2
    configure_logging("forwarder")
    try:
        asyncio.run(_run(listen, split_addresses(workers)))
    except OSError as error:
        print(f"cannot listen at {listen}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
