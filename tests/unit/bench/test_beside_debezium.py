"""The comparison with Debezium: the order of the sides, and the records of the sinks' topic."""

import json
import time

import pytest

from bench.kafka_sides import StoppableSide
from bench.rounds import Round, Watch, figures_of
from bench.running import in_turn
from bench.topic_sinks import last_key, records


class Idle:
    """A side with a name and without connectors."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def nothing(self, *_: object) -> None: ...

    async def running_count(self) -> int:
        return 0

    create = delete = stop = resume = nothing


async def test_sides_take_turns_in_beginning_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []

    async def run(side: StoppableSide, number: int) -> str:
        turns.append(f"{side.name}{number}")
        return turns[-1]

    found = await in_turn(
        [Idle("a"), Idle("b")], run, rounds=2, prepare=lambda: turns.append("next")
    )
    assert turns == ["next", "b0", "a0", "next", "a1", "b1", "next", "b2", "a2"]
    assert found == [["a1", "a2"], ["b1", "b2"]]


def test_each_key_comes_twice_and_the_last_record_is_known() -> None:
    count = 2_000
    pairs = [
        (json.loads(key)["payload"]["id"], json.loads(value)["payload"])
        for key, value in records(count)
    ]
    assert [value["version"] for _, value in pairs] == list(range(count))
    assert all(key == value["id"] for key, value in pairs)
    assert sorted(key for key, _ in pairs) == sorted([*range(count // 2)] * 2)
    assert {value["version"] for _, value in pairs[count // 2 :]} == set(range(count // 2, count))
    assert sorted(key for key, _ in pairs[count // 2 :]) == [*range(count // 2)]
    assert pairs[-1][0] == last_key(count)


def test_what_flows_is_counted_behind_the_first_records() -> None:
    done = Round(count=100, first_s=1.0, first_count=20, whole_s=3.0)
    assert (done.per_s, done.flowing_per_s) == (100 / 3, 40)
    at_once = Round(count=100, first_s=2.0, first_count=100, whole_s=2.0)
    assert (at_once.per_s, at_once.flowing_per_s) == (50, 50)


def test_a_watch_keeps_the_first_sight_of_records() -> None:
    watch = Watch(100)
    assert [watch.saw(count) for count in (0, 30, 60, 101)] == [False, False, False, True]
    done = watch.done(time.monotonic() + 1)
    assert done.first_count == 30
    assert 0 <= done.first_s < done.whole_s


def test_figures_have_both_peers_and_what_each_took() -> None:
    ours = Round(100, 1.0, 20, 2.0, {"engine": 1e-4, "broker": 2e-4, "Kafka Connect": 9.0})
    large = Round(100, 2.0, 20, 4.0, {"Kafka Connect": 3e-4, "PostgreSQL": 1e-4, "engine": 9.0})
    plain = Round(100, 2.0, 20, 8.0, {"Kafka Connect": 6e-4})
    figures = [*figures_of("copy", "rows", [[ours], [large], [plain]], ["large", "plain"])]
    found = [
        (each.figure, each.peer_value and each.value / each.peer_value)
        for each in figures
        if each.peer
    ]
    assert found[:6] == [
        ("copy", 2),
        ("copy_flowing", 80 / 40),
        ("copy", 4),
        ("copy_flowing", 80 / (80 / 6)),
        ("copy_start", 0.5),
        ("copy_cpu", pytest.approx(3 / 4)),
    ]
    assert [round(each.value, 3) for each in figures if "engine" in each.unit] == [1.0]
    assert not any("Kafka Connect" in each.unit for each in figures)
