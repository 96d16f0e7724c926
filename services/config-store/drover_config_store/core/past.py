"""What was written about each connector lately: who changed what, and when."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import merge
from typing import Final

from drover.model.config import (
    ConfigVersion,
    ConnectorConfigRemoved,
    HistoryChange,
    HistoryEntry,
    RestartRequested,
    TargetState,
    TargetStateChanged,
)
from drover_config_store.core.records import (
    ConfigRecord,
    ConnectorRecord,
    RestartRecord,
    TargetStateRecord,
)

VERSIONS_MAX_DEFAULT: Final = 10
#: The past of a connector that was removed is forgotten when so many records came after that.
FORGOTTEN_AFTER_RECORDS: Final = 10_000
#: Other kinds are never entries.
RECORDS_WITH_PAST: Final = (ConnectorRecord, TargetStateRecord, RestartRecord)


class _Past:
    """The past of one name: its last configs and removals, and what else came since the first of
    these while the connector existed. They are apart, so that pauses push no configs out.

    In lists, though the oldest go first: most hold a few entries, and a deque's first takes 600
    bytes.
    """

    __slots__ = ("others", "versions")

    def __init__(self) -> None:
        self.versions: list[HistoryEntry] = []
        self.others: list[HistoryEntry] = []

    def exists(self) -> bool:
        return bool(self.versions) and isinstance(self.versions[-1].change, ConfigVersion)

    def entries(self) -> Iterable[HistoryEntry]:
        return merge(self.versions, self.others, key=lambda entry: entry.offset)

    def add_version(self, entry: HistoryEntry, entries_max: int) -> None:
        self.versions.append(entry)
        del self.versions[:-entries_max]
        while self.others and self.others[0].offset < self.versions[0].offset:
            del self.others[0]

    def add_other(self, entry: HistoryEntry, entries_max: int) -> None:
        self.others.append(entry)
        del self.others[:-entries_max]


class ConnectorPasts:
    """The last changes of every connector.

    What is an entry, and for how long, follows from the entries themselves and the log's end. So
    the past comes out the same from a compacted log, if only the records of the entries are spared.

    Args:
        entries_max: How many configs and removals of a connector are kept, and as many target
            states and restarts.
    """

    def __init__(self, entries_max: int = VERSIONS_MAX_DEFAULT) -> None:
        self._entries_max = entries_max
        self._pasts: dict[str, _Past] = {}
        #: the offset at which each connector that is gone was removed, the oldest first
        self._removed: OrderedDict[str, int] = OrderedDict()

    def add(self, offset: int, time_ms: int, author: str, record: ConfigRecord) -> None:
        """Take note of the record at ``offset``, if it is of a kind that has a past."""
        self.advance(offset)
        match record:
            case ConnectorRecord(name, None):
                change: HistoryChange = ConnectorConfigRemoved(name)
                entry = HistoryEntry(offset, time_ms, author, change)
                self._get(name).add_version(entry, self._entries_max)
                self._removed[name] = offset
                self._removed.move_to_end(name)
            case ConnectorRecord(name, config):
                assert config is not None
                change = ConfigVersion(offset + 1, config)
                entry = HistoryEntry(offset, time_ms, author, change)
                self._get(name).add_version(entry, self._entries_max)
                self._removed.pop(name, None)
            case TargetStateRecord(name, state):
                change = TargetStateChanged(name, state or TargetState.STARTED)
                self._add_other(name, HistoryEntry(offset, time_ms, author, change))
            case RestartRecord(name, only_failed, include_tasks):
                change = RestartRequested(name, only_failed, include_tasks)
                self._add_other(name, HistoryEntry(offset, time_ms, author, change))

    def advance(self, end_offset: int) -> None:
        """The log ends at ``end_offset``: forget what is too long ago."""
        while self._removed:
            name = next(iter(self._removed))
            if end_offset - self._removed[name] <= FORGOTTEN_AFTER_RECORDS:
                return
            del self._removed[name], self._pasts[name]

    def of(self, name: str) -> Sequence[HistoryEntry]:
        """The past of a connector, in log order; empty if nothing is known."""
        past = self._pasts.get(name)
        return () if past is None else tuple(past.entries())

    def offsets(self) -> Iterable[int]:
        """The offsets of all entries, for compaction to spare."""
        for past in self._pasts.values():
            yield from (entry.offset for entry in past.versions)
            yield from (entry.offset for entry in past.others)

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        for name, past in self._pasts.items():
            offsets = [entry.offset for entry in past.entries()]
            assert offsets == sorted(set(offsets)), offsets
            assert 0 < len(past.versions) <= self._entries_max, name
            assert len(past.others) <= self._entries_max, name
            assert offsets[0] == past.versions[0].offset, offsets
            assert past.exists() == (name not in self._removed), name
        assert list(self._removed.values()) == sorted(self._removed.values())

    def _get(self, name: str) -> _Past:
        past = self._pasts.get(name)
        if past is None:
            past = self._pasts[name] = _Past()
        return past

    def _add_other(self, name: str, entry: HistoryEntry) -> None:
        past = self._pasts.get(name)
        if past is not None and past.exists():
            past.add_other(entry, self._entries_max)
