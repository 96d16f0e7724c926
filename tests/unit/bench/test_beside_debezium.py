"""What is measured beside Debezium: whose turn it is, and what the topic of the sinks has."""

import json

from tests.bench.databases import in_turn
from tests.bench.kafka_sides import StoppableSide
from tests.bench.topic_sinks import last_key, records


class Idle:
    """Has a name, and nothing to do."""

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
