"""The resources of the REST API, in one table.

The server, the OpenAPI document, the table in docs/rest.md and the tests are made from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from drover.errors import Reason

#: The order in which Jersey lists methods, in the header Allow and in the answer to OPTIONS: that
#: of a Java hash map of their names.
_METHOD_ORDER = ("HEAD", "DELETE", "POST", "GET", "OPTIONS", "PUT", "PATCH")

_CONNECTOR_NOT_FOUND = {Reason.CONNECTOR_NOT_FOUND: "Connector {connector} not found"}
_UNKNOWN_CONNECTOR = {Reason.CONNECTOR_NOT_FOUND: "Unknown connector {connector}"}
_RESTART_UNKNOWN = {
    Reason.CONNECTOR_NOT_FOUND: "Unknown connector: {connector}",
    Reason.TASK_NOT_FOUND: "Unknown task: {connector}-{task}",
}
_NO_STATUS = {Reason.CONNECTOR_NOT_FOUND: "No status found for connector {connector}"}
_NO_TASK_STATUS = dict.fromkeys(
    (Reason.CONNECTOR_NOT_FOUND, Reason.TASK_NOT_FOUND),
    "No status found for task {connector}-{task}",
)
_NOT_STOPPED = {
    **_CONNECTOR_NOT_FOUND,
    Reason.CONNECTOR_NOT_STOPPED: (
        "Connectors must be in the STOPPED state before their offsets can be modified. This can be"
        " done for the specified connector by issuing a 'PUT' request to the"
        " '/connectors/{connector}/stop' endpoint"
    ),
}
_EXISTS = {Reason.CONNECTOR_ALREADY_EXISTS: "Connector {connector} already exists"}
_UNKNOWN_PLUGIN = {Reason.PLUGIN_NOT_FOUND: "Unknown plugin {plugin}."}


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a resource.

    Attributes:
        method: The HTTP method.
        name: The name of the handler and of the operation in the OpenAPI document.
        rpcs: The RPCs that it calls; none if the gateway answers alone.
        summary: The effect, in one sentence.
        success: The statuses of success, the usual one first.
        errors: The statuses of errors that only some operations have.
        texts: Kafka Connect's messages for reasons; they may name the path's parameters.
        query: The query parameters that have an effect, with their meaning.
        body: The schema of the body; empty for none.
        response: The schema of the response; empty for none.
        has_secrets: Whether the response may have secrets, so that it is not compressed.
        internal: Whether it is for calls between workers of Kafka Connect: it is always rejected.
    """

    method: str
    name: str
    rpcs: tuple[str, ...]
    summary: str
    success: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    texts: Mapping[Reason, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    response: str = ""
    has_secrets: bool = False
    internal: bool = False


@dataclass(frozen=True)
class Resource:
    """A path with its methods.

    Attributes:
        path: The path, with parameters in braces; ``{task}`` is an integer of 32 bits.
        operations: Its methods.
        needs_caller: Whether the caller's credentials are checked.
    """

    path: str
    operations: tuple[Operation, ...]
    needs_caller: bool = True

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path."""
        return tuple(each for each in self.path.split("/") if each)

    @cached_property
    def by_method(self) -> Mapping[str, Operation]:
        """The operations, by method."""
        return {each.method: each for each in self.operations}

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods in Jersey's order."""
        known = {*self.by_method, "OPTIONS", *(["HEAD"] if "GET" in self.by_method else [])}
        return tuple(each for each in _METHOD_ORDER if each in known)


_EXPAND = {
    "expand": "status or info, or both by repeating the parameter; the answer is then an object"
}
_RESTART_FLAGS = {
    "includeTasks": "whether to restart the tasks too; true or false, false by default",
    "onlyFailed": "whether to restart only what has failed; true or false, false by default",
}

RESOURCES: tuple[Resource, ...] = (
    Resource(
        "/",
        (
            Operation(
                "GET",
                "get_root",
                ("GetClusterInfo",),
                "Returns the version of Kafka Connect whose API this is, Drover's version, and the"
                " id of the Kafka cluster.",
                response="ServerInfo",
            ),
        ),
    ),
    Resource(
        "/health",
        (
            Operation(
                "GET",
                "get_health",
                (),
                "Returns whether a worker is ready.",
                errors=(500, 503),
                response="Health",
            ),
        ),
        needs_caller=False,
    ),
    Resource(
        "/openapi.json",
        (Operation("GET", "get_openapi", (), "Returns this document.", response="OpenApi"),),
        needs_caller=False,
    ),
    Resource(
        "/connectors",
        (
            Operation(
                "GET",
                "list_connectors",
                ("ListConnectors",),
                "Lists the connectors that the caller may see.",
                query=_EXPAND,
                response="ConnectorList",
                has_secrets=True,
            ),
            Operation(
                "POST",
                "create_connector",
                ("CreateConnector",),
                "Creates a connector.",
                success=(201,),
                errors=(400, 409, 413),
                texts=_EXISTS,
                body="CreateConnector",
                response="Connector",
                has_secrets=True,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}",
        (
            Operation(
                "GET",
                "get_connector",
                ("GetConnector",),
                "Returns a connector.",
                errors=(404,),
                texts=_CONNECTOR_NOT_FOUND,
                response="Connector",
                has_secrets=True,
            ),
            Operation(
                "DELETE",
                "delete_connector",
                ("DeleteConnector",),
                "Removes a connector; its offsets stay.",
                success=(204,),
                errors=(404,),
                texts=_CONNECTOR_NOT_FOUND,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/config",
        (
            Operation(
                "GET",
                "get_config",
                ("GetConnector",),
                "Returns a connector's config.",
                errors=(404,),
                texts=_CONNECTOR_NOT_FOUND,
                response="Config",
                has_secrets=True,
            ),
            Operation(
                "PUT",
                "put_config",
                ("PutConnectorConfig",),
                "Creates a connector, or replaces its config. A masked secret keeps its value.",
                success=(200, 201),
                errors=(400, 409, 413),
                body="Config",
                response="Connector",
                has_secrets=True,
            ),
            Operation(
                "PATCH",
                "patch_config",
                ("PatchConnectorConfig",),
                "Changes some settings of a connector; null removes a setting. A masked secret"
                " keeps its value.",
                errors=(400, 404, 409, 413),
                texts=_CONNECTOR_NOT_FOUND,
                body="ConfigPatch",
                response="Connector",
                has_secrets=True,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/status",
        (
            Operation(
                "GET",
                "get_status",
                ("GetConnectorStatus",),
                "Returns the states of a connector and of its tasks.",
                errors=(404,),
                texts=_NO_STATUS,
                response="Status",
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/tasks",
        (
            Operation(
                "GET",
                "list_tasks",
                ("ListTasks",),
                "Lists a connector's tasks with their configs.",
                errors=(404,),
                texts=_CONNECTOR_NOT_FOUND,
                response="Tasks",
                has_secrets=True,
            ),
            Operation(
                "POST",
                "put_task_configs",
                (),
                "Always rejected: a call between workers of Kafka Connect.",
                success=(),
                errors=(400,),
                internal=True,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/tasks/{task}/status",
        (
            Operation(
                "GET",
                "get_task_status",
                ("GetConnectorStatus",),
                "Returns the state of a task.",
                errors=(404,),
                texts=_NO_TASK_STATUS,
                response="TaskStatus",
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/tasks/{task}/restart",
        (
            Operation(
                "POST",
                "restart_task",
                ("RestartTask",),
                "Restarts a task.",
                success=(204,),
                errors=(404,),
                texts=_RESTART_UNKNOWN,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/fence",
        (
            Operation(
                "PUT",
                "fence",
                (),
                "Always rejected: a call between workers of Kafka Connect.",
                success=(),
                errors=(400,),
                internal=True,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/topics",
        (
            Operation(
                "GET",
                "get_topics",
                ("GetConnectorTopics",),
                "Returns the topics that a connector has used; none for an unknown connector.",
                response="Topics",
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/topics/reset",
        (
            Operation(
                "PUT",
                "reset_topics",
                ("ResetConnectorTopics",),
                "Clears the list of topics that a connector has used.",
                success=(202,),
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/pause",
        (
            Operation(
                "PUT",
                "pause",
                ("PauseConnector",),
                "Pauses a connector.",
                success=(202,),
                errors=(404,),
                texts=_UNKNOWN_CONNECTOR,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/resume",
        (
            Operation(
                "PUT",
                "resume",
                ("ResumeConnector",),
                "Resumes a paused or stopped connector.",
                success=(202,),
                errors=(404,),
                texts=_UNKNOWN_CONNECTOR,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/stop",
        (
            Operation(
                "PUT",
                "stop",
                ("StopConnector",),
                "Removes a connector's tasks and keeps its config and offsets.",
                success=(204,),
                errors=(404,),
                texts=_UNKNOWN_CONNECTOR,
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/restart",
        (
            Operation(
                "POST",
                "restart",
                ("RestartConnector",),
                "Restarts a connector. With a parameter that is true, the answer is the planned"
                " status.",
                success=(204, 202),
                errors=(404,),
                texts=_RESTART_UNKNOWN,
                query=_RESTART_FLAGS,
                response="Status",
            ),
        ),
    ),
    Resource(
        "/connectors/{connector}/offsets",
        (
            Operation(
                "GET",
                "get_offsets",
                ("GetConnectorOffsets",),
                "Returns a connector's committed offsets.",
                errors=(404,),
                texts=_CONNECTOR_NOT_FOUND,
                response="Offsets",
            ),
            Operation(
                "PATCH",
                "alter_offsets",
                ("AlterConnectorOffsets",),
                "Changes offsets of a stopped connector.",
                errors=(400, 404, 409, 413),
                texts=_NOT_STOPPED,
                body="OffsetChanges",
                response="Message",
            ),
            Operation(
                "DELETE",
                "reset_offsets",
                ("ResetConnectorOffsets",),
                "Removes all offsets of a stopped connector.",
                errors=(400, 404, 409),
                texts=_NOT_STOPPED,
                response="Message",
            ),
        ),
    ),
    Resource(
        "/connector-plugins",
        (
            Operation(
                "GET",
                "list_plugins",
                ("ListPlugins",),
                "Lists the installed plugins, under Kafka Connect's class names where they have"
                " one.",
                query={
                    "connectorsOnly": "whether to list connectors only; true by default, and any"
                    " value but true also lists converters, header converters, transforms and"
                    " predicates"
                },
                response="Plugins",
            ),
        ),
    ),
    Resource(
        "/connector-plugins/{plugin}/config",
        (
            Operation(
                "GET",
                "get_plugin_config",
                ("GetPlugin",),
                "Returns the settings of a plugin.",
                errors=(400, 404),
                texts=_UNKNOWN_PLUGIN,
                query={"version": "the version of the plugin; latest, or the installed one"},
                response="ConfigKeys",
            ),
        ),
    ),
    Resource(
        "/connector-plugins/{plugin}/config/validate",
        (
            Operation(
                "PUT",
                "validate_config",
                ("ValidateConfig",),
                "Validates a config. An invalid config is a normal answer.",
                errors=(400, 413),
                texts=_UNKNOWN_PLUGIN,
                body="ConfigToValidate",
                response="Validation",
                has_secrets=True,
            ),
        ),
    ),
    Resource(
        "/admin/loggers",
        (
            Operation(
                "GET",
                "list_loggers",
                ("ListLoggers",),
                "Lists the loggers of a worker with their levels.",
                response="Loggers",
            ),
        ),
    ),
    Resource(
        "/admin/loggers/{logger}",
        (
            Operation(
                "GET",
                "get_logger",
                ("ListLoggers",),
                "Returns the level of a logger.",
                errors=(404,),
                response="Logger",
            ),
            Operation(
                "PUT",
                "set_logger",
                ("SetLoggerLevel",),
                "Sets the level of a logger and of its child loggers.",
                success=(200, 204),
                errors=(400, 404, 413),
                query={"scope": "worker, or cluster for all workers; worker by default"},
                body="LoggerLevel",
                response="LoggerNames",
            ),
        ),
    ),
)

#: Resources that a gateway without administrative resources does not have.
ADMIN_PREFIX = "/admin"
_INT32_MAX = 2**31


@dataclass(frozen=True, slots=True)
class Match:
    """A resource and the parameters of its path."""

    resource: Resource
    parameters: Mapping[str, str]


class Router:
    """Finds the resource of a path."""

    def __init__(self, *, admin: bool = True) -> None:
        """``admin`` is whether there are administrative resources."""
        self._by_length: dict[int, list[Resource]] = {}
        for each in RESOURCES:
            if admin or not each.path.startswith(ADMIN_PREFIX):
                self._by_length.setdefault(len(each.segments), []).append(each)

    def find(self, segments: Sequence[str]) -> Match | None:
        """The resource and its parameters; None if there is none."""
        for resource in self._by_length.get(len(segments), ()):
            parameters = _parameters(resource.segments, segments)
            if parameters is not None:
                return Match(resource, parameters)
        return None


def _parameters(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    parameters = {}
    for part, segment in zip(pattern, segments, strict=True):
        if not part.startswith("{"):
            if part != segment:
                return None
        elif part == "{task}":
            if not _is_int32(segment):
                return None
            parameters["task"] = str(int(segment))
        else:
            parameters[part[1:-1]] = segment
    return parameters


def _is_int32(text: str) -> bool:
    """Whether Java parses the text as an integer of 32 bits."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 32):
        return False
    return -_INT32_MAX <= int(text) < _INT32_MAX
