"""Config store processes without their gRPC, on one log of any kind."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

from drover.log.log import FollowedLog, Log, LogRecord
from drover.log.sqlite import SqliteLog
from drover.model.config import ConfigChange, ConfigMap, ConnectorEntry, TargetState
from drover.model.ids import TaskId, Term
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog
from drover_config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PutConnectorConfig,
    PutLoggerLevel,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
    PutTaskCount,
    WriteAnswer,
)
from drover_config_store.core.machine import ConfigMachine
from drover_config_store.core.records import ConfigRecord
from drover_config_store.server import decode_record, encode_record
from tests.support.faulty_log import FaultyLog
from tests.support.kafka.logs import LogOnKafka

_numbers = count(1)


@dataclass
class ConfigProcess:
    """The machine and the runtime of one process."""

    log: Log
    clock: ManualClock
    faults: FaultyLog
    epoch: int = 0

    def __post_init__(self) -> None:
        self.machine = ConfigMachine(ChangeBuffer.of(self.log))
        self.runtime: Runtime[ConfigRecord] = Runtime(
            self.machine,
            self.log,
            encode=encode_record,
            decode=decode_record,
            clock=self.clock,
            name="config-store",
        )

    async def lead(self, generation: int = 1) -> None:
        self.epoch = await self.log.claim(f"w{generation}", Term(generation, 0))

    async def submit(self, event: ConfigRequest) -> WriteAnswer:
        return cast("WriteAnswer", await self.runtime.submit(event, call_id=event.call_id))

    async def put(
        self, name: str, config: ConfigMap, initial_state: TargetState | None = None, **more: Any
    ) -> WriteAnswer:
        return await self.submit(
            PutConnectorConfig(
                **self._ids(more), name=name, config=config, initial_state=initial_state
            )
        )

    async def delete(self, name: str, **more: Any) -> WriteAnswer:
        return await self.submit(DeleteConnector(**self._ids(more), name=name))

    async def tasks(self, name: str, *texts: str, **more: Any) -> WriteAnswer:
        configs = [(TaskId(name, index), {"t": text}) for index, text in enumerate(texts)]
        return await self.submit(
            PutTaskConfigs(**self._ids(more), connector=name, task_configs=configs)
        )

    async def state(self, name: str, state: TargetState, **more: Any) -> WriteAnswer:
        ids = self._ids(more)
        del ids["writer_epoch"]
        return await self.submit(PutTargetState(**ids, name=name, target_state=state))

    async def restart(self, name: str, *, only_failed: bool, include_tasks: bool) -> WriteAnswer:
        return await self.submit(
            PutRestartRequest(
                **self._ids({}), name=name, only_failed=only_failed, include_tasks=include_tasks
            )
        )

    async def fenced(self, name: str, task_count: int) -> WriteAnswer:
        return await self.submit(PutTaskCount(**self._ids({}), name=name, task_count=task_count))

    async def session_key(self, key: bytes) -> WriteAnswer:
        return await self.submit(PutSessionKey(**self._ids({}), key=key, algorithm="HmacSHA256"))

    async def level(self, logger: str, level: str) -> WriteAnswer:
        ids = self._ids({})
        del ids["writer_epoch"]
        return await self.submit(PutLoggerLevel(**ids, logger=logger, level=level))

    def entry(self, name: str) -> ConnectorEntry:
        return self.machine.snapshot().connectors[name]

    def task_texts(self, name: str) -> list[str]:
        configs = self.machine.snapshot().task_configs
        return [config["t"] for task, config in configs.items() if task.connector == name]

    def changes(self, start_offset: int | None = None) -> list[ConfigChange]:
        """A watcher's changes from an offset on; by default all that the history holds."""
        history = self.machine.history
        start_offset = history.start_offset if start_offset is None else start_offset
        return [event.change for event in history.read(start_offset)]

    async def caught_up(self) -> "ConfigProcess":
        """Wait until it has applied the whole log."""
        await self.runtime.catch_up()
        return self

    def _ids(self, more: Mapping[str, Any]) -> dict[str, Any]:
        number = next(_numbers)
        return {
            "call_id": f"call-{number}",
            "request_id": f"request-{number}",
            "writer_epoch": self.epoch,
            **more,
        }


class ConfigProcesses:
    """Starts processes on one log, which ``open_log`` opens.

    A log that is not followed has one process at a time. ``value_max_bytes`` limits a record's
    size.
    """

    def __init__(
        self,
        open_log: Callable[[], Awaitable[Log]],
        clock: ManualClock,
        value_max_bytes: int = 4 << 20,
    ) -> None:
        self.clock = clock
        self.value_max_bytes = value_max_bytes
        self._open_log = open_log
        self._running: list[ConfigProcess] = []

    async def start(self, *, load: bool = True) -> ConfigProcess:
        """Start another process, or the next one, and load the log."""
        if self._running and not isinstance(self._running[-1].log, FollowedLog):
            await self.stop()
        log = FaultyLog(await self._open_log())
        process = ConfigProcess(cast("Log", log), self.clock, log)
        self._running.append(process)
        if load:
            await process.runtime.load()
        return process

    async def leader(self) -> ConfigProcess:
        """Start a process with the right to write every record."""
        process = await self.start()
        await process.lead()
        return process

    async def after(self, process: ConfigProcess) -> Sequence[ConfigProcess]:
        """The processes that show the log's current state.

        These are a newly loaded process and, on a followed log, ``process`` and all others that
        run.
        """
        followed = isinstance(process.log, FollowedLog)
        running = [await each.caught_up() for each in self._running] if followed else []
        return [*running, await self.start()]

    async def foreign(self, process: ConfigProcess, *records: tuple[str, str | None]) -> None:
        """Append another program's records: keys and JSON."""
        await process.log.append(
            [
                LogRecord(key.encode(), None if value is None else value.encode())
                for key, value in records
            ]
        )

    async def stop(self) -> None:
        """End every process."""
        while self._running:
            process = self._running.pop()
            await process.runtime.close()
            await process.log.close()


@asynccontextmanager
async def in_memory() -> AsyncIterator[ConfigProcesses]:
    clock = ManualClock()
    shared = MemoryLog(clock).shared()

    async def open_log() -> Log:
        return shared.shared()

    processes = ConfigProcesses(open_log, clock)
    yield processes
    await processes.stop()


@asynccontextmanager
async def on_sqlite(path: Path) -> AsyncIterator[ConfigProcesses]:
    clock = ManualClock()

    async def open_log() -> Log:
        return await SqliteLog.open(path, clock)

    processes = ConfigProcesses(open_log, clock)
    yield processes
    await processes.stop()


@asynccontextmanager
async def on_kafka(bootstrap: str, topic_prefix: str) -> AsyncIterator[ConfigProcesses]:
    clock = ManualClock()
    async with AsyncExitStack() as stack:

        async def open_log() -> Log:
            opening = LogOnKafka.opened(bootstrap, topic_prefix, clock)
            return (await stack.enter_async_context(opening)).log

        processes = ConfigProcesses(open_log, clock, value_max_bytes=1_000_000)
        yield processes
        await processes.stop()
