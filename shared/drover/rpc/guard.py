"""Authenticates and authorizes calls, and writes the audit log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import grpc.aio
from google.protobuf.message import Message

from drover.errors import DroverError, Reason, UnavailableError
from drover.rpc.audit import AuditLog
from drover.rpc.audit_trail import AuditTrail
from drover.rpc.callers import Callers, unverified_principal
from drover.rpc.logs import current_request_id
from drover.rpc.roles import access_of, connector_of, missing_role
from drover.security.principal import Principal

Context = grpc.aio.ServicerContext[Any, Any]

_UNKNOWN = Principal("", ())
#: The status codes of calls that this process rejects because of their caller.
_REJECTED = ("UNAUTHENTICATED", "PERMISSION_DENIED")

_principal: ContextVar[Principal | None] = ContextVar("drover_principal", default=None)


def current_principal() -> Principal:
    """The principal of the current call; one with an empty name outside of a call."""
    return _principal.get() or Principal("")


class CallGuard:
    """Authenticates and authorizes each call of a server.

    Args:
        callers: Identifies callers; None to allow all calls.
        audit: Gets a line for each call that belongs in it and for each rejected call; None for no
            audit log.
    """

    def __init__(self, callers: Callers | None = None, audit: AuditLog | None = None) -> None:
        self._callers = callers
        self._audit = audit
        self._trail: AuditTrail | None = None

    def keep_events(self, trail: AuditTrail) -> None:
        """Also add to ``trail`` what belongs in the audit log, even if there is no such log."""
        self._trail = trail

    async def identify(self, method: str, context: Context) -> Principal:
        """The caller of a call whose request may not have arrived yet; sets ``current_principal``.

        Raises:
            UnauthenticatedError: The caller has no valid credentials.
            UnavailableError: The caller's token cannot be verified now.
        """
        try:
            principal = await self._identify(context)
        except DroverError as error:
            self._audit_call(method, context, _UNKNOWN, None, error.code, error.reason)
            raise
        _principal.set(principal)
        return principal

    async def recognize(self, context: Context) -> Principal:
        """As ``identify``, but a caller without valid credentials is one without grants."""
        try:
            principal = await self._identify(context)
        except DroverError:
            principal = _UNKNOWN
        _principal.set(principal)
        return principal

    def admit(self, method: str, context: Context, decode: Callable[[], Any]) -> Any:
        """Authorize a call of ``current_principal``; returns the decoded request.

        Raises:
            PermissionDeniedError: MISSING_ROLE.
            InvalidArgumentError: The bytes are not a valid request.
        """
        request = None
        try:
            request = decode()
            self._authorize(method, current_principal(), request)
        except DroverError as error:
            self._audit_call(
                method, context, current_principal(), request, error.code, error.reason
            )
            raise
        return request

    async def has_same_rights(self, method: str, context: Context, request: Any) -> bool:
        """Whether the caller of an open stream has the same rights as at its start.

        Raises:
            UnauthenticatedError: The credentials are no longer valid.
            PermissionDeniedError: MISSING_ROLE: the caller no longer has the role.
        """
        principal = await self._identify(context)
        self._authorize(method, principal, request)
        return principal == current_principal()

    @property
    def allows_all(self) -> bool:
        """Whether calls are not authenticated."""
        return self._callers is None

    @contextmanager
    def audited(
        self, method: str, context: Context, request: Message, *, stream: bool = False
    ) -> Iterator[None]:
        """Write an admitted call to the audit log: its outcome, or that a stream was opened.

        If the audit log is required, also write that the call starts.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE: the audit log is required and cannot be written;
                the call has no effect.
        """
        required = self._audit is not None and self._audit.required
        if stream or required:
            first = "OPENED" if stream else "STARTED"
            written = self._audit_call(method, context, current_principal(), request, first, "")
            if required and not written:
                raise UnavailableError(
                    Reason.STORAGE_UNAVAILABLE,
                    "the audit log cannot be written, and DROVER_AUDIT_REQUIRED=true rejects calls"
                    " without a line in it: ask an administrator to make DROVER_AUDIT_LOG writable",
                )
        code, reason = "CANCELLED", ""
        try:
            yield
            code = "OK"
        except DroverError as error:
            code, reason = error.code, error.reason
            raise
        except Exception:
            code = "INTERNAL"
            raise
        finally:
            if not stream or code in _REJECTED:
                self._audit_call(method, context, current_principal(), request, code, reason)

    def audit_rejection(self, method: str, context: Context, error: DroverError) -> None:
        """Write a rejected call of gRPC's own services to the audit log."""
        self._audit_call(method, context, current_principal(), None, error.code, error.reason)

    async def _identify(self, context: Context) -> Principal:
        if self._callers is None:
            return unverified_principal(context)
        return await self._callers.identify(context)

    def _authorize(self, method: str, principal: Principal, request: Any) -> None:
        access = access_of(method)
        if self._callers is None or access.allows(principal, request):
            return
        raise missing_role(method, principal, connector_of(request))

    def _audit_call(
        self,
        method: str,
        context: Context,
        principal: Principal,
        request: Message | None,
        code: str,
        reason: str,
    ) -> bool:
        """Write a line if the call belongs in the audit log; False if that failed."""
        if self._audit is None and self._trail is None:
            return True
        if not (access_of(method).audited or code in _REJECTED):
            return True
        line: dict[str, Any] = {
            "method": method,
            "principal": principal.name,
            "peer": unquote(context.peer()),
            "request_id": current_request_id(),
            "request": request,
            "outcome": code,
            "reason": reason,
            "known": bool(principal.grants),
        }
        if self._trail is not None:
            self._trail.add(**line)
        return self._audit is None or self._audit.write(**line)
