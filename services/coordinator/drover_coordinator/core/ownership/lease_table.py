"""The table of leases, and the effect of writes on it. Pure: each backend stores it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

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


@dataclass(frozen=True, slots=True)
class Identity:
    """One run of the coordinator at an address, and its lease time."""

    address: str
    incarnation: str
    lease_ms: int = 0

    def __str__(self) -> str:
        return f"{self.address}/{self.incarnation}"


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """A lease for each shard, by number, and a row for each coordinator, by address."""

    leases: tuple[Lease, ...]
    peers: Mapping[str, Peer] = field(default_factory=dict)

    def changed_shards(self, before: "LeaseTable") -> dict[int, Lease]:
        """The leases that differ from ``before``, by shard."""
        pairs = enumerate(zip(self.leases, before.leases, strict=True))
        return {shard: lease for shard, (lease, old) in pairs if lease != old}

    def changed_peers(self, before: "LeaseTable") -> dict[str, Peer | None]:
        """The coordinators' rows that differ from ``before``; None for a removed one."""
        addresses = sorted({*self.peers, *before.peers})
        return {
            address: self.peers.get(address)
            for address in addresses
            if self.peers.get(address) != before.peers.get(address)
        }


def apply_writes(table: LeaseTable, who: Identity, writes: Iterable[Write]) -> LeaseTable:
    """The table after the writes of ``who`` whose conditions hold, in order."""
    leases, peers = list(table.leases), dict(table.peers)
    for write in writes:
        match write:
            case Beat():
                before = peers.get(who.address)
                beats = before.beats if before is not None else 0
                peers[who.address] = Peer(who.incarnation, beats + 1, who.lease_ms)
            case Retire():
                own = peers.get(who.address)
                if own is not None and own.incarnation == who.incarnation:
                    del peers[who.address]
            case Claim(shard, epoch, seen):
                if leases[shard] == seen:
                    leases[shard] = Lease(who.address, who.incarnation, epoch)
            case Renew(shard, epoch):
                if _is_of(leases[shard], who, epoch):
                    leases[shard] = replace(leases[shard], renewals=leases[shard].renewals + 1)
            case Release(shard, epoch):
                if _is_of(leases[shard], who, epoch):
                    leases[shard] = Lease(epoch=epoch)
    return LeaseTable(tuple(leases), peers)


def _is_of(lease: Lease, who: Identity, epoch: int) -> bool:
    return (lease.owner, lease.incarnation, lease.epoch) == (who.address, who.incarnation, epoch)
