"""Messages over a stream: whole, in order, or a clear error."""

import asyncio
import socket
import struct
import threading

import pytest

from drover.api.engine.v1 import engine_pb2
from drover_worker.engine import framing


def _command(call_id: int, config: dict[str, str] | None = None) -> engine_pb2.EngineCommand:
    return engine_pb2.EngineCommand(
        call_id=call_id, validate_config=engine_pb2.ValidateConfig(config=config or {})
    )


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def test_messages_arrive_whole_and_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = pair
    sent = [_command(1), _command(2, {"big": "x" * 3_000_000}), engine_pb2.EngineCommand()]

    def send_all() -> None:
        for message in sent:
            framing.send(sender, message)
        sender.close()

    thread = threading.Thread(target=send_all)
    thread.start()
    received = []
    while (message := framing.receive(receiver, engine_pb2.EngineCommand)) is not None:
        received.append(message)
    thread.join()
    assert received == sent


async def test_the_asyncio_side_reads_what_the_blocking_side_wrote(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = pair
    framing.send(sender, _command(7, {"name": "ä\x00"}))
    sender.close()
    receiver.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=receiver)
    assert await framing.receive_async(reader, engine_pb2.EngineCommand) == _command(
        7, {"name": "ä\x00"}
    )
    assert await framing.receive_async(reader, engine_pb2.EngineCommand) is None
    writer.close()


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
async def test_an_end_inside_a_message_is_an_error(cut: int) -> None:
    frame = framing.encode_frame(_command(1, {"a": "b"}))
    sender, receiver = socket.socketpair()
    sender.sendall(frame[:cut])
    sender.close()
    with pytest.raises(framing.FramingError, match="ended inside a message"):
        framing.receive(receiver, engine_pb2.EngineCommand)
    reader = asyncio.StreamReader()
    reader.feed_data(frame[:cut])
    reader.feed_eof()
    with pytest.raises(framing.FramingError, match="ended inside a message"):
        await framing.receive_async(reader, engine_pb2.EngineCommand)


async def test_a_message_over_the_bound_is_refused_on_both_sides(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = struct.pack(">I", framing.MAX_FRAME_BYTES + 1)
    sender, receiver = pair
    sender.sendall(announced)
    with pytest.raises(framing.FramingError, match="limit is 268435456 bytes"):
        framing.receive(receiver, engine_pb2.EngineCommand)
    reader = asyncio.StreamReader()
    reader.feed_data(announced)
    with pytest.raises(framing.FramingError, match="limit is 268435456 bytes"):
        await framing.receive_async(reader, engine_pb2.EngineCommand)
    monkeypatch.setattr(framing, "MAX_FRAME_BYTES", 10)
    with pytest.raises(framing.FramingError, match=r"EngineCommand of .* over the limit"):
        framing.send(sender, _command(1, {"too": "large for ten bytes"}))


def test_bytes_that_are_no_message_are_an_error(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = pair
    sender.sendall(struct.pack(">I", 3) + b"\xff\xff\xff")
    with pytest.raises(framing.FramingError, match="not a valid EngineCommand"):
        framing.receive(receiver, engine_pb2.EngineCommand)
