"""The operations of the REST API: each turns a request into calls of a worker, and back."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.calls import new_request_id
from drover.codec import rest as codec
from drover.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    Reason,
    UnsupportedCallError,
)
from drover.model.secrets import MASK
from drover_gateway.rest.body import (
    ConfigBody,
    parse_config,
    parse_create,
    parse_level,
    parse_offsets,
)
from drover_gateway.rest.call import Response, RestCall
from drover_gateway.rest.errors import NULL_SETTING, RestError, config_faults, invalid_config
from drover_gateway.rest.openapi import openapi_json
from drover_gateway.rest.path import encoded_name
from drover_gateway.rest.ports import HealthState, View
from drover_gateway.rest.table import RESOURCES

Handler = Callable[[RestCall], Awaitable[Response]]

_CLASS = "connector.class"
_CLASS_FIELD = f'config["{_CLASS}"]'
_CONNECTOR_SUFFIX = "Connector"
_LATEST = "latest"
_ROOT = "root"
#: The levels of Kafka Connect's loggers, and Drover's name of one.
_LEVELS = frozenset(("ALL", "TRACE", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "FATAL", "OFF"))
#: How many connectors are asked for their secrets at a time.
_SECRETS_AT_A_TIME = 8
_HEALTH_TEXTS: Mapping[HealthState, tuple[int, str]] = {
    HealthState.HEALTHY: (200, "Worker has completed startup and is ready to handle requests."),
    HealthState.STARTING: (503, "Worker is still starting up."),
    HealthState.UNHEALTHY: (
        500,
        "Worker was unable to handle this request and may be unable to handle other requests.",
    ),
}
#: How long the response to a restart waits for its begin, and how often it is checked.
_RESTART_BEGINS_S, _RESTART_PAUSE_S = 1.0, 0.01
_NO_OFFSETS = "Partitions / offsets need to be provided for an alter offsets request"
_OFFSETS_CHANGED = "The offsets for this connector have been {} successfully"
_OFFSETS_MAYBE_CHANGED = (
    "The Connect framework-managed offsets for this connector have been {0} successfully. However,"
    " if this connector manages offsets externally, they will need to be manually {0} in the system"
    " that the connector uses."
)
#: In the message of a worker about offsets that a connector may keep elsewhere.
_EXTERNAL = "external systems"


async def get_root(call: RestCall) -> Response:
    """Return the versions and the id of the Kafka cluster."""
    info = await call.ask(lambda client, limit_s: client.get_cluster_info(timeout_s=limit_s))
    return _json(
        {
            "version": call.settings.version,
            "commit": call.settings.commit or info.version,
            "kafka_cluster_id": info.kafka_cluster_id or info.group_id,
        }
    )


async def get_health(call: RestCall) -> Response:
    """Return whether a worker is ready."""
    if call.settings.health_needs_credentials:
        await call.identify()
    health = await call.backend.health()
    status, text = _HEALTH_TEXTS[health.state]
    message = f"{text} {health.detail}" if health.detail and status != 200 else text
    return Response(status, codec.to_json({"status": health.state.value, "message": message}))


async def get_openapi(call: RestCall) -> Response:
    """Return the OpenAPI document."""
    return Response(body=openapi_json(call.settings.admin))


async def list_connectors(call: RestCall) -> Response:
    """List names, or with ``expand`` what is known about each connector."""
    expand = call.query("expand")
    with_status, with_info = "status" in expand, "info" in expand
    view = call.view
    if view is not None and not (with_info and call.settings.secrets == "admin"):
        return _listed_in(view, call, with_status=with_status, with_info=with_info)
    entries = await call.ask(
        lambda client, limit_s: client.list_connectors(
            include_config=with_info, include_status=with_status, timeout_s=limit_s
        )
    )
    if not expand:
        return _json([each.name for each in entries])
    configs: Mapping[str, Mapping[str, str]] = {}
    if with_info:
        configs = await _shown_configs(call, [each.connector for each in entries])
    found = {}
    for each in entries:
        shown: dict[str, object] = {}
        if with_info:
            shown["info"] = codec.connector(each.connector, configs[each.name])
        if with_status:
            shown["status"] = codec.status(each.status)
        found[each.name] = shown
    return _json(found)


def _listed_in(view: View, call: RestCall, *, with_status: bool, with_info: bool) -> Response:
    if not call.query("expand"):
        return _json(list(view.names()))
    return Response(body=view.expanded(with_status=with_status, with_info=with_info))


async def create_connector(call: RestCall) -> Response:
    """Create a connector."""
    body = parse_create(await call.body())
    name = body.name.strip()
    call.names["connector"] = name
    _check_name(name, body.config)
    await _check_nulls(call, name, body.config)
    state = codec.INITIAL_STATES[body.initial_state] if body.initial_state else None
    request_id = call.request_id or new_request_id()
    made = await call.ask(
        lambda client, limit_s: client.create_connector(
            name,
            body.config.settings,
            initial_state=state,
            request_id=request_id,
            timeout_s=limit_s,
        )
    )
    return await _written(call, made, created=True)


async def get_connector(call: RestCall) -> Response:
    """Return a connector."""
    view = call.view
    if view is not None and call.settings.secrets == "masked":
        info = view.info(call.connector.strip())
        if info is not None:
            return Response(body=info)
    found = await _read(call)
    return _json(codec.connector(found, await _shown_config(call, found)))


async def delete_connector(call: RestCall) -> Response:
    """Remove a connector."""
    request_id = call.request_id or new_request_id()
    await call.ask(
        lambda client, limit_s: client.delete_connector(
            call.connector, request_id=request_id, timeout_s=limit_s
        )
    )
    return Response(204)


async def get_config(call: RestCall) -> Response:
    """Return a connector's config."""
    return _json(await _shown_config(call, await _read(call)))


async def put_config(call: RestCall) -> Response:
    """Create a connector or replace its config; a masked secret keeps its value."""
    config = parse_config(await call.body())
    _check_name(call.connector, config)
    await _check_nulls(call, call.connector, config)
    request_id = call.request_id or new_request_id()
    response = await call.ask(
        lambda client, limit_s: client.put_connector_config(
            call.connector,
            config.settings,
            keep_masked=True,
            request_id=request_id,
            timeout_s=limit_s,
        )
    )
    return await _written(call, response.connector, created=response.created)


async def patch_config(call: RestCall) -> Response:
    """Change some settings; null removes one, and a masked secret keeps its value."""
    patch = parse_config(await call.body())
    if not patch.settings and not patch.nulls:
        found = await _read(call)
        return _json(codec.connector(found, await _shown_config(call, found)))
    request_id = call.request_id or new_request_id()
    changed = await call.ask(
        lambda client, limit_s: client.patch_connector_config(
            call.connector,
            settings=patch.settings,
            remove=patch.nulls,
            keep_masked=True,
            request_id=request_id,
            timeout_s=limit_s,
        )
    )
    return await _written(call, changed, created=False)


async def get_status(call: RestCall) -> Response:
    """Return a connector's states."""
    return Response(body=await _status_json(call))


async def list_tasks(call: RestCall) -> Response:
    """List a connector's tasks."""
    found = await call.ask(
        lambda client, limit_s: client.list_tasks(call.connector, timeout_s=limit_s)
    )
    configs: dict[int, dict[str, str]] = {}
    if call.settings.secrets == "admin" and any(_is_masked(each.config) for each in found):
        secrets = await _secrets(call, call.connector)
        configs = {each.task: _unmasked(each.config, secrets) for each in found}
    return _json(codec.tasks(call.connector.strip(), found, configs))


async def get_task_status(call: RestCall) -> Response:
    """Return the state of a task."""
    status = json.loads(await _status_json(call))
    for each in status["tasks"]:
        if each["id"] == int(call.parameter("task")):
            return _json(each)
    raise NotFoundError(Reason.TASK_NOT_FOUND, "the connector has no such task")


async def restart_task(call: RestCall) -> Response:
    """Restart a task."""
    task = int(call.parameter("task"))
    await call.ask(
        lambda client, limit_s: client.restart_task(call.connector, task, timeout_s=limit_s),
        repeatable=False,
    )
    return Response(204)


async def get_topics(call: RestCall) -> Response:
    """Return the topics that a connector has used; none for an unknown connector."""
    if call.settings.topics == "off":
        raise RestError(403, "Topic tracking is disabled.")
    try:
        topics = await call.ask(
            lambda client, limit_s: client.get_connector_topics(call.connector, timeout_s=limit_s)
        )
    except NotFoundError:
        topics = []
    return _json({call.connector: {"topics": topics}})


async def reset_topics(call: RestCall) -> Response:
    """Clear the list of topics that a connector has used."""
    if call.settings.topics == "off":
        raise RestError(403, "Topic tracking is disabled.")
    if call.settings.topics == "read":
        raise RestError(403, "Topic tracking reset is disabled.")
    with suppress(NotFoundError):  # as in Kafka Connect
        await call.ask(
            lambda client, limit_s: client.reset_connector_topics(call.connector, timeout_s=limit_s)
        )
    return Response(202)


async def pause(call: RestCall) -> Response:
    """Pause a connector."""
    await call.ask(
        lambda client, limit_s: client.pause_connector(call.connector, timeout_s=limit_s)
    )
    return Response(202)


async def resume(call: RestCall) -> Response:
    """Resume a connector."""
    await call.ask(
        lambda client, limit_s: client.resume_connector(call.connector, timeout_s=limit_s)
    )
    return Response(202)


async def stop(call: RestCall) -> Response:
    """Stop a connector."""
    await call.ask(lambda client, limit_s: client.stop_connector(call.connector, timeout_s=limit_s))
    return Response(204)


async def restart(call: RestCall) -> Response:
    """Restart a connector; with a flag the response is the planned status."""
    include_tasks, only_failed = call.flag("includeTasks"), call.flag("onlyFailed")
    planned = await call.ask(
        lambda client, limit_s: client.restart_connector(
            call.connector,
            include_tasks=include_tasks,
            only_failed=only_failed,
            timeout_s=limit_s,
        ),
        repeatable=False,
    )
    if not (include_tasks or only_failed):
        return Response(204)
    await _wait_for_restart(call, planned)
    return Response(202, codec.status_json(planned))


async def get_offsets(call: RestCall) -> Response:
    """Return a connector's offsets."""
    found = await call.ask(
        lambda client, limit_s: client.get_connector_offsets(call.connector, timeout_s=limit_s)
    )
    return Response(body=codec.offsets_json(found))


async def alter_offsets(call: RestCall) -> Response:
    """Change offsets of a stopped connector."""
    offsets = [
        pb.ConnectorOffset(partition_json=each.partition, offset_json=each.offset)
        for each in parse_offsets(await call.body())
    ]
    if not offsets:
        raise RestError(400, _NO_OFFSETS)
    message = await call.ask(
        lambda client, limit_s: client.alter_connector_offsets(
            call.connector, offsets, timeout_s=limit_s
        )
    )
    return _offsets_changed(message, "altered")


async def reset_offsets(call: RestCall) -> Response:
    """Remove the offsets of a stopped connector."""
    message = await call.ask(
        lambda client, limit_s: client.reset_connector_offsets(call.connector, timeout_s=limit_s)
    )
    return _offsets_changed(message, "reset")


async def list_plugins(call: RestCall) -> Response:
    """List the plugins."""
    connectors_only = call.flag("connectorsOnly", default=True)
    kinds = ("source", "sink") if connectors_only else ()
    found = await call.ask(
        lambda client, limit_s: client.list_plugins(kinds=kinds, timeout_s=limit_s)
    )
    return _json(codec.plugins(found, connectors_only=connectors_only))


async def get_plugin_config(call: RestCall) -> Response:
    """Return a plugin's settings."""
    name = call.parameter("plugin")
    found = await _plugin(call, name)
    installed = found.plugin if found.HasField("plugin") else found.record_plugin
    version = (call.query("version") or [_LATEST])[0]
    if version not in ("", _LATEST, installed.version):
        class_name = _kafka_name(installed)
        raise RestError(
            400,
            f"Plugin {class_name} not found that matches the version range [{version},{version}],"
            f" available versions: [{installed.version}]",
        )
    return _json([codec.config_key(each) for each in found.config_keys])


async def validate_config(call: RestCall) -> Response:
    """Validate a config."""
    config = parse_config(await call.body())
    plugin = call.parameter("plugin")
    class_name = config.settings.get(_CLASS, "")
    if not class_name:
        raise RestError(400, f"{_CLASS}: is missing: name the connector's class")
    await _check_same_class(call, class_name, plugin)
    response = await call.ask(
        lambda client, limit_s: client.validate_config(
            config.settings, keep_masked=True, timeout_s=limit_s
        )
    )
    faults = [each.description for each in response.violations if each.field == _CLASS_FIELD]
    if faults:
        raise RestError(400, "; ".join(dict.fromkeys(faults)))
    return _json(codec.validation(class_name, response))


async def list_loggers(call: RestCall) -> Response:
    """List the loggers."""
    return _json(codec.loggers(await _loggers(call)))


async def get_logger(call: RestCall) -> Response:
    """Return a logger's level."""
    name = call.parameter("logger")
    for each in await _loggers(call):
        if each.name == name:
            return _json(codec.logger(each))
    raise RestError(404, f"Logger {name} not found.")


async def set_logger(call: RestCall) -> Response:
    """Set a logger's level."""
    name = call.parameter("logger")
    level = parse_level(await call.body())
    if level is None:
        raise RestError(400, "Desired 'level' parameter was not specified in request.")
    if level.upper() not in _LEVELS:
        raise RestError(404, f"invalid log level '{level}'.")
    cluster_scope = (call.query("scope") or [""])[0].lower() == "cluster"
    try:
        changed = await call.ask(
            lambda client, limit_s: client.set_logger_level(
                name, level.upper(), cluster_scope=cluster_scope, timeout_s=limit_s
            )
        )
    except InvalidArgumentError as error:
        if any(each.field == "name" for each in error.violations):
            raise RestError(404, f"Logger {name} not found.") from None
        raise
    # as in Kafka Connect, the list has loggers below the root logger only
    return Response(204) if cluster_scope else _json([each for each in changed if each != _ROOT])


#: The handler of each operation, by its name in the table.
HANDLERS: Mapping[str, Handler] = {
    operation.name: globals()[operation.name]
    for resource in RESOURCES
    for operation in resource.operations
    if not operation.internal
}


def _json(value: object) -> Response:
    return Response(body=codec.to_json(value))


async def _read(call: RestCall) -> pb.Connector:
    return await call.ask(
        lambda client, limit_s: client.get_connector(call.connector, timeout_s=limit_s)
    )


async def _status_json(call: RestCall) -> bytes:
    view = call.view
    found = None if view is None else view.status(call.connector.strip())
    if found is not None:
        return found
    status = await call.ask(
        lambda client, limit_s: client.get_connector_status(call.connector, timeout_s=limit_s)
    )
    return codec.status_json(status)


async def _wait_for_restart(call: RestCall, planned: pb.ConnectorStatus) -> None:
    """Wait until a planned restart has started: clients would take a status from before it for the
    end of the restart.
    """
    restarting = pb.RUN_STATE_RESTARTING
    tasks = {each.task for each in planned.tasks if each.state == restarting}
    waits_for_connector = planned.connector.state == restarting
    if not tasks and not waits_for_connector:
        return
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _RESTART_BEGINS_S
    while loop.time() < end_s:
        status = await call.ask(
            lambda client, limit_s: client.get_connector_status(call.connector, timeout_s=limit_s)
        )
        began = {each.task for each in status.tasks if each.state == restarting}
        if tasks <= began or (not tasks and status.connector.state == restarting):
            return
        await asyncio.sleep(_RESTART_PAUSE_S)


async def _loggers(call: RestCall) -> list[pb.Logger]:
    return await call.ask(lambda client, limit_s: client.list_loggers(timeout_s=limit_s))


async def _plugin(call: RestCall, name: str) -> pb.GetPluginResponse:
    return await call.ask(lambda client, limit_s: client.get_plugin(name, timeout_s=limit_s))


def _check_name(name: str, config: ConfigBody) -> None:
    """Reject a config with the name of another connector."""
    included = config.settings.get("name")
    if included is not None and included.strip() != name.strip():
        text = f"Connector name configuration ({included}) doesn't match connector name in the URL"
        raise RestError(400, f"{text} ({name.strip()})")


async def _check_nulls(call: RestCall, name: str, config: ConfigBody) -> None:
    """Reject a config with null settings, with the other faults of the config."""
    if not config.nulls:
        return
    faults: list[str] = []
    try:
        await call.ask(
            lambda client, limit_s: client.put_connector_config(
                name, config.settings, dry_run=True, keep_masked=True, timeout_s=limit_s
            )
        )
    except InvalidArgumentError as error:
        faults = config_faults(error)
    raise invalid_config([*faults, *([NULL_SETTING] * len(config.nulls))])


async def _check_same_class(call: RestCall, class_name: str, plugin: str) -> None:
    """Reject a config of another class than the path names."""
    if _without_suffix(class_name).endswith(_without_suffix(plugin)):
        return
    try:
        asked, given = await _plugin(call, plugin), await _plugin(call, class_name)
    except NotFoundError:
        pass
    else:
        if asked.plugin.class_name and asked.plugin.class_name == given.plugin.class_name:
            return
    text = f"Included connector type {class_name} does not match request type {plugin}"
    raise RestError(400, text)


def _without_suffix(name: str) -> str:
    """A class without "Connector" at its end, as Kafka Connect compares them."""
    return name.removesuffix(_CONNECTOR_SUFFIX) or name


def _kafka_name(plugin: pb.Plugin | pb.RecordPlugin) -> str:
    """The name of a class in Kafka Connect, or its own."""
    return next((each for each in plugin.aliases if "." in each), plugin.class_name)


def _offsets_changed(message: str, done: str) -> Response:
    text = _OFFSETS_MAYBE_CHANGED if _EXTERNAL in message else _OFFSETS_CHANGED
    return _json({"message": text.format(done)})


async def _written(call: RestCall, connector: pb.Connector, *, created: bool) -> Response:
    """The response to a change of a config."""
    body = codec.to_json(codec.connector(connector, await _shown_config(call, connector)))
    if not created:
        return Response(200, body)
    path = f"/connectors/{encoded_name(connector.name)}"
    host = call.headers.get("host", "")
    location = f"{call.scope.get('scheme', 'http')}://{host}{path}" if host else path
    return Response(201, body, headers=(("location", location),))


async def _shown_config(call: RestCall, connector: pb.Connector) -> dict[str, str]:
    """A connector's config, with secrets where the settings and the caller's role allow it."""
    return (await _shown_configs(call, [connector]))[connector.name]


async def _shown_configs(
    call: RestCall, connectors: Sequence[pb.Connector]
) -> dict[str, dict[str, str]]:
    found = {each.name: dict(each.config) for each in connectors}
    if call.settings.secrets != "admin":
        return found
    places = asyncio.Semaphore(_SECRETS_AT_A_TIME)

    async def show(connector: pb.Connector) -> None:
        async with places:
            secrets = await _secrets(call, connector.name, connector.revision)
            found[connector.name] = _unmasked(connector.config, secrets)

    await asyncio.gather(*(show(each) for each in connectors if _is_masked(each.config)))
    return found


async def _secrets(call: RestCall, name: str, revision: int | None = None) -> Mapping[str, str]:
    """The secrets of a connector; none if the caller may not read them, or the connector has
    changed since ``revision``.
    """
    try:
        found = await call.ask(
            lambda client, limit_s: client.get_connector_secrets(name, timeout_s=limit_s)
        )
    except (PermissionDeniedError, UnsupportedCallError, NotFoundError):
        return {}
    return found.secrets if revision in (None, found.revision) else {}


def _is_masked(config: Mapping[str, str]) -> bool:
    return MASK in config.values()


def _unmasked(config: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    return {
        key: secrets.get(key, value) if value == MASK else value for key, value in config.items()
    }
