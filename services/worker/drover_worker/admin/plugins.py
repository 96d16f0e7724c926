"""The installed plugins, and what they say of a config."""

from drover.api.common.v1.preview_pb2 import Preview
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2 as engine_pb
from drover.errors import InvalidArgumentError, NotFoundError, Reason, Violation
from drover.model.pages import PAGE_BYTES_MAX
from drover_worker.admin.call import AdminCall
from drover_worker.admin.cluster_plugins import ClusterPlugins
from drover_worker.admin.config_checks import check_config, check_config_size
from drover_worker.admin.views import add_fault, key_view, plugin_view, validation_view
from drover_worker.core.config.checks import config_error
from drover_worker.shell.engine_link import EngineLink

CONNECTOR_CLASS = "connector.class"
#: Records of a preview by default, and at most.
PREVIEW_ROWS, PREVIEW_ROWS_MAX = 10, 1_000
#: A preview's config needs no name, and a connector has one.
_UNNAMED = "preview"


def bounded(preview: Preview) -> Preview:
    """As many of the rows as fit into an answer."""
    size_bytes = 0
    for index, row in enumerate(preview.rows):
        size_bytes += row.ByteSize()
        if size_bytes > PAGE_BYTES_MAX:
            del preview.rows[index:]
            preview.truncated = True
            break
    return preview


class Plugins:
    """Asks the engine, which alone runs plugins' code; its own limits are the deadlines."""

    def __init__(self, engine: EngineLink, cluster: ClusterPlugins) -> None:
        self._engine = engine
        self._cluster = cluster

    async def list_all(
        self, _request: pb.ListPluginsRequest, call: AdminCall
    ) -> pb.ListPluginsResponse:
        """The plugins of all workers."""
        return await self._cluster.list_all(call.hop_count)

    async def get(self, request: pb.GetPluginRequest, _call: AdminCall) -> pb.GetPluginResponse:
        """A plugin's settings."""
        plugin = (await self._engine.load_plugins()).find(request.class_name)
        if plugin is None:
            text = f"no plugin {request.class_name!r} is installed on this worker"
            raise NotFoundError(Reason.PLUGIN_NOT_FOUND, text)
        return pb.GetPluginResponse(
            plugin=plugin_view(plugin), config_keys=[key_view(k) for k in plugin.config_keys]
        )

    async def preview(
        self, request: pb.PreviewConnectorRequest, _call: AdminCall
    ) -> pb.PreviewConnectorResponse:
        """What a connector would do to some records; checked as a config is that is to be written.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a count out of bounds; INVALID_CONFIG with every
                fault; TOO_LARGE.
            FailedPreconditionError: PREVIEW_FAILED.
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        row_count = request.row_count or PREVIEW_ROWS
        if not 1 <= row_count <= PREVIEW_ROWS_MAX:
            fault = Violation("row_count", f"must be 1 to {PREVIEW_ROWS_MAX}, not {row_count}")
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST, f"row_count {fault.description}", violations=(fault,)
            )
        config = {"name": _UNNAMED, **request.config}
        name = config["name"].strip()
        await check_config(name, config, self._engine.find_faults)
        faults = await self._engine.find_faults(config)
        if faults:
            raise config_error(name, faults)
        return pb.PreviewConnectorResponse(
            preview=bounded(await self._engine.preview(config, row_count))
        )

    async def validate(
        self, request: pb.ValidateConfigRequest, _call: AdminCall
    ) -> pb.ValidateConfigResponse:
        """A config's faults."""
        config = dict(request.config)
        check_config_size(config)
        answer = await self._engine.validate(config)
        lacking = await self._cluster.faults(config.get(CONNECTOR_CLASS, ""))
        not_here = isinstance(answer, engine_pb.Failure) and answer.plugin_not_found
        # one fault is enough: it names this worker, too
        response = pb.ValidateConfigResponse() if lacking and not_here else validation_view(answer)
        for fault in lacking:
            add_fault(response, CONNECTOR_CLASS, fault)
        return response
