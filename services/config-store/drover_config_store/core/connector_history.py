"""The history of each connector: its last changes, with author and time."""

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
    DeadLettersRecord,
    RestartRecord,
    TargetStateRecord,
)

VERSIONS_MAX_DEFAULT: Final = 10
#: The history of a deleted connector is dropped after so many further records.
FORGOTTEN_AFTER_RECORDS: Final = 10_000
#: The kinds of records that become entries.
RECORDS_WITH_HISTORY: Final = (
    ConnectorRecord,
    TargetStateRecord,
    RestartRecord,
    DeadLettersRecord,
)


class _History:
    """The history of one connector.

    ``versions`` holds its last configs and deletions, ``others`` its target states, restarts and
    changes of dead letters since the first of them. Each has its own limit, so that target states
    do not displace configs. Both are lists because most hold a few entries and an empty deque takes
    600 bytes.
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


class ConnectorHistory:
    """The last changes of every connector.

    The kept entries depend only on the entries and the log's end offset, so a compacted log yields
    the same history if compaction keeps the entries' records.

    Args:
        entries_max: The limit of configs and deletions of a connector, and of its target states
            and restarts.
    """

    def __init__(self, entries_max: int = VERSIONS_MAX_DEFAULT) -> None:
        self._entries_max = entries_max
        self._histories: dict[str, _History] = {}
        #: by deleted connector: the offset of its deletion, the oldest first
        self._removed: OrderedDict[str, int] = OrderedDict()

    def add(self, offset: int, time_ms: int, author: str, record: ConfigRecord) -> None:
        """Add the record at ``offset`` if its kind has a history."""
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
            case DeadLettersRecord(name, _, change):
                self._add_other(name, HistoryEntry(offset, time_ms, author, change))

    def advance(self, end_offset: int) -> None:
        """Drop the histories that expire when the log ends at ``end_offset``."""
        while self._removed:
            name = next(iter(self._removed))
            if end_offset - self._removed[name] <= FORGOTTEN_AFTER_RECORDS:
                return
            del self._removed[name], self._histories[name]

    def of(self, name: str) -> Sequence[HistoryEntry]:
        """The history of a connector in log order; empty if there is none."""
        history = self._histories.get(name)
        return () if history is None else tuple(history.entries())

    def offsets(self) -> Iterable[int]:
        """The offsets of all entries, which compaction keeps."""
        for history in self._histories.values():
            yield from (entry.offset for entry in history.versions)
            yield from (entry.offset for entry in history.others)

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        for name, history in self._histories.items():
            offsets = [entry.offset for entry in history.entries()]
            assert offsets == sorted(set(offsets)), offsets
            assert 0 < len(history.versions) <= self._entries_max, name
            assert len(history.others) <= self._entries_max, name
            assert offsets[0] == history.versions[0].offset, offsets
            assert history.exists() == (name not in self._removed), name
        assert list(self._removed.values()) == sorted(self._removed.values())

    def _get(self, name: str) -> _History:
        history = self._histories.get(name)
        if history is None:
            history = self._histories[name] = _History()
        return history

    def _add_other(self, name: str, entry: HistoryEntry) -> None:
        history = self._histories.get(name)
        if history is not None and history.exists():
            history.add_other(entry, self._entries_max)
