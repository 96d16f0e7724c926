"""Runs a log-backed machine with the production runtime, on a simulated disk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.log import LogRecord, StoredRecord
from drover.machine import LogBackedMachine, NeedsOldRecords
from drover.model.ids import Term
from drover.runtime.runtime import Runtime
from simulation.disk import Disk
from simulation.network import Heard, ServerCall
from simulation.process import Process
from simulation.world import BrokenRuleError

MachineT = TypeVar("MachineT", bound=LogBackedMachine[Any, Any])

LOADING_MAX_MS = 200
LOADING = UnavailableError(Reason.LOADING, "the log is being read")
#: Every parked call has a shorter deadline; an older one was forgotten.
PARKED_MAX_MS = 30_000
WATCH_QUEUE_MAX = 10_000


class ProcessClock:
    """The clock of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        """Milliseconds; monotonic within an incarnation."""
        return self._process.now_ms


class DiskLog:
    """A process's access to the log on a disk, as ``drover.log.log.Log``."""

    log_id = ""

    def __init__(self, process: Process, disk: Disk, reading_ms: int = 0) -> None:
        self._process = process
        self.disk = disk
        self._reading_ms = reading_ms

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append all records or none."""
        written: asyncio.Future[int | DroverError] = self._process.loop.create_future()
        self.disk.append(self._process, records, epoch, written.set_result)
        result = await written
        if isinstance(result, DroverError):
            raise result
        return result

    async def read(self, start_offset: int = 0) -> AsyncIterator[Sequence[StoredRecord]]:
        """Every record."""
        await asyncio.sleep(self._reading_ms / 1000)
        yield [each for each in self.disk.read() if each.offset >= start_offset]

    async def end_offset(self) -> int:
        """Where the log ends."""
        return self.disk.end_offset

    async def claim(self, owner: str, term: Term) -> int:
        """Make ``owner`` the privileged writer."""
        return self.disk.claim(owner, term)

    async def compact(
        self, *, keep_offsets: Collection[int] = (), below_offset: int | None = None
    ) -> int:
        """Remove superseded records."""
        return self.disk.compact(keep_offsets, below_offset)

    async def close(self) -> None:
        """Nothing is held."""


class Served(Generic[MachineT]):
    """A runtime as its process uses it: each call is a task, and the machine is validated.

    Args:
        process: Its process.
        disk: Its log.
        machine: Its machine.
        runtime: The production runtime.
        released: Sees every response when it leaves the runtime: the event, and the response.
        validate_every: The number of events between two validations of the machine.
    """

    def __init__(
        self,
        process: Process,
        disk: Disk,
        machine: MachineT,
        runtime: Runtime[Any],
        *,
        released: Callable[[object, object], None] = lambda event, response: None,
        validate_every: int = 1,
    ) -> None:
        self.machine = machine
        self.runtime = runtime
        self._process = process
        self._disk = disk
        self._released = released
        self._validate_every = validate_every
        self._event_count = 0
        #: The parked calls, with the time of their arrival.
        self._parked: dict[str, tuple[int, object]] = {}

    @property
    def loaded(self) -> bool:
        """Whether the log has been read."""
        return self.runtime.loaded

    def submit(
        self, event: object, call_id: str, heard: Heard, on_cancel: object | None = None
    ) -> "asyncio.Task[None]":
        """Submit an event; ``heard`` gets the machine's response or a DroverError."""
        return self._process.spawn(self._submit(event, call_id, heard, on_cancel))

    def serve(self, call: ServerCall, event: object, on_cancel: object | None = None) -> None:
        """Answer a call with the machine's response to ``event``."""
        task = self.submit(event, call.call_id, call.answer, on_cancel)
        if on_cancel is not None:
            call.watch_for_cancel(task.cancel)

    def compact(self) -> None:
        """Compact the log online: choose the offsets to keep now, remove the others after a
        delay.
        """
        if not self.loaded:
            return
        keep: Sequence[int] = ()
        below: int | None = None
        machine: object = self.machine
        if isinstance(machine, NeedsOldRecords):
            below = self._disk.end_offset
            keep = tuple(machine.needed_offsets())
        delay_ms = self._process.world.between(0, 300)
        self._process.after(delay_ms, lambda: self._compact(keep, below))

    def check_parked(self) -> None:
        """Check that no call is parked for ever.

        Raises:
            BrokenRuleError: A call is older than ``PARKED_MAX_MS``.
        """
        for call_id, (since_ms, event) in self._parked.items():
            age_ms = self._process.world.now_ms - since_ms
            if age_ms > PARKED_MAX_MS:
                raise BrokenRuleError(
                    "every parked request gets its answer",
                    f"call {call_id} waits for {age_ms} ms: {event}",
                    self._process.name,
                )

    async def load(self) -> None:
        """Read the log, after a while."""
        await asyncio.sleep(self._process.world.between(0, LOADING_MAX_MS) / 1000)
        await self.runtime.load()
        validate(self._process, self.machine)

    async def _submit(
        self, event: object, call_id: str, heard: Heard, on_cancel: object | None
    ) -> None:
        self._parked[call_id] = self._process.world.now_ms, event
        try:
            response = await self.runtime.submit(event, call_id=call_id, on_cancel=on_cancel)
        except DroverError as error:
            heard(error)
        else:
            self._released(event, response)
            heard(response)
        finally:
            del self._parked[call_id]
        self._event_count += 1
        # a decision before its replay is incomplete, and what a fenced writer decided stays so
        is_complete = self.runtime._in_flight is None and not self.runtime._life.ending
        if is_complete and self._event_count % self._validate_every == 0:
            validate(self._process, self.machine)

    def _compact(self, keep: Sequence[int], below: int | None) -> None:
        removed = self._disk.compact(keep, below)
        self._process.world.tell(
            (self._disk.name,), "{}: compaction removes {} records", self._disk.name, removed
        )


class HasInvariants(Protocol):
    """A machine that can check itself."""

    def validate(self) -> None:
        """Raise AssertionError if an invariant does not hold."""


def validate(process: Process, machine: HasInvariants) -> None:
    """Check a machine's invariants.

    Raises:
        BrokenRuleError: One does not hold.
    """
    try:
        machine.validate()
    except AssertionError as error:
        raise BrokenRuleError("a machine's invariants hold", str(error), process.name) from error
