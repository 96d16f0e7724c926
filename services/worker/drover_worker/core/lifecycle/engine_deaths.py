"""Finds the connector that ends the engine, and the engine in which each suspect runs.

All connectors of a worker share an engine process, so code of one connector can end it for all. A
single end is no proof against the connectors that were at work. They are tested in engines apart
from the others: the engine that ends next contains the culprit. Groups of suspects are halved until
one connector is alone. A connector that alone was at work at two consecutive ends is the culprit.
It then runs in quarantine, in a separate engine, and is stopped when that engine ends repeatedly.

Code may also end the engine a moment after its call, such as by closing the engine's descriptors.
What worked shortly before an end is therefore suspected too, after what was at work. One connector
at work is then evidence, but names it only if the engine contained no other suspect.

At most ``_SUSPECT_SLOTS`` engines are used at a time, besides one for each connector in quarantine.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from drover.model.failures import IN_QUARANTINE, FailureCause
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.events import EndKind

SHARED_SLOT = "shared"
_SUSPECT_SLOTS = ("suspects/1", "suspects/2")
_QUARANTINE = "quarantine/"

#: The connector that alone was at work at this many consecutive ends is the culprit.
_ENDS_ALONE_MIN = 2
#: A connector in quarantine is stopped after this many ends of its engine.
QUARANTINE_ENDS_MAX = 3
#: Ends further apart are treated as unrelated.
_WINDOW_MS = 3_600_000
#: Suspects return to the shared engine after this time without another end.
_QUIET_MS = 600_000
#: A group in which an end occurred returns after this many later ends of the shared engine.
_SURVIVALS_MAX = 6
#: As above, for the only one at work while others had worked shortly before.
_SURVIVALS_LIKELY_MAX = 2
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class EngineDeath:
    """The unexpected end of an engine.

    Attributes:
        slot: The name of the engine's slot.
        reason: Why it ended, for operators.
        at_work: The connectors and tasks that were at work, the most suspicious first; None if they
            are unknown.
        held: All connectors and tasks that ran in the engine.
        kind: How it ended.
        by_itself: Whether the end was not requested, and no other process killed the engine.
        recent: The others that worked shortly before the end, the most suspicious first.
    """

    slot: str
    reason: str
    at_work: Sequence[StatusKey] | None
    held: Sequence[StatusKey]
    kind: EndKind = EndKind.CRASH
    by_itself: bool = False
    recent: Sequence[StatusKey] = ()


@dataclass(frozen=True, slots=True)
class EngineFault:
    """The failure of a connector or task that ended its engine."""

    trace: str
    cause: FailureCause = FailureCause.PLUGIN


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a connector runs in a separate engine.

    Attributes:
        since_ms: When it was named as the culprit, since the epoch.
        end_count: The ends at which it alone was at work, before and in quarantine.
        reason: Why the engine ended last.
        ends_ms: When its engine in quarantine ended, within the window.
    """

    since_ms: int
    end_count: int
    reason: str
    ends_ms: tuple[int, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether it was stopped, because its engine ended too often."""
        return len(self.ends_ms) >= QUARANTINE_ENDS_MAX


@dataclass(slots=True)
class _Group:
    """Suspects in one engine; ``confirmed`` when an end there, or at its only suspect's work,
    proved that one of them is the culprit.
    """

    members: tuple[str, ...]
    confirmed: bool
    #: It returns after this many later ends of the shared engine.
    survivals_max: int = _SURVIVALS_MAX
    #: Ends of the shared engine during which this group's engine continued.
    survived_count: int = 0


@dataclass(frozen=True, slots=True)
class _Alone:
    """Consecutive ends at which a connector alone was at work."""

    count: int
    last_ms: int


@dataclass(slots=True)
class EngineDeaths:
    """The suspects of one worker, and the connectors in quarantine."""

    quarantined: dict[str, Quarantine] = field(default_factory=dict)
    _groups: dict[str, _Group] = field(default_factory=dict)
    _alone: dict[str, _Alone] = field(default_factory=dict)
    #: Suspects in the shared engine: the others of the last end there are being tested.
    _shared_suspects: tuple[str, ...] = ()
    _last_ms: int = 0

    @property
    def slots(self) -> Mapping[str, str]:
        """The slot of each connector that does not run in its usual engine."""
        in_groups = {name: slot for slot, each in self._groups.items() for name in each.members}
        return in_groups | {name: f"{_QUARANTINE}{name}" for name in self.quarantined}

    @property
    def release_ms(self) -> int | None:
        """When the suspects return to the shared engine if nothing ends; None without suspects."""
        return self._last_ms + _QUIET_MS if self._groups else None

    def record(self, death: EngineDeath, now_ms: int) -> Mapping[StatusKey, EngineFault]:
        """Judge an end and change ``slots``; returns the failures of the culprit's own work."""
        self.release_due(now_ms)
        at_work = _connectors_of(death.held if death.at_work is None else death.at_work)
        active = _connectors_of((*at_work, *death.recent))
        is_apart = death.slot in _SUSPECT_SLOTS or death.slot.startswith(_QUARANTINE)
        held = _connectors_of(death.held)
        if not active and death.by_itself and is_apart and len(held) == 1:
            active = held  # only its code has run in this engine
        if not active:
            return {}
        if death.slot not in (SHARED_SLOT, *_SUSPECT_SLOTS):
            return self._record_separate(death, active[0], now_ms)
        self._last_ms = now_ms
        if len(active) == 1:
            return self._record_alone(death, active[0], now_ms)
        if len(at_work) == 1 and death.slot == SHARED_SLOT and at_work[0] not in self._alone:
            self._suspect(at_work[0], now_ms, others=active[1:])
            return {}
        for name in active:
            self._alone.pop(name, None)
        if death.slot in self._groups:
            self._split_group(death.slot, active)
        else:
            self._split_shared(active)
        return {}

    def release(self, name: str) -> None:
        """Give a connector a new chance in its usual engine: it or its config has changed."""
        self.quarantined.pop(name, None)
        self._alone.pop(name, None)
        self._remove_from_groups([name])

    def release_all(self) -> None:
        """``release`` every connector: all plugins were loaded again."""
        self.quarantined.clear()
        self._alone.clear()
        self._forget_suspects()

    def release_due(self, now_ms: int) -> None:
        """Let the suspects return when ``release_ms`` has passed; drop outdated evidence."""
        if self.release_ms is not None and now_ms >= self.release_ms:
            self._forget_suspects()
        self._alone = {
            name: each for name, each in self._alone.items() if now_ms - each.last_ms <= _WINDOW_MS
        }

    def note(self, name: str, time_text: Callable[[int], str]) -> str:
        """Why a connector is in quarantine, for its status; empty if it is not.

        Args:
            name: The connector.
            time_text: The text of a time in ms since the epoch.
        """
        found = self.quarantined.get(name)
        if found is None:
            return ""
        since = time_text(found.since_ms)
        return (
            f"runs {IN_QUARANTINE} since {since}: the engine ended {found.end_count} times"
            f" while it alone was at work: {found.reason}"
        )

    def _record_alone(
        self, death: EngineDeath, name: str, now_ms: int
    ) -> Mapping[StatusKey, EngineFault]:
        before = self._alone.get(name)
        count = before.count + 1 if before is not None else 1
        if count < _ENDS_ALONE_MIN:
            self._alone[name] = _Alone(count, now_ms)
            self._isolate(name)
            return {}
        self._alone.pop(name, None)
        self._remove_from_groups([name])
        # the others are cleared, unless there is evidence against one of them alone
        self._shared_suspects = ()
        self._groups = {
            slot: each
            for slot, each in self._groups.items()
            if len(each.members) == 1 and each.members[0] in self._alone
        }
        self.quarantined[name] = Quarantine(now_ms, count, death.reason)
        return _faults(death, name, EngineFault(_named_trace(death, count)))

    def _suspect(self, name: str, now_ms: int, others: Sequence[str]) -> None:
        """Test alone the only connector at work; ``others`` worked shortly before."""
        known = [each for each in others if each in self._shared_suspects]
        self._alone[name] = _Alone(1, now_ms)
        self._isolate(name, survivals_max=_SURVIVALS_LIKELY_MAX)
        self._shared_suspects = tuple(known or others)

    def _record_separate(
        self, death: EngineDeath, name: str, now_ms: int
    ) -> Mapping[StatusKey, EngineFault]:
        """Judge the end of an engine that runs one connector only."""
        found = self.quarantined.get(name)
        if found is None or death.slot != f"{_QUARANTINE}{name}":
            if death.kind is EndKind.KILL:
                return {}
            trace = f"its own engine ended while it was at work: {death.reason}"
            return _faults(death, name, EngineFault(trace + _remedy(death.kind)))
        ends_ms = (*(each for each in found.ends_ms if now_ms - each <= _WINDOW_MS), now_ms)
        found = Quarantine(found.since_ms, found.end_count + 1, death.reason, ends_ms)
        self.quarantined[name] = found
        trace = _quarantine_trace(death, found)
        if not found.stopped:
            return _faults(death, name, EngineFault(trace))
        fault = EngineFault(trace, FailureCause.LIMIT)
        return dict.fromkeys((*death.held, *(death.at_work or ())), fault)

    def _isolate(self, name: str, *, survivals_max: int = _SURVIVALS_MAX) -> None:
        """Test a connector alone; the others of its engine return."""
        for slot, each in self._groups.items():
            if name in each.members:
                self._groups[slot] = _Group((name,), confirmed=True)
                return
        self._groups[self._freed_slot()] = _Group((name,), True, survivals_max)
        self._shared_suspects = tuple(each for each in self._shared_suspects if each != name)

    def _freed_slot(self) -> str:
        """A slot for suspects; the group that survived most returns if all are in use."""
        free = self._free_slots()
        if free:
            return free[0]
        weakest = max(
            self._groups,
            key=lambda slot: (
                not self._groups[slot].confirmed,
                self._groups[slot].survived_count,
                len(self._groups[slot].members),
            ),
        )
        del self._groups[weakest]
        return weakest

    def _split_group(self, slot: str, active: Sequence[str]) -> None:
        """Halve the suspects of a group in which an end occurred."""
        members = self._groups[slot].members
        suspects = [name for name in active if name in members] or list(members)
        first, second = _halves(suspects)
        self._groups[slot] = _Group(first, confirmed=True)
        (other,) = (each for each in _SUSPECT_SLOTS if each != slot)
        there = self._groups.get(other)
        # the other half of an earlier split is cleared; one connector with evidence stays
        if there is None or len(there.members) > 1 or there.members[0] not in self._alone:
            self._groups[other] = _Group(second, confirmed=True)
        else:
            self._shared_suspects = second

    def _split_shared(self, active: Sequence[str]) -> None:
        """Test suspects of the shared engine in engines apart from it."""
        for slot, each in list(self._groups.items()):
            each.survived_count += 1
            if not each.confirmed or each.survived_count >= each.survivals_max:
                del self._groups[slot]
        known = [name for name in active if name in self._shared_suspects]
        suspects = known or list(active)
        free = self._free_slots()
        if not free:
            self._shared_suspects = tuple(suspects)
            return
        if known:
            first, second = _halves(suspects)
        else:  # the most suspicious one is enough at first, so that most connectors do not move
            first, second = tuple(suspects[:1]), tuple(suspects[1:])
        self._groups[free[0]] = _Group(first, confirmed=False)
        self._shared_suspects = second
        if known and second and len(free) > 1:
            self._groups[free[1]] = _Group(second, confirmed=False)
            self._shared_suspects = ()

    def _free_slots(self) -> list[str]:
        return [slot for slot in _SUSPECT_SLOTS if slot not in self._groups]

    def _remove_from_groups(self, names: Iterable[str]) -> None:
        removed = set(names)
        self._shared_suspects = tuple(each for each in self._shared_suspects if each not in removed)
        for slot, each in list(self._groups.items()):
            each.members = tuple(name for name in each.members if name not in removed)
            if not each.members:
                del self._groups[slot]

    def _forget_suspects(self) -> None:
        self._groups.clear()
        self._shared_suspects = ()


def ended_text(death: EngineDeath) -> str:
    """Why an engine ended and what was at work, for the others that ran in it."""
    active = _connectors_of(death.at_work or ())
    shown = ", ".join(active[:_NAMES_SHOWN])
    if len(active) > _NAMES_SHOWN:
        shown += f" and {len(active) - _NAMES_SHOWN} more"
    were = "was" if len(active) == 1 else "were"
    during = f" while {shown} {were} at work" if active else ""
    which = "the worker's engine" if death.slot == SHARED_SLOT else f"the engine {death.slot}"
    return f"{which} ended{during}: {death.reason}; it restarts, and then restarts its work"


def _named_trace(death: EngineDeath, count: int) -> str:
    what = "out of memory" if death.kind is EndKind.MEMORY else "the engine ended"
    return (
        f"{what} {count} times in a row while this connector alone was at work; it now runs"
        f" {IN_QUARANTINE}: {death.reason}\n"
        "It has a separate engine, so that others keep running." + _remedy(death.kind)
    )


def _quarantine_trace(death: EngineDeath, found: Quarantine) -> str:
    what = "out of memory" if death.kind is EndKind.MEMORY else "its engine ended"
    text = f"{what} while it was at work {IN_QUARANTINE} (end {len(found.ends_ms)} of at most"
    text += f" {QUARANTINE_ENDS_MAX} within {_WINDOW_MS / 1000:g} s): {death.reason}"
    if found.stopped:
        text += "\nIt was stopped. Change its config or restart it to try again."
    return text + _remedy(death.kind)


def _remedy(kind: EndKind) -> str:
    if kind is EndKind.MEMORY:
        return (
            "\nLower batch.max.bytes or batch.max.records, look for memory growth in the"
            " connector's code, or give the worker more memory."
        )
    return (
        "\nLook in the connector's code and its libraries for a reason why a process ends or hangs:"
        " a crash of native code, os._exit, or a call that holds Python's global interpreter lock."
    )


def _faults(death: EngineDeath, name: str, fault: EngineFault) -> Mapping[StatusKey, EngineFault]:
    keys = death.at_work or death.held
    return {key: fault for key in keys if _connector_of(key) == name}


def _halves(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    middle = (len(names) + 1) // 2
    return tuple(names[:middle]), tuple(names[middle:])


def _connectors_of(keys: Iterable[StatusKey]) -> list[str]:
    return list(dict.fromkeys(_connector_of(key) for key in keys))


def _connector_of(key: StatusKey) -> str:
    return key.connector if isinstance(key, TaskId) else key
