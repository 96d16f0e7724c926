"""The config machine: decides writes to the config log, and folds it."""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from drover.errors import (
    AbortedError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    Violation,
)
from drover.machine import Complete, Instruction, Notify, Outcome, Replayed
from drover.model.config import (
    ConfigChange,
    ConfigEvent,
    ConfigMap,
    ConfigSnapshot,
    ConnectorConfigUpdated,
    ConnectorEntry,
    TaskConfigsUpdated,
)
from drover.runtime.history import EventHistory
from services.config_store.core import records
from services.config_store.core.config_state import ConfigState
from services.config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PutConnectorConfig,
    PutRestartRequest,
    PutTargetState,
    PutTaskConfigs,
    WriteAnswer,
)
from services.config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    RestartRecord,
    TargetStateRecord,
    TaskRecord,
)
from services.config_store.core.validate import check_request, check_size

#: Where watchers hear that the log has grown; the message is its end.
CHANGES_CHANNEL = "configs"
REMEMBERED_REQUESTS = 1_000
_EVENT_OVERHEAD_BYTES = 500


@dataclass(frozen=True, slots=True)
class _Answered:
    """What a request wrote last, which says what it asked for, and the answer it got."""

    kind: type[ConfigRequest]
    connector: str
    answer: WriteAnswer


@dataclass(slots=True)
class _Parked:
    """The call whose records are being appended, and how many of them are not replayed yet."""

    call_id: str
    request_id: str
    remaining: int


class ConfigMachine:
    """Log-backed machine of the config store.

    Every write is answered from ``replay``, where its offsets are known, and remembered by its
    request id, so that a repeated request is answered as the first was.
    """

    def __init__(self, history: EventHistory[ConfigEvent] | None = None) -> None:
        self.history = EventHistory[ConfigEvent]() if history is None else history
        self._state = ConfigState()
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._parked: _Parked | None = None

    @property
    def end_offset(self) -> int:
        """The last record's offset + 1."""
        return self.history.end_offset

    def snapshot(self) -> ConfigSnapshot:
        """The whole state at ``end_offset``."""
        return self._state.snapshot(self.end_offset)

    def handle(self, event: ConfigRequest, now_ms: int) -> Outcome[ConfigRecord]:
        """Decide about a write.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, TOO_LARGE.
            NotFoundError: CONNECTOR_NOT_FOUND.
            AbortedError: REVISION_MISMATCH.
        """
        check_request(event)
        answered = self._answered.get(event.request_id)
        if answered is not None and _is_repeated(event, answered):
            return Outcome(instructions=[Complete(event.call_id, answered.answer)])
        decided = self._decide(event)
        self._parked = _Parked(event.call_id, event.request_id, len(decided))
        return Outcome(
            records=decided,
            instructions=[Notify(CHANGES_CHANNEL, None)],
            writer_epoch=None if isinstance(event, PutTargetState) else event.writer_epoch,
            request_id=event.request_id,
        )

    def replay(self, replayed: Replayed[ConfigRecord]) -> Sequence[Instruction]:
        """Apply a durable record; answers the call that wrote it with its last record."""
        offset, record = replayed.offset, replayed.record
        change = self._state.apply(offset, record)
        if change is None:
            self.history.record_seen(offset)
        else:
            self.history.record_seen(offset, (ConfigEvent(offset, change),), _size_bytes(change))
        if not replayed.request_id:
            return ()
        answered = _answered(offset, record)
        if answered is not None:
            self._remember(replayed.request_id, answered)
        return self._answer_parked(replayed.request_id)

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """The log has been read to ``end_offset``."""
        self.history.skip_to(end_offset)
        return ()

    def needed_offsets(self) -> Collection[int]:
        """Superseded records that compaction has to spare."""
        return self._state.needed_offsets()

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._state.validate()
        self.history.validate()
        assert len(self._answered) <= REMEMBERED_REQUESTS

    # deciding

    def _decide(self, event: ConfigRequest) -> Sequence[ConfigRecord]:
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

    def _existing(self, name: str) -> ConnectorEntry:
        entry = self._state.connector(name)
        if entry is None:
            raise NotFoundError(
                Reason.CONNECTOR_NOT_FOUND,
                f"there is no connector {name!r}: create it first",
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
                " read it again and decide again",
                metadata={"currentRevision": str(revision)},
            )
        if entry is not None and event.initial_state is not None:
            fault = f"only for a new connector, and {name!r} exists: set its target state instead"
            raise InvalidArgumentError.listing([Violation("initial_state", fault)])
        record = ConnectorRecord(name, _frozen(event.config))
        check_size("config", records.encode(record)[1])
        if event.initial_state is None:
            return (record,)
        # the state first, so that nobody sees the connector start before it is to be paused
        return (TargetStateRecord(name, event.initial_state), record)

    def _put_task_configs(self, event: PutTaskConfigs) -> Sequence[ConfigRecord]:
        self._existing(event.connector)
        decided: list[ConfigRecord] = []
        for index, (task, config) in enumerate(event.task_configs):
            record = TaskRecord(task, _frozen(config))
            check_size(f"task_configs[{index}].config", records.encode(record)[1])
            decided.append(record)
        # the marker comes last: who reads a part of the log never sees half a set
        decided.append(CommitRecord(event.connector, len(decided)))
        return decided

    # answering

    def _remember(self, request_id: str, answered: _Answered) -> None:
        self._answered[request_id] = answered
        self._answered.move_to_end(request_id)
        if len(self._answered) > REMEMBERED_REQUESTS:
            self._answered.popitem(last=False)

    def _answer_parked(self, request_id: str) -> Sequence[Instruction]:
        parked = self._parked
        if parked is None or parked.request_id != request_id:
            return ()
        parked.remaining -= 1
        if parked.remaining:
            return ()
        self._parked = None
        return (Complete(parked.call_id, self._answered[request_id].answer),)


def _frozen(config: ConfigMap) -> ConfigMap:
    return MappingProxyType(dict(config))


def _is_repeated(event: ConfigRequest, answered: _Answered) -> bool:
    connector = event.connector if isinstance(event, PutTaskConfigs) else event.name
    return type(event) is answered.kind and connector == answered.connector


def _answered(offset: int, record: ConfigRecord) -> _Answered | None:
    """What the request asked for whose last record (so far) this is; None if there is more of it.

    In the order in which requests write: a delete ends with the target state's tombstone, a create
    with the config, task configs with the marker.
    """
    answer = WriteAnswer(offset + 1)
    match record:
        case ConnectorRecord(name, config) if config is not None:
            return _Answered(PutConnectorConfig, name, WriteAnswer(offset + 1, revision=offset + 1))
        case TargetStateRecord(name, state):
            kind = DeleteConnector if state is None else PutTargetState
            return _Answered(kind, name, answer)
        case CommitRecord(connector, _):
            return _Answered(PutTaskConfigs, connector, answer)
        case RestartRecord(name, _, _):
            return _Answered(PutRestartRequest, name, answer)
        case _:
            return None


def _size_bytes(change: ConfigChange) -> int:
    """About how much memory an event holds on to."""
    configs: list[ConfigMap | None] = []
    if isinstance(change, ConnectorConfigUpdated | TaskConfigsUpdated):
        configs += [change.connector.config]
    if isinstance(change, TaskConfigsUpdated):
        configs += change.task_configs.values()
    texts = (chain(config, config.values()) for config in configs if config)
    return _EVENT_OVERHEAD_BYTES + sum(map(len, chain.from_iterable(texts)))
