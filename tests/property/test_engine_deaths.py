"""Any number of connectors, some of which end their engine: the right ones are named in time."""

import math
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from drover_worker.core.lifecycle.engine_deaths import EngineDeath, EngineDeaths

SHARED = "shared"
SUSPECT_SLOTS = {"suspects/1", "suspects/2"}


@dataclass
class Fleet:
    """Connectors in the engines of a worker; ``bad`` ones end their engine while at work."""

    good: frozenset[str]
    bad: frozenset[str]
    deaths: EngineDeaths = field(default_factory=EngineDeaths)
    end_count: int = 0
    now_ms: int = 0
    restarts: Counter[str] = field(default_factory=Counter)

    @property
    def loose(self) -> list[str]:
        """Bad connectors that are not named yet."""
        return sorted(self.bad - set(self.deaths.quarantined))

    def end_engine_of(self, culprit: str, data: st.DataObject) -> None:
        """The engine of a connector ends; any others in it were at work then or shortly before.

        The culprit itself was at work, or shortly before.
        """
        before = dict(self.deaths.slots)
        slot = before.get(culprit, SHARED)
        held = sorted(name for name in self.good | self.bad if before.get(name, SHARED) == slot)
        others = [name for name in held if name != culprit]
        active = data.draw(st.permutations([culprit, *draw_some(data, others)]))
        count = data.draw(st.integers(0, len(active)))
        self.now_ms += data.draw(st.integers(1, 60_000))
        at_work, recent = active[:count], active[count:]
        death = EngineDeath(slot, "exit code 3", at_work, held, by_itself=True, recent=recent)
        self.deaths.record(death, self.now_ms)
        self.end_count += 1
        self.restarts.update(held)
        self.check()

    def check(self) -> None:
        slots = self.deaths.slots
        assert not self.good & set(self.deaths.quarantined), "an innocent connector is named"
        for name in self.deaths.quarantined:
            assert slots[name] == f"quarantine/{name}"
        extra = {slot for name, slot in slots.items() if name not in self.deaths.quarantined}
        assert extra <= SUSPECT_SLOTS


def draw_some(data: st.DataObject, names: list[str]) -> list[str]:
    return data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []


def fleet(count: int, bad_count: int) -> Fleet:
    names = [f"c{number:02d}" for number in range(count)]
    return Fleet(frozenset(names[bad_count:]), frozenset(names[:bad_count]))


@given(data=st.data(), count=st.integers(1, 20))
def test_one_bad_connector_is_named_after_about_log2_ends_and_no_other(
    data: st.DataObject, count: int
) -> None:
    world = fleet(count, bad_count=1)
    (bad,) = world.bad
    while world.loose:
        world.end_engine_of(bad, data)
        assert world.end_count <= math.ceil(math.log2(count)) + 4, world.deaths


@given(data=st.data(), count=st.integers(4, 20), bad_count=st.integers(2, 3))
def test_several_bad_connectors_are_all_named_in_the_end_and_no_other(
    data: st.DataObject, count: int, bad_count: int
) -> None:
    world = fleet(count, bad_count)
    while world.loose:
        world.end_engine_of(data.draw(st.sampled_from(world.loose)), data)
        assert world.end_count <= 150, world.deaths


@given(data=st.data(), count=st.integers(2, 20))
def test_an_end_with_nothing_at_work_accuses_nobody(data: st.DataObject, count: int) -> None:
    world = fleet(count, bad_count=1)
    (bad,) = world.bad
    for _ in range(data.draw(st.integers(0, 6))):
        world.end_engine_of(bad, data)
    before = dict(world.deaths.slots)
    slot = data.draw(st.sampled_from([SHARED, *SUSPECT_SLOTS, f"quarantine/{bad}"]))
    held = sorted(world.good | world.bad)
    assert not world.deaths.record(EngineDeath(slot, "exit code 3", (), held), world.now_ms)
    assert world.deaths.slots == before
