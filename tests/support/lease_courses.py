"""Effects of writes on the lease table of two shards, for every kind of store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drover_coordinator.core.ownership.lease_table import Identity, LeaseTable
from drover_coordinator.core.ownership.machine import (
    Beat,
    Claim,
    Lease,
    Peer,
    Release,
    Renew,
    Retire,
    Write,
)

A = Identity("a:1", "run a", 3_000)
B = Identity("b:1", "run b", 2_000)
LATER_A = Identity("a:1", "later", 3_000)
FREE = Lease()


@dataclass(frozen=True)
class Course:
    """Each step is one exchange of one coordinator; ``table`` is the final content."""

    steps: Sequence[tuple[Identity, Sequence[Write]]]
    leases: tuple[Lease, Lease] = (FREE, FREE)
    peers: Mapping[str, Peer] = field(default_factory=dict)

    @property
    def table(self) -> LeaseTable:
        return LeaseTable(self.leases, self.peers)


COURSES: Mapping[str, Course] = {
    "claims and renews": Course(
        [(A, [Beat(), Claim(0, 1, FREE)]), (A, [Beat(), Renew(0, 1)])],
        (Lease("a:1", "run a", 1, 1), FREE),
        {"a:1": Peer("run a", 2, 3_000)},
    ),
    "comes too late with a claim": Course(
        [(A, [Claim(0, 1, FREE)]), (B, [Claim(0, 1, FREE)])],
        (Lease("a:1", "run a", 1), FREE),
    ),
    "takes over what it saw": Course(
        [(A, [Claim(1, 5, FREE)]), (B, [Claim(1, 6, Lease("a:1", "run a", 5))])],
        (FREE, Lease("b:1", "run b", 6)),
    ),
    "does not take over what moved since": Course(
        [
            (A, [Claim(1, 5, FREE)]),
            (A, [Renew(1, 5)]),
            (B, [Claim(1, 6, Lease("a:1", "run a", 5))]),
        ],
        (FREE, Lease("a:1", "run a", 5, 1)),
    ),
    "claims again what it claimed": Course(
        [(A, [Claim(0, 1, FREE)]), (A, [Claim(0, 1, FREE), Renew(0, 1)])],
        (Lease("a:1", "run a", 1, 1), FREE),
    ),
    "releases its own": Course(
        [(A, [Claim(0, 3, FREE)]), (A, [Renew(0, 3), Release(0, 3)])], (Lease(epoch=3), FREE)
    ),
    "releases nothing of others": Course(
        [
            (A, [Claim(0, 3, FREE)]),
            (B, [Release(0, 3), Renew(0, 3)]),
            (LATER_A, [Release(0, 3), Renew(0, 3)]),
            (A, [Release(0, 2), Renew(0, 2)]),
        ],
        (Lease("a:1", "run a", 3), FREE),
    ),
    "is followed by another run of itself": Course(
        [(A, [Beat(), Beat()]), (LATER_A, [Beat()]), (A, [Retire()])],
        peers={"a:1": Peer("later", 3, 3_000)},
    ),
    "retires": Course(
        [(A, [Beat()]), (B, [Beat()]), (A, [Retire()])], peers={"b:1": Peer("run b", 1, 2_000)}
    ),
}
