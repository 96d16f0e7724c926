"""The REST API as an ASGI application.

The checks are made in the order of Kafka Connect's JAX-RS: path, method, Content-Type, Accept, who
calls, body.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from drover.errors import DroverError, UnauthenticatedError
from drover.rpc.logs import current_request_id
from drover_gateway.rest.call import (
    REQUEST_TIMEOUT_S,
    ClientGoneError,
    Receive,
    Response,
    RestCall,
)
from drover_gateway.rest.compression import MIN_BYTES, Compressor, accepts_gzip
from drover_gateway.rest.cors import Cors, Headers, with_rules
from drover_gateway.rest.errors import RestError, error_body, method_not_allowed, not_found
from drover_gateway.rest.handlers import HANDLERS
from drover_gateway.rest.negotiate import check_accept, check_content_type
from drover_gateway.rest.path import split_path
from drover_gateway.rest.ports import Backend, RestSettings
from drover_gateway.rest.table import Match, Router

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]
#: The headers and the body of a response with the status 200.
Answer = tuple[RawHeaders, bytes]

_JSON = "application/json"
_TEXT = "text/plain"
_INTERNAL_TEXT = "Internal request missing required signature"

_MATCHES_MAX, _KEPT_PATH_MAX_BYTES = 1_000, 500
#: Headers of requests with a body.
_BODY_HEADERS = frozenset({"content-length", "content-type", "transfer-encoding"})

_log = structlog.get_logger("drover.gateway.rest")


class RestApplication:
    """Kafka Connect's REST API over Drover's workers.

    Args:
        backend: The workers.
        settings: The settings.
    """

    def __init__(self, backend: Backend, settings: RestSettings) -> None:
        self._backend = backend
        self._settings = settings
        self._router = Router(admin=settings.admin)
        #: Resources by path as it was sent, since callers repeat their requests.
        self._matches: dict[bytes, Match] = {}
        self._compressor = Compressor()
        self._cors = Cors(settings.allow_origins, settings.allow_methods)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request; ``scope`` is of type http."""
        headers = _decoded(scope["headers"])
        try:
            response = await self._respond(scope, headers, receive)
        except ClientGoneError:
            return
        except RestError as error:
            response = _error_response(error, scope["method"])
        await self._send(scope, headers, response, send)

    def at_once(self, scope: Mapping[str, Any]) -> Answer | None:
        """The response to a read that the caller's view answers, without a task for the request.

        None for a request that needs more, or that may be refused: ``__call__`` serves it.
        """
        match = self._matches.get(scope["raw_path"])
        if match is None or scope["method"] != "GET":
            return None
        headers = _decoded(scope["headers"])
        if not _BODY_HEADERS.isdisjoint(headers):
            return None
        try:
            check_accept(headers.get("accept"))
            body = self._in_view(scope, match)
        except (RestError, UnauthenticatedError):
            return None
        if body is None or (len(body) >= MIN_BYTES and "accept-encoding" in headers):
            return None
        return self._headers("GET", headers, Response(body=body)), body

    def _in_view(self, scope: Mapping[str, Any], match: Match) -> bytes | None:
        """The status of a connector, or the connector; None if it is not in the caller's view."""
        operation = match.resource.by_method.get("GET")
        name = "" if operation is None else operation.name
        is_info = name == "get_connector" and self._settings.secrets == "masked"
        if not is_info and name != "get_status":
            return None
        view = self._backend.present_view(self._backend.caller(scope))
        if view is None:
            return None
        connector = match.parameters["connector"].strip()
        return view.info(connector) if is_info else view.status(connector)

    async def _respond(
        self, scope: Mapping[str, Any], headers: Mapping[str, str], receive: Receive
    ) -> Response:
        method = scope["method"]
        match = self._match(scope)
        resource = match.resource
        if method not in resource.methods:
            raise method_not_allowed()
        operation = resource.by_method.get("GET" if method == "HEAD" else method)
        call = RestCall(
            scope=scope,
            match=match,
            operation=operation,
            headers=headers,
            receive=receive,
            backend=self._backend,
            settings=self._settings,
            deadline_s=asyncio.get_running_loop().time() + REQUEST_TIMEOUT_S,
        )
        if operation is not None:
            content_type = headers.get("content-type")
            has_body = content_type is None and await call.has_body()
            check_content_type(content_type, has_body=has_body)
            check_accept(headers.get("accept"))
        if operation is not None and operation.internal:
            raise RestError(400, _INTERNAL_TEXT)
        try:
            if operation is None:
                return await self._options(call)
            return await self._compressed(call, await HANDLERS[operation.name](call))
        except DroverError as error:
            raise self._error_of(call, error) from None
        except RestError as error:
            if resource.needs_caller and error.status != 401:
                await call.identify()
            raise

    async def _compressed(self, call: RestCall, response: Response) -> Response:
        """A response, compressed if it is large and the caller accepts it."""
        encodings = call.headers.get("accept-encoding")
        is_small = len(response.body) < MIN_BYTES
        if encodings is None or is_small or response.status != 200 or not _has_no_secrets(call):
            return response
        headers = (*response.headers, ("vary", "Accept-Encoding"))
        if call.scope["method"] == "HEAD" or not accepts_gzip(encodings):
            return replace(response, headers=headers)
        body = await self._compressor.compressed(response.body)
        return replace(response, body=body, headers=(*headers, ("content-encoding", "gzip")))

    def _match(self, scope: Mapping[str, Any]) -> Match:
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
        match = self._matches.get(path)
        if match is None:
            match = self._router.find(split_path(path))
            if match is None:
                raise not_found()
            if len(path) <= _KEPT_PATH_MAX_BYTES:
                if len(self._matches) >= _MATCHES_MAX:
                    self._matches.clear()
                self._matches[path] = match
        return match

    async def _options(self, call: RestCall) -> Response:
        """The methods of a resource, as text and as a header."""
        if call.match.resource.needs_caller and not self._is_preflight(call.headers):
            await call.identify()
        methods = call.match.resource.methods
        return Response(
            body=", ".join(methods).encode(),
            content_type=_TEXT,
            headers=(("allow", ",".join(methods)),),
        )

    def _is_preflight(self, headers: Mapping[str, str]) -> bool:
        """Whether a browser asks for a web site that may read answers; it sends no credential."""
        asks = "access-control-request-method" in headers
        return asks and self._cors.allows(headers.get("origin"))

    def _error_of(self, call: RestCall, error: DroverError) -> RestError:
        found = call.error_of(error, current_request_id())
        if found.status == 500:
            _log.error(
                "a request failed",
                path=call.match.resource.path,
                method=call.scope["method"],
                reason=error.reason.value,
                why=error.message,
            )
        return found

    async def _send(
        self,
        scope: Mapping[str, Any],
        request_headers: Mapping[str, str],
        response: Response,
        send: Send,
    ) -> None:
        method = scope["method"]
        headers = self._headers(method, request_headers, response)
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        await send(start)
        body = b"" if method == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})

    def _headers(
        self, method: str, request_headers: Mapping[str, str], response: Response
    ) -> RawHeaders:
        headers: Headers = [*response.headers]
        if response.body or response.status not in (202, 204):
            headers.append(("content-type", response.content_type))
        if response.status != 204:
            headers.append(("content-length", str(len(response.body))))
        is_preflight = method == "OPTIONS" and "access-control-request-method" in request_headers
        headers += self._cors.headers(request_headers.get("origin"), is_preflight=is_preflight)
        headers = with_rules(headers, self._settings.response_headers)
        return [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers]


def _has_no_secrets(call: RestCall) -> bool:
    operation = call.operation
    if operation is None or not operation.has_secrets:
        return True
    # the list has configs only with this parameter
    return operation.name == "list_connectors" and "info" not in call.query("expand")


def _decoded(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by name; values of a repeated header are joined."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, text = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]},{text}" if name in found else text
    return found


def _error_response(error: RestError, method: str) -> Response:
    content_type = _TEXT if method == "OPTIONS" and error.status == 401 else _JSON
    return Response(error.status, error_body(error), content_type, error.headers)
