"""What happens to every request: the check of its Host and Origin, its place, its log line."""

import itertools
import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from drover.metrics import table
from drover.metrics.figures import Distribution
from drover.metrics.metric import Sample
from drover.rpc import REQUEST_ID_KEY, REQUEST_ID_PATTERN
from drover_gateway.identity.origin import OriginRules
from drover_gateway.server import Answer, Application, AtOnce, Receive, Scope, Send

_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_REQUEST_ID = REQUEST_ID_KEY.encode()

_log = structlog.get_logger("drover.gateway")
_logger = logging.getLogger("drover.gateway")


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """The maximum number of requests in progress.

    Attributes:
        total: Of all callers together.
        per_caller: Of the callers with one credential, or without one at one address.
    """

    total: int = 256
    per_caller: int = 32


class GatewayApplication:
    """The ASGI application of the gateway: checks each request, and passes it to an API.

    Args:
        api: Serves the requests.
        rules: The accepted Host and Origin headers.
        bounds: The bounds of requests in progress.
        stream_path: A path whose responses are streams without an end: they count neither as
            requests in progress nor for the time of requests. Its API bounds them.
        at_once: Responds to a request that waits for nothing; None for all others.
    """

    def __init__(
        self,
        api: Application,
        rules: OriginRules,
        bounds: RequestBounds | None = None,
        *,
        stream_path: bytes = b"",
        at_once: AtOnce | None = None,
    ) -> None:
        self._api = api
        self._at_once = at_once
        self._rules = rules
        self._stream_path = stream_path
        self._bounds = bounds or RequestBounds()
        self._callers: Counter[bytes] = Counter()
        self._taken = 0
        prefix = uuid.uuid4().hex[:16]
        self._ids = (f"{prefix}{number:x}" for number in itertools.count(1))
        self._codes: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Distribution] = {}
        self._refused: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        started_s = time.perf_counter()
        method = scope["method"]
        status = 0

        async def send_counted(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        caller = _caller_key(scope)
        request_id = self._request_id(scope)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        is_stream = bool(self._stream_path) and scope.get("raw_path") == self._stream_path
        if not is_stream:
            self._callers[caller] += 1
            self._taken += 1
        try:
            refusal = self._refusal(scope, caller)
            if refusal is None:
                await self._api(scope, receive, send_counted)
            else:
                await _respond(send_counted, *refusal)
        except Exception:
            _log.exception("a request failed by a defect", method=method, path=_path(scope))
            if not status:
                text = (
                    "the request failed by a defect of the gateway: see the traceback in its log"
                    f" under request id {request_id}"
                )
                await _respond(send_counted, 500, text)
            else:
                raise
        finally:
            duration_s = None if is_stream else time.perf_counter() - started_s
            if not is_stream:
                self._taken -= 1
                self._callers[caller] -= 1
                if not self._callers[caller]:
                    del self._callers[caller]
            self._note(scope, status, duration_s)

    def at_once(self, scope: Scope) -> Answer | None:
        """The headers and the body of a response with the status 200 to a request that passes the
        checks and waits for nothing; None for all others.
        """
        if self._at_once is None:
            return None
        started_s = time.perf_counter()
        if self._rules.host_fault(scope["headers"], (scope["server"] or ("",))[0]) is not None:
            return None
        answer = self._at_once(scope)
        if answer is not None:
            if _logger.isEnabledFor(logging.DEBUG):  # only then there is a log line
                structlog.contextvars.bind_contextvars(request_id=self._request_id(scope))
            self._note(scope, 200, time.perf_counter() - started_s)
        return answer

    def samples(self) -> Iterator[Sample]:
        """The metrics of the requests."""
        for (method, code), count in self._codes.items():
            yield table.HTTP_REQUESTS.at(count, method, str(code))
        for method, seconds in self._seconds.items():
            yield table.HTTP_SECONDS.at(seconds, method)
        yield table.HTTP_IN_FLIGHT.at(self._taken)
        for reason, count in self._refused.items():
            yield table.HTTP_REFUSED.at(count, reason)

    def _refusal(self, scope: Scope, caller: bytes) -> tuple[int, str] | None:
        """The status and the text of a request that is not served; None if it is."""
        server = (scope.get("server") or ("",))[0]
        foreign = self._rules.host_fault(scope["headers"], server)
        if foreign is not None and not _is_without_host(scope):
            self._refused["host"] += 1
            return foreign.status, foreign.text
        fault = self._rules.origin_fault(scope["method"], scope["headers"])
        if fault:
            self._refused["origin"] += 1
            return 403, fault
        bounds = self._bounds
        if self._taken > bounds.total or self._callers[caller] > bounds.per_caller:
            self._refused["requests"] += 1
            return 503, "too many requests are in progress: retry later"
        return None

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == _REQUEST_ID:
                text = value.decode("latin-1")
                if REQUEST_ID_PATTERN.fullmatch(text):
                    return str(text)
        return next(self._ids)

    def _note(self, scope: Scope, status: int, duration_s: float | None) -> None:
        method = scope["method"]
        shown = method if method in _METHODS else "other"
        self._codes[shown, status] += 1
        if duration_s is not None:
            seconds = self._seconds.get(shown)
            if seconds is None:
                seconds = self._seconds[shown] = Distribution()
            seconds.add(duration_s)
        level = logging.DEBUG
        if status >= 500:
            level = logging.WARNING
        elif method not in _READS and status < 400:
            level = logging.INFO
        if _logger.isEnabledFor(level):
            client = scope.get("client") or ("", 0)
            _log.log(
                level,
                "request",
                method=method,
                path=_path(scope),
                status=status,
                duration_ms=None if duration_s is None else round(duration_s * 1000, 1),
                client=client[0],
            )


def only_below(prefix: bytes, api: Application) -> Application:
    """An API that serves only paths below ``prefix``."""
    return with_api_below(prefix, api, _not_found)


def with_api_below(prefix: bytes, inner: Application, others: Application) -> Application:
    """An API at a path and the paths below it, beside the API of all other paths."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope.get("raw_path") or b""
        is_inner = path == prefix or path.startswith(prefix + b"/")
        await (inner if is_inner else others)(scope, receive, send)

    return serve


def for_browsers(location: bytes, others: Application) -> Application:
    """Redirects a browser that opens ``/`` as a page; all other requests go to ``others``."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        opens_page = (b"sec-fetch-mode", b"navigate") in scope["headers"]
        if opens_page and scope["method"] in ("GET", "HEAD") and scope.get("raw_path") == b"/":
            headers = [(b"location", location), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 303, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        else:
            await others(scope, receive, send)

    return serve


def with_api(path: bytes, inner: Application, others: Application) -> Application:
    """An API at one path beside the API of all other paths."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_inner = (scope.get("raw_path") or b"") in (path, path + b"/")
        await (inner if is_inner else others)(scope, receive, send)

    return serve


def _is_without_host(scope: Scope) -> bool:
    """Whether this is a request of HTTP/1.0 without a Host header, such as health checks of load
    balancers send; browsers send none.
    """
    if scope["http_version"] != "1.0":
        return False
    return all(name != b"host" for name, _ in scope["headers"])


def _caller_key(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value)
    client = scope.get("client")
    return client[0].encode() if client else b""


def _path(scope: Scope) -> str:
    """The path as it was sent, without the query, whose values may be secret."""
    raw: bytes = scope.get("raw_path") or b""
    return raw[:500].decode("ascii", "backslashreplace")


async def _not_found(_scope: Scope, _receive: Receive, send: Send) -> None:
    await _respond(send, 404, "HTTP 404 Not Found")


async def _respond(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error_code": status, "message": text}, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
