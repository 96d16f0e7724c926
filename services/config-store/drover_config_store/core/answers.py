"""Remembers responses by request id, so that a retried request gets the original response."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from drover.machine import Complete, Instruction
from drover_config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PutConnectorConfig,
    PutDeadLetterStates,
    PutLoggerLevel,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
    PutTaskCount,
    WriteAnswer,
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

REMEMBERED_REQUESTS = 1_000


@dataclass(frozen=True, slots=True)
class _Answered:
    """A request that was written, reconstructed from its last record, and its response."""

    kind: type[ConfigRequest]
    subject: str
    answer: WriteAnswer


@dataclass(slots=True)
class _Parked:
    """A call that waits for its append; ``remaining`` counts its records not replayed yet."""

    call_id: str
    request_id: str
    remaining: int


class Answers:
    """The latest responses by request id, reconstructed from the log."""

    def __init__(self) -> None:
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._parked: _Parked | None = None

    def repeated(self, event: ConfigRequest) -> WriteAnswer | None:
        """The original response if ``event`` is a retry; None if it is new."""
        answered = self._answered.get(event.request_id)
        if answered is None or type(event) is not answered.kind:
            return None
        return answered.answer if _subject(event) == answered.subject else None

    def park(self, event: ConfigRequest, record_count: int) -> None:
        """Hold the response to ``event`` until its ``record_count`` records are replayed."""
        self._parked = _Parked(event.call_id, event.request_id, record_count)

    def replayed(self, request_id: str, offset: int, record: ConfigRecord) -> Sequence[Instruction]:
        """Remember a replayed record's request; complete its call after its last record."""
        # a set of task configs is remembered at its commit marker; skipping tasks speeds up loads
        if not isinstance(record, TaskRecord):
            self._remember(request_id, _answered(offset, record))
        parked = self._parked
        if parked is None or parked.request_id != request_id:
            return ()
        parked.remaining -= 1
        if parked.remaining:
            return ()
        self._parked = None
        return (Complete(parked.call_id, self._answered[request_id].answer),)

    def _remember(self, request_id: str, answered: _Answered | None) -> None:
        if answered is None:
            return
        self._answered[request_id] = answered
        self._answered.move_to_end(request_id)
        if len(self._answered) > REMEMBERED_REQUESTS:
            self._answered.popitem(last=False)

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        assert len(self._answered) <= REMEMBERED_REQUESTS


def _subject(event: ConfigRequest) -> str:
    match event:
        case PutTaskConfigs():
            return event.connector
        case PutLoggerLevel():
            return event.logger
        case PutSessionKey():
            return ""
        case _:
            return event.name


def _answered(offset: int, record: ConfigRecord) -> _Answered | None:
    """The request that ends with ``record`` and its response; None if no request ends with it.

    A delete ends with the tombstone of the target state, a create with the config, a set of task
    configs with its commit marker.
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
        case TaskCountRecord(connector, _):
            return _Answered(PutTaskCount, connector, answer)
        case SessionKeyRecord():
            return _Answered(PutSessionKey, "", answer)
        case LoggerLevelRecord(logger, _):
            return _Answered(PutLoggerLevel, logger, answer)
        case DeadLettersRecord(name):
            return _Answered(PutDeadLetterStates, name, answer)
        case _:
            return None
