"""The client of the admin API, for tools: it returns the messages of the API."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from drover.api.common.v1.preview_pb2 import Preview
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.calls import (
    new_request_id,
    pages,
    server_stream,
)
from drover.client.topics import ADMIN_TIMEOUT_S, PAGE_SIZE, TopicCalls
from drover.codec.common import encode_timestamp
from drover.codec.connect import TARGET_STATES
from drover.model.config import ConfigMap, TargetState


class ConnectClient(TopicCalls):
    """Calls the admin API of any worker; see ``drover.client`` for timeouts and retries.

    ``timeout_s`` of a list applies to each page. Idempotent calls are retried while the cluster is
    unavailable; restarts are not, since a retry would restart again.

    Args:
        channel: The channel to any worker.
        retry: Whether to retry idempotent calls; false for a tool that must fail immediately.
        author: The author of changes for the history of connectors, such as user@host. By default
            the server uses the caller's address.
    """

    async def get_cluster_info(
        self, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.GetClusterInfoResponse:
        """The cluster, as known to the called worker."""
        return await self._call(
            self._stub.GetClusterInfo, pb.GetClusterInfoRequest(), timeout_s=timeout_s
        )

    async def get_caller(self, *, timeout_s: float = ADMIN_TIMEOUT_S) -> pb.GetCallerResponse:
        """The name and the grants of the caller."""
        return await self._call(self._stub.GetCaller, pb.GetCallerRequest(), timeout_s=timeout_s)

    async def drain_worker(self, worker_id: str, *, timeout_s: float = ADMIN_TIMEOUT_S) -> None:
        """Drain a worker; returns once the other workers know about it."""
        request = pb.DrainWorkerRequest(worker_id=worker_id)
        await self._call(self._stub.DrainWorker, request, timeout_s=timeout_s)

    async def resume_worker(self, worker_id: str, *, timeout_s: float = ADMIN_TIMEOUT_S) -> None:
        """Let a drained worker take work again."""
        request = pb.ResumeWorkerRequest(worker_id=worker_id)
        await self._call(self._stub.ResumeWorker, request, timeout_s=timeout_s)

    async def list_rebalances(
        self, *, page_size: int = 0, page_token: str = "", timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.ListRebalancesResponse:
        """A page of the last rebalances, newest first."""
        request = pb.ListRebalancesRequest(page_size=page_size, page_token=page_token)
        return await self._call(self._stub.ListRebalances, request, timeout_s=timeout_s)

    async def list_audit_events(
        self, request: pb.ListAuditEventsRequest, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.ListAuditEventsResponse:
        """A page of the last audit events, newest first."""
        return await self._call(self._stub.ListAuditEvents, request, timeout_s=timeout_s)

    async def create_connector(
        self,
        name: str,
        config: ConfigMap,
        *,
        initial_state: TargetState | None = None,
        request_id: str = "",
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.Connector:
        """Create a connector; returns when its config is durable."""
        request = pb.CreateConnectorRequest(
            name=name,
            config=config,
            initial_state=(
                pb.TARGET_STATE_UNSPECIFIED
                if initial_state is None
                else TARGET_STATES.encode(initial_state)
            ),
            request_id=request_id or new_request_id(),
        )
        response = await self._call(self._stub.CreateConnector, request, timeout_s=timeout_s)
        return response.connector

    async def get_connector(self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S) -> pb.Connector:
        """A connector's config and tasks."""
        request = pb.GetConnectorRequest(name=name)
        response = await self._call(self._stub.GetConnector, request, timeout_s=timeout_s)
        return response.connector

    async def get_connector_secrets(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.GetConnectorSecretsResponse:
        """The settings of a connector that other calls mask."""
        request = pb.GetConnectorSecretsRequest(name=name)
        return await self._call(self._stub.GetConnectorSecrets, request, timeout_s=timeout_s)

    async def list_connectors(
        self,
        *,
        include_config: bool = False,
        include_status: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> list[pb.ListConnectorsResponse.Entry]:
        """All connectors by name, from all pages."""

        async def fetch(token: str) -> pb.ListConnectorsResponse:
            request = pb.ListConnectorsRequest(
                page_size=PAGE_SIZE,
                page_token=token,
                include_config=include_config,
                include_status=include_status,
            )
            return await self._call(self._stub.ListConnectors, request, timeout_s=timeout_s)

        return [entry async for page in pages(fetch) for entry in page.connectors]

    async def put_connector_config(
        self,
        name: str,
        config: ConfigMap,
        *,
        expected_revision: int | None = None,
        skip_unchanged: bool = False,
        dry_run: bool = False,
        plan_hash: str = "",
        keep_masked: bool = False,
        request_id: str = "",
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.PutConnectorConfigResponse:
        """Create a connector or replace its config.

        With ``skip_unchanged``, an equal config is not written. With ``dry_run``, nothing is
        written and the response has the changes. With ``plan_hash``, the config is written only if
        the plan still has this hash. With ``keep_masked``, the mask of a secret keeps its value.
        """
        request = pb.PutConnectorConfigRequest(
            name=name,
            config=config,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
            skip_unchanged=skip_unchanged,
            dry_run=dry_run,
            plan_hash=plan_hash,
            keep_masked=keep_masked,
        )
        return await self._call(self._stub.PutConnectorConfig, request, timeout_s=timeout_s)

    async def plan_connector_config(
        self,
        name: str,
        config: ConfigMap,
        *,
        keep_masked: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.PlanConnectorConfigResponse:
        """Plan the changes of ``put_connector_config``; nothing is written."""
        request = pb.PlanConnectorConfigRequest(name=name, config=config, keep_masked=keep_masked)
        return await self._call(self._stub.PlanConnectorConfig, request, timeout_s=timeout_s)

    async def patch_connector_config(
        self,
        name: str,
        *,
        settings: Mapping[str, str],
        remove: Sequence[str] = (),
        keep_masked: bool = False,
        request_id: str = "",
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.Connector:
        """Change some settings of a connector; ``keep_masked`` as in ``put_connector_config``."""
        request = pb.PatchConnectorConfigRequest(
            name=name,
            set=settings,
            remove=remove,
            keep_masked=keep_masked,
            request_id=request_id or new_request_id(),
        )
        response = await self._call(self._stub.PatchConnectorConfig, request, timeout_s=timeout_s)
        return response.connector

    async def get_connector_history(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> list[pb.ConnectorChange]:
        """The changes of a connector with their authors, newest first, from all pages."""

        async def fetch(token: str) -> pb.GetConnectorHistoryResponse:
            return await self.get_connector_history_page(
                name, page_token=token, timeout_s=timeout_s
            )

        return [change async for page in pages(fetch) for change in page.changes]

    async def get_connector_history_page(
        self, name: str, *, page_token: str = "", timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.GetConnectorHistoryResponse:
        """A page of a connector's changes, newest first, with the token of the next page."""
        request = pb.GetConnectorHistoryRequest(name=name, page_token=page_token)
        return await self._call(self._stub.GetConnectorHistory, request, timeout_s=timeout_s)

    async def rollback_connector(
        self,
        name: str,
        revision: int,
        *,
        expected_revision: int | None = None,
        request_id: str = "",
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.RollbackConnectorResponse:
        """Write an earlier config of the connector as its new config."""
        request = pb.RollbackConnectorRequest(
            name=name,
            revision=revision,
            request_id=request_id or new_request_id(),
            expected_revision=expected_revision,
        )
        return await self._call(self._stub.RollbackConnector, request, timeout_s=timeout_s)

    async def delete_connector(
        self, name: str, *, request_id: str = "", timeout_s: float = ADMIN_TIMEOUT_S
    ) -> None:
        """Remove a connector; its committed offsets stay."""
        request = pb.DeleteConnectorRequest(name=name, request_id=request_id or new_request_id())
        await self._call(self._stub.DeleteConnector, request, timeout_s=timeout_s)

    async def get_connector_status(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.ConnectorStatus:
        """The status of a connector and its tasks."""
        request = pb.GetConnectorStatusRequest(name=name)
        response = await self._call(self._stub.GetConnectorStatus, request, timeout_s=timeout_s)
        return response.status

    async def get_connector_figures(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.GetConnectorFiguresResponse:
        """A connector's figures over the last hour."""
        request = pb.GetConnectorFiguresRequest(name=name)
        return await self._call(self._stub.GetConnectorFigures, request, timeout_s=timeout_s)

    async def pause_connector(self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S) -> None:
        """Pause a connector: its tasks stay assigned but idle."""
        request = pb.PauseConnectorRequest(name=name)
        await self._call(self._stub.PauseConnector, request, timeout_s=timeout_s)

    async def resume_connector(self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S) -> None:
        """Resume a paused or stopped connector."""
        request = pb.ResumeConnectorRequest(name=name)
        await self._call(self._stub.ResumeConnector, request, timeout_s=timeout_s)

    async def stop_connector(self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S) -> None:
        """Stop a connector: its tasks are removed, its config and offsets stay."""
        request = pb.StopConnectorRequest(name=name)
        await self._call(self._stub.StopConnector, request, timeout_s=timeout_s)

    async def restart_connector(
        self,
        name: str,
        *,
        include_tasks: bool = False,
        only_failed: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.ConnectorStatus:
        """Restart a connector, optionally with tasks; returns the planned status. No retries."""
        request = pb.RestartConnectorRequest(
            name=name, include_tasks=include_tasks, only_failed=only_failed
        )
        response = await self._call_once(self._stub.RestartConnector, request, timeout_s=timeout_s)
        return response.planned_status

    async def restart_task(
        self, name: str, task: int, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> None:
        """Restart one task. No retries."""
        request = pb.RestartTaskRequest(name=name, task=task)
        await self._call_once(self._stub.RestartTask, request, timeout_s=timeout_s)

    async def list_tasks(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> list[pb.TaskInfo]:
        """A connector's tasks with their configs, from all pages."""

        async def fetch(token: str) -> pb.ListTasksResponse:
            request = pb.ListTasksRequest(name=name, page_token=token)
            return await self._call(self._stub.ListTasks, request, timeout_s=timeout_s)

        return [task async for page in pages(fetch) for task in page.tasks]

    async def list_plugins(
        self, *, kinds: Sequence[str] = (), timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.ListPluginsResponse:
        """The plugins installed on the workers, and the workers that responded; all kinds if
        ``kinds`` is empty.
        """
        request = pb.ListPluginsRequest(kinds=kinds)
        return await self._call(self._stub.ListPlugins, request, timeout_s=timeout_s)

    async def reload_plugins(
        self,
        worker_id: str = "",
        *,
        everything: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.ReloadPluginsResponse:
        """Reload the plugins of a worker, by default the called one, in a new engine process.

        Moves what uses a changed package; with ``everything`` all connectors and tasks.
        """
        request = pb.ReloadPluginsRequest(worker_id=worker_id, all=everything)
        return await self._call_once(self._stub.ReloadPlugins, request, timeout_s=timeout_s)

    async def get_plugin(
        self, class_name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.GetPluginResponse:
        """A plugin and its settings, by class name or alias."""
        request = pb.GetPluginRequest(class_name=class_name)
        return await self._call(self._stub.GetPlugin, request, timeout_s=timeout_s)

    async def validate_config(
        self,
        config: ConfigMap,
        *,
        skip_systems: bool = False,
        keep_masked: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> pb.ValidateConfigResponse:
        """Validate a config and return all violations; nothing is written. With ``skip_systems``
        the systems that the config names are not called; ``keep_masked`` as in
        ``put_connector_config``.
        """
        request = pb.ValidateConfigRequest(
            config=config, skip_systems=skip_systems, keep_masked=keep_masked
        )
        return await self._call(self._stub.ValidateConfig, request, timeout_s=timeout_s)

    async def preview_connector(
        self,
        config: ConfigMap,
        *,
        row_count: int = 0,
        keep_masked: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> Preview:
        """Preview a connector on ``row_count`` records, 10 by default; nothing is written.
        ``keep_masked`` as in ``put_connector_config``, for the connector that the config names.
        """
        request = pb.PreviewConnectorRequest(
            config=config, row_count=row_count, keep_masked=keep_masked
        )
        response = await self._call(self._stub.PreviewConnector, request, timeout_s=timeout_s)
        return response.preview

    def watch_statuses(self, name: str = "") -> AsyncGenerator[pb.WatchStatusesResponse, None]:
        """Yield the current statuses, then each change, until the stream breaks."""
        return server_stream(self._stub.WatchStatuses, pb.WatchStatusesRequest(name=name))

    def watch_connectors(self) -> AsyncGenerator[pb.WatchConnectorsResponse, None]:
        """Yield the current connectors, then each change, until the stream breaks."""
        return server_stream(self._stub.WatchConnectors, pb.WatchConnectorsRequest())

    async def get_connector_offsets(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> list[pb.ConnectorOffset]:
        """A connector's committed offsets, from all pages."""

        async def fetch(token: str) -> pb.GetConnectorOffsetsResponse:
            return await self.get_connector_offsets_page(
                name, page_token=token, timeout_s=timeout_s
            )

        return [offset async for page in pages(fetch) for offset in page.offsets]

    async def get_connector_offsets_page(
        self, name: str, *, page_token: str = "", timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.GetConnectorOffsetsResponse:
        """A page of a connector's committed offsets, with the token of the next page."""
        request = pb.GetConnectorOffsetsRequest(name=name, page_token=page_token)
        return await self._call(self._stub.GetConnectorOffsets, request, timeout_s=timeout_s)

    async def find_connector_offsets(
        self, name: str, time_ms: int, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> list[pb.FoundOffset]:
        """Where the topic partitions of a sink have the first record at or after a time in
        milliseconds since 1970; writes nothing.
        """
        start_time = encode_timestamp(time_ms)
        request = pb.FindConnectorOffsetsRequest(name=name, start_time=start_time)
        response = await self._call(self._stub.FindConnectorOffsets, request, timeout_s=timeout_s)
        return list(response.offsets)

    async def alter_connector_offsets(
        self,
        name: str,
        offsets: Sequence[pb.ConnectorOffset],
        *,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> str:
        """Change a stopped connector's offsets; returns a message about the change."""
        request = pb.AlterConnectorOffsetsRequest(name=name, offsets=offsets)
        response = await self._call(self._stub.AlterConnectorOffsets, request, timeout_s=timeout_s)
        return response.message

    async def adopt_connector_offsets(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> str:
        """Commit the offsets behind a stopped sink's output; returns a message about them."""
        request = pb.AlterConnectorOffsetsRequest(name=name, adopt=True)
        response = await self._call(self._stub.AlterConnectorOffsets, request, timeout_s=timeout_s)
        return response.message

    async def reset_connector_offsets(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> str:
        """Remove a stopped connector's offsets; returns a message about the change."""
        request = pb.ResetConnectorOffsetsRequest(name=name)
        response = await self._call(self._stub.ResetConnectorOffsets, request, timeout_s=timeout_s)
        return response.message

    async def get_connector_topics(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> list[str]:
        """The active topics of a connector."""
        request = pb.GetConnectorTopicsRequest(name=name)
        response = await self._call(self._stub.GetConnectorTopics, request, timeout_s=timeout_s)
        return list(response.topics)

    async def list_connector_topics(
        self, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> dict[str, list[str]]:
        """The active topics of all connectors by name, from all pages."""

        async def fetch(token: str) -> pb.ListConnectorTopicsResponse:
            request = pb.ListConnectorTopicsRequest(page_size=PAGE_SIZE, page_token=token)
            return await self._call(self._stub.ListConnectorTopics, request, timeout_s=timeout_s)

        return {
            each.name: list(each.topics) async for page in pages(fetch) for each in page.connectors
        }

    async def reset_connector_topics(
        self, name: str, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> None:
        """Clear the active topics of a connector."""
        request = pb.ResetConnectorTopicsRequest(name=name)
        await self._call(self._stub.ResetConnectorTopics, request, timeout_s=timeout_s)

    async def list_loggers(self, *, timeout_s: float = ADMIN_TIMEOUT_S) -> list[pb.Logger]:
        """The called worker's loggers and their levels."""
        response = await self._call(
            self._stub.ListLoggers, pb.ListLoggersRequest(), timeout_s=timeout_s
        )
        return list(response.loggers)

    async def list_cluster_loggers(
        self, *, timeout_s: float = ADMIN_TIMEOUT_S
    ) -> pb.ListLoggersResponse:
        """The loggers of all workers, with the level on each worker."""
        request = pb.ListLoggersRequest(cluster_scope=True)
        return await self._call(self._stub.ListLoggers, request, timeout_s=timeout_s)

    async def set_logger_level(
        self,
        name: str,
        level: str,
        *,
        cluster_scope: bool = False,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> list[str]:
        """Set a logger's level; returns the loggers that changed."""
        request = pb.SetLoggerLevelRequest(name=name, level=level, cluster_scope=cluster_scope)
        response = await self._call(self._stub.SetLoggerLevel, request, timeout_s=timeout_s)
        return list(response.names)
