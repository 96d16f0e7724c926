import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from drover.errors import Reason, UnavailableError
from drover.model.offsets import CommittedOffset
from drover_worker.shell.offset_fetcher import OffsetFetcher
from tests.support.waiting import wait_until_async

OFFSETS = [CommittedOffset("{}", '{"at":1}')]


class Coordinator:
    """The first calls fail with ``errors``."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch_offsets(
        self, *, group_id: str, connector: str, without_positions: bool, consumer_group: str
    ) -> Sequence[CommittedOffset]:
        self.calls.append(connector if without_positions else f"{connector}/{consumer_group}")
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return OFFSETS


class Engine:
    def __init__(self) -> None:
        self.answers: dict[int, Sequence[CommittedOffset]] = {}

    async def answer(self, call_id: int, offsets: Sequence[CommittedOffset]) -> None:
        self.answers[call_id] = offsets


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def fetcher(coordinator: Coordinator, engine: Engine) -> AsyncIterator[OffsetFetcher]:
    fetcher = OffsetFetcher(coordinator, "drover", engine.answer)
    yield fetcher
    await fetcher.close()


async def test_who_asks_during_a_fetch_gets_what_the_next_one_finds(
    coordinator: Coordinator, engine: Engine, fetcher: OffsetFetcher
) -> None:
    coordinator.gate.clear()
    fetcher.fetch(1, "c")
    await wait_until_async(lambda: coordinator.calls)
    fetcher.fetch(2, "c")
    fetcher.fetch(3, "c")
    fetcher.fetch(4, "d")
    coordinator.gate.set()
    await wait_until_async(lambda: engine.answers.keys() == {1, 2, 3, 4})
    assert sorted(coordinator.calls) == ["c", "c", "d"]
    assert engine.answers[1] == OFFSETS


async def test_positions_of_a_sinks_group_are_fetched_apart(
    coordinator: Coordinator, engine: Engine, fetcher: OffsetFetcher
) -> None:
    fetcher.fetch(1, "c")
    fetcher.fetch(2, "c", "")
    fetcher.fetch(3, "c", "own")
    await wait_until_async(lambda: engine.answers.keys() == {1, 2, 3})
    assert sorted(coordinator.calls) == ["c", "c/", "c/own"]


async def test_a_coordinator_that_is_away_is_asked_again(
    coordinator: Coordinator, engine: Engine, fetcher: OffsetFetcher
) -> None:
    coordinator.errors.append(UnavailableError(Reason.STORAGE_UNAVAILABLE, "away"))
    fetcher.fetch(1, "c")
    await wait_until_async(lambda: 1 in engine.answers)
    assert len(coordinator.calls) == 2


async def test_an_engine_that_ended_gets_no_answers(
    coordinator: Coordinator, engine: Engine, fetcher: OffsetFetcher
) -> None:
    coordinator.gate.clear()
    fetcher.fetch(1, "c")
    await wait_until_async(lambda: coordinator.calls)
    fetcher.fetch(2, "c")
    fetcher.forget(lambda _: False)
    coordinator.gate.set()
    fetcher.fetch(3, "d")
    await wait_until_async(lambda: 3 in engine.answers)
    assert 2 not in engine.answers
