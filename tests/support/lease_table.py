"""The table of leases in memory: what ``services.coordinator.leases`` does, without a file."""

from collections.abc import Iterable
from dataclasses import replace

from services.coordinator.core.ownership import (
    Beat,
    Claim,
    Lease,
    Peer,
    Release,
    Renew,
    Retire,
    Write,
)


class MemoryLeaseTable:
    """Leases and peers; ``write`` is one transaction of one run of one coordinator."""

    def __init__(self, shard_count: int) -> None:
        self.leases = [Lease() for _ in range(shard_count)]
        self.peers: dict[str, Peer] = {}

    def write(
        self, address: str, incarnation: str, writes: Iterable[Write], *, lease_ms: int = 0
    ) -> None:
        """Carry out every write whose condition holds."""
        for write in writes:
            match write:
                case Beat():
                    beats = self.peers[address].beats if address in self.peers else 0
                    self.peers[address] = Peer(incarnation, beats + 1, lease_ms)
                case Retire():
                    if self.peers.get(address, Peer("")).incarnation == incarnation:
                        del self.peers[address]
                case Claim(shard, epoch, seen):
                    if self.leases[shard] == seen:
                        self.leases[shard] = Lease(address, incarnation, epoch)
                case Renew(shard, epoch):
                    if self._is_of(shard, address, incarnation, epoch):
                        lease = self.leases[shard]
                        self.leases[shard] = replace(lease, renewals=lease.renewals + 1)
                case Release(shard, epoch):
                    if self._is_of(shard, address, incarnation, epoch):
                        self.leases[shard] = Lease(epoch=epoch)

    def _is_of(self, shard: int, address: str, incarnation: str, epoch: int) -> bool:
        lease = self.leases[shard]
        return (lease.owner, lease.incarnation, lease.epoch) == (address, incarnation, epoch)
