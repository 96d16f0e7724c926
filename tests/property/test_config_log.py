"""Any interleaving of config writes, faults, crashes and compaction, against a plain model."""

import asyncio
import dataclasses
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from drover.errors import (
    AbortedError,
    DroverError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from drover.log import memory
from drover.log.log import LogRecord
from drover.log.memory import MemoryLog
from drover.model.config import (
    ConfigMap,
    ConfigVersion,
    ConnectorConfigRemoved,
    ConnectorEntry,
    HistoryChange,
    HistoryEntry,
    RestartRequested,
    SessionKey,
    TargetState,
    TargetStateChanged,
)
from drover.model.ids import TaskId, Term
from drover.rpc.log_service import skipping_unreadable
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock
from drover_config_store.core import records
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
from tests.support.naive_configs import VERSIONS_MAX, Mirror, ModelConnector, ModelHistory
from tests.support.waiting import wait_until_async

#: names that are ambiguous in task keys
NAMES = st.sampled_from(["a", "a-0", "a-0-1"])
CONFIGS = st.dictionaries(st.sampled_from("kl"), st.sampled_from(["1", "ü"]), max_size=2)
TASK_CONFIGS = st.lists(CONFIGS, max_size=3)
STATES = st.sampled_from(TargetState)
AUTHORS = st.sampled_from(["", "anna@host", "bén"])


def _comparable(entry: ConnectorEntry) -> ConnectorEntry:
    """Ignore the fencing fields: no event carries them."""
    return dataclasses.replace(entry, fenced_task_count=None, fencing_pending=False)


class ConfigLogMachine(RuleBasedStateMachine):
    """The real machine and runtime on a log with faults."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.patch = pytest.MonkeyPatch()
        # compaction keeps only a few records, which makes it matter in a short run
        self.patch.setattr(memory, "KEPT_RECORD_COUNT", 5)
        self.ids = itertools.count()
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock)
        self.model: dict[str, ModelConnector] = {}
        self.histories: dict[str, ModelHistory] = {}
        self.fenced: dict[str, int] = {}
        self.pending: set[str] = set()
        self.session_key: SessionKey | None = None
        self.logger_levels: dict[str, str] = {}
        self.mirror = Mirror()
        self.last: tuple[ConfigRequest, WriteAnswer] | None = None
        self.revisions: dict[str, int] = {}
        self.term = 0

    @initialize()
    def start(self) -> None:
        self._load()
        self.epoch = self._run(self.log.claim("w", Term(0, 0)))

    def teardown(self) -> None:
        if hasattr(self, "runtime"):
            self._run(self.runtime.close())
        self.runner.close()
        self.patch.undo()

    # writes

    @rule(
        name=NAMES,
        config=CONFIGS,
        initial=st.none() | STATES,
        revision=st.integers(0, 2),
        author=AUTHORS,
    )
    def put_config(
        self,
        name: str,
        config: ConfigMap,
        initial: TargetState | None,
        revision: int,
        author: str,
    ) -> None:
        known = self.model.get(name)
        current = self.revisions.get(name, 0)
        expected = {0: None, 1: current, 2: current + 1}[revision]
        event = PutConnectorConfig(
            **self._ids(),
            name=name,
            config=config,
            author=author,
            initial_state=initial if known is None else None,
            expected_revision=expected,
        )
        if revision == 2:
            with pytest.raises(AbortedError):
                self._submit(event)
            return
        answer = self._write(event)
        assert answer.revision > current

    @rule(name=NAMES, author=AUTHORS)
    def delete(self, name: str, author: str) -> None:
        self._write_existing(DeleteConnector(**self._ids(), name=name, author=author), name)

    @rule(name=NAMES, configs=TASK_CONFIGS)
    def put_tasks(self, name: str, configs: list[ConfigMap]) -> None:
        tasks = [(TaskId(name, index), config) for index, config in enumerate(configs)]
        event = PutTaskConfigs(**self._ids(), connector=name, task_configs=tasks)
        self._write_existing(event, name)

    @rule(name=NAMES, state=STATES, author=AUTHORS)
    def put_state(self, name: str, state: TargetState, author: str) -> None:
        event = PutTargetState(
            **self._unprivileged_ids(), name=name, target_state=state, author=author
        )
        self._write_existing(event, name)

    @rule(name=NAMES, count=st.integers(0, 3))
    def tasks_were_fenced(self, name: str, count: int) -> None:
        self._write_existing(PutTaskCount(**self._ids(), name=name, task_count=count), name)

    @rule(key=st.binary(min_size=1, max_size=3))
    def put_session_key(self, key: bytes) -> None:
        self._write(PutSessionKey(**self._ids(), key=key, algorithm="HmacSHA256"))

    @rule(logger=st.sampled_from(["a", "a.b"]), level=st.sampled_from(["INFO", "DEBUG"]))
    def put_level(self, logger: str, level: str) -> None:
        self._write(PutLoggerLevel(**self._unprivileged_ids(), logger=logger, level=level))

    @rule(name=NAMES, flag=st.booleans())
    def restart(self, name: str, flag: bool) -> None:
        event = PutRestartRequest(**self._ids(), name=name, only_failed=flag, include_tasks=flag)
        self._write_existing(event, name)

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat_the_last_request(self) -> None:
        assert self.last is not None
        event, answer = self.last
        end_offset = self.machine.end_offset
        again = dataclasses.replace(event, call_id=f"again-{next(self.ids)}")
        assert self._submit(again) == answer
        assert self.machine.end_offset == end_offset

    @rule(name=NAMES, config=CONFIGS)
    def write_as_a_former_leader(self, name: str, config: ConfigMap) -> None:
        former, self.term = self.epoch, self.term + 1
        self.epoch = self._run(self.log.claim("w2", Term(self.term, 0)))
        ids = {**self._ids(), "writer_epoch": former}
        with pytest.raises(FailedPreconditionError):
            self._submit(PutConnectorConfig(**ids, name=name, config=config))

    # faults

    @rule(name=NAMES, config=CONFIGS)
    def the_disk_refuses_a_write(self, name: str, config: ConfigMap) -> None:
        self.log.fail_next_append()
        event = PutConnectorConfig(**self._ids(), name=name, config=config)
        with pytest.raises(UnavailableError):
            self._submit(event)

    @rule()
    def crash_and_load(self) -> None:
        self._crash()

    @rule(name=NAMES, configs=TASK_CONFIGS, survives=st.booleans())
    def crash_in_the_middle_of_a_write(
        self, name: str, configs: list[ConfigMap], survives: bool
    ) -> None:
        """Crash without a response; after the restart the write is complete or absent."""
        if name in self.model:
            tasks = [(TaskId(name, index), config) for index, config in enumerate(configs)]
            event: ConfigRequest = PutTaskConfigs(**self._ids(), connector=name, task_configs=tasks)
        else:
            event = PutConnectorConfig(
                **self._ids(), name=name, config={}, initial_state=TargetState.STOPPED
            )
        self._run(self._torn(event, survives))
        if survives:
            end_offset = self.machine.end_offset
            self._noted(dataclasses.replace(event, call_id=f"again-{next(self.ids)}"))
            assert self.machine.end_offset == end_offset

    @rule()
    def compact(self) -> None:
        self._run(self._compact())

    @rule(
        key=st.sampled_from(
            [
                *(
                    b"nonsense",
                    b"session-key-2",
                    b"connector-x",
                    b"task-a-\xff",
                    b"logger-cluster-",
                ),
                *(b"tasks-fencing-", b"commit-x"),
            ]
        ),
        value=st.sampled_from([b"rubbish", b"{}"]),
    )
    def another_program_writes_rubbish(self, key: bytes, value: bytes) -> None:
        self._run(self.log.append([LogRecord(key, value)]))
        self.last = None
        self._crash()

    # invariants

    @invariant()
    def the_store_holds_what_the_model_says(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.machine.validate()
        snapshot = self.machine.snapshot()
        present = {
            name: entry for name, entry in snapshot.connectors.items() if entry.config is not None
        }
        assert set(present) == set(self.model)
        for name, expected in self.model.items():
            entry = present[name]
            assert entry.config == expected.config
            assert entry.target_state is expected.state
            assert entry.config_revision == self.revisions[name]
            assert entry.task_config_generation == expected.generation
            assert entry.fenced_task_count == self.fenced.get(name)
            assert entry.fencing_pending == (name in self.pending)
            assert not entry.inconsistent
            assert entry.applied_config == expected.applied
            assert entry.task_count == (-1 if expected.tasks is None else len(expected.tasks))
        assert snapshot.task_configs == {
            TaskId(name, index): config
            for name, connector in self.model.items()
            for index, config in enumerate(connector.tasks or ())
        }
        assert snapshot.session_key == self.session_key
        assert snapshot.logger_levels == self.logger_levels

    @invariant()
    def the_history_is_what_was_written_last(self) -> None:
        if not hasattr(self, "machine"):
            return
        for name, history in self.histories.items():
            assert list(self.machine.connector_history(name)) == history.left()

    @invariant()
    def a_watcher_knows_the_same(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.mirror.follow(self.machine)
        snapshot = self.machine.snapshot()
        assert {name: _comparable(entry) for name, entry in self.mirror.connectors.items()} == {
            name: _comparable(entry)
            for name, entry in snapshot.connectors.items()
            if entry.config is not None
        }
        assert {
            task: config
            for tasks in self.mirror.task_configs.values()
            for task, config in tasks.items()
        } == snapshot.task_configs
        assert self.mirror.session_key == snapshot.session_key
        assert self.mirror.logger_levels == snapshot.logger_levels

    # helpers

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def _ids(self) -> dict[str, Any]:
        number = next(self.ids)
        return {
            "call_id": f"call-{number}",
            "request_id": f"request-{number}",
            "writer_epoch": self.epoch,
        }

    def _unprivileged_ids(self) -> dict[str, Any]:
        ids = self._ids()
        del ids["writer_epoch"]
        return ids

    def _load(self) -> None:
        self._reopen()
        self._run(self.runtime.load())

    def _reopen(self) -> None:
        # a small history: watchers fall behind it
        self.machine = ConfigMachine(ChangeBuffer(max_events=8), versions_max=VERSIONS_MAX)
        self.runtime: Runtime[records.ConfigRecord] = Runtime(
            self.machine,
            self.log,
            encode=lambda record: LogRecord(*records.encode(record)),
            decode=skipping_unreadable(records.decode, records.IGNORED, "test"),
            clock=self.clock,
            name="config-store",
        )

    def _crash(self) -> None:
        self.log = self.log.crash()
        self._run(self.runtime.close())
        self._load()

    async def _compact(self) -> None:
        end_offset = await self.log.end_offset()
        await self.log.compact(keep_offsets=self.machine.needed_offsets(), below_offset=end_offset)

    async def _torn(self, event: ConfigRequest, survives: bool) -> None:
        self.log.tear_next_append(survives=survives)
        call = asyncio.create_task(self.runtime.submit(event, call_id=event.call_id))
        await wait_until_async(lambda: self.log.torn)
        self.log = self.log.crash()
        with pytest.raises(DroverError):
            await call
        await self.runtime.close()
        self._reopen()
        await self.runtime.load()

    def _submit(self, event: ConfigRequest) -> WriteAnswer:
        answer = self._run(self.runtime.submit(event, call_id=event.call_id))
        assert isinstance(answer, WriteAnswer)
        return answer

    def _write(self, event: ConfigRequest) -> WriteAnswer:
        self.clock.advance(1)
        return self._noted(event)

    def _noted(self, event: ConfigRequest) -> WriteAnswer:
        """Submit an event at the current time, and apply it to the model."""
        answer = self._submit(event)
        assert answer.end_offset == self.machine.end_offset
        self.last = (event, answer)
        self._apply(event, answer)
        return answer

    def _write_existing(self, event: ConfigRequest, name: str) -> None:
        if name not in self.model:
            with pytest.raises(NotFoundError):
                self._submit(event)
        else:
            self._write(event)

    def _apply(self, event: ConfigRequest, answer: WriteAnswer) -> None:
        offset = answer.end_offset - 1
        match event:
            case PutConnectorConfig():
                self.revisions[event.name] = answer.revision
                known = self.model.get(event.name)
                if known is None:
                    state = event.initial_state or TargetState.STARTED
                    self.model[event.name] = ModelConnector(event.config, state)
                else:
                    known.config = event.config
                version = ConfigVersion(answer.revision, event.config)
                self._remember(event.name, offset, event.author, version)
            case DeleteConnector():
                del self.model[event.name]
                del self.revisions[event.name]
                removal = ConnectorConfigRemoved(event.name)
                self._remember(event.name, offset - 1, event.author, removal)
            case PutTaskConfigs():
                connector = self.model[event.connector]
                connector.tasks = [config for _, config in event.task_configs]
                connector.applied = connector.config
                connector.generation = answer.end_offset
                self.pending.add(event.connector)
            case PutTargetState():
                self.model[event.name].state = event.target_state
                change = TargetStateChanged(event.name, event.target_state)
                self._remember(event.name, offset, event.author, change)
            case PutRestartRequest():
                restart = RestartRequested(event.name, event.only_failed, event.include_tasks)
                self._remember(event.name, offset, event.author, restart)
            case PutTaskCount():
                self.fenced[event.name] = event.task_count
                self.pending.discard(event.name)
            case PutSessionKey():
                self.session_key = SessionKey(event.key, event.algorithm, self.clock.now_ms())
            case PutLoggerLevel():
                self.logger_levels[event.logger] = event.level

    def _remember(self, name: str, offset: int, author: str, change: HistoryChange) -> None:
        entry = HistoryEntry(offset, self.clock.now_ms(), author, change)
        history = self.histories.setdefault(name, ModelHistory())
        is_version = isinstance(change, ConfigVersion | ConnectorConfigRemoved)
        (history.versions if is_version else history.others).append(entry)


TestConfigLog = ConfigLogMachine.TestCase
TestConfigLog.settings = settings(max_examples=80, stateful_step_count=40)
