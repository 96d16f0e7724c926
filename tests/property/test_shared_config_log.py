"""Two config stores on one log, with events in any order.

Writers move between the stores, other programs append to the topic, appends fail (with or without
being written), records arrive late, stores crash and reload. In the end both stores have the state
that a simple reader of the log has, and each acknowledged write is in it exactly once.
"""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from drover.errors import DroverError, Reason
from drover.log.log import LogRecord
from drover.log.memory import MemoryLog
from drover.model.config import TargetState
from drover.model.ids import Term
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock
from drover_config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PrivilegedWrite,
    PutConnectorConfig,
    PutTargetState,
    WriteAnswer,
)
from drover_config_store.core.machine import ConfigMachine
from drover_config_store.core.records import ConfigRecord
from drover_config_store.server import decode_record, encode_record
from tests.support.replicas import TopicLikeLog

NAMES = ("a", "b")
STORES = st.sampled_from((0, 1))


@dataclass
class Asked:
    """A request with all its attempts and their responses."""

    event: ConfigRequest
    calls: list["asyncio.Task[object]"] = field(default_factory=list)

    @property
    def answers(self) -> list[WriteAnswer]:
        """The acknowledged results."""
        found = [call.result() for call in self.calls if not call.exception()]
        return [answer for answer in found if isinstance(answer, WriteAnswer)]


class Store:
    """One store process."""

    def __init__(self, log: TopicLikeLog) -> None:
        self.log = log
        self.machine = ConfigMachine(ChangeBuffer.of(log))
        self.epoch = 0
        self.runtime: Runtime[ConfigRecord] = Runtime(
            self.machine,
            log,
            encode=encode_record,
            decode=decode_record,
            clock=ManualClock(),
            name="config-store",
        )

    def release(self) -> None:
        self.log.release_appends()
        self.log.release_tail()


class SharedConfigLog(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.log = MemoryLog()
        self.numbers = count(1)
        self.sequence = 0
        self.asked: list[Asked] = []
        self.stores = [self._new_store(), self._new_store()]
        for store in self.stores:
            self._run(store.runtime.load())

    def teardown(self) -> None:
        self.settle()
        for store in self.stores:
            self._run(store.runtime.close())
        self.runner.close()

    # actions

    @rule(at=STORES)
    def claim(self, at: int) -> None:
        store = self.stores[at]
        store.release()
        self.sequence += 1
        store.epoch = self._run(store.log.claim("leader", Term(1, self.sequence)))
        self._run(store.runtime.catch_up())

    @rule(at=STORES, name=st.sampled_from(NAMES), is_new=st.booleans())
    def put(self, at: int, name: str, is_new: bool) -> None:
        number = next(self.numbers)
        self._ask(
            at,
            PutConnectorConfig(
                call_id=f"call {number}",
                request_id=f"request {number}",
                writer_epoch=self.stores[at].epoch,
                name=name,
                config={"number": str(number)},
                expected_revision=0 if is_new else None,
            ),
        )

    @rule(at=STORES, name=st.sampled_from(NAMES))
    def delete(self, at: int, name: str) -> None:
        number = next(self.numbers)
        self._ask(
            at,
            DeleteConnector(
                call_id=f"call {number}",
                request_id=f"request {number}",
                writer_epoch=self.stores[at].epoch,
                name=name,
            ),
        )

    @rule(at=STORES, name=st.sampled_from(NAMES), state=st.sampled_from(TargetState))
    def put_state(self, at: int, name: str, state: TargetState) -> None:
        number = next(self.numbers)
        self._ask(
            at,
            PutTargetState(
                call_id=f"call {number}",
                request_id=f"request {number}",
                name=name,
                target_state=state,
            ),
        )

    @rule(at=STORES, which=st.integers(0, 5))
    def ask_again(self, at: int, which: int) -> None:
        """Retry as a client without a response does, with the store's current epoch."""
        privileged = [asked for asked in self.asked if isinstance(asked.event, PrivilegedWrite)]
        if which >= len(privileged):
            return
        asked = privileged[-1 - which]
        assert isinstance(asked.event, PrivilegedWrite)
        if any(not call.done() for call in asked.calls):
            return
        call_id, epoch = f"call {next(self.numbers)}", self.stores[at].epoch
        event = replace(asked.event, call_id=call_id, writer_epoch=epoch)
        self._submit(at, event, asked)

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 9))
    def stranger(self, name: str, number: int) -> None:
        """Another program appends to the topic."""
        value = json.dumps({"properties": {"stranger": str(number)}}).encode()
        self._run(self.log.append([LogRecord(f"connector-{name}".encode(), value)]))

    @rule()
    def stranger_writes_nonsense(self) -> None:
        self._run(self.log.append([LogRecord(b"connector-a", b"nonsense")]))

    @rule(at=STORES)
    def hold_appends(self, at: int) -> None:
        self.stores[at].log.hold_appends()

    @rule(at=STORES)
    def hold_tail(self, at: int) -> None:
        self.stores[at].log.hold_tail()

    @rule(at=STORES)
    def release(self, at: int) -> None:
        self.stores[at].release()

    @rule(at=STORES, written=st.booleans())
    def fail(self, at: int, written: bool) -> None:
        self.stores[at].log.fail_next_append(written=written)

    @rule(at=STORES, name=st.sampled_from(NAMES))
    def lose_an_answer(self, at: int, name: str) -> None:
        """The record is written and is delivered late."""
        self.stores[at].log.hold_tail()
        self.stores[at].log.fail_next_append(written=True)
        self.put(at, name, False)
        self.ask_again(at, 0)

    @rule(at=STORES)
    def restart(self, at: int) -> None:
        store = self.stores[at]
        store.release()
        self._run(store.runtime.close())
        self.stores[at] = self._new_store()
        self._run(self.stores[at].runtime.load())

    @rule()
    def settle(self) -> None:
        self._settle()
        fresh = Store(self._handle())
        self._run(fresh.runtime.load())
        model = self._model()
        for store in (*self.stores, fresh):
            snapshot = store.machine.snapshot()
            assert snapshot == fresh.machine.snapshot()
            assert snapshot.end_offset == len(self.log.records)
            assert {
                name: (dict(entry.config or {}), entry.config_revision, entry.target_state)
                for name, entry in snapshot.connectors.items()
            } == model
        self._run(fresh.runtime.close())
        self._check_answers()

    @invariant()
    def machines_are_whole(self) -> None:
        for store in self.stores:
            store.machine.validate()

    # helpers

    def _check_answers(self) -> None:
        by_request: dict[str, list[int]] = {}
        for stored in self.log.records:
            by_request.setdefault(stored.record.request_id, []).append(stored.offset)
        for asked in self.asked:
            offsets = by_request.get(asked.event.request_id, [])
            assert len(set(asked.answers)) <= 1, asked
            for answer in asked.answers:
                assert answer.end_offset == offsets[-1] + 1
            # each request is written exactly once
            count_expected = 2 if isinstance(asked.event, DeleteConnector) else 1
            assert len(offsets) in (0, count_expected), (asked, offsets)

    def _model(self) -> dict[str, tuple[dict[str, str], int, TargetState]]:
        configs: dict[str, tuple[dict[str, str], int]] = {}
        states: dict[str, TargetState] = {}
        for stored in self.log.records:
            kind, name = stored.record.key.decode().rsplit("-", 1)
            value = stored.record.value
            if value == b"nonsense":
                continue
            if kind == "connector" and value is None:
                configs.pop(name, None)
            elif kind == "connector":
                assert value is not None
                configs[name] = json.loads(value)["properties"], stored.offset + 1
            elif value is None:
                states.pop(name, None)
            else:
                told = json.loads(value)
                states[name] = TargetState(told.get("state.v2", told["state"]))
        return {
            name: (config, revision, states.get(name, TargetState.STARTED))
            for name, (config, revision) in configs.items()
        }

    def _ask(self, at: int, event: ConfigRequest) -> None:
        self.asked.append(Asked(event))
        self._submit(at, event, self.asked[-1])

    def _submit(self, at: int, event: ConfigRequest, asked: Asked) -> None:
        runtime = self.stores[at].runtime

        async def submit() -> None:
            call = asyncio.create_task(runtime.submit(event, call_id=event.call_id))
            asked.calls.append(call)
            for _ in range(10):
                await asyncio.sleep(0)

        self._run(submit())

    def _settle(self) -> None:
        async def settle() -> None:
            for store in self.stores:
                store.release()
            for asked in self.asked:
                for call in asked.calls:
                    await asyncio.wait([call], timeout=30)
                    error = call.exception()
                    assert error is None or isinstance(error, DroverError), error
                    assert error is None or error.reason is not Reason.INTERNAL, error
            for store in self.stores:
                await store.runtime.catch_up()

        self._run(settle())

    def _new_store(self) -> Store:
        return Store(self._handle())

    def _handle(self) -> TopicLikeLog:
        return self.log._handle(TopicLikeLog)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)


TestSharedConfigLog = SharedConfigLog.TestCase
TestSharedConfigLog.settings = settings(max_examples=100, stateful_step_count=40)
