"""Any interleaving of status writes, faults, crashes and compaction, against a plain model."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from drover.errors import DroverError, OutOfRangeError, UnavailableError
from drover.log import memory
from drover.log.log import LogRecord
from drover.log.memory import MemoryLog
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusEvent, StatusKey, StatusWrite
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock
from drover_status_store.core import records
from drover_status_store.core.events import PutStatuses, WriteOutcome
from drover_status_store.core.machine import StatusMachine
from drover_status_store.server import decode_record, encode_record
from tests.support.waiting import wait_until_async

KEYS: st.SearchStrategy[StatusKey] = st.sampled_from(
    ["a", "a-0", TaskId("a", 0), TaskId("a", 1), TaskId("a-0", 0)]
)
TASK_STATES = [state for state in RunState if state is not RunState.STOPPED]


@st.composite
def writes(draw: st.DrawFn) -> StatusWrite:
    key = draw(KEYS)
    state = draw(st.sampled_from(TASK_STATES if isinstance(key, TaskId) else list(RunState)))
    worker = draw(st.sampled_from(["w:1", "w:2"]))
    status = Status(key, state, worker, draw(st.integers(0, 3)), draw(st.sampled_from(["", "t"])))
    return StatusWrite(status, safe=draw(st.booleans()))


BATCHES = st.lists(writes(), min_size=1, max_size=4)
Statuses = dict[StatusKey, Status]


def apply_rules(statuses: Statuses, write: StatusWrite) -> WriteOutcome:
    """A second formulation of the rules, in the API's terms."""
    new, old = write.status, statuses.get(write.status.key)
    newer_elsewhere = (
        old is not None and old.worker_id != new.worker_id and old.generation > new.generation
    )
    if write.safe and newer_elsewhere:
        return WriteOutcome.SUPERSEDED
    if new.state is RunState.DESTROYED:
        for key in list(statuses):
            if key == new.key or (isinstance(key, TaskId) and key.connector == new.key):
                del statuses[key]
        return WriteOutcome.WRITTEN
    gives_up = isinstance(new.key, TaskId) and new.state is RunState.UNASSIGNED
    if gives_up and old is not None and old.state is RunState.RUNNING:
        own = old.worker_id == new.worker_id and old.generation == new.generation
        if old.generation >= new.generation and not own:
            return WriteOutcome.SUPERSEDED
    statuses[new.key] = new
    return WriteOutcome.WRITTEN


class StatusLogMachine(RuleBasedStateMachine):
    """The real machine and runtime on a log with faults."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(memory, "KEPT_RECORD_COUNT", 3)
        self.ids = itertools.count()
        self.log = MemoryLog()
        self.model: Statuses = {}
        self.mirror: Statuses = {}
        self.position = 0

    @initialize()
    def start(self) -> None:
        self._open()
        self._run(self.runtime.load())

    def teardown(self) -> None:
        if hasattr(self, "runtime"):
            self._run(self.runtime.close())
        self.runner.close()
        self.patch.undo()

    @rule(batch=BATCHES)
    def put(self, batch: list[StatusWrite]) -> None:
        expected = tuple(apply_rules(self.model, write) for write in batch)
        assert self._run(self._submit(batch)) == expected

    @rule(batch=BATCHES)
    def put_twice(self, batch: list[StatusWrite]) -> None:
        """A batch of plain writes to different keys, repeated, changes nothing."""
        plain = {write.status.key: StatusWrite(write.status) for write in batch}
        settled = [write for write in plain.values() if write.status.state is RunState.PAUSED]
        if settled:
            for _ in range(2):
                end_offset = self.machine.end_offset
                assert set(self._run(self._submit(settled))) == {WriteOutcome.WRITTEN}
            assert self.machine.end_offset == end_offset
            self.model |= {write.status.key: write.status for write in settled}

    @rule(batch=BATCHES)
    def the_disk_refuses_a_batch(self, batch: list[StatusWrite]) -> None:
        before = dict(self.model)
        outcomes = tuple(apply_rules(before, write) for write in batch)
        self.log.fail_next_append()
        try:
            assert self._run(self._submit(batch)) == outcomes  # nothing to append
        except UnavailableError:
            return
        assert before == self.model
        with pytest.raises(UnavailableError):
            self._run(self.log.append([LogRecord(b"x", b"")]))

    @rule(batch=BATCHES, survives=st.booleans())
    def crash_in_the_middle_of_a_batch(self, batch: list[StatusWrite], survives: bool) -> None:
        fresh = StatusWrite(Status("fresh", RunState.RUNNING, "w:1", next(self.ids)))
        self._run(self._torn([*batch, fresh], survives))
        if survives:
            for write in (*batch, fresh):
                apply_rules(self.model, write)

    @rule()
    def crash_and_load(self) -> None:
        self._run(self._restart(self.log.crash()))

    @rule()
    def compact(self) -> None:
        self._run(self.log.compact())

    @rule(key=st.sampled_from([b"nonsense", b"status-topic-t:connector-a", b"status-task-a"]))
    def another_program_writes_rubbish(self, key: bytes) -> None:
        self._run(self.log.append([LogRecord(key, b"rubbish")]))
        self._run(self._restart(self.log.crash()))

    @invariant()
    def the_store_holds_what_the_model_says(self) -> None:
        self.machine.validate()
        assert self.machine.snapshot().statuses == self.model

    @invariant()
    def a_watcher_knows_the_same(self) -> None:
        try:
            events = self.machine.history.read(self.position)
        except OutOfRangeError:
            self.mirror = dict(self.machine.snapshot().statuses)
            events = []
        for event in events:
            if not isinstance(event, StatusEvent):
                continue
            if event.status is None:
                self.mirror.pop(event.key, None)
            else:
                self.mirror[event.key] = event.status
        self.position = self.machine.end_offset
        assert self.mirror == self.model

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def _open(self) -> None:
        self.machine = StatusMachine(ChangeBuffer(max_events=8))
        self.runtime: Runtime[records.AnyRecord] = Runtime(
            self.machine,
            self.log,
            encode=encode_record,
            decode=decode_record,
            clock=ManualClock(),
            name="status-store",
        )

    async def _restart(self, log: MemoryLog) -> None:
        self.log = log
        await self.runtime.close()
        self._open()
        await self.runtime.load()

    async def _submit(self, batch: list[StatusWrite]) -> Any:
        event = PutStatuses(call_id=f"call-{next(self.ids)}", writes=batch)
        return await self.runtime.submit(event, call_id=event.call_id)

    async def _torn(self, batch: list[StatusWrite], survives: bool) -> None:
        self.log.tear_next_append(survives=survives)
        call = asyncio.create_task(self._submit(batch))
        await wait_until_async(lambda: self.log.torn)
        log = self.log.crash()
        with pytest.raises(DroverError):
            await call
        await self._restart(log)


TestStatusLog = StatusLogMachine.TestCase
TestStatusLog.settings = settings(max_examples=60, stateful_step_count=40)
