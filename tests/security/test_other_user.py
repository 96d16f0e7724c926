"""Another user of the machine cannot use files and ports of a cluster."""

import os
import struct
from collections.abc import Iterator

import psutil
import pytest

from tests.spark.engine.harness import Harness
from tests.support.other_user import answers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")

_LENGTH_BYTES = 8
_RPC_REQUEST, _RPC_FAILURE = 3, 5
_OPEN_BLOCKS = 0


def open_blocks() -> bytes:
    """Spark's request for blocks, from a client that does not authenticate."""

    def text(value: bytes) -> bytes:
        return struct.pack(">i", len(value)) + value

    body = struct.pack(">b", _OPEN_BLOCKS) + text(b"app") + text(b"0")
    body += struct.pack(">i", 1) + text(b"broadcast_0_piece0")
    message = struct.pack(">bqi", _RPC_REQUEST, 1, len(body)) + body
    return struct.pack(">q", len(message) + 8) + message


def listening_ports(process: psutil.Process) -> Iterator[int]:
    """The TCP ports on which a process and its descendants listen."""
    for each in (process, *process.children(recursive=True)):
        for connection in each.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                yield connection.laddr.port


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.timeout(1200)
async def test_the_ports_of_spark_reject_clients_without_its_secret(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    harness = Harness(tmp_path_factory.mktemp("engine"))
    try:
        await harness.start()
        ports = set(listening_ports(psutil.Process()))
        found = answers(dict.fromkeys(ports, open_blocks()))
    finally:
        await harness.close()
    of_spark = [answer for answer in found.values() if answer]
    assert len(of_spark) >= 2, "the driver and the block manager"
    for answer in of_spark:
        assert answer[_LENGTH_BYTES] == _RPC_FAILURE
        assert b"Expected SaslMessage" in answer
