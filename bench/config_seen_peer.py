"""The peer of a config write that many watch: a commit, and an empty message to each watcher.

``python -m bench.config_seen_peer`` prints its address and serves until SIGTERM. It has
Drover's interceptors, one row of SQLite, and no rules.
"""

import asyncio
import signal
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.rpc.logs import configure_logging
from drover.rpc.server import RpcServer

SERVICE = pb.DESCRIPTOR.services_by_name["ConfigStoreService"].full_name
_QUEUE_MAX = 1_000


class Peer:
    """Commits to ``path`` and notifies every stream.

    The commit runs on a thread, as commits of the log do.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._streams: set[asyncio.Queue[None]] = set()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE row (number INTEGER PRIMARY KEY, value TEXT)")

    async def put(self, request: pb.PutTargetStateRequest, context: Any) -> Any:
        """One durable row, then one message for each watcher."""
        await asyncio.to_thread(self._commit, request.name)
        for stream in self._streams:
            stream.put_nowait(None)
        return pb.PutTargetStateResponse()

    async def watch(self, request: Any, context: Any) -> AsyncIterator[pb.WatchConfigsResponse]:
        """An empty message at once and for every commit."""
        stream: asyncio.Queue[None] = asyncio.Queue(_QUEUE_MAX)
        self._streams.add(stream)
        try:
            yield pb.WatchConfigsResponse(created=True)
            while True:
                await stream.get()
                yield pb.WatchConfigsResponse()
        finally:
            self._streams.discard(stream)

    def _commit(self, value: str) -> None:
        self._connection.execute("INSERT INTO row (value) VALUES (?)", (value,))


def _add(peer: Peer, server: grpc.aio.Server) -> None:
    handlers: dict[str, Any] = {
        "PutTargetState": grpc.unary_unary_rpc_method_handler(
            peer.put,
            request_deserializer=pb.PutTargetStateRequest.FromString,
            response_serializer=pb.PutTargetStateResponse.SerializeToString,
        ),
        "WatchConfigs": grpc.unary_stream_rpc_method_handler(
            peer.watch,
            request_deserializer=pb.WatchConfigsRequest.FromString,
            response_serializer=pb.WatchConfigsResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


async def main() -> None:
    """Serve until SIGTERM."""
    configure_logging("peer", "WARNING", "json")
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        server = RpcServer(listen="127.0.0.1:0", internal=True)
        server.add(_add, Peer(Path(folder) / "rows.db"), SERVICE)
        address = await server.start()
        sys.stdout.write(address + "\n")
        sys.stdout.flush()
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        await stopping.wait()
        await server.drain(grace_s=1)


if __name__ == "__main__":
    asyncio.run(main())
