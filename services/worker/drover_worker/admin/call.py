"""The principal and the deadline of a call to a use case."""

import asyncio
from dataclasses import dataclass

from drover.security.principal import Principal, Role

#: The part of the deadline that a forwarded call leaves for the response.
_HOP_MARGIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time on the event loop's clock, in seconds."""

    at_s: float

    @classmethod
    def after(cls, timeout_s: float) -> "Deadline":
        """The deadline ``timeout_s`` from now."""
        return cls(asyncio.get_running_loop().time() + timeout_s)

    def remaining_s(self) -> float:
        """The time left; never negative."""
        return max(0.0, self.at_s - asyncio.get_running_loop().time())

    def forwarded_s(self) -> float:
        """The time that a call which is forwarded to another worker may take; never negative."""
        return max(0.0, self.remaining_s() - _HOP_MARGIN_S)


@dataclass(frozen=True, slots=True)
class AdminCall:
    """One call of a use case.

    Attributes:
        principal: The caller.
        deadline: When the caller stops waiting.
        hop_count: How many workers forwarded the call to this one; 0 for a client's call.
    """

    principal: Principal
    deadline: Deadline
    hop_count: int = 0

    def may_see(self, connector: str) -> bool:
        """Whether the caller may see the connector in lists and watches."""
        return self.principal.may(Role.VIEWER, connector)

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see every connector."""
        return self.principal.may(Role.VIEWER)

    def may_change(self, connector: str) -> bool:
        """Whether the caller may change the connector's config."""
        return self.principal.may(Role.ADMIN, connector)
