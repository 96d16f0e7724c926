"""ConnectService over gRPC: each call runs its use case."""

from collections.abc import AsyncIterator

import grpc.aio
from google.protobuf.message import Message

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.codec.caller import encode_caller
from drover.rpc.guard import current_principal
from drover.rpc.interceptors import remaining_s
from drover_worker.admin.admin import Admin
from drover_worker.admin.call import AdminCall, Deadline

Context = grpc.aio.ServicerContext[Message, Message]


class ConnectServicer(pb_grpc.ConnectServiceServicer):
    """The admin API, the same on every worker."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    # Cluster

    async def GetClusterInfo(
        self, request: pb.GetClusterInfoRequest, context: Context
    ) -> pb.GetClusterInfoResponse:
        """Describe the cluster, without waiting for a rebalance."""
        return await self._admin.cluster.get(request, _call(context))

    async def GetCaller(
        self, request: pb.GetCallerRequest, context: Context
    ) -> pb.GetCallerResponse:
        """Return the caller's name and grants."""
        return encode_caller(current_principal())

    async def DrainWorker(
        self, request: pb.DrainWorkerRequest, context: Context
    ) -> pb.DrainWorkerResponse:
        """Drain a worker."""
        return await self._admin.drains.drain(request, _call(context))

    async def ResumeWorker(
        self, request: pb.ResumeWorkerRequest, context: Context
    ) -> pb.ResumeWorkerResponse:
        """Let a drained worker accept work again."""
        return await self._admin.drains.resume(request, _call(context))

    async def ListRebalances(
        self, request: pb.ListRebalancesRequest, context: Context
    ) -> pb.ListRebalancesResponse:
        """Return a page of the group's last rebalances."""
        return await self._admin.rebalances.list_page(request, _call(context))

    async def ListAuditEvents(
        self, request: pb.ListAuditEventsRequest, context: Context
    ) -> pb.ListAuditEventsResponse:
        """Return a page of the workers' last audit events."""
        return await self._admin.audit_events.list_page(request, _call(context))

    # Reads

    async def GetConnector(
        self, request: pb.GetConnectorRequest, context: Context
    ) -> pb.GetConnectorResponse:
        """Return a connector."""
        return await self._admin.connectors.get(request, _call(context))

    async def GetConnectorSecrets(
        self, request: pb.GetConnectorSecretsRequest, context: Context
    ) -> pb.GetConnectorSecretsResponse:
        """Return a connector's secrets, if the worker's settings allow it."""
        return await self._admin.connectors.secrets(request, _call(context))

    async def ListConnectors(
        self, request: pb.ListConnectorsRequest, context: Context
    ) -> pb.ListConnectorsResponse:
        """Return a page of connectors."""
        return await self._admin.connectors.list_page(request, _call(context))

    async def GetConnectorHistory(
        self, request: pb.GetConnectorHistoryRequest, context: Context
    ) -> pb.GetConnectorHistoryResponse:
        """Return a page of a connector's history, newest first."""
        return await self._admin.connectors.history(request, _call(context))

    async def GetConnectorStatus(
        self, request: pb.GetConnectorStatusRequest, context: Context
    ) -> pb.GetConnectorStatusResponse:
        """Return the status of a connector and its tasks."""
        return await self._admin.statuses.get(request, _call(context))

    async def GetConnectorFigures(
        self, request: pb.GetConnectorFiguresRequest, context: Context
    ) -> pb.GetConnectorFiguresResponse:
        """Return the figures of a connector over the last hour."""
        return await self._admin.figures.get(request, _call(context))

    async def ListTasks(
        self, request: pb.ListTasksRequest, context: Context
    ) -> pb.ListTasksResponse:
        """Return a page of a connector's tasks."""
        return await self._admin.statuses.tasks(request, _call(context))

    async def GetConnectorOffsets(
        self, request: pb.GetConnectorOffsetsRequest, context: Context
    ) -> pb.GetConnectorOffsetsResponse:
        """Return a page of a connector's committed offsets."""
        return await self._admin.statuses.offsets(request, _call(context))

    async def FindConnectorOffsets(
        self, request: pb.FindConnectorOffsetsRequest, context: Context
    ) -> pb.FindConnectorOffsetsResponse:
        """Return where a sink's topic partitions have the first record at or after a time."""
        return await self._admin.offset_search.find(request, _call(context))

    async def GetConnectorTopics(
        self, request: pb.GetConnectorTopicsRequest, context: Context
    ) -> pb.GetConnectorTopicsResponse:
        """Return a connector's active topics."""
        return await self._admin.statuses.topics(request, _call(context))

    async def ListConnectorTopics(
        self, request: pb.ListConnectorTopicsRequest, context: Context
    ) -> pb.ListConnectorTopicsResponse:
        """Return a page of connectors with their active topics."""
        return await self._admin.statuses.list_topics(request, _call(context))

    async def ResetConnectorTopics(
        self, request: pb.ResetConnectorTopicsRequest, context: Context
    ) -> pb.ResetConnectorTopicsResponse:
        """Remove a connector's active topics."""
        return await self._admin.statuses.reset_topics(request, _call(context))

    # Watches

    async def WatchStatuses(
        self, request: pb.WatchStatusesRequest, context: Context
    ) -> AsyncIterator[pb.WatchStatusesResponse]:
        """Stream all statuses, then their changes."""
        async for response in self._admin.statuses.watch(request, _call(context)):
            yield response

    async def WatchConnectors(
        self, request: pb.WatchConnectorsRequest, context: Context
    ) -> AsyncIterator[pb.WatchConnectorsResponse]:
        """Stream all connectors, then their changes."""
        async for response in self._admin.connectors.watch(request, _call(context)):
            yield response

    # Plugins

    async def ListPlugins(
        self, request: pb.ListPluginsRequest, context: Context
    ) -> pb.ListPluginsResponse:
        """List the plugins of all workers."""
        return await self._admin.plugins.list_all(request, _call(context))

    async def ReloadPlugins(
        self, request: pb.ReloadPluginsRequest, context: Context
    ) -> pb.ReloadPluginsResponse:
        """Make a worker reload its plugins."""
        return await self._admin.plugin_reload.reload(request, _call(context))

    async def GetPlugin(
        self, request: pb.GetPluginRequest, context: Context
    ) -> pb.GetPluginResponse:
        """Return a plugin's settings."""
        return await self._admin.plugins.get(request, _call(context))

    async def ValidateConfig(
        self, request: pb.ValidateConfigRequest, context: Context
    ) -> pb.ValidateConfigResponse:
        """Validate a config."""
        return await self._admin.plugins.validate(request, _call(context))

    async def PreviewConnector(
        self, request: pb.PreviewConnectorRequest, context: Context
    ) -> pb.PreviewConnectorResponse:
        """Preview a connector on some records."""
        return await self._admin.plugins.preview(request, _call(context))

    async def PlanConnectorConfig(
        self, request: pb.PlanConnectorConfigRequest, context: Context
    ) -> pb.PlanConnectorConfigResponse:
        """Plan the change of a config."""
        return await self._admin.plans.plan(request, _call(context))

    # Topics

    async def ListTopics(
        self, request: pb.ListTopicsRequest, context: Context
    ) -> pb.ListTopicsResponse:
        """Return a page of topics."""
        return await self._admin.topics.list_page(request, _call(context))

    async def DescribeTopic(
        self, request: pb.DescribeTopicRequest, context: Context
    ) -> pb.DescribeTopicResponse:
        """Describe a topic and its partitions."""
        return await self._admin.topics.describe(request, _call(context))

    async def WatchTopic(
        self, request: pb.WatchTopicRequest, context: Context
    ) -> AsyncIterator[pb.WatchTopicResponse]:
        """Stream records of a topic."""
        async for response in self._admin.topics.watch(request, _call(context)):
            yield response

    async def GetTopicRecordCount(
        self, request: pb.GetTopicRecordCountRequest, context: Context
    ) -> pb.GetTopicRecordCountResponse:
        """Count the records of a topic."""
        return await self._admin.topics.count(request, _call(context))

    async def ProduceRecords(
        self, requests: AsyncIterator[pb.ProduceRecordsRequest], context: Context
    ) -> pb.ProduceRecordsResponse:
        """Write records to a topic."""
        return await self._admin.topic_writes.produce(requests, _call(context))

    # Changes

    async def ReplayDeadLetters(
        self, request: pb.ReplayDeadLettersRequest, context: Context
    ) -> pb.ReplayDeadLettersResponse:
        """Replay dead letters of a connector."""
        return await self._admin.dead_letters.replay(request, _call(context))

    async def DiscardDeadLetters(
        self, request: pb.DiscardDeadLettersRequest, context: Context
    ) -> pb.DiscardDeadLettersResponse:
        """Discard dead letters of a connector."""
        return await self._admin.dead_letters.discard(request, _call(context))

    async def GetDeadLetterStates(
        self, request: pb.GetDeadLetterStatesRequest, context: Context
    ) -> pb.GetDeadLetterStatesResponse:
        """Return which dead letters were replayed or discarded."""
        return await self._admin.dead_letters.states(request, _call(context))

    async def CreateConnector(
        self, request: pb.CreateConnectorRequest, context: Context
    ) -> pb.CreateConnectorResponse:
        """Create a connector."""
        return await self._admin.changes.create(request, _call(context))

    async def PutConnectorConfig(
        self, request: pb.PutConnectorConfigRequest, context: Context
    ) -> pb.PutConnectorConfigResponse:
        """Create a connector or replace its config."""
        return await self._admin.changes.put(request, _call(context))

    async def PatchConnectorConfig(
        self, request: pb.PatchConnectorConfigRequest, context: Context
    ) -> pb.PatchConnectorConfigResponse:
        """Change some settings."""
        return await self._admin.changes.patch(request, _call(context))

    async def AlterConnectorOffsets(
        self, request: pb.AlterConnectorOffsetsRequest, context: Context
    ) -> pb.AlterConnectorOffsetsResponse:
        """Change some of a stopped connector's offsets."""
        return await self._admin.changes.alter_offsets(request, _call(context))

    async def ResetConnectorOffsets(
        self, request: pb.ResetConnectorOffsetsRequest, context: Context
    ) -> pb.ResetConnectorOffsetsResponse:
        """Remove a stopped connector's offsets."""
        return await self._admin.changes.reset_offsets(request, _call(context))

    async def RollbackConnector(
        self, request: pb.RollbackConnectorRequest, context: Context
    ) -> pb.RollbackConnectorResponse:
        """Write a connector's old config as its new one."""
        return await self._admin.changes.rollback(request, _call(context))

    async def DeleteConnector(
        self, request: pb.DeleteConnectorRequest, context: Context
    ) -> pb.DeleteConnectorResponse:
        """Remove a connector."""
        return await self._admin.changes.delete(request, _call(context))

    async def PauseConnector(
        self, request: pb.PauseConnectorRequest, context: Context
    ) -> pb.PauseConnectorResponse:
        """Pause a connector."""
        return await self._admin.changes.pause(request, _call(context))

    async def ResumeConnector(
        self, request: pb.ResumeConnectorRequest, context: Context
    ) -> pb.ResumeConnectorResponse:
        """Resume a connector."""
        return await self._admin.changes.resume(request, _call(context))

    async def StopConnector(
        self, request: pb.StopConnectorRequest, context: Context
    ) -> pb.StopConnectorResponse:
        """Stop a connector."""
        return await self._admin.changes.stop(request, _call(context))

    async def RestartConnector(
        self, request: pb.RestartConnectorRequest, context: Context
    ) -> pb.RestartConnectorResponse:
        """Restart a connector, and its tasks if requested."""
        return await self._admin.changes.restart(request, _call(context))

    async def RestartTask(
        self, request: pb.RestartTaskRequest, context: Context
    ) -> pb.RestartTaskResponse:
        """Restart a task."""
        return await self._admin.changes.restart_task(request, _call(context))

    # Loggers

    async def ListLoggers(
        self, request: pb.ListLoggersRequest, context: Context
    ) -> pb.ListLoggersResponse:
        """List the loggers of this worker's processes."""
        return await self._admin.loggers.list_all(request, _call(context))

    async def SetLoggerLevel(
        self, request: pb.SetLoggerLevelRequest, context: Context
    ) -> pb.SetLoggerLevelResponse:
        """Set a logger's level on this worker or in the whole cluster."""
        return await self._admin.loggers.set_level(request, _call(context))


def _call(context: Context) -> AdminCall:
    return AdminCall(current_principal(), Deadline.after(remaining_s(context)))
