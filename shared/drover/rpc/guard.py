"""Lets calls in: who calls, whether they may, and what the audit log is told of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import grpc.aio
from google.protobuf.message import Message

from drover.errors import DroverError, PermissionDeniedError, Reason
from drover.rpc.audit import AuditLog
from drover.rpc.callers import PRINCIPAL_MAX_CHARS, Callers, said_principal
from drover.rpc.logs import current_request_id
from drover.rpc.roles import Scope, access_of, connector_of
from drover.security.principal import Principal

Context = grpc.aio.ServicerContext[Any, Any]

_principal: ContextVar[Principal | None] = ContextVar("drover_principal", default=None)


def current_principal() -> Principal:
    """Who makes the call under way; nobody in particular outside of one."""
    return _principal.get() or Principal("")


class CallGuard:
    """Decides about each call of a server.

    Args:
        callers: Knows who calls; None to let everybody do everything.
        audit: Told of each call that changes something; None for no audit log.
    """

    def __init__(self, callers: Callers | None = None, audit: AuditLog | None = None) -> None:
        self._callers = callers
        self._audit = audit

    async def let_in(self, method: str, context: Context, decode: Callable[[], Any]) -> Any:
        """The request of a call that may go on, under its principal.

        Raises:
            UnauthenticatedError: It is not known who calls.
            PermissionDeniedError: MISSING_ROLE.
            InvalidArgumentError: What was sent is not the request.
        """
        principal, request = Principal(""), None
        try:
            principal = await self._identify(context)
            request = decode()
            self._authorize(method, principal, request)
        except DroverError as error:
            self._tell(method, context, principal, request, error.code, error.reason)
            raise
        _principal.set(principal)
        return request

    async def still(self, method: str, context: Context, request: Any) -> bool:
        """Whether the caller of a stream under way has the rights that it began with.

        Raises:
            UnauthenticatedError: It is not known any more.
            PermissionDeniedError: MISSING_ROLE: it may not make this call any more.
        """
        principal = await self._identify(context)
        self._authorize(method, principal, request)
        return principal == current_principal()

    @property
    def lets_everybody_in(self) -> bool:
        """Whether there are no rights to ask for."""
        return self._callers is None

    @contextmanager
    def recorded(self, method: str, context: Context, request: Message) -> Iterator[None]:
        """Tell the audit log how a call that was let in ends."""
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
            self._tell(method, context, current_principal(), request, code, reason)

    async def _identify(self, context: Context) -> Principal:
        if self._callers is None:
            return said_principal(context)
        return await self._callers.identify(context)

    def _authorize(self, method: str, principal: Principal, request: Any) -> None:
        access = access_of(method)
        if self._callers is None or access.allows(principal, request):
            return
        name = connector_of(request) if access.scope is Scope.CONNECTOR else ""
        where = {
            Scope.CLUSTER: " for the whole cluster",
            Scope.ANY: "",
            Scope.CONNECTOR: f" for connector {name[:PRINCIPAL_MAX_CHARS]!r}" if name else "",
        }[access.scope]
        role = access.role.name.lower()
        rpc = method.rpartition("/")[2]
        raise PermissionDeniedError(
            Reason.MISSING_ROLE,
            f"{rpc} needs the role {role}{where}, which {principal.name!r} does not have: an"
            " administrator grants it in the access file",
            metadata={"role": role, "principal": principal.name},
        )

    def _tell(
        self,
        method: str,
        context: Context,
        principal: Principal,
        request: Message | None,
        code: str,
        reason: str,
    ) -> None:
        if self._audit is not None and access_of(method).changes:
            self._audit.tell(
                method=method,
                principal=principal.name,
                peer=unquote(context.peer()),
                request_id=current_request_id(),
                request=request,
                outcome=code,
                reason=reason,
            )
