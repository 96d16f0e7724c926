"""ConnectService: the admin API, the same on every worker."""

import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc.aio

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.client.config_store import ConfigStoreClient
from drover.client.coordinator import CoordinatorClient
from drover.client.status_store import StatusStoreClient
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    NotFoundError,
    NotImplementedYetError,
    Reason,
)
from drover.rpc.interceptors import remaining_s
from drover_worker.admin_calls import CarriedCalls
from drover_worker.author import author_of
from drover_worker.carrier import Carrier
from drover_worker.changes import Changed, ChangeHub
from drover_worker.core.config.checks import (
    CONFIG_MAX_BYTES,
    config_size_bytes,
    connector_not_found,
)
from drover_worker.engine_link import EngineLink
from drover_worker.herder_loop import HerderLoop
from drover_worker.history import class_names, present_history
from drover_worker.loggers import Loggers, shared_level
from drover_worker.presenter import (
    PAGE_BYTES_MAX,
    Presenter,
    present_key,
    present_plugin,
    present_validation,
    take_page,
    take_page_by_name,
)
from drover_worker.settings import WorkerSettings

#: How long a read waits to be as fresh as the config store before it shows what is here.
FRESH_TIMEOUT_S = 1.0
SIGN_OF_LIFE_S = 10.0
_CLUSTER_TIMEOUT_S = 2.0

RpcContext = grpc.aio.ServicerContext[Any, Any]
#: Brings the config view to the log's end, within a number of seconds.
ReadToEnd = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Backends:
    """What the admin API works with."""

    settings: WorkerSettings
    worker_id: str
    loop: HerderLoop
    carrier: Carrier
    engine: EngineLink
    coordinator: CoordinatorClient
    config_store: ConfigStoreClient
    status_store: StatusStoreClient
    presenter: Presenter
    hub: ChangeHub
    loggers: Loggers
    read_to_end: ReadToEnd


class ConnectServicer(pb_grpc.ConnectServiceServicer):
    """Reads are answered from this worker's views; the rest goes where it can be decided."""

    def __init__(self, backends: Backends) -> None:
        self._settings = backends.settings
        self._worker_id = backends.worker_id
        self._loop = backends.loop
        self._view = backends.loop.herder.context.view
        self._carrier = backends.carrier
        self._engine = backends.engine
        self._coordinator = backends.coordinator
        self._config_store = backends.config_store
        self._status_store = backends.status_store
        self._loggers = backends.loggers
        self._presenter = backends.presenter
        self._hub = backends.hub
        self._read_to_end = backends.read_to_end
        self._calls = CarriedCalls(backends.presenter, backends.engine.find_faults)
        self._carrier.add_local("GetClusterInfo", self.own_cluster_info)
        for method in self._calls.methods():
            self._carrier.add(method)

    # Reads

    async def GetClusterInfo(
        self, request: pb.GetClusterInfoRequest, context: RpcContext
    ) -> pb.GetClusterInfoResponse:
        """The cluster as this worker sees it; never waits for it to settle."""
        membership = self._loop.herder.membership
        info = self.own_cluster_info()
        if membership.settled and not membership.leads:
            timeout_s = min(_CLUSTER_TIMEOUT_S, remaining_s(context))
            try:
                data = await self._carrier.ask(
                    membership.leader_url, "GetClusterInfo", request, timeout_s=timeout_s
                )
            except DroverError:
                return info  # the leader is being replaced: what is known here has to do
            info.workers.extend(pb.GetClusterInfoResponse.FromString(data).workers)
        return info

    def own_cluster_info(self) -> pb.GetClusterInfoResponse:
        """What this worker knows by itself; the assignments only when it leads."""
        herder = self._loop.herder
        membership = herder.membership
        info = pb.GetClusterInfoResponse(
            version=importlib.metadata.version("drover"),
            group_id=self._settings.group_id,
            worker_id=self._worker_id,
            leader_worker_id=membership.leader_url,
            generation=max(herder.context.generation, 0),
            protocol_name=membership.protocol_name,
            stage=herder.describe_stage(),
            storage_url=self._settings.storage_url,
            spark_version=self._engine.spark_version,
        )
        if membership.leads:
            for worker_url, assignment in sorted(membership.assignments.items()):
                info.workers.add(
                    worker_id=worker_url,
                    connectors=assignment.connectors,
                    tasks=[str(task) for task in assignment.tasks],
                    leader=worker_url == self._worker_id,
                )
        return info

    async def GetConnector(
        self, request: pb.GetConnectorRequest, context: RpcContext
    ) -> pb.GetConnectorResponse:
        """A connector."""
        name = await self._existing(request.name, context)
        return pb.GetConnectorResponse(connector=self._presenter.connector(name))

    async def ListConnectors(
        self, request: pb.ListConnectorsRequest, context: RpcContext
    ) -> pb.ListConnectorsResponse:
        """A page of connectors."""
        await self._prepare_read(context)
        names, token = take_page_by_name(
            sorted(self._view.connectors), request.page_token, request.page_size
        )
        response = pb.ListConnectorsResponse(next_page_token=token)
        size_bytes = 0
        for name in names:
            entry = pb.ListConnectorsResponse.Entry(name=name)
            if request.include_config:
                entry.connector.CopyFrom(self._presenter.connector(name))
            if request.include_status:
                entry.status.CopyFrom(self._presenter.status(name))
            size_bytes += entry.ByteSize()
            if response.connectors and size_bytes > PAGE_BYTES_MAX:
                response.next_page_token = response.connectors[-1].name
                break
            response.connectors.append(entry)
        return response

    async def GetConnectorHistory(
        self, request: pb.GetConnectorHistoryRequest, context: RpcContext
    ) -> pb.GetConnectorHistoryResponse:
        """A page of what was done to a connector, the newest first."""
        name = request.name.strip()
        await self._prepare_read(context)
        entries = await self._config_store.connector_history(name, timeout_s=remaining_s(context))
        if not entries:
            raise connector_not_found(name)
        await self._engine.try_know_plugins(class_names(entries))
        return present_history(
            entries,
            request.page_token,
            current=self._view.connectors.get(name),
            masked=lambda config: self._presenter.masked(config, config),
        )

    async def GetConnectorStatus(
        self, request: pb.GetConnectorStatusRequest, context: RpcContext
    ) -> pb.GetConnectorStatusResponse:
        """What a connector and its tasks are doing."""
        name = await self._existing(request.name, context)
        return pb.GetConnectorStatusResponse(status=self._presenter.status(name))

    async def ListTasks(
        self, request: pb.ListTasksRequest, context: RpcContext
    ) -> pb.ListTasksResponse:
        """A page of a connector's tasks."""
        name = await self._existing(request.name, context)
        tasks, token = take_page(
            self._presenter.tasks(name),
            request.page_token,
            size_bytes=lambda task: int(task.ByteSize()),
        )
        return pb.ListTasksResponse(tasks=tasks, next_page_token=token)

    async def GetConnectorOffsets(
        self, request: pb.GetConnectorOffsetsRequest, context: RpcContext
    ) -> pb.GetConnectorOffsetsResponse:
        """A page of a connector's committed offsets."""
        name = await self._existing(request.name, context)
        offsets = await self._coordinator.fetch_offsets(
            group_id=self._settings.group_id, connector=name, timeout_s=remaining_s(context)
        )
        page, token = take_page(
            offsets,
            request.page_token,
            size_bytes=lambda o: len(o.partition_json) + len(o.offset_json or "") + 16,
        )
        return pb.GetConnectorOffsetsResponse(
            offsets=[
                pb.ConnectorOffset(partition_json=o.partition_json, offset_json=o.offset_json)
                for o in page
            ],
            next_page_token=token,
        )

    async def GetConnectorTopics(
        self, request: pb.GetConnectorTopicsRequest, context: RpcContext
    ) -> pb.GetConnectorTopicsResponse:
        """The topics that a connector was seen to use."""
        name = await self._existing(request.name, context)
        return pb.GetConnectorTopicsResponse(topics=self._loop.herder.topics.of(name))

    async def ResetConnectorTopics(
        self, request: pb.ResetConnectorTopicsRequest, context: RpcContext
    ) -> pb.ResetConnectorTopicsResponse:
        """Forget them."""
        name = await self._existing(request.name, context)
        await self._status_store.delete_topic_statuses(name, timeout_s=remaining_s(context))
        return pb.ResetConnectorTopicsResponse()

    # Plugins

    async def ListPlugins(
        self, request: pb.ListPluginsRequest, context: RpcContext
    ) -> pb.ListPluginsResponse:
        """The installed plugins."""
        plugins = await self._engine.load_plugins()
        return pb.ListPluginsResponse(plugins=[present_plugin(p) for p in plugins.installed()])

    async def GetPlugin(
        self, request: pb.GetPluginRequest, context: RpcContext
    ) -> pb.GetPluginResponse:
        """A plugin's settings."""
        plugin = (await self._engine.load_plugins()).find(request.class_name)
        if plugin is None:
            text = f"no plugin {request.class_name!r} is installed on this worker"
            raise NotFoundError(Reason.PLUGIN_NOT_FOUND, text)
        return pb.GetPluginResponse(
            plugin=present_plugin(plugin), config_keys=[present_key(k) for k in plugin.config_keys]
        )

    async def ValidateConfig(
        self, request: pb.ValidateConfigRequest, context: RpcContext
    ) -> pb.ValidateConfigResponse:
        """A config's faults."""
        config = dict(request.config)
        if config_size_bytes(config) > CONFIG_MAX_BYTES:
            raise InvalidArgumentError(Reason.TOO_LARGE, "the config is over 1 MiB")
        return present_validation(await self._engine.validate(config))

    # Writes

    async def CreateConnector(
        self, request: pb.CreateConnectorRequest, context: RpcContext
    ) -> pb.CreateConnectorResponse:
        """Create a connector."""
        return await self._carried("CreateConnector", request, context)  # type: ignore[no-any-return]

    async def PutConnectorConfig(
        self, request: pb.PutConnectorConfigRequest, context: RpcContext
    ) -> pb.PutConnectorConfigResponse:
        """Create a connector or replace its config."""
        return await self._carried("PutConnectorConfig", request, context)  # type: ignore[no-any-return]

    async def RollbackConnector(
        self, request: pb.RollbackConnectorRequest, context: RpcContext
    ) -> pb.RollbackConnectorResponse:
        """Write a connector's old config as its new one."""
        return await self._carried("RollbackConnector", request, context)  # type: ignore[no-any-return]

    async def DeleteConnector(
        self, request: pb.DeleteConnectorRequest, context: RpcContext
    ) -> pb.DeleteConnectorResponse:
        """Remove a connector."""
        return await self._carried("DeleteConnector", request, context)  # type: ignore[no-any-return]

    async def PauseConnector(
        self, request: pb.PauseConnectorRequest, context: RpcContext
    ) -> pb.PauseConnectorResponse:
        """Pause a connector."""
        return await self._carried("PauseConnector", request, context)  # type: ignore[no-any-return]

    async def ResumeConnector(
        self, request: pb.ResumeConnectorRequest, context: RpcContext
    ) -> pb.ResumeConnectorResponse:
        """Resume a connector."""
        return await self._carried("ResumeConnector", request, context)  # type: ignore[no-any-return]

    async def StopConnector(
        self, request: pb.StopConnectorRequest, context: RpcContext
    ) -> pb.StopConnectorResponse:
        """Stop a connector."""
        return await self._carried("StopConnector", request, context)  # type: ignore[no-any-return]

    async def RestartConnector(
        self, request: pb.RestartConnectorRequest, context: RpcContext
    ) -> pb.RestartConnectorResponse:
        """Restart a connector."""
        await self._existing(request.name.strip(), context)
        return await self._carried("RestartConnector", request, context)  # type: ignore[no-any-return]

    async def RestartTask(
        self, request: pb.RestartTaskRequest, context: RpcContext
    ) -> pb.RestartTaskResponse:
        """Restart a task."""
        await self._existing(request.name.strip(), context)
        return await self._carried("RestartTask", request, context)  # type: ignore[no-any-return]

    async def _carried(self, name: str, request: Any, context: RpcContext) -> Any:
        prepared = await self._calls.prepare(request)
        return await self._carrier.call(
            name, prepared, timeout_s=remaining_s(context), author=author_of(context)
        )

    # Watches

    async def WatchStatuses(
        self, request: pb.WatchStatusesRequest, context: RpcContext
    ) -> AsyncIterator[pb.WatchStatusesResponse]:
        """Statuses as they change, the present ones first."""
        await self._prepare_read(context)

        def show(name: str) -> pb.WatchStatusesResponse:
            if name in self._view.connectors:
                return pb.WatchStatusesResponse(status=self._presenter.status(name))
            return pb.WatchStatusesResponse(status=pb.ConnectorStatus(name=name), removed=True)

        with self._hub.watch_statuses() as changed:
            async for response in self._watch(changed, request.name, show):
                yield response or pb.WatchStatusesResponse(synced=True)

    async def WatchConnectors(
        self, request: pb.WatchConnectorsRequest, context: RpcContext
    ) -> AsyncIterator[pb.WatchConnectorsResponse]:
        """Connectors as they change, the present ones first."""
        await self._prepare_read(context)

        def show(name: str) -> pb.WatchConnectorsResponse:
            if name in self._view.connectors:
                return pb.WatchConnectorsResponse(connector=self._presenter.connector(name))
            return pb.WatchConnectorsResponse(connector=pb.Connector(name=name), removed=True)

        with self._hub.watch_configs() as changed:
            async for response in self._watch(changed, "", show):
                yield response or pb.WatchConnectorsResponse(synced=True)

    async def _watch(
        self, changed: Changed, only: str, show: Callable[[str], Any]
    ) -> AsyncIterator[Any]:
        """What ``show`` makes of each connector, None for "synced" and signs of life."""
        shown: dict[str, bytes] = {}
        names = sorted(self._view.connectors)
        synced = False
        while True:
            await self._engine.try_know_plugins(self._presenter.class_names())
            for name in names:
                if only and name != only:
                    continue
                response = show(name)
                if response.removed and shown.pop(name, None) is None:
                    continue  # gone before it was ever shown
                data = response.SerializeToString(deterministic=True)
                if response.removed or shown.get(name) != data:
                    if not response.removed:
                        shown[name] = data
                    yield response
            if not synced or not names:
                yield None
            synced = True
            taken = await changed.take(SIGN_OF_LIFE_S)
            # what is gone from a view that was read anew is only known from what was shown
            names = sorted({*shown, *self._view.connectors}) if taken is None else taken

    # Loggers

    async def ListLoggers(
        self, request: pb.ListLoggersRequest, context: RpcContext
    ) -> pb.ListLoggersResponse:
        """The loggers of this worker's processes."""
        response = pb.ListLoggersResponse()
        for state in await self._loggers.states():
            shown = response.loggers.add(name=state.name, level=state.level)
            if state.changed_ms is not None:
                shown.last_change_time.FromMilliseconds(state.changed_ms)
        return response

    async def SetLoggerLevel(
        self, request: pb.SetLoggerLevelRequest, context: RpcContext
    ) -> pb.SetLoggerLevelResponse:
        """Set a logger's level, here or everywhere."""
        if not request.cluster_scope:
            names = await self._loggers.set_level(request.name, request.level)
            return pb.SetLoggerLevelResponse(names=names)
        await self._loggers.check(request.name, request.level)
        await self._config_store.put_logger_level(
            logger=request.name,
            level=shared_level(request.level),
            author=author_of(context),
            timeout_s=remaining_s(context),
        )
        return pb.SetLoggerLevelResponse()

    # Not yet

    async def PatchConnectorConfig(self, request: Any, context: RpcContext) -> Any:
        """Comes later."""
        raise NotImplementedYetError("PatchConnectorConfig")

    async def AlterConnectorOffsets(self, request: Any, context: RpcContext) -> Any:
        """Comes later."""
        raise NotImplementedYetError("AlterConnectorOffsets")

    async def ResetConnectorOffsets(self, request: Any, context: RpcContext) -> Any:
        """Comes later."""
        raise NotImplementedYetError("ResetConnectorOffsets")

    # Freshness

    async def _existing(self, name: str, context: RpcContext) -> str:
        await self._prepare_read(context)
        if name not in self._view.connectors:
            raise connector_not_found(name)
        return name

    async def _prepare_read(self, context: RpcContext) -> None:
        await self._refresh(remaining_s(context))
        await self._engine.try_know_plugins(self._presenter.class_names())

    async def _refresh(self, timeout_s: float) -> None:
        """Wait until the views are read, then for all that was durable before the call.

        While the config store is away what is here is shown as it is.
        """
        await self._loop.wait_until_loaded(timeout_s)
        try:
            await self._read_to_end(min(FRESH_TIMEOUT_S, timeout_s))
        except DroverError:
            return
