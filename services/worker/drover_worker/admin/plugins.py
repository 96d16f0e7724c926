"""The installed plugins, and what they say of a config."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import NotFoundError, Reason
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import check_config_size
from drover_worker.admin.views import key_view, plugin_view, validation_view
from drover_worker.engine_link import EngineLink


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

    async def validate(
        self, request: pb.ValidateConfigRequest, _call: AdminCall
    ) -> pb.ValidateConfigResponse:
        """A config's faults."""
        config = dict(request.config)
        check_config_size(config)
        return validation_view(await self._engine.validate(config))
