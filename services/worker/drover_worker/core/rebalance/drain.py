"""Whether this worker hands its work over: because an operator asked for it, or because it ends."""

from dataclasses import dataclass


@dataclass(slots=True)
class Drain:
    """How far a drain has come.

    Attributes:
        wanted: This worker wants no work.
        told: Its last join said so.
        ends: It leaves the group and ends once it holds nothing.
    """

    wanted: bool = False
    told: bool = False
    ends: bool = False

    @property
    def is_news(self) -> bool:
        """Whether the group has yet to be told."""
        return self.wanted is not self.told

    @property
    def rejoin_reason(self) -> str:
        """What the group is told."""
        return "the worker is being drained" if self.wanted else "the worker takes work again"

    def begin(self, *, ends: bool = False) -> None:
        """Hand everything over; ``ends`` stays once it is true."""
        self.wanted = True
        self.ends = self.ends or ends

    def undo(self) -> None:
        """Take work again, unless the worker ends."""
        self.wanted = self.ends
