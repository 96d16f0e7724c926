"""The drain of this worker: it hands its work over on an operator's request, or before it ends."""

from dataclasses import dataclass


@dataclass(slots=True)
class Drain:
    """The state of a drain.

    Attributes:
        requested: This worker shall get no work.
        announced: The last join's metadata had ``draining`` set.
        ends: The worker leaves the group and ends once it has no work.
    """

    requested: bool = False
    announced: bool = False
    ends: bool = False

    @property
    def needs_rejoin(self) -> bool:
        """Whether the group has to learn of the drain, or of its end, by a rejoin."""
        return self.requested is not self.announced

    @property
    def rejoin_reason(self) -> str:
        """The reason for the rejoin."""
        return "the worker is being drained" if self.requested else "the worker takes work again"

    def start(self, *, ends: bool = False) -> None:
        """Hand all work over; ``ends`` stays true once it was."""
        self.requested = True
        self.ends = self.ends or ends

    def cancel(self) -> None:
        """Accept work again, unless the worker ends."""
        self.requested = self.ends
