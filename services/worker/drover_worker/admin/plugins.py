"""Lists plugins, and validates and previews configs with them."""

from collections.abc import Sequence

from drover.api.common.v1.preview_pb2 import Preview
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2 as engine_pb
from drover.codec.connect import decode_connector_type
from drover.config.near_names import did_you_mean, near_classes
from drover.errors import InvalidArgumentError, NotFoundError, Reason, Violation
from drover.model.config import ConfigMap
from drover.model.pages import PAGE_BYTES_MAX
from drover.security.principal import Role
from drover_worker.admin.call import AdminCall
from drover_worker.admin.cluster_plugins import (
    CONNECTOR_CLASS,
    CONNECTOR_KINDS,
    RECORD_KINDS,
    ClusterPlugins,
)
from drover_worker.admin.config_checks import check_config, check_config_size
from drover_worker.admin.masking import kept_values, mask_violations
from drover_worker.admin.reads import Reads
from drover_worker.admin.views import (
    add_fault,
    hide_values,
    key_view,
    plugin_view,
    record_plugin_view,
    validation_view,
)
from drover_worker.core.config.checks import config_error, sink_group_violations
from drover_worker.shell.engine_link import EngineLink

#: The default and the maximum number of records in a preview.
PREVIEW_ROWS, PREVIEW_ROWS_MAX = 10, 1_000
#: The connector's name in a preview of a config without one.
_UNNAMED = "preview"


def bounded(preview: Preview) -> Preview:
    """Truncate a preview to the rows that fit into a response."""
    size_bytes = 0
    for index, row in enumerate(preview.rows):
        size_bytes += row.ByteSize()
        if size_bytes > PAGE_BYTES_MAX:
            del preview.rows[index:]
            preview.truncated = True
            break
    return preview


class Plugins:
    """Runs plugins in the engine, which has its own time limits."""

    def __init__(
        self, engine: EngineLink, cluster: ClusterPlugins, reads: Reads, *, group_id: str
    ) -> None:
        self._engine = engine
        self._reads = reads
        self._cluster = cluster
        self._group_id = group_id

    async def list_all(
        self, request: pb.ListPluginsRequest, call: AdminCall
    ) -> pb.ListPluginsResponse:
        """List the plugins of all workers.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, an unknown kind.
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        known = (*CONNECTOR_KINDS, *RECORD_KINDS)
        faults = [
            Violation(f"kinds[{index}]", f"{kind!r} is not one of {', '.join(known)}")
            for index, kind in enumerate(request.kinds)
            if kind not in known
        ]
        if faults:
            raise InvalidArgumentError.listing(faults)
        listing = await self._cluster.list_all(call.hop_count)
        return _of_kinds(listing, request.kinds) if request.kinds else listing

    async def get(self, request: pb.GetPluginRequest, call: AdminCall) -> pb.GetPluginResponse:
        """Return a plugin's settings.

        Raises:
            NotFoundError: PLUGIN_NOT_FOUND.
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        plugins = await self._engine.load_plugins()
        plugin = plugins.find(request.class_name)
        record_plugin = plugins.find_record_plugin(request.class_name)
        is_listed = plugin is not None or record_plugin is not None
        if not is_listed and call.principal.may_for_some(Role.OPERATOR):
            # a class that no list has, as a Java class: its code runs, as in ValidateConfig
            config = {"connector.class": request.class_name}
            await self._engine.validate(config, call.principal.name, use_systems=False)
            plugin = plugins.find(request.class_name)
        if plugin is not None:
            keys = [key_view(each) for each in plugin.config_keys]
            return pb.GetPluginResponse(plugin=plugin_view(plugin), config_keys=keys)
        if record_plugin is not None:
            keys = [key_view(each) for each in record_plugin.config_keys]
            shown = record_plugin_view(record_plugin)
            return pb.GetPluginResponse(record_plugin=shown, config_keys=keys)
        text = f"plugin {request.class_name!r} is not installed on this worker"
        question = did_you_mean(
            [repr(each) for each in near_classes(request.class_name, plugins.names())]
        )
        raise NotFoundError(Reason.PLUGIN_NOT_FOUND, f"{text}{': ' if question else ''}{question}")

    async def preview(
        self, request: pb.PreviewConnectorRequest, call: AdminCall
    ) -> pb.PreviewConnectorResponse:
        """Preview a connector on some records; the config is validated as for a put.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a count out of bounds; INVALID_CONFIG with every
                violation; TOO_LARGE.
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
        if request.keep_masked:
            stored = await self._reads.stored_config(request.config.get("name", ""), call.deadline)
            config |= kept_values(config, stored)
        caller = call.principal.name
        await check_config(name, config, self._engine.find_faults, caller)
        answer = await self._engine.validate(config, caller)
        faults = [
            *await self._engine.with_cluster_faults(config, answer),
            *self._sink_faults(name, config, answer),
        ]
        if faults:
            raise config_error(name, faults)
        wanted = engine_pb.PreviewConnector(config=config, row_count=row_count)
        return pb.PreviewConnectorResponse(preview=bounded(await self._engine.preview(wanted)))

    async def validate(
        self, request: pb.ValidateConfigRequest, call: AdminCall
    ) -> pb.ValidateConfigResponse:
        """Validate a config.

        Placeholders are resolved and systems contacted only for callers who may change the
        connector.

        Raises:
            InvalidArgumentError: TOO_LARGE.
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        config = dict(request.config)
        check_config_size(config)
        name = config.get("name", "").strip()
        may_change = call.may_change(name)
        kept: ConfigMap = {}
        if request.keep_masked and may_change:
            kept = kept_values(config, await self._reads.stored_config(name, call.deadline))
            config |= kept
            check_config_size(config)
        use_systems = may_change and not request.skip_systems
        answer = await self._engine.validate(config, call.principal.name, use_systems=use_systems)
        found = await self._cluster.faults(config) if config.get(CONNECTOR_CLASS) else []
        response = validation_view(answer, found, show_undefined=may_change)
        for fault in (*mask_violations(config), *self._sink_faults(name, config, answer)):
            add_fault(response, fault)
        hide_values(response, kept)
        return response

    def _sink_faults(
        self, name: str, config: ConfigMap, answer: engine_pb.ConfigValidation | engine_pb.Failure
    ) -> list[Violation]:
        is_sink = isinstance(answer, engine_pb.ConfigValidation) and answer.connector_type == "sink"
        return sink_group_violations(name, config, self._group_id) if is_sink else []


def _of_kinds(listing: pb.ListPluginsResponse, kinds: Sequence[str]) -> pb.ListPluginsResponse:
    """The plugins of some kinds."""
    return pb.ListPluginsResponse(
        plugins=[each for each in listing.plugins if decode_connector_type(each.type) in kinds],
        record_plugins=[each for each in listing.record_plugins if each.kind in kinds],
        worker_ids=listing.worker_ids,
        silent_worker_ids=listing.silent_worker_ids,
    )
