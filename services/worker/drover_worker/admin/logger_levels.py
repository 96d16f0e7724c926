"""Lists loggers and sets their levels, on one worker or in the whole cluster."""

from collections.abc import Mapping

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.config_store import ConfigStoreClient
from drover_worker.admin.call import AdminCall
from drover_worker.admin.every_worker import EveryWorker
from drover_worker.admin.forwarding import ForwardedMethod
from drover_worker.shell.loggers import Loggers, shared_level

LIST = ForwardedMethod("ListLoggers", pb.ListLoggersRequest, pb.ListLoggersResponse)


class LoggerLevels:
    """Lists and sets levels; cluster-wide levels are written to the config log."""

    def __init__(
        self, loggers: Loggers, config_store: ConfigStoreClient, every_worker: EveryWorker
    ) -> None:
        self._loggers = loggers
        self._every_worker = every_worker
        self._config_store = config_store

    async def list_all(
        self, request: pb.ListLoggersRequest, call: AdminCall
    ) -> pb.ListLoggersResponse:
        """List the loggers of this worker's processes, or of all workers."""
        own = await self._own()
        if not request.cluster_scope:
            return own
        return await self._every_worker.answer(
            LIST, request, own, merged, hop_count=call.hop_count, waits=True
        )

    async def _own(self) -> pb.ListLoggersResponse:
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
        await self._loggers.check(request.name, request.level, await self._elsewhere(request, call))
        await self._config_store.put_logger_level(
            logger=request.name,
            level=shared_level(request.level),
            author=call.principal.name,
            timeout_s=call.deadline.remaining_s(),
        )
        return pb.SetLoggerLevelResponse()

    async def _elsewhere(self, request: pb.SetLoggerLevelRequest, call: AdminCall) -> list[str]:
        """The loggers of all workers, unless this one has the logger."""
        if await self._loggers.has(request.name):
            return []
        found = await self.list_all(pb.ListLoggersRequest(cluster_scope=True), call)
        return [each.name for each in found.loggers]


def merged(responses: Mapping[str, pb.ListLoggersResponse | None]) -> pb.ListLoggersResponse:
    """The loggers of all workers, by worker id; None for a worker that did not respond."""
    found: dict[str, pb.Logger] = {}
    for worker_id, response in sorted(responses.items()):
        for each in response.loggers if response is not None else ():
            logger = found.setdefault(each.name, pb.Logger(name=each.name))
            logger.worker_levels.add(worker_id=worker_id, level=each.level)
            changed = each.HasField("last_change_time")
            if changed and each.last_change_time.ToNanoseconds() > (
                logger.last_change_time.ToNanoseconds()
            ):
                logger.last_change_time.CopyFrom(each.last_change_time)
    for logger in found.values():
        levels = {each.level for each in logger.worker_levels}
        logger.level = levels.pop() if len(levels) == 1 else ""
    return pb.ListLoggersResponse(
        loggers=[found[name] for name in sorted(found)],
        silent_worker_ids=sorted(each for each, response in responses.items() if response is None),
    )
