"""Reads of connectors: get, list, history and watch."""

from collections.abc import AsyncIterator

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.config_store import ConfigStoreClient
from drover.errors import PermissionDeniedError, Reason
from drover.model.pages import PAGE_BYTES_MAX
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import checked_name
from drover_worker.admin.history import class_names, history_page
from drover_worker.admin.paging import take_page_by_name
from drover_worker.admin.reads import Reads
from drover_worker.admin.task_activities import TaskActivities
from drover_worker.admin.views import ConnectorViews
from drover_worker.admin.watch_hub import WatchHub
from drover_worker.admin.watches import follow
from drover_worker.core.config.checks import connector_not_found
from drover_worker.core.config.view import ConfigView
from drover_worker.shell.engine_link import EngineLink


class ConnectorReads:
    """Reads connectors, with secrets masked."""

    def __init__(
        self,
        *,
        view: ConfigView,
        views: ConnectorViews,
        reads: Reads,
        hub: WatchHub,
        engine: EngineLink,
        config_store: ConfigStoreClient,
        returns_secrets: bool,
        activities: TaskActivities,
    ) -> None:
        self._view = view
        self._views = views
        self._reads = reads
        self._hub = hub
        self._engine = engine
        self._config_store = config_store
        self._returns_secrets = returns_secrets
        self._activities = activities

    async def get(
        self, request: pb.GetConnectorRequest, call: AdminCall
    ) -> pb.GetConnectorResponse:
        """Return a connector."""
        name = await self._reads.existing(request.name, call.deadline)
        return pb.GetConnectorResponse(connector=self._shown(name, call))

    async def secrets(
        self, request: pb.GetConnectorSecretsRequest, call: AdminCall
    ) -> pb.GetConnectorSecretsResponse:
        """Return the settings of a connector that are masked elsewhere.

        Raises:
            PermissionDeniedError: SECRETS_MASKED, unless the worker's settings allow it.
            NotFoundError: CONNECTOR_NOT_FOUND.
        """
        if not self._returns_secrets:
            raise PermissionDeniedError(
                Reason.SECRETS_MASKED,
                "secrets are masked for every caller: an administrator of the cluster can set"
                " DROVER_GATEWAY_SECRETS=admin for the workers",
            )
        name = await self._reads.existing(request.name, call.deadline)
        return pb.GetConnectorSecretsResponse(
            secrets=self._views.secrets(name), revision=self._view.connectors[name].config_revision
        )

    async def list_page(
        self, request: pb.ListConnectorsRequest, call: AdminCall
    ) -> pb.ListConnectorsResponse:
        """Return a page of connectors."""
        await self._reads.prepare(call.deadline)
        names, token = take_page_by_name(
            sorted(filter(call.may_see, self._view.connectors)),
            request.page_token,
            request.page_size,
        )
        response = pb.ListConnectorsResponse(next_page_token=token)
        size_bytes = 0
        for name in names:
            entry = pb.ListConnectorsResponse.Entry(name=name)
            if request.include_config:
                entry.connector.CopyFrom(self._shown(name, call))
            if request.include_status:
                entry.status.CopyFrom(self._views.status(name))
            size_bytes += entry.ByteSize()
            if response.connectors and size_bytes > PAGE_BYTES_MAX:
                response.next_page_token = response.connectors[-1].name
                break
            response.connectors.append(entry)
        if request.include_status:
            await self._activities.add_to([each.status for each in response.connectors], call)
        return response

    async def history(
        self, request: pb.GetConnectorHistoryRequest, call: AdminCall
    ) -> pb.GetConnectorHistoryResponse:
        """Return a page of a connector's history, newest first."""
        name = checked_name(request.name)
        await self._reads.prepare(call.deadline)
        entries = await self._config_store.connector_history(
            name, timeout_s=call.deadline.remaining_s()
        )
        if not entries:
            raise connector_not_found(name)
        await self._engine.try_know_plugins(class_names(entries))
        return history_page(
            entries,
            request.page_token,
            current=self._view.connectors.get(name),
            masked=lambda config: self._views.masked(
                config, config, show_undefined=call.may_change(name)
            ),
        )

    async def watch(
        self, _request: pb.WatchConnectorsRequest, call: AdminCall
    ) -> AsyncIterator[pb.WatchConnectorsResponse]:
        """Stream all connectors, then their changes."""
        await self._reads.prepare(call.deadline)

        def show(name: str) -> pb.WatchConnectorsResponse:
            if name in self._view.connectors:
                return pb.WatchConnectorsResponse(connector=self._shown(name, call))
            return pb.WatchConnectorsResponse(connector=pb.Connector(name=name), removed=True)

        with self._hub.watch_configs() as changed:
            async for response in follow(changed, call.may_see, self._view, self._reads, show):
                yield response or pb.WatchConnectorsResponse(synced=True)

    def _shown(self, name: str, call: AdminCall) -> pb.Connector:
        return self._views.connector(name, show_undefined=call.may_change(name))
