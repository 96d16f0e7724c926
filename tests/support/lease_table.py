"""The lease table in memory: the content of lease stores without a store."""

from collections.abc import Iterable

from drover_coordinator.core.ownership.lease_table import Identity, LeaseTable, apply_writes
from drover_coordinator.core.ownership.machine import Lease, Peer, Write


class MemoryLeaseTable:
    """Leases and peers; ``write`` is one transaction of one run of one coordinator."""

    def __init__(self, shard_count: int) -> None:
        self.leases = [Lease() for _ in range(shard_count)]
        self.peers: dict[str, Peer] = {}

    def write(
        self, address: str, incarnation: str, writes: Iterable[Write], *, lease_ms: int = 0
    ) -> None:
        """Apply every write whose condition holds."""
        who = Identity(address, incarnation, lease_ms)
        table = apply_writes(LeaseTable(tuple(self.leases), self.peers), who, writes)
        self.leases, self.peers = list(table.leases), dict(table.peers)
