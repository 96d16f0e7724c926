"""HTTP over a plain socket, for requests that no client library sends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from drover.rpc.settings import split_address


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response: its status, its headers by name in lower case, its body."""

    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes; a connection that the server has closed is no error."""
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError:
            return

    async def response(self) -> RawResponse:
        """The next response."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = {}
        for each in lines:
            name, _, value = each.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return RawResponse(int(line.split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """Wait until the server closes the connection, and drop its bytes."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            pass
        return True


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[RawClient]:
    """A connection to host:port."""
    host, port = split_address(address)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


async def ask(address: str, request: bytes) -> RawResponse:
    """The response to one request on a new connection."""
    async with connected(address) as client:
        await client.send(request)
        return await client.response()
