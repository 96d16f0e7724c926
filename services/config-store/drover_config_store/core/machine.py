"""The config machine: decides writes to the config log, and folds it."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from drover.errors import (
    AbortedError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    Violation,
)
from drover.machine import Complete, Instruction, Outcome, Replayed
from drover.model.config import (
    ConfigChange,
    ConfigEvent,
    ConfigMap,
    ConfigSnapshot,
    ConnectorConfigUpdated,
    ConnectorEntry,
    HistoryEntry,
    SessionKey,
    TargetState,
    TaskConfigsUpdated,
)
from drover.model.times import TIME_MAX_MS
from drover.runtime.change_buffer import ChangeBuffer
from drover_config_store.core import records
from drover_config_store.core.answers import Answers
from drover_config_store.core.config_state import ConfigState
from drover_config_store.core.connector_history import (
    RECORDS_WITH_HISTORY,
    VERSIONS_MAX_DEFAULT,
    ConnectorHistory,
)
from drover_config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PrivilegedWrite,
    PutConnectorConfig,
    PutDeadLetterStates,
    PutLoggerLevel,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
    PutTaskCount,
)
from drover_config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    DeadLettersRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
)
from drover_config_store.core.validate import check_request, check_size

_EVENT_OVERHEAD_BYTES = 500


class ConfigMachine:
    """Log-backed machine of the config store.

    ``replay`` completes each write, since it has the offsets. Responses are remembered by request
    id, so that a retried request gets the original response.

    Args:
        history: The changes that watchers can resume from; empty by default.
        versions_max: How many configs of a connector its history keeps.
    """

    def __init__(
        self,
        history: ChangeBuffer[ConfigEvent] | None = None,
        *,
        versions_max: int = VERSIONS_MAX_DEFAULT,
    ) -> None:
        self.history = ChangeBuffer[ConfigEvent]() if history is None else history
        self._state = ConfigState()
        self._histories = ConnectorHistory(versions_max)
        self._answers = Answers()
        #: By connector, also one that was deleted: the states of its dead letters, the revision.
        self._dead_letters: dict[str, tuple[str, int]] = {}

    @property
    def end_offset(self) -> int:
        """The last record's offset + 1."""
        return self.history.end_offset

    def snapshot(self) -> ConfigSnapshot:
        """The whole state at ``end_offset``."""
        return self._state.snapshot(self.end_offset)

    def counts(self) -> tuple[Mapping[TargetState, int], int]:
        """The number of connectors by target state, and the number of tasks."""
        return self._state.counts()

    def connector_history(self, name: str) -> Sequence[HistoryEntry]:
        """The history of a connector in log order; empty if there is none."""
        self._histories.advance(self.end_offset)
        return self._histories.of(name)

    def dead_letter_states(self, name: str) -> tuple[str, int]:
        """The states of a connector's dead letters and their revision; empty and 0 for none."""
        return self._dead_letters.get(name, ("", 0))

    def handle(self, event: ConfigRequest, now_ms: int) -> Outcome[ConfigRecord]:
        """Decide a write.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, TOO_LARGE.
            NotFoundError: CONNECTOR_NOT_FOUND.
            AbortedError: REVISION_MISMATCH.
        """
        check_request(event)
        answer = self._answers.repeated(event)
        if answer is not None:
            return Outcome(instructions=[Complete(event.call_id, answer)])
        decided = self._decide(event, now_ms)
        self._answers.park(event, len(decided))
        return Outcome(
            records=decided,
            writer_epoch=event.writer_epoch if isinstance(event, PrivilegedWrite) else None,
            request_id=event.request_id,
            author=event.author,
        )

    def replay(self, replayed: Replayed[ConfigRecord]) -> Sequence[Instruction]:
        """Apply a durable record; the last record of a write completes its call."""
        offset, record = replayed.offset, replayed.record
        if isinstance(record, DeadLettersRecord):
            self._dead_letters[record.name] = (record.states_json, offset + 1)
        change = self._state.apply(offset, record)
        if change is None:
            self.history.record_seen(offset)
        else:
            events = (ConfigEvent(offset, change),)
            self.history.record_seen(offset, events, _size_bytes(change), replayed.timestamp_ms)
        if isinstance(record, RECORDS_WITH_HISTORY):
            time_ms = min(max(replayed.timestamp_ms, 0), TIME_MAX_MS)
            self._histories.add(offset, time_ms, replayed.author, record)
        if not replayed.request_id:
            return ()
        return self._answers.replayed(replayed.request_id, offset, record)

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """The log has been read to ``end_offset``."""
        self.history.loaded(end_offset, now_ms)
        self._histories.advance(end_offset)
        return ()

    def needed_offsets(self) -> Collection[int]:
        """Offsets of superseded records that compaction must keep."""
        self._histories.advance(self.end_offset)
        return {*self._state.needed_offsets(), *self._histories.offsets()}

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._state.validate()
        self._histories.validate()
        self.history.validate()
        self._answers.validate()

    # deciding

    def _decide(self, event: ConfigRequest, now_ms: int) -> Sequence[ConfigRecord]:
        match event:
            case PutConnectorConfig():
                return self._put_connector_config(event)
            case DeleteConnector(name=name):
                self._existing(name)
                return (ConnectorRecord(name, None), TargetStateRecord(name, None))
            case PutTaskConfigs():
                return self._put_task_configs(event)
            case PutTargetState(name=name, target_state=state):
                self._existing(name)
                return (TargetStateRecord(name, state),)
            case PutRestartRequest(name=name):
                self._existing(name)
                return (RestartRecord(name, event.only_failed, event.include_tasks),)
            case PutTaskCount(name=name, task_count=task_count):
                self._existing(name)
                return (TaskCountRecord(name, task_count),)
            case PutSessionKey(key=key, algorithm=algorithm):
                return (SessionKeyRecord(SessionKey(key, algorithm, now_ms)),)
            case PutLoggerLevel(logger=logger, level=level):
                return (LoggerLevelRecord(logger, level),)
            case PutDeadLetterStates():
                return self._put_dead_letter_states(event)

    def _put_dead_letter_states(self, event: PutDeadLetterStates) -> Sequence[ConfigRecord]:
        self._existing(event.name)
        _, revision = self.dead_letter_states(event.name)
        if event.expected_revision != revision:
            raise AbortedError(
                Reason.REVISION_MISMATCH,
                f"the states of the dead letters of {event.name!r} have revision {revision}, not "
                f"{event.expected_revision}: read them again",
                metadata={"currentRevision": str(revision)},
            )
        record = DeadLettersRecord(event.name, event.states_json, event.change)
        check_size("states_json", records.encode(record)[1])
        return (record,)

    def _existing(self, name: str) -> ConnectorEntry:
        entry = self._state.connector(name)
        if entry is None:
            raise NotFoundError(
                Reason.CONNECTOR_NOT_FOUND,
                f"connector {name!r} does not exist",
                metadata={"connector": name},
            )
        return entry

    def _put_connector_config(self, event: PutConnectorConfig) -> Sequence[ConfigRecord]:
        name = event.name
        entry = self._state.connector(name)
        revision = 0 if entry is None else entry.config_revision
        if event.expected_revision is not None and event.expected_revision != revision:
            raise AbortedError(
                Reason.REVISION_MISMATCH,
                f"the config of {name!r} has revision {revision}, not {event.expected_revision}:"
                " read the config and retry with its revision",
                metadata={"currentRevision": str(revision)},
            )
        if entry is not None and event.initial_state is not None:
            fault = f"must not be set, because {name!r} exists: use PutTargetState instead"
            raise InvalidArgumentError.listing([Violation("initial_state", fault)])
        record = ConnectorRecord(name, _frozen(event.config))
        check_size("config", records.encode(record)[1])
        if event.initial_state is None:
            return (record,)
        # the state first, so that no worker starts the connector before it reads the state
        return (TargetStateRecord(name, event.initial_state), record)

    def _put_task_configs(self, event: PutTaskConfigs) -> Sequence[ConfigRecord]:
        self._existing(event.connector)
        decided: list[ConfigRecord] = []
        for index, (task, config) in enumerate(event.task_configs):
            record = TaskRecord(task, _frozen(config))
            check_size(f"task_configs[{index}].config", records.encode(record)[1])
            decided.append(record)
        # the marker comes last, so that a reader of a part of the log ignores an incomplete set
        decided.append(CommitRecord(event.connector, len(decided)))
        return decided


def _frozen(config: ConfigMap) -> ConfigMap:
    return MappingProxyType(dict(config))


def _size_bytes(change: ConfigChange) -> int:
    """Roughly how much memory an event keeps in use."""
    configs: list[ConfigMap] = []
    if isinstance(change, ConnectorConfigUpdated | TaskConfigsUpdated):
        configs.append(change.connector.config or {})
    if isinstance(change, TaskConfigsUpdated):
        configs += change.task_configs.values()
    texts: list[str] = []  # joined before measuring: a load calls this for every config
    for config in configs:
        texts += config
        texts += config.values()
    return _EVENT_OVERHEAD_BYTES + sum(map(len, texts))
