"""Connectors that end the engine in a call or a moment after it are named, in simulated time."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from drover_worker.core.events import EndKind
from drover_worker.core.lifecycle.engine_deaths import EngineDeath, EngineDeaths
from drover_worker.engine.in_flight import Mark
from drover_worker.shell.at_work import suspects

BAD = "tickets"
GOOD = [f"good-{number}" for number in range(10)]
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
POLL_EVERY_NS, POLL_TAKES_NS = SECOND_NS, SECOND_NS // 20


@dataclass
class Fleet:
    """Ten good connectors and a bad one; the engine of the bad one ends after its first poll.

    ``late_ns`` is the longest time between that poll and the end. Every connector polls each
    second; ``busy`` ones are always at work.
    """

    seed: int
    late_ns: int = 2 * SECOND_NS
    busy: frozenset[str] = frozenset()
    deaths: EngineDeaths = field(default_factory=EngineDeaths)
    now_ns: int = 0
    started_ns: dict[str, int] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    end_count: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def start(self, name: str) -> None:
        self.started_ns[name] = self.now_ns + self.random.randrange(POLL_EVERY_NS)
        self.starts[name] += 1

    def end_engine_of_bad(self) -> None:
        """The bad connector polls once, and its engine ends later."""
        self.now_ns = self.started_ns[BAD] + POLL_TAKES_NS
        self.now_ns += self.random.randrange(self.late_ns + 1)
        self.end_count += 1
        before = dict(self.deaths.slots)
        slot = before.get(BAD, "shared")
        held = [name for name in self.started_ns if before.get(name, "shared") == slot]
        marks = [mark for name in held for mark in self.marks_of(name)]
        found = suspects(marks, EndKind.CRASH, ended_ns=self.now_ns)
        death = EngineDeath(
            slot,
            "exit code 84",
            found.at_work,
            held,
            by_itself=True,
            recent=found.recent,
        )
        self.deaths.record(death, self.now_ns // 1_000_000)
        self.now_ns += 5 * SECOND_NS
        after = self.deaths.slots
        for name in self.started_ns:
            if name in held or before.get(name) != after.get(name):
                self.start(name)

    def marks_of(self, name: str) -> list[Mark]:
        """The last two polls of a connector: the one that runs, and the one before."""
        since_ns = self.started_ns[name]
        elapsed_ns = self.now_ns - since_ns
        if elapsed_ns < 0:
            return []
        count, into_ns = divmod(elapsed_ns, POLL_EVERY_NS)
        began_ns = self.now_ns - into_ns
        mark = Mark(name, count > 0, True, began_ns, thread_id=1, since_ns=since_ns)
        if name in self.busy or into_ns < POLL_TAKES_NS:
            return [mark]
        return [replace(mark, in_call=False, ended_ns=began_ns + POLL_TAKES_NS)]

    def restarts(self) -> dict[str, int]:
        return {name: self.starts[name] - 1 for name in GOOD}

    def check(self) -> None:
        assert set(self.deaths.quarantined) <= {BAD}, "an innocent connector is named"


def fleet(seed: int, **settings: int | frozenset[str]) -> Fleet:
    world = Fleet(seed, **settings)  # type: ignore[arg-type]
    for name in GOOD:
        world.start(name)
    return world


@pytest.mark.parametrize("busy", [frozenset(), frozenset(GOOD[:1]), frozenset(GOOD[3:7])])
def test_beside_a_new_bad_connector_no_good_one_restarts_more_than_twice(
    busy: frozenset[str],
) -> None:
    for seed in range(200):
        world = fleet(seed, busy=busy)
        world.now_ns += MINUTE_NS
        world.start(BAD)
        while BAD not in world.deaths.quarantined:
            world.end_engine_of_bad()
            world.check()
            assert world.end_count <= 4, (seed, world.deaths)
        assert max(world.restarts().values()) <= 2, (seed, world.restarts())


@pytest.mark.parametrize("late_s", [0, 1, 2])
@pytest.mark.parametrize("busy", [frozenset(), frozenset(GOOD[:1]), frozenset(GOOD[3:7])])
def test_it_is_named_in_time_where_all_started_together(busy: frozenset[str], late_s: int) -> None:
    for seed in range(200):
        world = fleet(seed, busy=busy, late_ns=late_s * SECOND_NS)
        world.start(BAD)
        while BAD not in world.deaths.quarantined:
            world.end_engine_of_bad()
            world.check()
            assert world.end_count <= 14, (seed, world.deaths)


def end_with_three_bad(seed: int) -> tuple[int, EngineDeaths]:
    """Three connectors end their engine in their first poll; returns how often engines ended."""
    chance = random.Random(seed)
    bad = ["crashes", "exits", "aborts"]
    deaths, end_count = EngineDeaths(), 0
    started_ns = {name: chance.randrange(SECOND_NS) for name in GOOD}
    started_ns |= {name: MINUTE_NS + chance.randrange(MINUTE_NS) for name in bad}
    while left := [name for name in bad if name not in deaths.quarantined]:
        culprit = min(left, key=lambda name: started_ns[name])
        now_ns = started_ns[culprit] + chance.randrange(POLL_TAKES_NS)
        slots = deaths.slots
        slot = slots.get(culprit, "shared")
        held = [name for name in started_ns if slots.get(name, "shared") == slot]
        marks = [Mark(culprit, False, True, started_ns[culprit], 1, started_ns[culprit])]
        for name in held:
            since_ns = started_ns[name]
            if name != culprit and since_ns <= now_ns:
                began_ns = now_ns - (now_ns - since_ns) % POLL_EVERY_NS
                ended_ns = began_ns + POLL_TAKES_NS if began_ns + POLL_TAKES_NS < now_ns else None
                marks.append(Mark(name, True, ended_ns is None, began_ns, 1, since_ns, ended_ns))
        found = suspects(marks, EndKind.CRASH, ended_ns=now_ns)
        death = EngineDeath(slot, "exit code 3", found.at_work, held, recent=found.recent)
        deaths.record(death, now_ns // 1_000_000)
        end_count += 1
        for name in started_ns:
            if name in held or slots.get(name) != deaths.slots.get(name):
                pause_ns = chance.randrange(5 * SECOND_NS, 10 * SECOND_NS)
                started_ns[name] = max(now_ns, started_ns[name]) + pause_ns
        assert not set(GOOD) & set(deaths.quarantined)
        assert end_count <= 20, (seed, deaths)
    return end_count, deaths


def test_three_bad_connectors_are_all_named_and_no_other() -> None:
    for seed in range(200):
        end_count, deaths = end_with_three_bad(seed)
        assert end_count >= 6
        assert set(deaths.quarantined) == {"crashes", "exits", "aborts"}
