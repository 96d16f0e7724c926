"""The installed plugins, and what they say of a config."""

from drover.api.common.v1.preview_pb2 import Preview
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import InvalidArgumentError, NotFoundError, Reason, Violation
from drover.model.pages import PAGE_BYTES_MAX
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import check_config, check_config_size
from drover_worker.admin.views import key_view, plugin_view, validation_view
from drover_worker.core.config.checks import config_error
from drover_worker.engine_link import EngineLink

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

    def __init__(self, engine: EngineLink) -> None:
        self._engine = engine

    async def list_all(
        self, _request: pb.ListPluginsRequest, _call: AdminCall
    ) -> pb.ListPluginsResponse:
        """The installed plugins."""
        plugins = await self._engine.load_plugins()
        return pb.ListPluginsResponse(plugins=[plugin_view(p) for p in plugins.installed()])

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
        return validation_view(await self._engine.validate(config))
