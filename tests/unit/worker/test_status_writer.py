import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from drover.errors import InvalidArgumentError, Reason, UnavailableError
from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState, Status, StatusKey, StatusWrite
from drover_worker.shell.status_writer import (
    BATCH_COUNT_MAX,
    TRACE_MAX_CHARS,
    StatusWriter,
)
from tests.support.waiting import wait_until_async


class Store:
    """Keeps the batches that it gets; the first calls fail with ``errors``."""

    def __init__(self) -> None:
        self.batches: list[list[StatusWrite]] = []
        self.requests: list[tuple[str, int]] = []
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def put_statuses(
        self, writes: Sequence[StatusWrite], *, writer: str, number: int, timeout_s: float
    ) -> object:
        self.requests.append((writer, number))
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.batches.append(list(writes))
        return None

    @property
    def last(self) -> dict[StatusKey, RunState]:
        return {w.status.key: w.status.state for batch in self.batches for w in batch}


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def writer(store: Store) -> AsyncIterator[StatusWriter]:
    writer = StatusWriter(store)
    running = asyncio.create_task(writer.run())
    yield writer
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def write(key: StatusKey, state: RunState = RunState.RUNNING, trace: str = "") -> StatusWrite:
    return StatusWrite(Status(key, state, "w:1", 1, trace))


async def test_statuses_written_together_travel_together(
    store: Store, writer: StatusWriter
) -> None:
    for index in range(3):
        writer.write(write(TaskId("c", index)))
    await writer.wait_idle()
    assert [len(batch) for batch in store.batches] == [3]


async def test_a_batch_is_bounded(store: Store, writer: StatusWriter) -> None:
    for index in range(BATCH_COUNT_MAX + 1):
        writer.write(write(TaskId("c", index)))
    await writer.wait_idle()
    assert [len(batch) for batch in store.batches] == [BATCH_COUNT_MAX, 1]


async def test_the_last_status_of_a_key_wins_while_the_store_is_away(
    store: Store, writer: StatusWriter
) -> None:
    store.gate.clear()
    store.errors = [UnavailableError(Reason.SERVICE_UNREACHABLE, "away")]
    writer.write(write("c", RunState.RUNNING))
    writer.write(write("d", RunState.RUNNING))
    await asyncio.sleep(0)
    writer.write(write("c", RunState.FAILED))
    store.gate.set()
    await writer.wait_idle()
    assert store.last == {"c": RunState.FAILED, "d": RunState.RUNNING}
    assert sum(len(batch) for batch in store.batches) == 2


async def test_every_call_has_a_higher_number_of_the_same_writer(
    store: Store, writer: StatusWriter
) -> None:
    store.errors = [UnavailableError(Reason.SERVICE_UNREACHABLE, "away")]
    writer.write(write("c"))
    await writer.wait_idle()
    writer.write(write("d"))
    await writer.wait_idle()
    assert [number for _, number in store.requests] == [1, 2, 3]
    assert len({name for name, _ in store.requests}) == 1
    assert StatusWriter(store)._writer != StatusWriter(store)._writer


def counted(read_count: int, *, safe: bool, state: RunState = RunState.RUNNING) -> StatusWrite:
    counts = RecordCounts(read_count=read_count)
    return StatusWrite(Status(TaskId("c", 0), state, "w:1", 1, counts=counts), safe)


async def test_counts_never_go_back_when_a_call_is_repeated(
    store: Store, writer: StatusWriter
) -> None:
    store.gate.clear()
    store.errors = [UnavailableError(Reason.SERVICE_UNREACHABLE, "away")]
    writer.write(counted(1, safe=True))
    await wait_until_async(lambda: len(store.requests) == 1)
    writer.write(counted(2, safe=True))
    writer.write(counted(3, safe=True))
    store.gate.set()
    await writer.wait_idle()
    assert store.batches == [[counted(3, safe=True)]]


@pytest.mark.parametrize("is_sent", [False, True])
async def test_counts_take_no_force_from_the_report_that_they_replace(
    store: Store, writer: StatusWriter, is_sent: bool
) -> None:
    store.gate.clear()
    store.errors = [UnavailableError(Reason.SERVICE_UNREACHABLE, "away")]
    writer.write(counted(1, safe=False))
    if is_sent:
        await wait_until_async(lambda: len(store.requests) == 1)
    writer.write(counted(2, safe=True))
    store.gate.set()
    await writer.wait_idle()
    assert store.batches == [[counted(2, safe=False)]]


async def test_a_safe_report_of_another_state_stays_safe(
    store: Store, writer: StatusWriter
) -> None:
    writer.write(counted(1, safe=False))
    writer.write(counted(1, safe=True, state=RunState.UNASSIGNED))
    await writer.wait_idle()
    assert store.batches == [[counted(1, safe=True, state=RunState.UNASSIGNED)]]


async def test_what_the_store_refuses_is_dropped(store: Store, writer: StatusWriter) -> None:
    store.errors = [InvalidArgumentError(Reason.INVALID_REQUEST, "no")]
    writer.write(write("c"))
    await writer.wait_idle()
    writer.write(write("d"))
    await wait_until_async(lambda: store.last == {"d": RunState.RUNNING})


async def test_a_long_trace_loses_its_middle(store: Store, writer: StatusWriter) -> None:
    long = f"Traceback…{'x' * TRACE_MAX_CHARS}\nValueError: why"
    writer.write(write("c", RunState.FAILED, long))
    await writer.wait_idle()
    trace = store.batches[0][0].status.trace
    assert len(trace) == TRACE_MAX_CHARS
    assert trace.startswith("Traceback…x")
    assert "(cut)" in trace
    assert trace.endswith("x\nValueError: why")
