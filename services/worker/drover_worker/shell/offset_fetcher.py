"""Fetches committed offsets for running tasks, with retries."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from drover.backoff import Backoff
from drover.errors import DroverError
from drover.model.offsets import CommittedOffset

_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 2.0
#: Waiting calls per connector; the oldest ones have timed out and were repeated.
_WAITING_MAX = 1_000

_log = structlog.get_logger("drover.worker")

#: Sends offsets to the engine, by its call id.
Answer = Callable[[int, Sequence[CommittedOffset]], Awaitable[None]]


#: A connector, and a sink's consumer group: empty for the default group, None for a source.
_Wanted = tuple[str, str | None]


class FetchOffsets(Protocol):
    """The part of the coordinator's client that the fetcher uses."""

    async def fetch_offsets(
        self, *, group_id: str, connector: str, without_positions: bool, consumer_group: str
    ) -> Sequence[CommittedOffset]:
        """A connector's committed offsets."""


class OffsetFetcher:
    """Runs one fetch per connector at a time; calls during a fetch wait for the next one."""

    def __init__(self, coordinator: FetchOffsets, group_id: str, answer: Answer) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._answer = answer
        #: Calls that wait for the next fetch.
        self._waiting: dict[_Wanted, list[int]] = {}
        self._fetching: dict[_Wanted, asyncio.Task[None]] = {}

    def fetch(self, call_id: int, connector: str, consumer_group: str | None = None) -> None:
        """Fetch the connector's committed offsets and answer ``call_id`` with them.

        ``consumer_group`` is for sinks: the group with the positions, empty for the default group.
        """
        wanted = (connector, consumer_group)
        waiting = self._waiting.setdefault(wanted, [])
        waiting.append(call_id)
        del waiting[:-_WAITING_MAX]
        if wanted not in self._fetching:
            name = f"offsets of {connector}"
            self._fetching[wanted] = asyncio.create_task(self._run(wanted), name=name)

    def forget(self, awaits: Callable[[int], bool]) -> None:
        """An engine ended: drop the calls for which ``awaits`` is false."""
        for calls in self._waiting.values():
            calls[:] = [each for each in calls if awaits(each)]

    async def close(self) -> None:
        """Cancel all fetches."""
        self._waiting.clear()
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, wanted: _Wanted) -> None:
        connector, consumer_group = wanted
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S)
        try:
            while self._waiting.get(wanted):
                waiting = self._waiting.pop(wanted)
                try:
                    offsets = await self._coordinator.fetch_offsets(
                        group_id=self._group_id,
                        connector=connector,
                        without_positions=consumer_group is None,
                        consumer_group=consumer_group or "",
                    )
                except DroverError as error:
                    _log.warning(
                        "the offsets could not be fetched; the fetch is retried",
                        connector=connector,
                        why=error.message,
                    )
                    self._waiting.setdefault(wanted, [])[:0] = waiting
                    await asyncio.sleep(backoff.next_pause_s())
                    continue
                for call_id in waiting:
                    await self._answer(call_id, offsets)
        finally:
            self._fetching.pop(wanted, None)
