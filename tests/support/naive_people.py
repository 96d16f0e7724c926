"""The members of a group and its log, as the naive model sees them."""

from dataclasses import dataclass, field
from typing import Any

Answer = tuple[Any, ...]
Offers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Stored:
    """A member as stored in the log."""

    instance: str | None
    offers: Offers
    session_ms: int
    rebalance_ms: int
    assignment: bytes = b""


@dataclass(frozen=True)
class Log:
    """The group's last record."""

    generation: int = 0
    assigned: bool = False
    leader: str = ""
    protocol: str = ""
    people: dict[str, Stored] = field(default_factory=dict)


@dataclass(eq=False)
class Person:
    """A current member of the group."""

    name: str
    word: Stored
    alive_until: int
    new_until: int | None = None
    joining: str | None = None
    join_until: int = 0
    syncing: str | None = None

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None
