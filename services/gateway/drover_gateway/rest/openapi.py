"""The OpenAPI document, made from the table of resources."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from drover.codec.rest import to_json
from drover_gateway.rest.schemas import INTEGER, SCHEMAS, TEXT, reference
from drover_gateway.rest.table import ADMIN_PREFIX, RESOURCES, Operation, Resource

_PARAMETER = re.compile(r"\{(\w+)\}")
_JSON = "application/json"
#: Errors of every operation that checks the caller or reads a path.
_COMMON_ERRORS: Mapping[int, str] = {
    400: "The request is malformed.",
    406: "The caller does not accept JSON.",
    415: "The body is not JSON.",
}
_CALLER_ERRORS: Mapping[int, str] = {
    401: "The credential is missing or invalid.",
    403: "The caller does not have the role, or the operation is disabled.",
    429: "The worker has reached a limit; retry.",
    500: "The request failed.",
    503: "No worker can execute the request now; retry.",
}
_ERRORS: Mapping[int, str] = {
    **_COMMON_ERRORS,
    **_CALLER_ERRORS,
    404: "It does not exist.",
    409: "It exists already, or was changed at the same time.",
    413: "The body is too large.",
}
_SUCCESSES: Mapping[int, str] = {
    200: "Success.",
    201: "The connector was created.",
    202: "The request was accepted.",
    204: "Success, without a body.",
}


@cache
def openapi_json(admin: bool) -> bytes:
    """The document as JSON; ``admin`` is whether there are administrative resources."""
    return to_json(openapi(admin=admin))


def openapi(*, admin: bool = True) -> dict[str, Any]:
    """The document (OpenAPI 3.1)."""
    resources = [each for each in RESOURCES if admin or not each.path.startswith(ADMIN_PREFIX)]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Drover's Kafka Connect REST API",
            "version": "4.4.0",
            "description": "The REST API of Kafka Connect 4.4, served by Drover's gateway.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {each.path: _path(each) for each in resources},
        "components": {
            "schemas": {name: dict(schema) for name, schema in SCHEMAS.items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "The password is the token.",
                },
            },
        },
    }


def _path(resource: Resource) -> dict[str, Any]:
    found: dict[str, Any] = {
        each.method.lower(): _operation(resource, each) for each in resource.operations
    }
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {**INTEGER, "format": "int32"} if name == "task" else TEXT,
        }
        for name in _PARAMETER.findall(resource.path)
    ]
    return {**({"parameters": parameters} if parameters else {}), **found}


def _operation(resource: Resource, operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(resource, operation),
    }
    if resource.needs_caller and not operation.internal:
        found["security"] = [{}, {"bearer": []}, {"basic": []}]
    if operation.query:
        found["parameters"] = [
            _query_parameter(name, text) for name, text in operation.query.items()
        ]
    if operation.body:
        found["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": reference(operation.body)}},
        }
    return found


def _query_parameter(name: str, text: str) -> dict[str, Any]:
    # as in Kafka Connect, other values are no errors
    schema = {"type": "array", "items": TEXT} if name == "expand" else TEXT
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _responses(resource: Resource, operation: Operation) -> dict[str, Any]:
    found = {}
    for status in operation.success:
        has_body = operation.response and status != 204
        body = {"content": {_JSON: {"schema": reference(operation.response)}}} if has_body else {}
        found[str(status)] = {"description": _SUCCESSES[status], **body}
    statuses = {*operation.errors, *_COMMON_ERRORS}
    if resource.needs_caller:
        statuses |= {*_CALLER_ERRORS}
    if _PARAMETER.search(resource.path):
        statuses.add(404)
    for status in sorted(statuses):
        schema = TEXT if status == 401 else reference("Error")
        if status in (500, 503) and operation.response == "Health":
            schema = reference("Health")
        found[str(status)] = {
            "description": _ERRORS[status],
            "content": {_JSON: {"schema": schema}},
        }
    return found
