"""Lists loggers and sets their levels, on one worker or in the whole cluster."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.config_store import ConfigStoreClient
from drover_worker.admin.call import AdminCall
from drover_worker.shell.loggers import Loggers, shared_level


class LoggerLevels:
    """Lists and sets levels; cluster-wide levels are written to the config log."""

    def __init__(self, loggers: Loggers, config_store: ConfigStoreClient) -> None:
        self._loggers = loggers
        self._config_store = config_store

    async def list_all(
        self, _request: pb.ListLoggersRequest, _call: AdminCall
    ) -> pb.ListLoggersResponse:
        """List the loggers of this worker's processes."""
        response = pb.ListLoggersResponse()
        for state in await self._loggers.states():
            shown = response.loggers.add(name=state.name, level=state.level)
            if state.changed_ms is not None:
                shown.last_change_time.FromMilliseconds(state.changed_ms)
        return response

    async def set_level(
        self, request: pb.SetLoggerLevelRequest, call: AdminCall
    ) -> pb.SetLoggerLevelResponse:
        """Set a logger's level on this worker or in the whole cluster."""
        if not request.cluster_scope:
            names = await self._loggers.set_level(request.name, request.level)
            return pb.SetLoggerLevelResponse(names=names)
        await self._loggers.check(request.name, request.level)
        await self._config_store.put_logger_level(
            logger=request.name,
            level=shared_level(request.level),
            author=call.principal.name,
            timeout_s=call.deadline.remaining_s(),
        )
        return pb.SetLoggerLevelResponse()
