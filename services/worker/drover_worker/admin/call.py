"""Who calls a use case, and how long the caller waits."""

import asyncio
from dataclasses import dataclass

from drover.security.principal import Principal, Role


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the event loop's clock, in seconds."""

    at_s: float

    @classmethod
    def after(cls, timeout_s: float) -> "Deadline":
        """The moment ``timeout_s`` from now."""
        return cls(asyncio.get_running_loop().time() + timeout_s)

    def remaining_s(self) -> float:
        """The time left; never negative."""
        return max(0.0, self.at_s - asyncio.get_running_loop().time())


@dataclass(frozen=True, slots=True)
class AdminCall:
    """One call of a use case.

    Attributes:
        principal: Who asks.
        deadline: Until when the answer has to be made.
        hop_count: How many workers forwarded the call before this one; 0 for a client's call.
    """

    principal: Principal
    deadline: Deadline
    hop_count: int = 0

    def may_see(self, connector: str) -> bool:
        """Whether lists and watches show the caller this connector."""
        return self.principal.may(Role.VIEWER, connector)
