"""What a caller may do, so that no page offers what the workers refuse."""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from drover.codec.caller import decode_caller
from drover.errors import DroverError, PermissionDeniedError
from drover.rpc.roles import Scope, access_of, missing_role
from drover.security.principal import Principal
from drover_gateway.identity.credentials import Caller
from drover_gateway.workers import CONNECT_SERVICE, Workers

#: The rights of a caller are asked for again after this time.
KEPT_S = 5.0
_TIMEOUT_S = 2.0
_CALLERS_MAX = 1_000
_SERVICE = f"/{CONNECT_SERVICE}/"
_NO_GRANT = Principal("", ())


@dataclass(frozen=True, slots=True)
class Rights:
    """What a caller may do. The workers check each call, whatever is offered.

    Attributes:
        caller: The caller with its grants; None if they are not known, and everything is offered.
    """

    caller: Principal | None = None

    def may(self, rpc: str, connector: str = "") -> bool:
        """Whether the caller may make a call of ConnectService.

        Args:
            rpc: The call.
            connector: The connector that it names; empty if it names none.
        """
        return self.caller is None or access_of(_SERVICE + rpc).allows_for(self.caller, connector)

    def may_for_some(self, rpc: str) -> bool:
        """Whether the caller may make a call for at least one connector."""
        access = access_of(_SERVICE + rpc)
        if self.caller is None or access.scope is Scope.CLUSTER:
            return self.may(rpc)
        return self.caller.may_for_some(access.role)

    def demand(self, rpc: str, connector: str = "") -> None:
        """Refuse a page that only leads to a call that the caller may not make.

        Raises:
            PermissionDeniedError: MISSING_ROLE.
        """
        if self.caller is not None and not self.may(rpc, connector):
            raise missing_role(_SERVICE + rpc, self.caller, connector)

    def demand_for_some(self, rpc: str) -> None:
        """As ``demand``, of a call for any connector."""
        if self.caller is not None and not self.may_for_some(rpc):
            raise missing_role(_SERVICE + rpc, self.caller, "")


#: Reads the rights of the caller of an open page.
ReadRights = Callable[[], Awaitable[Rights]]


def role_of(rpc: str) -> str:
    """The role that a call of ConnectService needs, as in the access file."""
    return access_of(_SERVICE + rpc).role.name.lower()


class RightsOfCallers:
    """Asks the workers for the rights of callers, and keeps them for ``KEPT_S``."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._known: OrderedDict[bytes, tuple[float, Rights]] = OrderedDict()

    def last_known(self, caller: Caller) -> Rights:
        """The rights of a caller without a call, for pages that act without a token."""
        return self._known.get(_key(caller), (0.0, Rights()))[1]

    async def of(self, caller: Caller) -> Rights:
        """The rights of a caller; while no worker answers the last known ones."""
        now_s = asyncio.get_running_loop().time()
        key = _key(caller)
        asked_s, rights = self._known.get(key, (-math.inf, Rights()))
        if now_s - asked_s < KEPT_S:
            return rights
        client = self._workers.client(caller)
        try:
            rights = Rights(decode_caller(await client.get_caller(timeout_s=_TIMEOUT_S)))
        except PermissionDeniedError:
            rights = Rights(_NO_GRANT)
        except DroverError:
            # also a worker of an earlier version, which does not have the call
            pass
        self._known[key] = (now_s, rights)
        self._known.move_to_end(key)
        if len(self._known) > _CALLERS_MAX:
            self._known.popitem(last=False)
        return rights


def _key(caller: Caller) -> bytes:
    return hashlib.sha256(caller.token.encode("utf-8", "surrogatepass")).digest()
