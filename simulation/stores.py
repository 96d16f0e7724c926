"""The simulated config store and status store: the real machines behind the calls of their API."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from drover.errors import DroverError
from drover.log.log import LogRecord, StoredRecord
from drover.model.config import ConfigEvent
from drover.model.ids import Term
from drover.model.status import StatusEvent
from drover.runtime.runtime import APPLIED_CHANNEL, Runtime
from drover_config_store.core import records as config_records
from drover_config_store.core.events import (
    DeleteConnector,
    PutConnectorConfig,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
)
from drover_config_store.core.machine import ConfigMachine
from drover_status_store.core import records as status_records
from drover_status_store.core.events import PutStatuses
from drover_status_store.core.machine import StatusMachine
from drover_status_store.server import encode_record as encode_status_record
from simulation.disk import Disk
from simulation.network import Network, ServerCall, Stream
from simulation.process import Process
from simulation.rules import Rules
from simulation.service import LOADING, WATCH_QUEUE_MAX, DiskLog, ProcessClock, Served
from simulation.world import BrokenRuleError

MachineT = TypeVar("MachineT", ConfigMachine, StatusMachine)

VALIDATE_EVERY = 8


@dataclass(frozen=True, slots=True)
class GetSnapshot:
    """Response: the whole state."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Opens a stream of ``Changes`` from an offset on."""

    start_offset: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that complete the view up to ``end_offset``."""

    events: Sequence[Any]
    end_offset: int


@dataclass(frozen=True, slots=True)
class GetEndOffset:
    """Response: the log's end."""


@dataclass(frozen=True, slots=True)
class ClaimWriter:
    """Response: the epoch and the log's end."""

    owner: str
    term: Term


class Store(Process, Generic[MachineT]):
    """The common part of the two stores: snapshots and watches."""

    runtime: Served[MachineT]

    def __init__(self, network: Network, name: str, rules: Rules, disk: Disk) -> None:
        super().__init__(network.world, name)
        self.network = network
        self.rules = rules
        self.disk = disk
        #: every open watch, with the end offset of its last message
        self._watches: dict[Stream, int] = {}

    def crashed(self) -> None:
        """The process crashed, perhaps during an append."""
        self._watches = {}
        self.disk.process_crashed(self)

    @property
    def runtimes(self) -> Sequence[Served[Any]]:
        """The store's one runtime."""
        return (self.runtime,)

    def open_stream(self, stream: Stream) -> None:
        """Open a watch."""
        if not self.runtime.loaded:
            stream.fail(LOADING)
            return
        assert isinstance(stream.request, Watch)
        self._watches[stream] = stream.request.start_offset
        stream.on_broken = lambda: self._watches.pop(stream, None)
        self._tell(stream, created=True)

    async def serve(self) -> None:
        """Read the log, then send its changes."""
        await self.runtime.load()
        self.loaded()
        with self.runtime.runtime.watch(APPLIED_CHANNEL, WATCH_QUEUE_MAX) as applied:
            async for _ in applied:
                for stream in list(self._watches):
                    self._tell(stream)

    def loaded(self) -> None:
        """The log has been read."""

    def _tell(self, stream: Stream, *, created: bool = False) -> None:
        history = self.runtime.machine.history
        position, end_offset = self._watches[stream], history.end_offset
        if position == end_offset and not created:
            return
        try:
            events = history.read(position)
        except DroverError as error:
            del self._watches[stream]
            stream.fail(error)
            return
        self._watches[stream] = end_offset
        stream.push(Changes(events, end_offset))


class ConfigStore(Store[ConfigMachine]):
    """The process of the config store."""

    def started(self) -> None:
        """Read the log, then serve."""
        machine = ConfigMachine()
        runtime = Runtime(
            machine,
            DiskLog(self, self.disk),
            encode=lambda record: LogRecord(*config_records.encode(record)),
            decode=_decode_config,
            clock=ProcessClock(self),
            name=self.name,
        )
        self.runtime = Served(self, self.disk, machine, runtime, validate_every=VALIDATE_EVERY)
        self.spawn(self.serve())

    def loaded(self) -> None:
        """The log has been read."""
        self.check()

    def check(self) -> None:
        """Compare the state that the store serves with the durable records."""
        if self.alive and self.runtime.loaded:
            machine = self.runtime.machine
            self.rules.configs_loaded(machine.snapshot(), machine.connector_history)

    def receive(self, call: ServerCall) -> None:
        """A call of the config store's API."""
        if not self.runtime.loaded:
            call.answer(LOADING)
            return
        machine = self.runtime.machine
        match call.request:
            case GetSnapshot():
                call.answer(machine.snapshot())
            case GetEndOffset():
                call.answer(machine.end_offset)
            case ClaimWriter(owner, term):
                self.after(self.world.between(0, 3), lambda: self._claim(call, owner, term))
            case (
                PutConnectorConfig()
                | DeleteConnector()
                | PutTaskConfigs()
                | PutTargetState()
                | PutSessionKey()
                | PutRestartRequest()
            ) as event:
                self.runtime.serve(call, replace(event, call_id=call.call_id))
            case request:
                raise BrokenRuleError("calls are known", str(request), self.name)

    def _claim(self, call: ServerCall, owner: str, term: Term) -> None:
        try:
            epoch = self.disk.claim(owner, term)
        except DroverError as error:
            call.answer(error)
            return
        self.rules.writer_claimed(owner, term, epoch)
        call.answer((epoch, self.disk.end_offset))


class StatusStore(Store[StatusMachine]):
    """The process of the status store."""

    def started(self) -> None:
        """Read the log, then serve."""
        machine = StatusMachine()
        runtime = Runtime(
            machine,
            DiskLog(self, self.disk),
            encode=encode_status_record,
            decode=_decode_status,
            clock=ProcessClock(self),
            name=self.name,
        )
        self.runtime = Served(self, self.disk, machine, runtime, validate_every=VALIDATE_EVERY)
        self.spawn(self.serve())

    def receive(self, call: ServerCall) -> None:
        """A call of the status store's API."""
        if not self.runtime.loaded:
            call.answer(LOADING)
            return
        match call.request:
            case GetSnapshot():
                call.answer(self.runtime.machine.snapshot())
            case PutStatuses() as event:
                self.runtime.serve(call, replace(event, call_id=call.call_id))
            case request:
                raise BrokenRuleError("calls are known", str(request), self.name)


def _decode_config(stored: StoredRecord) -> config_records.ConfigRecord:
    return config_records.decode(stored.record.key, stored.record.value)


def _decode_status(stored: StoredRecord) -> status_records.AnyRecord:
    record = status_records.decode(stored.record.key, stored.record.value)
    return status_records.with_mark(record, stored.record.request_id)


__all__ = [
    "Changes",
    "ClaimWriter",
    "ConfigEvent",
    "ConfigStore",
    "GetEndOffset",
    "GetSnapshot",
    "StatusEvent",
    "StatusStore",
    "Watch",
]
