"""Who is in a group and what its log says, as the naive model of a group sees them."""

from dataclasses import dataclass, field
from typing import Any

Answer = tuple[Any, ...]
Offers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Stored:
    """Somebody as the log has them."""

    instance: str | None
    offers: Offers
    session_ms: int
    rebalance_ms: int
    assignment: bytes = b""


@dataclass(frozen=True)
class Log:
    """The last that was written of the group."""

    generation: int = 0
    assigned: bool = False
    leader: str = ""
    protocol: str = ""
    people: dict[str, Stored] = field(default_factory=dict)


@dataclass(eq=False)
class Person:
    """Somebody who is in the group now."""

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
