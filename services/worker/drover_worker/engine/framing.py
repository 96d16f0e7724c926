"""Messages over a byte stream: a 4-byte big-endian length, then the serialized message.

The engine uses blocking sockets, the herder asyncio streams. Both reject a message of more than
``MAX_FRAME_BYTES``: the sender before it sends a byte, the reader before it allocates memory.
"""

import asyncio
import socket
import struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from drover.errors import InternalError

MAX_FRAME_BYTES = 256 * 1024 * 1024
_HEADER = struct.Struct(">I")

MessageT = TypeVar("MessageT", bound=Message)


class FramingError(InternalError):
    """The stream is truncated or a message is malformed or too large; the stream is unusable."""


def encode_frame(message: Message) -> bytes:
    """The bytes of ``message`` on the stream.

    Raises:
        FramingError: The message is over MAX_FRAME_BYTES.
    """
    size_bytes = message.ByteSize()
    if size_bytes > MAX_FRAME_BYTES:
        raise FramingError(
            f"a {type(message).__name__} of {size_bytes} bytes is over the limit of "
            f"{MAX_FRAME_BYTES} bytes for one message between herder and engine"
        )
    return _HEADER.pack(size_bytes) + message.SerializeToString()


def send(sock: socket.socket, message: Message) -> None:
    """Write one message; blocks until the socket has accepted all of it."""
    sock.sendall(encode_frame(message))


def receive(sock: socket.socket, kind: type[MessageT]) -> MessageT | None:
    """Read one message; None when the stream ended at a message boundary.

    Raises:
        FramingError: The stream ended inside a message, or the message is invalid.
    """
    header = _receive_exactly(sock, _HEADER.size)
    if not header:
        return None
    size_bytes = _checked_size(header)
    body = _receive_exactly(sock, size_bytes) if size_bytes else b""
    if len(body) < size_bytes:
        raise FramingError("the stream ended inside a message")
    return _decode(kind, body)


async def receive_async(reader: asyncio.StreamReader, kind: type[MessageT]) -> MessageT | None:
    """As ``receive``, over an asyncio stream."""
    try:
        header = await reader.readexactly(_HEADER.size)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise FramingError("the stream ended inside a message") from error
    try:
        body = await reader.readexactly(_checked_size(header))
    except asyncio.IncompleteReadError as error:
        raise FramingError("the stream ended inside a message") from error
    return _decode(kind, body)


def _receive_exactly(sock: socket.socket, size_bytes: int) -> bytes:
    """``size_bytes`` bytes; empty when the stream ended before the first byte."""
    received = bytearray(size_bytes)
    view = memoryview(received)
    position = 0
    while position < size_bytes:
        count = sock.recv_into(view[position:])
        if count == 0:
            if position == 0:
                return b""
            raise FramingError("the stream ended inside a message")
        position += count
    return bytes(received)


def _checked_size(header: bytes) -> int:
    size_bytes: int = _HEADER.unpack(header)[0]
    if size_bytes > MAX_FRAME_BYTES:
        raise FramingError(
            f"a message of {size_bytes} bytes was announced; the limit is {MAX_FRAME_BYTES} bytes"
        )
    return size_bytes


def _decode(kind: type[MessageT], body: bytes) -> MessageT:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise FramingError(f"the message is not a valid {kind.__name__}: {error}") from error
