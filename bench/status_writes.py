"""Status writes a second, batched and single, and the time to load them.

On an embedded log and, where a broker is available, on a topic.
"""

import asyncio
import contextlib
import itertools
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from bench.figure import Figure
from bench.processes import READY_TIMEOUT_S, running
from drover.client import StatusStoreClient, channel
from drover.errors import DroverError
from drover.local.ports import free_ports
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusWrite
from tests.support.kafka.choice import running_kafka
from tests.support.kafka.missing import KafkaMissingError
from tests.support.waiting import pause

STATUS_COUNT = 100_000
#: as a worker sends them
BATCH_COUNT = 500
SINGLE_COUNT = 5_000
#: at once, each with one call at a time, as workers have it
BATCH_CALLERS = 4
SINGLE_CALLERS = 32
ROUNDS = 3
_CALL_TIMEOUT_S = 60.0
_TRY_S = 1.0
_POLL_S = 0.05


class _Writer:
    """Writes statuses of tasks, never the same twice."""

    def __init__(self, client: StatusStoreClient) -> None:
        self._client = client
        self._name = uuid.uuid4().hex
        self._generations = itertools.count(1)

    async def write(self, status_count: int, batch_count: int, caller_count: int) -> float:
        """Statuses a second, so many to a call, by so many callers at once."""
        generation = next(self._generations)
        starts = iter(range(0, status_count, batch_count))

        async def call(caller: int) -> None:
            for number, start in enumerate(starts, 1):
                tasks = range(start, min(start + batch_count, status_count))
                await self._client.put_statuses(
                    [_write(task, generation) for task in tasks],
                    writer=f"{self._name}-{generation}-{caller}",
                    number=number,
                    timeout_s=_CALL_TIMEOUT_S,
                )

        started_s = time.perf_counter()
        await asyncio.gather(*map(call, range(caller_count)))
        return status_count / (time.perf_counter() - started_s)


def _write(task: int, generation: int) -> StatusWrite:
    key = TaskId(f"connector-{task // 10:05}", task % 10)
    return StatusWrite(Status(key, RunState.RUNNING, "10.0.0.1:7411", generation))


@contextlib.asynccontextmanager
async def _store(env: Mapping[str, str]) -> AsyncIterator[tuple[StatusStoreClient, float]]:
    """A status store in a separate process, and the seconds until it served."""
    (port,) = free_ports("127.0.0.1", 1)
    listen = f"127.0.0.1:{port}"
    async with (
        running("drover_status_store", {**env, "DROVER_STATUS_STORE_LISTEN": listen}),
        channel(listen) as connection,
    ):
        started_s = time.perf_counter()
        client = StatusStoreClient(connection)
        await _until_serving(client)
        yield client, time.perf_counter() - started_s


async def _until_serving(client: StatusStoreClient) -> None:
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            try:
                await client.flush(timeout_s=_TRY_S)
            except DroverError:
                await pause(_POLL_S)
            else:
                return


async def measure(
    where: str,
    env: Mapping[str, str],
    *,
    status_count: int = STATUS_COUNT,
    single_count: int = SINGLE_COUNT,
    rounds: int = ROUNDS,
) -> tuple[Figure, Figure]:
    """Alternate both kinds of writes, then restart the store on the written log."""
    batched: list[float] = []
    single: list[float] = []
    async with _store(env) as (client, empty_s):
        writer = _Writer(client)
        for _ in range(rounds):
            single.append(await writer.write(single_count, 1, SINGLE_CALLERS))
            batched.append(await writer.write(status_count, BATCH_COUNT, BATCH_CALLERS))
    starts: list[float] = []
    for _ in range(rounds):
        async with _store(env) as (client, start_s):
            found = await client.get_snapshot(timeout_s=_CALL_TIMEOUT_S)
            assert len(found.statuses) == status_count
            starts.append(start_s)
    return (
        Figure(
            f"status_writes_{where}",
            statistics.median(batched),
            f"statuses/s ({status_count}, {BATCH_COUNT} to a call, {BATCH_CALLERS} callers)",
            peer=f"one to a call, {SINGLE_CALLERS} callers",
            peer_value=statistics.median(single),
            limit="ratio >= 10",
            samples=batched,
        ),
        Figure(
            f"status_start_{where}",
            statistics.median(starts),
            f"s (until a store with {status_count} statuses serves)",
            peer="an empty one",
            peer_value=empty_s,
            samples=starts,
        ),
    )


def figures() -> Iterator[Figure]:
    """Statuses written in batches and singly, and a store's start with them."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        url = f"sqlite://{folder}/storage"
        yield from asyncio.run(measure("sqlite", {"DROVER_STORAGE_URL": url}))
        with contextlib.suppress(KafkaMissingError), running_kafka(Path(folder) / "kafka") as kafka:
            env = {"DROVER_STORAGE_URL": f"kafka://{kafka.bootstrap}"}
            yield from asyncio.run(measure("kafka", env))
