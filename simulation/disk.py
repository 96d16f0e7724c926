"""A log on a simulated disk: appends are slow, fail, and tear in a crash; compaction runs online.

The log survives its process. An append is atomic: all of its records or none.
"""

from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.log import LogRecord, StoredRecord
from drover.log.memory import MemoryLog
from drover.model.ids import Term
from simulation.network import Network
from simulation.process import Process

T = TypeVar("T")

#: Sees every durable append: the records, the first offset, and the epoch.
Observer = Callable[[Sequence[LogRecord], int, int | None], None]
#: Gets the end offset, or the error of an append that wrote nothing.
Appended = Callable[[int | DroverError], None]

DISK_FULL = UnavailableError(Reason.STORAGE_UNAVAILABLE, "the disk is full")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a log in memory does not wait without scripted faults")


class Disk:
    """One service's log.

    Args:
        network: Decides which appends are slow or fail.
        name: The log's name in the story.
        observe: Sees every durable append.
    """

    def __init__(self, network: Network, name: str, observe: Observer) -> None:
        self._network = network
        self.name = name
        self._observe = observe
        self._log = MemoryLog(kept_record_count=network.mix.kept_records)
        #: The pending append of each process: its records and epoch.
        self._under_way: dict[Process, tuple[Sequence[LogRecord], int | None]] = {}

    @property
    def end_offset(self) -> int:
        """Where the log ends."""
        return at_once(self._log.end_offset())

    def append(
        self,
        process: Process,
        records: Sequence[LogRecord],
        epoch: int | None,
        appended: Appended,
    ) -> None:
        """Write all records or none after a delay; one append at a time."""
        assert process not in self._under_way, "appends come one at a time"
        self._under_way[process] = records, epoch
        world = self._network.world
        delay_ms = world.between(0, self._network.mix.write_ms)
        process.after(delay_ms, lambda: appended(self._finish(process)))

    def process_crashed(self, process: Process) -> None:
        """A pending append may survive the crash without an acknowledgement."""
        under_way = self._under_way.pop(process, None)
        if under_way is None:
            return
        records, epoch = under_way
        world = self._network.world
        if world.chance(self._network.mix.torn_survives):
            world.tell(
                (self.name,),
                "{}: an append survives the crash without an acknowledgement",
                self.name,
            )
            with suppress(DroverError):  # the writer may be fenced
                self._write(records, epoch)

    def append_by_another(self, record: LogRecord) -> int:
        """Append a record as another cluster on the same log; returns its offset."""
        return at_once(self._log.append([record])) - 1

    def read(self) -> Sequence[StoredRecord]:
        """Everything the log holds."""
        return at_once(_read_all(self._log))

    def claim(self, owner: str, term: Term) -> int:
        """Make ``owner`` the privileged writer; raises what the log raises."""
        return at_once(self._log.claim(owner, term))

    def compact(self, keep_offsets: Collection[int], below_offset: int | None) -> int:
        """Remove superseded records."""
        return at_once(self._log.compact(keep_offsets=keep_offsets, below_offset=below_offset))

    def _finish(self, process: Process) -> int | DroverError:
        records, epoch = self._under_way.pop(process)
        world = self._network.world
        if world.chance(self._network.mix.write_failure):
            world.tell((self.name,), "{}: an append fails", self.name)
            return DISK_FULL
        try:
            return self._write(records, epoch)
        except DroverError as error:
            return error

    def _write(self, records: Sequence[LogRecord], epoch: int | None) -> int:
        end_offset = at_once(self._log.append(records, epoch))
        self._observe(records, end_offset - len(records), epoch)
        return end_offset


async def _read_all(log: MemoryLog) -> list[StoredRecord]:
    return [stored async for batch in log.read() for stored in batch]
