"""The config and the status store behind one interface, for what both promise over gRPC."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from drover.api.config_store.v1 import config_store_service_pb2 as config_pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as config_grpc
from drover.api.status_store.v1 import status_store_service_pb2 as status_pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as status_grpc
from drover.client import ConfigStoreClient, StatusStoreClient
from drover.model.config import ConfigSnapshot, ConnectorConfigUpdated
from drover.model.ids import TaskId, Term
from drover.model.status import RunState, Status, StatusEvent, StatusSnapshot, StatusWrite
from drover_config_store import server as config_server
from drover_status_store import server as status_server
from tests.support.log_services import RunningService, running_service

Client = ConfigStoreClient | StatusStoreClient
Record = tuple[bytes, bytes]


class StoreKind(ABC):
    """One store: its service, its client, and how a test writes and reads connectors there."""

    name: str
    service: str
    wire: Callable[..., Any]
    #: Records that other programs wrote, and the offsets of those that cannot be read; the readable
    #: ones are of the connector "a".
    foreign: Sequence[Record]
    unreadable: Sequence[int]

    @asynccontextmanager
    async def running(self, path: Path, *, load: bool = True) -> AsyncIterator[RunningService]:
        """Serve the log at ``path``."""
        async with running_service(path, self.wire, load=load) as service:
            yield service

    @abstractmethod
    def client(self, channel: grpc.aio.Channel) -> Any:
        """A client on a channel."""

    @abstractmethod
    async def put(self, client: Any, name: str, version: int = 0, filler: str = "") -> int:
        """Write of a connector; returns the log's end."""

    @abstractmethod
    async def put_whole(self, client: Any, name: str) -> None:
        """Write of a connector and of its task, of which a later record hides a part."""

    @abstractmethod
    async def remove(self, client: Any, name: str) -> int:
        """Remove a connector; returns the log's end."""

    @abstractmethod
    def held(self, snapshot: Any) -> list[str]:
        """The connectors in a snapshot, in its order."""

    @abstractmethod
    def told(self, change: Any) -> tuple[str, bool]:
        """The connector of a change, and whether it is there afterwards."""

    @abstractmethod
    def messages(self, channel: grpc.aio.Channel) -> tuple[Any, Any]:
        """The raw streams of a snapshot, and of a watch from the log's start."""

    @abstractmethod
    def calls(self, channel: grpc.aio.Channel) -> Mapping[str, Any]:
        """A call of each kind, by its name."""


class ConfigKind(StoreKind):
    """The config store; a connector's config holds the version."""

    name, service, wire = "config-store", config_server.FULL_NAME, staticmethod(config_server.wire)
    foreign = (
        (b"connector-a", b'{"properties":{"x":"1"}}'),
        (b"connector-b", b"\xff\x00"),
        (b"session-key", b"whatever"),
        (b"\xfe\xff", b"{}"),
        (b"task-a-0", b'{"properties":{"t":"0"}}'),
        (b"commit-a", b'{"tasks":1}'),
    )
    unreadable = (1, 2, 3)

    def client(self, channel: grpc.aio.Channel) -> ConfigStoreClient:
        return ConfigStoreClient(channel)

    async def put(
        self, client: ConfigStoreClient, name: str, version: int = 0, filler: str = ""
    ) -> int:
        config = {"version": str(version), "filler": filler}
        epoch = await self._epoch(client)
        written = await client.put_connector_config(name=name, config=config, writer_epoch=epoch)
        return written.end_offset

    async def put_whole(self, client: ConfigStoreClient, name: str) -> None:
        await self.put(client, name, 1)
        epoch = await self._epoch(client)
        await client.put_task_configs(connector=name, task_configs=[{"t": "0"}], writer_epoch=epoch)
        await self.put(client, name, 2)  # the task stays that of version 1

    async def remove(self, client: ConfigStoreClient, name: str) -> int:
        return await client.delete_connector(name=name, writer_epoch=await self._epoch(client))

    async def _epoch(self, client: ConfigStoreClient) -> int:
        return (await client.claim_writer(owner="w", term=Term(1, 1))).writer_epoch

    def held(self, snapshot: ConfigSnapshot) -> list[str]:
        return list(snapshot.connectors)

    def told(self, change: Any) -> tuple[str, bool]:
        if isinstance(change.change, ConnectorConfigUpdated):
            return change.change.connector.name, True
        return change.change.name, False

    def messages(self, channel: grpc.aio.Channel) -> tuple[Any, Any]:
        stub = config_grpc.ConfigStoreServiceStub(channel)
        return (
            stub.GetSnapshot(config_pb.GetSnapshotRequest(), timeout=60),
            stub.WatchConfigs(config_pb.WatchConfigsRequest()),
        )

    def calls(self, channel: grpc.aio.Channel) -> Mapping[str, Any]:
        stub = config_grpc.ConfigStoreServiceStub(channel)
        delete = config_pb.DeleteConnectorRequest(name="a", request_id="r")
        return {
            "end": stub.GetEndOffset(config_pb.GetEndOffsetRequest(), timeout=10),
            "claim": stub.ClaimWriter(config_pb.ClaimWriterRequest(owner="w"), timeout=10),
            "write": stub.DeleteConnector(delete, timeout=10),
            "snapshot": stub.GetSnapshot(config_pb.GetSnapshotRequest(), timeout=10).read(),
            "watch": stub.WatchConfigs(config_pb.WatchConfigsRequest(), timeout=10).read(),
        }


class StatusKind(StoreKind):
    """The status store; a connector's status has the version as its generation."""

    name, service, wire = "status-store", status_server.FULL_NAME, staticmethod(status_server.wire)
    foreign = (
        (
            b"status-connector-a",
            b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":1}',
        ),
        (b"status-connector-b", b"\xff"),
        (b"status-topic-t:connector-a-1", b'{"topic":{}}'),
    )
    unreadable = (1, 2)

    def client(self, channel: grpc.aio.Channel) -> StatusStoreClient:
        return StatusStoreClient(channel)

    async def put(
        self, client: StatusStoreClient, name: str, version: int = 0, filler: str = ""
    ) -> int:
        return await self._write(client, Status(name, RunState.RUNNING, "w:1", version, filler))

    async def put_whole(self, client: StatusStoreClient, name: str) -> None:
        for version in (1, 2):
            await self.put(client, name, version)
            await self._write(client, Status(TaskId(name, 0), RunState.RUNNING, "w:1", version))

    async def remove(self, client: StatusStoreClient, name: str) -> int:
        return await self._write(client, Status(name, RunState.DESTROYED, "w:1", 1))

    async def _write(self, client: StatusStoreClient, status: Status) -> int:
        return (await client.put_statuses([StatusWrite(status)])).end_offset

    def held(self, snapshot: StatusSnapshot) -> list[str]:
        return [key for key in snapshot.statuses if isinstance(key, str)]

    def told(self, change: Any) -> tuple[str, bool]:
        assert isinstance(change, StatusEvent)
        return str(change.key), change.status is not None

    def messages(self, channel: grpc.aio.Channel) -> tuple[Any, Any]:
        stub = status_grpc.StatusStoreServiceStub(channel)
        return (
            stub.GetSnapshot(status_pb.GetSnapshotRequest(), timeout=60),
            stub.WatchStatuses(status_pb.WatchStatusesRequest()),
        )

    def calls(self, channel: grpc.aio.Channel) -> Mapping[str, Any]:
        stub = status_grpc.StatusStoreServiceStub(channel)
        entry = status_pb.StatusEntry(
            key=status_pb.StatusKey(connector="a"),
            state=status_pb.RUN_STATE_RUNNING,
            worker_id="w:1",
        )
        write = status_pb.PutStatusesRequest(writes=[status_pb.StatusWrite(status=entry)])
        return {
            "write": stub.PutStatuses(write, timeout=10),
            "snapshot": stub.GetSnapshot(status_pb.GetSnapshotRequest(), timeout=10).read(),
            "watch": stub.WatchStatuses(status_pb.WatchStatusesRequest(), timeout=10).read(),
        }


STORES: tuple[StoreKind, ...] = (ConfigKind(), StatusKind())
