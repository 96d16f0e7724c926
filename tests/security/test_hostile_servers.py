"""Servers that send the worst responses to connectors: endless ones, and requests for files."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from drover.connector.settings import validate_config
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.lakehouse.iceberg_sink import IcebergSink
from drover.connectors.postgres.source import PostgresCdcSource
from drover.convert.registered.registry import registry_at
from drover.policy import checked_requests
from tests.support.error_texts import logged
from tests.support.registry_converters import converter_at, topics

VALUES = pa.array([struct.pack(">bI", 0, 1) + b"x"], pa.binary())
_CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
SENT_MAX_BYTES = 400 * 1024 * 1024


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server for a while; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # it is closed
                    return
                with connection:
                    try:
                        answer(connection)
                    except OSError:  # the client has closed the connection
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def endless(connection: socket.socket) -> None:
    """Answer a request with JSON that has no end."""
    connection.recv(65536)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n")
    for _ in range(SENT_MAX_BYTES // 0x10000):
        connection.sendall(_CHUNK)


def errors_of(kind: type, config: dict[str, str]) -> str:
    values = validate_config(kind, {"name": "a", "connector.class": kind.__name__, **config})
    return "\n".join(text for each in values for text in each.errors)


def test_an_endless_response_of_a_registry_ends() -> None:
    registry_at.cache_clear()
    with serving(endless) as port:
        converter = converter_at("AvroConverter", f"http://127.0.0.1:{port}", max_retries="0")
        with pytest.raises(Exception) as caught:
            converter.decode(VALUES, topics("t"))
    registry_at.cache_clear()
    assert "more than 16777216 bytes" in logged(caught.value)


def test_an_endless_response_of_a_catalogue_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_requests, "RESPONSE_MAX_BYTES", 1024 * 1024)
    config = {
        "topics": "orders",
        "iceberg.tables": "app.orders",
        "iceberg.catalog.type": "rest",
    }
    with serving(endless) as port:
        told = errors_of(IcebergSink, {**config, "iceberg.catalog.uri": f"http://127.0.0.1:{port}"})
    assert "cannot be used" in told


def test_a_database_gets_no_file_of_the_worker(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("CANARY-OF-THE-WORKER")
    got: list[bytes] = []

    def packet(number: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "little") + bytes([number]) + body

    def mysql(connection: socket.socket) -> None:
        capabilities = 0x0008_A28D
        greeting = b"\x0a8.0.36\0" + struct.pack("<I", 7) + b"12345678\0"
        greeting += struct.pack("<H", capabilities & 0xFFFF) + b"\x21\x02\0"
        greeting += struct.pack("<H", capabilities >> 16) + b"\x15" + b"\0" * 10
        greeting += b"123456789012\0mysql_native_password\0"
        connection.sendall(packet(0, greeting))
        connection.recv(65536)
        connection.sendall(packet(2, b"\0\0\0\x02\0\0\0"))
        while received := connection.recv(65536):
            got.append(received)
            connection.sendall(packet(1, b"\xfb" + str(secret).encode()))

    with serving(mysql) as port:
        told = errors_of(
            JdbcSource,
            {
                "connection.url": f"jdbc:mysql://127.0.0.1:{port}/shop?sslMode=DISABLED",
                "connection.user": "ann",
                "connection.password": "hidden",
                "mode": "bulk",
                "topic.prefix": "t-",
            },
        )
    assert got, "the client sent a statement"
    assert b"CANARY" not in b"".join(got)
    assert told
    assert "CANARY" not in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "answer",
    [
        b"R\x7f\xff\xff\xff\0\0\0\0",  # a message of two gigabytes
        b"R\0\0\0\x08\0\0\0\x63",  # an unknown way to log in
        b"\0" * 64,
        b"HTTP/1.1 200 OK\r\n\r\nCANARY",
    ],
)
def test_a_server_that_does_not_speak_postgresql_is_a_fault(answer: bytes) -> None:
    def server(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(65536)

    with serving(server) as port:
        told = errors_of(
            PostgresCdcSource,
            {
                "database.hostname": "127.0.0.1",
                "database.port": str(port),
                "database.user": "ann",
                "database.password": "hidden-password",
                "database.dbname": "shop",
                "topic.prefix": "t",
                "database.sslmode": "disable",
            },
        )
    assert "127.0.0.1" in told
    assert "hidden-password" not in told
    assert "Traceback" not in told
