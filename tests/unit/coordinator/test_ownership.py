"""Which coordinator serves a shard: the lease decisions of one coordinator, step by step."""

from collections.abc import Iterable, Sequence

import pytest

from drover_coordinator.core.ownership.machine import (
    Beat,
    Claim,
    Event,
    Instruction,
    Lease,
    Load,
    LoadDone,
    LoadFailed,
    Ownership,
    OwnershipSettings,
    OwnershipState,
    Release,
    Renew,
    Retire,
    ShardLost,
    StopRequested,
    TableSeen,
    Unload,
    UnloadDone,
    Write,
    spread,
)
from tests.support.lease_table import MemoryLeaseTable

LEASE_MS = 1_000
PATIENCE_MS = 1_250


class Coordinator:
    """An ownership machine with a lease table; the next ``look`` carries out its writes."""

    def __init__(
        self,
        table: MemoryLeaseTable,
        address: str = "a",
        run: str = "1",
        lease_ms: int = LEASE_MS,
    ) -> None:
        self.table = table
        self.address, self.incarnation, self.lease_ms = address, run, lease_ms
        self.machine = Ownership(
            address=address,
            incarnation=run,
            shard_count=len(table.leases),
            settings=OwnershipSettings(lease_ms),
        )
        self.writes: list[Write] = []

    def look(
        self, now_ms: int, *, started_ms: int | None = None, ended: Iterable[str] = ()
    ) -> list[Instruction]:
        """Carry out pending writes and read the table; returns loads and unloads."""
        self.table.write(self.address, self.incarnation, self.writes, lease_ms=self.lease_ms)
        self.writes = []
        seen = TableSeen(
            now_ms if started_ms is None else started_ms,
            tuple(self.table.leases),
            dict(self.table.peers),
            frozenset(ended),
        )
        return self.step(seen, now_ms)

    def step(self, event: Event, now_ms: int) -> list[Instruction]:
        instructions: Sequence[Instruction] = self.machine.step(event, now_ms)
        self.machine.validate()
        self.writes += [each for each in instructions if isinstance(each, Write)]
        return [each for each in instructions if isinstance(each, Load | Unload)]

    def states(self, now_ms: int) -> str:
        """One letter per shard: Elsewhere, Loading, Serving."""
        shards = range(len(self.table.leases))
        return "".join(self.machine.state_of(shard, now_ms)[0] for shard in shards)

    def settled(self) -> bool:
        return self.machine.settled

    def retired(self) -> bool:
        return self.machine.retired

    def serve_all_claimed(self, now_ms: int) -> None:
        """Look twice to write and then read the claims, and load the claimed shards."""
        self.look(now_ms)
        for each in self.look(now_ms):
            if isinstance(each, Load):
                self.step(LoadDone(each.shard, each.epoch), now_ms)

    def unload_and_release(self, unloads: Iterable[Instruction], now_ms: int) -> None:
        for each in unloads:
            assert isinstance(each, Unload)
            self.step(UnloadDone(each.shard, each.epoch), now_ms)
        self.look(now_ms)


@pytest.fixture
def table() -> MemoryLeaseTable:
    return MemoryLeaseTable(4)


@pytest.fixture
def alone(table: MemoryLeaseTable) -> Coordinator:
    coordinator = Coordinator(table)
    coordinator.serve_all_claimed(0)
    return coordinator


@pytest.fixture
def pair(table: MemoryLeaseTable) -> tuple[Coordinator, Coordinator]:
    """Two coordinators with two shards each at time 0."""
    first, second = Coordinator(table, "a"), Coordinator(table, "b")
    first.serve_all_claimed(0)
    second.look(0)
    second.look(0)
    first.unload_and_release(first.look(0), 0)
    second.serve_all_claimed(0)
    assert (first.states(0), second.states(0)) == ("SSEE", "EESS")
    return first, second


def test_a_lease_holds_as_long_as_its_owner_takes_it_to(table: MemoryLeaseTable) -> None:
    slow, quick = Coordinator(table, "a", lease_ms=10 * LEASE_MS), Coordinator(table, "b")
    slow.serve_all_claimed(0)
    for now_ms in range(0, 12_500, 250):
        quick.look(now_ms)
        assert quick.states(now_ms) == "EEEE"
        assert [lease.owner for lease in table.leases] == ["a"] * 4
    quick.serve_all_claimed(12_500)
    assert (slow.states(12_500), quick.states(12_500)) == ("EEEE", "SSSS")


def both_look(pair: tuple[Coordinator, Coordinator], *times_ms: int) -> None:
    for now_ms in times_ms:
        for each in pair:
            assert each.look(now_ms) == []


def test_a_coordinator_without_peers_claims_every_shard_and_loads_it(
    table: MemoryLeaseTable,
) -> None:
    coordinator = Coordinator(table)
    assert coordinator.look(0) == []
    assert coordinator.writes == [Beat(), *(Claim(shard, 1, Lease()) for shard in range(4))]
    assert not coordinator.settled()
    assert coordinator.look(10) == [Load(shard, 1) for shard in range(4)]
    assert coordinator.states(10) == "LLLL"
    for shard in range(4):
        coordinator.step(LoadDone(shard, 1), 20)
    assert coordinator.states(20) == "SSSS"
    assert coordinator.settled()
    assert [coordinator.machine.owner_of(shard, 20) for shard in range(4)] == ["a"] * 4


def test_a_claim_that_another_one_was_faster_with_leads_to_nothing(
    table: MemoryLeaseTable,
) -> None:
    coordinator = Coordinator(table)
    coordinator.look(0)
    table.leases[2] = Lease("b", "1", 1)
    assert coordinator.look(10) == [Load(0, 1), Load(1, 1), Load(3, 1)]
    assert coordinator.machine.owner_of(2, 10) == "b"


def test_a_lease_is_valid_from_when_its_renewal_began_not_from_when_it_was_told(
    alone: Coordinator,
) -> None:
    alone.look(400)
    alone.look(900, started_ms=410)
    assert alone.states(1_409) == "SSSS"
    assert alone.states(1_410) == "EEEE"
    assert alone.machine.owner_of(0, 1_410) is None


def test_a_look_that_did_not_renew_keeps_nothing_alive(alone: Coordinator) -> None:
    alone.look(200)
    alone.look(900)
    assert alone.states(1_000) == "EEEE"


def test_a_lease_that_ran_out_is_not_revived_by_a_late_renewal(alone: Coordinator) -> None:
    unloads = alone.look(1_000, started_ms=990)
    assert unloads == [Unload(shard, 1) for shard in range(4)]
    assert alone.states(1_000) == "EEEE"
    alone.unload_and_release(unloads, 1_010)
    assert alone.look(1_020) == [Load(shard, 2) for shard in range(4)]


def test_a_newcomer_gets_its_share_by_hand_over(alone: Coordinator) -> None:
    newcomer = Coordinator(alone.table, "b")
    assert newcomer.look(100) == []
    assert newcomer.look(100) == []
    assert newcomer.states(100) == "EEEE", "all shards are owned"
    unloads = alone.look(100)
    assert unloads == [Unload(2, 1), Unload(3, 1)]
    assert alone.states(100) == "SSEE"
    newcomer.look(150)
    assert newcomer.look(150) == [], "no shard is free before its owner releases it"
    alone.unload_and_release(unloads, 200)
    newcomer.look(200)
    assert newcomer.look(200) == [Load(2, 2), Load(3, 2)]
    assert alone.look(210) == []
    assert [alone.machine.owner_of(shard, 210) for shard in range(4)] == ["a", "a", "b", "b"]


def test_nothing_moves_while_all_is_well(pair: tuple[Coordinator, Coordinator]) -> None:
    both_look(pair, *range(100, 5_000, 300))
    first, second = pair
    assert (first.states(4_900), second.states(4_900)) == ("SSEE", "EESS")


def test_a_silent_owner_is_taken_over_after_its_lease_and_not_before(
    pair: tuple[Coordinator, Coordinator],
) -> None:
    first, second = pair
    both_look(pair, 350, 400)
    for now_ms in (750, 1_150, 1_550, 400 + PATIENCE_MS - 1):
        assert second.look(now_ms) == []
        assert not any(isinstance(each, Claim) for each in second.writes)
    second.look(400 + PATIENCE_MS)
    assert second.look(400 + PATIENCE_MS) == [Load(0, 2), Load(1, 2)]
    assert first.states(400 + PATIENCE_MS) == "EEEE", "the first has stopped serving already"


def test_an_owner_whose_process_has_ended_is_taken_over_at_once(
    pair: tuple[Coordinator, Coordinator],
) -> None:
    _, second = pair
    second.look(100, ended=["a"])
    assert second.look(110, ended=["a"]) == [Load(0, 2), Load(1, 2)]


def test_an_owner_that_renews_while_it_is_being_taken_over_keeps_its_shards(
    pair: tuple[Coordinator, Coordinator],
) -> None:
    first, second = pair
    both_look(pair, 350, 400, 750)  # the first's renewal at 750 is written late
    for now_ms in (1_100, 1_150, 1_550, 400 + PATIENCE_MS):
        second.look(now_ms)
    assert Claim(0, 2, first.table.leases[0]) in second.writes
    first.look(410 + PATIENCE_MS)
    assert second.look(420 + PATIENCE_MS) == []
    assert second.states(420 + PATIENCE_MS) == "EESS"


def test_a_frozen_owner_that_goes_on_gives_up_and_gets_its_share_again(
    pair: tuple[Coordinator, Coordinator],
) -> None:
    first, second = pair
    late = 10 * LEASE_MS
    for now_ms in range(300, late, 100):
        second.serve_all_claimed(now_ms)
    assert second.states(late - 100) == "SSSS"
    assert first.states(late) == "EEEE"
    unloads = first.look(late)
    assert unloads == [Unload(0, 1), Unload(1, 1)]
    first.unload_and_release(unloads, late)
    assert [lease.epoch for lease in first.table.leases] == [2] * 4
    assert {lease.owner for lease in first.table.leases} == {"b"}, "the leases are b's"
    second.unload_and_release(second.look(late), late)
    first.serve_all_claimed(late)
    assert sorted(first.states(late) + second.states(late)) == list("EEEESSSS")


def test_an_owner_that_started_again_claims_what_its_earlier_run_held(
    alone: Coordinator,
) -> None:
    again = Coordinator(alone.table, "a", run="2")
    again.look(100)
    assert again.look(100) == [Load(shard, 2) for shard in range(4)]


def test_an_earlier_run_of_a_peer_holds_nothing(pair: tuple[Coordinator, Coordinator]) -> None:
    first, second = pair
    Coordinator(first.table, "a", run="2").look(100)
    first.table.write("a", "2", [Beat()])
    claims = second.look(100)
    assert claims == []
    assert not any(isinstance(each, Claim) for each in second.writes), "the shards are left to a"
    again = Coordinator(first.table, "a", run="2")
    again.look(110)
    assert again.look(110) == [Load(0, 2), Load(1, 2)]


def test_a_fenced_append_ends_the_shard_and_no_other(alone: Coordinator) -> None:
    assert alone.step(ShardLost(1, 1), 100) == [Unload(1, 1)]
    assert alone.states(100) == "SESS"
    assert alone.step(ShardLost(1, 1), 110) == [], "the unload is requested once"
    assert alone.step(ShardLost(2, 7), 110) == [], "the loss is of another epoch"


def test_a_load_that_ends_after_the_shard_was_lost_serves_nothing(
    table: MemoryLeaseTable,
) -> None:
    coordinator = Coordinator(table)
    coordinator.look(0)
    coordinator.look(0)
    assert coordinator.step(ShardLost(0, 1), 10) == [Unload(0, 1)]
    coordinator.step(LoadDone(0, 1), 20)
    assert coordinator.machine.state_of(0, 20) is OwnershipState.ELSEWHERE


def test_a_log_with_a_later_owner_is_claimed_above_its_epoch(table: MemoryLeaseTable) -> None:
    """The lease table may have been lost and created again."""
    coordinator = Coordinator(table)
    coordinator.look(0)
    coordinator.look(0)
    coordinator.step(LoadFailed(0, 1, log_epoch=41), 10)
    coordinator.look(20)
    assert coordinator.look(30) == [Load(0, 42)]


def test_a_shard_that_cannot_be_loaded_is_given_back_and_tried_again_later(
    alone: Coordinator,
) -> None:
    coordinator = Coordinator(MemoryLeaseTable(2))
    coordinator.look(0)
    coordinator.look(0)
    coordinator.step(LoadFailed(1, 1), 100)
    for now_ms in (200, 500, 800, 1_099):
        assert coordinator.look(now_ms) == []
        assert coordinator.table.leases[1].owner == ""
    coordinator.look(1_100)
    assert coordinator.look(1_110) == [Load(1, 2)]


def test_one_that_stops_unloads_everything_releases_it_and_is_gone(
    pair: tuple[Coordinator, Coordinator],
) -> None:
    first, second = pair
    unloads = first.step(StopRequested(), 100)
    assert unloads == [Unload(0, 1), Unload(1, 1)]
    first.step(UnloadDone(0, 1), 110)
    assert not first.retired()
    first.step(UnloadDone(1, 1), 120)
    assert first.retired()
    assert first.writes[-3:] == [Release(0, 1), Release(1, 1), Retire()]
    first.look(130)
    assert list(first.table.peers) == ["b"]
    second.look(140)
    assert second.look(150) == [Load(0, 2), Load(1, 2)]


def test_one_that_stops_with_a_claim_under_way_gives_it_back(table: MemoryLeaseTable) -> None:
    coordinator = Coordinator(table)
    coordinator.look(0)
    assert coordinator.step(StopRequested(), 5) == []
    assert not coordinator.retired()
    assert coordinator.look(10) == []
    assert coordinator.retired()
    coordinator.look(20)
    assert [lease.owner for lease in table.leases] == [""] * 4
    assert table.peers == {}


def test_a_view_that_is_older_than_a_lease_names_no_owner(
    pair: tuple[Coordinator, Coordinator],
) -> None:
    first, _ = pair
    both_look(pair, 350, 400)
    assert first.machine.owner_of(2, 400 + LEASE_MS - 1) == "b"
    assert first.machine.owner_of(2, 400 + LEASE_MS) is None


def test_leases_are_renewed_well_before_they_end(alone: Coordinator) -> None:
    alone.look(200)
    assert alone.writes == []
    alone.look(400)
    assert alone.writes == [Beat(), *(Renew(shard, 1) for shard in range(4))]


@pytest.mark.parametrize(
    ("holders", "live", "target"),
    [
        ([None, None, None, None], "ab", "aabb"),
        (["a", "a", "a", "a"], "ab", "aabb"),
        (["b", "a", "b", "a"], "ab", "baba"),
        (["a", "a", "a", "a", "a"], "ab", "aaabb"),
        (["b", "b", "b", "a", "a"], "ab", "bbbaa"),
        (["a", "a", "b", "b"], "abc", "aabc"),
        (["c", "c", "b", None], "ab", "baba"),
        (["a"], "ab", "a"),
        ([], "a", ""),
    ],
)
def test_the_spread(holders: list[str | None], live: str, target: str) -> None:
    assert "".join(spread(holders, set(live))) == target
