"""Which requests were answered and how, so that a repeated one is answered as the first was."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from drover.machine import Complete, Instruction
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
from drover_config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
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
    """What a request wrote last, which says what it asked for, and the answer it got."""

    kind: type[ConfigRequest]
    subject: str
    answer: WriteAnswer


@dataclass(slots=True)
class _Parked:
    """The call whose records are being appended, and how many of them are not replayed yet."""

    call_id: str
    request_id: str
    remaining: int


class Answers:
    """The last answers by request id, made from what the requests wrote."""

    def __init__(self) -> None:
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._parked: _Parked | None = None

    def repeated(self, event: ConfigRequest) -> WriteAnswer | None:
        """The answer that this very request had before; None if it comes for the first time."""
        answered = self._answered.get(event.request_id)
        if answered is None or type(event) is not answered.kind:
            return None
        return answered.answer if _subject(event) == answered.subject else None

    def park(self, event: ConfigRequest, record_count: int) -> None:
        """The records that ``event`` led to are being appended."""
        self._parked = _Parked(event.call_id, event.request_id, record_count)

    def replayed(self, request_id: str, offset: int, record: ConfigRecord) -> Sequence[Instruction]:
        """A record of a request took effect; answers the call with its last one."""
        # task records say nothing by themselves, and there are most of them when a log is loaded
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
        case TaskCountRecord(connector, _):
            return _Answered(PutTaskCount, connector, answer)
        case SessionKeyRecord():
            return _Answered(PutSessionKey, "", answer)
        case LoggerLevelRecord(logger, _):
            return _Answered(PutLoggerLevel, logger, answer)
        case _:
            return None
