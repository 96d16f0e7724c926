"""One request at work: its parameters, its body, and calls of workers on behalf of its caller."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qs

from drover.client import ConnectClient
from drover.errors import (
    UNAVAILABLE_KEY,
    DeadlineExceededError,
    DroverError,
    PermissionDeniedError,
    Reason,
    UnauthenticatedError,
    UnavailableError,
)
from drover_gateway.identity.credentials import Caller
from drover_gateway.rest.body import BODY_MAX_BYTES
from drover_gateway.rest.errors import RestError, of_drover, unauthenticated
from drover_gateway.rest.ports import Backend, RestSettings, View
from drover_gateway.rest.table import Match, Operation

T = TypeVar("T")
Receive = Callable[[], Awaitable[Mapping[str, Any]]]

#: The time of a request, as in Kafka Connect.
REQUEST_TIMEOUT_S = 90.0
#: How long a call is retried while the workers cannot execute it.
UNAVAILABLE_TIMEOUT_S = 30.0
#: How much of a body above the limit is read, so that the sender reads the response.
_DISCARDED_MAX_BYTES = 16 * 1024 * 1024
_QUERY_FIELDS_MAX = 100
_RETRY_FIRST_S, _RETRY_MAX_S = 0.1, 2.0
_IDENTITY_TIMEOUT_S = 5.0
#: Of the header Idempotency-Key.
_KEY_MAX_CHARS = 1_000
#: Reasons after which nothing was done for certain, so that a restart may be requested again.
_NOTHING_DONE = frozenset(
    {
        Reason.LEADER_UNKNOWN,
        Reason.ENGINE_UNAVAILABLE,
        Reason.LOADING,
        Reason.DRAINING,
        Reason.SESSION_KEY_UNKNOWN,
    }
)


class ClientGoneError(Exception):
    """The client closed the connection before the end of its request."""


@dataclass(frozen=True, slots=True)
class Response:
    """A successful response."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class RestCall:
    """A request whose path and method exist.

    Attributes:
        scope: The ASGI scope.
        match: The resource and its parameters.
        operation: The operation; None for OPTIONS.
        headers: The headers by name, in lower case.
        receive: Returns the parts of the body.
        backend: The workers.
        settings: The settings.
        deadline_s: The end of the request's time, on the event loop's clock.
    """

    scope: Mapping[str, Any]
    match: Match
    operation: Operation | None
    headers: Mapping[str, str]
    receive: Receive
    backend: Backend
    settings: RestSettings
    deadline_s: float
    #: Whether a worker has checked the caller's credential.
    identified: bool = False
    #: The names for messages: the parameters of the path, and a name in the body.
    names: dict[str, str] = field(default_factory=dict)
    _body: bytes | None = None
    _caller: Caller | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.names.update(self.match.parameters)

    @property
    def caller(self) -> Caller:
        """Who sent the request.

        Raises:
            RestError: 401: the header Authorization is malformed.
        """
        if self._caller is None:
            try:
                self._caller = self.backend.caller(self.scope)
            except UnauthenticatedError:
                raise unauthenticated() from None
        return self._caller

    @property
    def view(self) -> View | None:
        """The caller's view; None while there is none."""
        return self.backend.view(self.caller)

    def parameter(self, name: str) -> str:
        """A parameter of the path."""
        return self.match.parameters[name]

    @property
    def connector(self) -> str:
        """The connector that the path names."""
        return self.match.parameters["connector"]

    def query(self, name: str) -> list[str]:
        """The values of a query parameter; its name is case-sensitive.

        Raises:
            RestError: 400: the query has too many fields.
        """
        raw = self.scope.get("query_string", b"")
        if not raw:
            return []
        try:
            found = parse_qs(
                raw.decode("ascii", "replace"),
                keep_blank_values=True,
                max_num_fields=_QUERY_FIELDS_MAX,
                errors="replace",
            )
        except ValueError:
            raise RestError(400, f"the query has more than {_QUERY_FIELDS_MAX} fields") from None
        return found.get(name, [])

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A query parameter as Java parses a boolean: true in any case, else false."""
        values = self.query(name)
        return values[0].lower() == "true" if values else default

    @property
    def request_id(self) -> str:
        """The id by which the workers recognise a repeated change; empty for a new one.

        It is derived from the header Idempotency-Key, the caller, and the request itself: another
        request with the same key is executed.
        """
        key = self.headers.get("idempotency-key", "")
        if not key:
            return ""
        if len(key) > _KEY_MAX_CHARS:
            text = f"the header Idempotency-Key has more than {_KEY_MAX_CHARS} characters"
            raise RestError(400, text)
        parts = (
            *(f"{name}={value}".encode() for name, value in self.caller.metadata),
            str(self.scope["method"]).encode(),
            bytes(self.scope.get("raw_path") or b""),
            self._body or b"",
            key.encode("utf-8", "replace"),
        )
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()

    async def has_body(self) -> bool:
        """Whether the body has at least one byte.

        HTTP clients such as Spring's WebClient send an empty chunked body where there is none.

        Raises:
            RestError: 413.
            ClientGoneError: The client closed the connection.
        """
        if "transfer-encoding" in self.headers:
            return bool(await self.body())
        return self.headers.get("content-length", "0").strip("0") != ""

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            RestError: 413.
            ClientGoneError: The client closed the connection.
        """
        if self._body is None:
            self._body = await self._read()
        return self._body

    async def _read(self) -> bytes:
        declared = self.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > _DISCARDED_MAX_BYTES:
            raise _too_large()
        parts: list[bytes] = []
        size_bytes = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            size_bytes += len(part)
            if size_bytes <= BODY_MAX_BYTES:
                parts.append(part)
            else:
                parts.clear()
            if size_bytes > _DISCARDED_MAX_BYTES or not message.get("more_body", False):
                break
        if size_bytes > BODY_MAX_BYTES:
            raise _too_large()
        return b"".join(parts)

    async def ask(
        self,
        call: Callable[[ConnectClient, float], Awaitable[T]],
        *,
        repeatable: bool = True,
    ) -> T:
        """Call a worker with the caller's credential, until one can execute the call.

        Args:
            call: Makes the call with a client and a time limit in seconds.
            repeatable: Whether a second call has no further effect.

        Raises:
            DroverError: The worker's error; UnavailableError once the time for retries is over.
        """
        client = self.backend.client(self.caller)
        loop = asyncio.get_running_loop()
        end_s = min(loop.time() + UNAVAILABLE_TIMEOUT_S, self.deadline_s)
        # a call that cannot be repeated gets all the time
        until_s = end_s if repeatable else self.deadline_s
        pause_s = _RETRY_FIRST_S
        while True:
            try:
                result = await call(client, max(0.001, until_s - loop.time()))
            except DeadlineExceededError as error:
                if self._was_unavailable(error):
                    raise UnavailableError(Reason.SERVICE_UNREACHABLE, error.message) from None
                if until_s == self.deadline_s:
                    raise
                until_s = self.deadline_s  # the work is slow: it gets the rest of the time
                continue
            except UnavailableError as error:
                may_repeat = repeatable or error.reason in _NOTHING_DONE
                if not may_repeat or loop.time() + pause_s >= end_s:
                    raise
            except DroverError as error:
                self.identified = not self._is_unknown(error)
                raise
            else:
                self.identified = True
                return result
            await asyncio.sleep(pause_s + random.uniform(0, _RETRY_FIRST_S))
            pause_s = min(2 * pause_s, _RETRY_MAX_S)

    async def identify(self) -> None:
        """Let a worker check the caller's credential, if none has done so for this request.

        While no worker answers, the caller counts as identified: what the gateway answers alone has
        nothing of the cluster in it.

        Raises:
            RestError: 401.
        """
        if self.identified:
            return
        client = self.backend.client(self.caller)
        try:
            # any caller with a role may call it, and it names no connector
            await client.get_connector_status("", timeout_s=_IDENTITY_TIMEOUT_S)
        except DroverError as error:
            if self._is_unknown(error):
                raise unauthenticated() from None
        self.identified = True

    def _was_unavailable(self, error: DeadlineExceededError) -> bool:
        """Whether the call ended because the cluster could not execute it, rather than because of
        its work. Reads have no work that takes so long.
        """
        is_read = self.scope["method"] in ("GET", "HEAD", "OPTIONS")
        return is_read or UNAVAILABLE_KEY in error.metadata

    def _is_unknown(self, error: DroverError) -> bool:
        """Whether the caller has no valid credential. Without one the workers check the gateway's
        own certificate, which has no role.
        """
        if isinstance(error, UnauthenticatedError):
            return True
        return isinstance(error, PermissionDeniedError) and not self.caller.metadata

    def error_of(self, error: DroverError, request_id: str) -> RestError:
        """The response to a worker's error."""
        if self._is_unknown(error):
            return unauthenticated()
        texts = self.operation.texts if self.operation else {}
        return of_drover(
            error,
            request_id=request_id,
            texts={
                reason: _filled(text, self.names)
                for reason, text in texts.items()
                if reason is error.reason
            },
        )


def _filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _too_large() -> RestError:
    text = f"the request body has more than {BODY_MAX_BYTES} bytes"
    return RestError(413, text, headers=[("connection", "close")])
