"""The schemas of bodies in the OpenAPI document, by name."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}


def _object(
    properties: Mapping[str, Schema], *, optional: tuple[str, ...] = (), closed: bool = True
) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": not closed,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def reference(name: str) -> Schema:
    """A reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


_STATE = {
    "state": {
        "enum": ["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED"],
    },
    "worker_id": TEXT,
    "version": TEXT,
    "trace": TEXT,
}
_OPTIONAL_STATE = ("version", "trace")
_TYPE: Schema = {"enum": ["source", "sink", "unknown"]}
#: Jackson turns numbers and booleans into texts.
_VALUE: Schema = {"type": ["string", "number", "boolean"]}
_NULLABLE_VALUE: Schema = {"type": ["string", "number", "boolean", "null"]}
#: Clients that are generated from a contract reject other values.
_SETTING_TYPE: Schema = {
    "enum": ["BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"]
}
_IMPORTANCE: Schema = {"enum": ["HIGH", "MEDIUM", "LOW"]}
_WIDTH: Schema = {"enum": ["NONE", "SHORT", "MEDIUM", "LONG"]}
_TASK_ID = _object({"connector": TEXT, "task": INTEGER})

SCHEMAS: Mapping[str, Schema] = {
    "Error": _object({"error_code": INTEGER, "message": TEXT}),
    "ServerInfo": _object({"version": TEXT, "commit": TEXT, "kafka_cluster_id": TEXT}),
    "Health": _object({"status": {"enum": ["healthy", "starting", "unhealthy"]}, "message": TEXT}),
    "OpenApi": {"type": "object"},
    "ConnectorList": {
        "oneOf": [
            _list(TEXT),
            _map(
                _object(
                    {"info": reference("Connector"), "status": reference("Status")},
                    optional=("info", "status"),
                )
            ),
        ]
    },
    "CreateConnector": _object(
        {
            "name": TEXT,
            "config": reference("Config"),
            "initial_state": {
                "type": ["string", "null"],
                "description": "RUNNING, PAUSED or STOPPED, in any case",
                "pattern": "^(?i:running|paused|stopped)$",
            },
        },
        optional=("initial_state",),
    ),
    "Connector": _object(
        {"name": TEXT, "config": _map(TEXT), "tasks": _list(_TASK_ID), "type": _TYPE}
    ),
    "Config": {
        "type": "object",
        "properties": {"connector.class": TEXT},
        "required": ["connector.class"],
        "additionalProperties": _VALUE,
    },
    "ConfigPatch": _map(_NULLABLE_VALUE),
    "ConfigToValidate": {
        "type": "object",
        "properties": {"connector.class": TEXT},
        "required": ["connector.class"],
        "additionalProperties": _NULLABLE_VALUE,
    },
    "Status": _object(
        {
            "name": TEXT,
            "connector": _object(_STATE, optional=_OPTIONAL_STATE),
            "tasks": _list(reference("TaskStatus")),
            "type": _TYPE,
        }
    ),
    "TaskStatus": _object({"id": INTEGER, **_STATE}, optional=_OPTIONAL_STATE),
    "Tasks": _list(_object({"id": _TASK_ID, "config": _map(TEXT)})),
    "Topics": _map(_object({"topics": _list(TEXT)})),
    "Offsets": _object(
        {
            "offsets": _list(
                _object({"partition": {"type": "object"}, "offset": {"type": ["object", "null"]}})
            )
        }
    ),
    "OffsetChanges": _object(
        {
            "offsets": {
                "type": "array",
                "minItems": 1,
                "items": _object(
                    {
                        "partition": {"type": "object"},
                        "offset": {"type": ["object", "null"]},
                    },
                    optional=("offset",),
                ),
            }
        }
    ),
    "Message": _object({"message": TEXT}),
    "Plugins": _list(_object({"class": TEXT, "type": TEXT, "version": TEXT})),
    "ConfigKey": _object(
        {
            "name": TEXT,
            "type": _SETTING_TYPE,
            "required": BOOLEAN,
            "default_value": TEXT_OR_NULL,
            "importance": _IMPORTANCE,
            "documentation": TEXT,
            "group": TEXT_OR_NULL,
            "order_in_group": INTEGER,
            "width": _WIDTH,
            "display_name": TEXT,
            "dependents": _list(TEXT),
        }
    ),
    "ConfigKeys": _list(reference("ConfigKey")),
    "Validation": _object(
        {
            "name": TEXT,
            "error_count": INTEGER,
            "groups": _list(TEXT),
            "configs": _list(
                _object(
                    {
                        "definition": reference("ConfigKey"),
                        "value": _object(
                            {
                                "name": TEXT,
                                "value": TEXT_OR_NULL,
                                "recommended_values": _list(TEXT),
                                "errors": _list(TEXT),
                                "visible": BOOLEAN,
                            }
                        ),
                    }
                )
            ),
        }
    ),
    "Logger": _object({"level": TEXT, "last_modified": {"type": ["integer", "null"]}}),
    "Loggers": _map(reference("Logger")),
    "LoggerLevel": _object({"level": _VALUE}, closed=False),
    "LoggerNames": _list(TEXT),
}
