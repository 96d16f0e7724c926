"""Ownership of shards by leases: claim, renew, balance, release. Pure.

Coordinators share a table with a lease for each shard and a row for each coordinator. There is no
leader, and clocks are not compared: an owner renews a lease by raising its counter, and the others
time the counter by their own clocks. Every write is conditional on the row that was read before.

- An owner may answer for ``lease_ms`` from the moment at which it *began* its last renewal.
- Another coordinator may claim a lease whose counter has not moved for longer than that, and at
  once if the owner's process has ended (its lock is free, or it runs under another incarnation).
- All compute the same target from the same table (``spread``): an owner of too many shards unloads
  and releases some, one of too few claims free ones.

If all of this fails, the log fences the old owner: an owner claims the shard's log with the lease's
epoch before it loads it, and each claim raises the epoch.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

LOOK_EVERY_MAX_MS = 500


@dataclass(frozen=True, slots=True)
class Lease:
    """A shard's row: held by the ``incarnation`` (run) of the coordinator at ``owner``.

    ``owner`` is empty for a free lease. ``epoch`` rises with every claim, ``renewals`` with every
    renewal.
    """

    owner: str = ""
    incarnation: str = ""
    epoch: int = 0
    renewals: int = 0


@dataclass(frozen=True, slots=True)
class Peer:
    """A coordinator's row; ``beats`` rises while it runs.

    ``lease_ms`` is the lease time by its own settings, which may differ from this one's.
    """

    incarnation: str
    beats: int = 0
    lease_ms: int = 0


# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableSeen:
    """The table, read right after the last writes were tried in one transaction.

    Args:
        started_ms: When the writing began; at the first attempt, if it took several.
        leases: By shard.
        peers: By address, this coordinator included.
        ended: Addresses whose locks were free after the table was read: the process that wrote
            the row has ended.
    """

    started_ms: int
    leases: Sequence[Lease]
    peers: Mapping[str, Peer]
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LoadDone:
    """The shard's log is claimed with this epoch and loaded."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The shard cannot be loaded; ``log_epoch`` is set if its log has a higher epoch."""

    shard: int
    epoch: int
    log_epoch: int = 0


@dataclass(frozen=True, slots=True)
class ShardLost:
    """The log fenced an append of this epoch: another owner has claimed it."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class UnloadDone:
    """The shard's calls have ended and its log is closed."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process is to end."""


Event = TableSeen | LoadDone | LoadFailed | ShardLost | UnloadDone | StopRequested

# --- instructions: what to write into the table ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beat:
    """Create this coordinator's row, or raise its counter."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Remove this coordinator's row; its last write."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim the shard with ``epoch`` if its lease still equals ``seen``."""

    shard: int
    epoch: int
    seen: Lease


@dataclass(frozen=True, slots=True)
class Renew:
    """Raise the lease's counter if this run still holds it with this epoch."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """Free the lease if this run still holds it with this epoch; the epoch stays."""

    shard: int
    epoch: int


Write = Beat | Retire | Claim | Renew | Release

# --- instructions: what to do with shards ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Claim the shard's log with ``epoch`` and load it; ends with LoadDone or LoadFailed."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Unload:
    """End the shard's calls or its load with an error; ends with UnloadDone."""

    shard: int
    epoch: int


Instruction = Write | Load | Unload

# --- the machine -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnershipSettings:
    """How long a lease holds without being renewed."""

    lease_ms: int = 3_000

    @property
    def look_every_ms(self) -> int:
        """The pause between two reads of the table; short, to detect ended processes soon."""
        return min(self.lease_ms // 10, LOOK_EVERY_MAX_MS)

    @property
    def renew_every_ms(self) -> int:
        """How often leases are renewed; seldom, as a process stopped in a write blocks all."""
        return self.lease_ms // 3


def takeover_delay_ms(lease_ms: int) -> int:
    """How long a counter must not move before the lease may be claimed: longer than the lease, to
    allow for clock drift.
    """
    return lease_ms + lease_ms // 4


class OwnershipState(StrEnum):
    """Whether this coordinator owns a shard, and whether the shard is loaded."""

    ELSEWHERE = "ELSEWHERE"
    LOADING = "LOADING"
    SERVING = "SERVING"


class _Stage(StrEnum):
    LOADING = "LOADING"
    SERVING = "SERVING"
    UNLOADING = "UNLOADING"


@dataclass(slots=True)
class _HeldShard:
    """A shard that this coordinator owns, or owned and is still unloading."""

    epoch: int
    valid_until_ms: int
    stage: _Stage = _Stage.LOADING


@dataclass(slots=True)
class _TableView:
    """The table as last read, and since when each row has not changed."""

    seen_ms: int
    holders: list[str | None]
    lease_since: dict[int, tuple[Lease, int]] = field(default_factory=dict)
    peer_since: dict[str, tuple[Peer, int]] = field(default_factory=dict)


class Ownership:
    """One coordinator's ownership of shards: a volatile machine, see ``drover.machine``.

    Args:
        address: This coordinator's host:port, its name in the table.
        incarnation: Differs from that of every earlier run at this address.
        shard_count: Shards are numbered from 0.
        settings: The lease time.
    """

    def __init__(
        self,
        *,
        address: str,
        incarnation: str,
        shard_count: int,
        settings: OwnershipSettings | None = None,
    ) -> None:
        self._address = address
        self._incarnation = incarnation
        self._shard_count = shard_count
        self._settings = settings or OwnershipSettings()
        self._held: dict[int, _HeldShard] = {}
        self._claiming: dict[int, int] = {}
        self._renewing: dict[int, int] = {}
        self._renewed_ms: int | None = None
        self._not_before_ms: dict[int, int] = {}
        self._log_epochs: dict[int, int] = {}
        self._highest_epochs: dict[int, int] = {}
        self._view: _TableView | None = None
        self._stopping = False
        self._retired = False

    @property
    def retired(self) -> bool:
        """Whether all leases are released after a stop."""
        return self._retired

    @property
    def settled(self) -> bool:
        """Whether the table was read and no shard is being claimed, loaded or unloaded here."""
        stages = {held.stage for held in self._held.values()}
        return self._view is not None and not self._claiming and stages <= {_Stage.SERVING}

    def state_of(self, shard: int, now_ms: int) -> OwnershipState:
        """Whether this coordinator may answer for the shard at this moment."""
        held = self._held.get(shard)
        if held is None or held.stage is _Stage.UNLOADING or now_ms >= held.valid_until_ms:
            return OwnershipState.ELSEWHERE
        return OwnershipState.SERVING if held.stage is _Stage.SERVING else OwnershipState.LOADING

    def serving_shards(self, now_ms: int) -> list[int]:
        """The shards that this coordinator serves or loads, in order."""
        return [
            shard
            for shard in sorted(self._held)
            if self.state_of(shard, now_ms) is not OwnershipState.ELSEWHERE
        ]

    def owner_of(self, shard: int, now_ms: int) -> str | None:
        """The address of a shard's owner; None without one, or if the view is outdated."""
        if self.state_of(shard, now_ms) is not OwnershipState.ELSEWHERE:
            return self._address
        view = self._view
        if view is None or now_ms >= view.seen_ms + self._settings.lease_ms:
            return None
        holder = view.holders[shard]
        return None if holder == self._address else holder

    def step(self, event: Event, now_ms: int) -> Sequence[Instruction]:
        """Handle an event; the writes among the instructions belong in one transaction."""
        match event:
            case TableSeen():
                return self._table_seen(event, now_ms)
            case LoadDone(shard, epoch):
                held = self._current(shard, epoch)
                if held is not None and held.stage is _Stage.LOADING:
                    held.stage = _Stage.SERVING
                return ()
            case LoadFailed():
                return self._load_failed(event, now_ms)
            case ShardLost(shard, epoch):
                return self._unload(shard) if self._current(shard, epoch) else ()
            case UnloadDone(shard, epoch):
                if self._current(shard, epoch) is None:
                    return ()
                del self._held[shard]
                return (Release(shard, epoch), *self._retire_when_empty())
            case StopRequested():
                self._stopping = True
                unloads = [each for shard in sorted(self._held) for each in self._unload(shard)]
                return (*unloads, *self._retire_when_empty())

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        for shard, held in self._held.items():
            assert 0 <= shard < self._shard_count
            assert shard not in self._claiming, "a shard that is held is not claimed again"
            assert held.epoch > 0
            assert held.epoch == self._highest_epochs[shard], "an earlier epoch came back"
            assert held.epoch > self._log_epochs.get(shard, 0), "its log has a later owner"
        for shard, epoch in self._claiming.items():
            assert epoch > self._highest_epochs.get(shard, 0), "each claim raises the epoch"
        assert not (self._retired and (self._held or self._claiming)), "retired with shards"
        if self._stopping:
            assert all(held.stage is _Stage.UNLOADING for held in self._held.values())

    # --- the table ---------------------------------------------------------------------------

    def _table_seen(self, event: TableSeen, now_ms: int) -> Sequence[Instruction]:
        if self._retired:
            return ()
        instructions = self._check_own(event, now_ms)
        view = self._look(event, now_ms)
        if self._stopping:
            return (*instructions, *self._retire_when_empty())
        instructions += self._balance(event, view, now_ms)
        return (*self._renewals(now_ms), *instructions)

    def _renewals(self, now_ms: int) -> Sequence[Instruction]:
        due_ms = (self._renewed_ms or 0) + self._settings.renew_every_ms
        if self._renewed_ms is not None and now_ms < due_ms:
            return ()
        self._renewed_ms = now_ms
        self._renewing = {
            shard: held.epoch
            for shard, held in self._held.items()
            if held.stage is not _Stage.UNLOADING
        }
        return (Beat(), *(Renew(shard, epoch) for shard, epoch in self._renewing.items()))

    def _check_own(self, event: TableSeen, now_ms: int) -> list[Instruction]:
        """Check the results of claims and renewals. An expired lease is never revived, even if it
        is still free: its timers were dropped.
        """
        claiming, self._claiming = self._claiming, {}
        renewing, self._renewing = self._renewing, {}
        valid_until_ms = event.started_ms + self._settings.lease_ms
        instructions: list[Instruction] = []
        for shard, lease in enumerate(event.leases):
            mine = (lease.owner, lease.incarnation) == (self._address, self._incarnation)
            held = self._held.get(shard)
            if held is None:
                if not mine or claiming.get(shard) != lease.epoch:
                    continue
                self._highest_epochs[shard] = lease.epoch
                if self._stopping or now_ms >= valid_until_ms:
                    instructions.append(Release(shard, lease.epoch))
                else:
                    self._held[shard] = _HeldShard(lease.epoch, valid_until_ms)
                    instructions.append(Load(shard, lease.epoch))
            elif not mine or lease.epoch != held.epoch or now_ms >= held.valid_until_ms:
                instructions += self._unload(shard)
            elif renewing.get(shard) == held.epoch:
                held.valid_until_ms = max(held.valid_until_ms, valid_until_ms)
        return instructions

    def _look(self, event: TableSeen, now_ms: int) -> _TableView:
        """Record since when each row has not changed, and derive the holder of each shard."""
        last = self._view
        view = self._view = _TableView(event.started_ms, [])
        for address, peer in event.peers.items():
            before = last.peer_since.get(address) if last else None
            unmoved = before is not None and before[0] == peer
            view.peer_since[address] = before if before and unmoved else (peer, now_ms)
        for shard, lease in enumerate(event.leases):
            before_lease = last.lease_since.get(shard) if last else None
            unmoved = before_lease is not None and before_lease[0] == lease
            since = before_lease if before_lease and unmoved else (lease, now_ms)
            view.lease_since[shard] = since
            view.holders.append(self._holder(shard, lease, since[1], event, now_ms))
        return view

    def _holder(
        self, shard: int, lease: Lease, since_ms: int, event: TableSeen, now_ms: int
    ) -> str | None:
        """The holder of a shard, or None if it is free or soon will be."""
        held = self._held.get(shard)
        if held is not None:
            return None if held.stage is _Stage.UNLOADING else self._address
        if lease.owner in ("", self._address):  # free, or of an earlier run or an abandoned claim
            return None
        peer = event.peers.get(lease.owner)
        another_run = peer is not None and peer.incarnation != lease.incarnation
        if another_run or lease.owner in event.ended:
            return None
        return None if self._has_expired(peer, since_ms, now_ms) else lease.owner

    def _has_expired(self, peer: Peer | None, since_ms: int, now_ms: int) -> bool:
        """Whether a lease has expired under both this coordinator's and the owner's settings."""
        lease_ms = max(self._settings.lease_ms, peer.lease_ms if peer else 0)
        return now_ms >= since_ms + takeover_delay_ms(lease_ms)

    def _balance(self, event: TableSeen, view: _TableView, now_ms: int) -> list[Instruction]:
        live = {
            address
            for address, (peer, since_ms) in view.peer_since.items()
            if address not in event.ended and not self._has_expired(peer, since_ms, now_ms)
        }
        target = spread(view.holders, live | {self._address})
        instructions: list[Instruction] = []
        for shard, lease in enumerate(event.leases):
            held = self._held.get(shard)
            if target[shard] != self._address:
                instructions += self._unload(shard)
                continue
            allowed = now_ms >= self._not_before_ms.get(shard, now_ms)
            if held is None and view.holders[shard] is None and allowed:
                instructions.append(self._claim(shard, lease))
        return instructions

    def _claim(self, shard: int, lease: Lease) -> Claim:
        below = max(lease.epoch, self._log_epochs.get(shard, 0), self._highest_epochs.get(shard, 0))
        self._claiming[shard] = below + 1
        return Claim(shard, below + 1, lease)

    # --- shards ------------------------------------------------------------------------------

    def _current(self, shard: int, epoch: int) -> _HeldShard | None:
        held = self._held.get(shard)
        return held if held is not None and held.epoch == epoch else None

    def _unload(self, shard: int) -> Sequence[Instruction]:
        held = self._held.get(shard)
        if held is None or held.stage is _Stage.UNLOADING:
            return ()
        held.stage = _Stage.UNLOADING
        return (Unload(shard, held.epoch),)

    def _load_failed(self, event: LoadFailed, now_ms: int) -> Sequence[Instruction]:
        """Release the shard; claim it again above its log's epoch at once, else after a pause."""
        held = self._current(event.shard, event.epoch)
        if held is None or held.stage is _Stage.UNLOADING:
            return ()  # the unload made the load fail
        if event.log_epoch > self._log_epochs.get(event.shard, 0):
            self._log_epochs[event.shard] = event.log_epoch
        else:
            self._not_before_ms[event.shard] = now_ms + self._settings.lease_ms
        del self._held[event.shard]
        return (Release(event.shard, event.epoch), *self._retire_when_empty())

    def _retire_when_empty(self) -> Sequence[Instruction]:
        if not self._stopping or self._retired or self._held or self._claiming:
            return ()
        self._retired = True
        return (Retire(),)


def spread(holders: Sequence[str | None], live: Collection[str]) -> list[str]:
    """The target holder of each shard: counts differ by one at most, with the fewest moves.

    If shards do not divide evenly, the present holders of most shards keep one more. A holder that
    is not ``live`` is ignored. At least one coordinator has to be live.
    """
    counts = Counter(holders)
    order = sorted(live, key=lambda address: (-counts[address], address))
    smallest, one_more_count = divmod(len(holders), len(order))
    room = {address: smallest + (i < one_more_count) for i, address in enumerate(order)}
    keepers: list[str | None] = []
    for holder in holders:
        stays = holder is not None and room.get(holder, 0) > 0
        keepers.append(holder if stays else None)
        if holder is not None and stays:
            room[holder] -= 1
    takers = iter([address for address in order for _ in range(room[address])])
    return [keeper if keeper is not None else next(takers) for keeper in keepers]
