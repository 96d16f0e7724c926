"""The incremental cooperative assignment (KIP-415): only what has to move is stopped.

The leader learns from each member what it holds, and answers with what it shall start and stop.
What has to move is stopped in one generation and started elsewhere in the next. What a lost member
held can wait for that member's return.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from itertools import cycle

from drover.model.ids import TaskId
from drover.model.status import StatusKey

#: The pause before a second round of revocations right after another: this to the power of how many
#: there were in a row (KAFKA-12495).
_SUCCESSIVE_REVOCATION_BASE_MS = 40
_POWER_MAX = 10


@dataclass(frozen=True, slots=True)
class MemberChange:
    """What one member starts and stops, and everything that it runs then."""

    starts: Sequence[StatusKey]
    stops: Sequence[StatusKey]
    runs: Sequence[StatusKey]


@dataclass(frozen=True, slots=True)
class Round:
    """One assignment: the changes by member id; the next one is due after ``delay_ms``, 0 for
    none.
    """

    changes: Mapping[str, MemberChange]
    delay_ms: int


@dataclass(slots=True)
class _Load:
    """What one member runs, connectors and tasks apart: each kind is balanced by itself."""

    member_id: str
    connectors: list[StatusKey] = field(default_factory=list)
    tasks: list[StatusKey] = field(default_factory=list)

    @property
    def keys(self) -> list[StatusKey]:
        return [*self.connectors, *self.tasks]

    def add(self, key: StatusKey) -> None:
        (self.tasks if isinstance(key, TaskId) else self.connectors).append(key)


_Part = Callable[[_Load], list[StatusKey]]


def _connectors(load: _Load) -> list[StatusKey]:
    return load.connectors


def _tasks(load: _Load) -> list[StatusKey]:
    return load.tasks


class CooperativeAssignor:
    """What a leader remembers between the rounds that it leads; lost with it.

    Attributes:
        delay_ms: How long what is lost, or would have to move again, still waits; 0 for not at all.
        deadline_ms: When that is over; 0 for no wait.
        candidates: Members that came with nothing while lost work waited: it was perhaps theirs.
    """

    def __init__(self, max_delay_ms: int) -> None:
        """``max_delay_ms`` is the longest wait for a lost member; 0 moves its work at once."""
        self._max_delay_ms = max_delay_ms
        self.delay_ms = 0
        self.deadline_ms = 0
        self.candidates: list[str] = []
        self._previous: AbstractSet[StatusKey] = frozenset()
        self._previous_stops: AbstractSet[StatusKey] = frozenset()
        self._previous_members: AbstractSet[str] = frozenset()
        #: What the round before gave to each member.
        self._previous_loads: Mapping[str, AbstractSet[StatusKey]] = {}
        self._previous_generation = -1
        self._stopped_in_previous = False
        self._successive_stops = 0
        #: The generation in which this leader placed what it placed.
        self._placed: Mapping[StatusKey, int] = {}

    def assign(
        self,
        held: Mapping[str, Iterable[StatusKey]],
        configured: AbstractSet[StatusKey],
        *,
        generation: int,
        last_generation: int,
        now_ms: int,
        draining: AbstractSet[str] = frozenset(),
        disconnected: AbstractSet[str] = frozenset(),
    ) -> Round:
        """The next round.

        Args:
            held: What each member runs, by member id.
            configured: Every connector and task that should run.
            generation: The one that this round is for.
            last_generation: The last one that was completed with this worker in it. A round that
                was computed for another one did not reach the members, or somebody else has led
                since.
            now_ms: The time.
            draining: Members that hand everything over and get nothing. While there are no others
                they keep what they hold, and nothing starts.
            disconnected: Members of the generation before whose processes are known to be gone:
                what they held is not waited for.
        """
        reports = {member_id: set(keys) for member_id, keys in sorted(held.items())}
        if self._previous_generation != last_generation:
            self._previous = frozenset()
        active: set[StatusKey] = set().union(*reports.values())
        if not self._previous_stops.isdisjoint(active):
            self._previous = frozenset(active)
        duplicated = _duplicated(reports.values())
        gone = self._previous - active - (self._previous - configured)
        lost = gone - set().union(*(self._previous_loads.get(each, ()) for each in disconnected))
        created = configured - self._previous - active
        loads = [
            _load(member_id, (keys & configured) - duplicated)
            for member_id, keys in reports.items()
        ]
        takers = _takers(loads, draining)
        stops = _hand_over(loads, takers)
        reassigned = self._handle_lost(lost, takers, reports.keys() | disconnected, now_ms)
        stops |= self._balance(configured, takers, now_ms, waits_for_lost=bool(lost))
        kept = {load.member_id: set(load.keys) for load in loads}
        # what a candidate was given beyond its share runs nowhere: no stop leads to another round
        new = created | reassigned.items | (gone - lost) | (stops - active)
        stops &= active
        if takers:
            for kind in (_is_connector, _is_task):
                placed = sorted(filter(kind, new), key=_order)
                _place(placed, takers, _tasks if kind is _is_task else _connectors)
            self._remember_placed(new, configured, generation)
        stopped = (duplicated & configured) | stops
        # what a draining member holds is not waited for when it is gone
        self._previous = frozenset(
            {key for load in takers for key in load.keys} | (lost - reassigned.all)
        )
        self._previous_stops = frozenset(stopped)
        self._previous_members = frozenset(reports)
        self._previous_loads = {load.member_id: frozenset(load.keys) for load in takers}
        self._previous_generation = generation
        changes = {
            load.member_id: MemberChange(
                starts=sorted(set(load.keys) - (reports[load.member_id] - stopped), key=_order),
                stops=sorted(
                    (reports[load.member_id] & stopped) - kept[load.member_id], key=_order
                ),
                runs=sorted(load.keys, key=_order),
            )
            for load in loads
        }
        return Round(changes, self.delay_ms)

    def _handle_lost(
        self,
        lost: AbstractSet[StatusKey],
        loads: Sequence[_Load],
        members: AbstractSet[str],
        now_ms: int,
    ) -> "_Reassigned":
        """What of the lost work is placed now; candidates get theirs here."""
        if not lost and not self._stopped_in_previous:
            self._forget_wait()
            return _Reassigned()
        nobody_left = self.deadline_ms <= 0 and self._previous_members <= members
        if nobody_left or self._max_delay_ms == 0:
            return _Reassigned(items=frozenset(lost))
        if 0 < self.deadline_ms <= now_ms:
            present = [load for load in loads if load.member_id in self.candidates]
            self._forget_wait()
            self._stopped_in_previous = False
            if not present:
                return _Reassigned(items=frozenset(lost))
            for kind in (_is_connector, _is_task):
                for key, load in zip(sorted(filter(kind, lost), key=_order), cycle(present)):
                    load.add(key)
            return _Reassigned(given=frozenset(lost))
        for load in loads:
            if not load.keys and load.member_id not in self.candidates:
                self.candidates.append(load.member_id)
        left_ms = self.deadline_ms - now_ms if self.deadline_ms > 0 else self._max_delay_ms
        self.delay_ms = min(left_ms, self._max_delay_ms)
        self.deadline_ms = now_ms + self.delay_ms
        return _Reassigned()

    def _balance(
        self,
        configured: AbstractSet[StatusKey],
        loads: Sequence[_Load],
        now_ms: int,
        *,
        waits_for_lost: bool,
    ) -> set[StatusKey]:
        """What is taken from members that hold more than their share; it leaves their loads."""
        if not loads:
            return set()
        if self.delay_ms > 0:
            # a wait before more revocations goes on, however often others join meanwhile; Kafka
            # Connect revokes at the second time
            self._stopped_in_previous = self._stopped_in_previous and not waits_for_lost
            return set()
        task_count = sum(map(_is_task, configured))
        found = {
            *self._surplus(len(configured) - task_count, loads, _connectors),
            *self._surplus(task_count, loads, _tasks),
        }
        if not found:
            if self._stopped_in_previous:
                self._stopped_in_previous = False
                self._successive_stops = 0
            return set()
        if self._stopped_in_previous:
            self._successive_stops += 1
            power = min(self._successive_stops, _POWER_MAX)
            self.delay_ms = min(_SUCCESSIVE_REVOCATION_BASE_MS**power, self._max_delay_ms)
            if self.delay_ms:
                self.deadline_ms = now_ms + self.delay_ms
                return set()
        self._stopped_in_previous = True
        for load in loads:
            load.connectors = [key for key in load.connectors if key not in found]
            load.tasks = [key for key in load.tasks if key not in found]
        return found

    def _surplus(self, total: int, loads: Sequence[_Load], part: _Part) -> list[StatusKey]:
        """What members hold above their shares of ``total``: what was placed last comes first.

        Shares differ by one at most; members that hold more come first to the greater ones. So a
        worker that was drained and is back gets what moved away from it, and nothing else stops.
        """
        floor, greater_count = divmod(total, len(loads))
        counts = [len(part(load)) for load in loads]
        held_greater = counts.count(floor + 1)
        balanced = held_greater == greater_count and held_greater + counts.count(floor) == len(
            loads
        )
        found: list[StatusKey] = []
        if balanced or not total:
            return found
        for load in loads:
            keys = sorted(part(load), key=lambda key: -self._placed.get(key, -1))
            if len(keys) <= floor:
                continue
            share = floor
            if greater_count:
                share, greater_count = floor + 1, greater_count - 1
            found += keys[: max(len(keys) - share, 0)]
        return found

    def _remember_placed(
        self, keys: Iterable[StatusKey], configured: AbstractSet[StatusKey], generation: int
    ) -> None:
        placed = {**self._placed, **dict.fromkeys(keys, generation)}
        self._placed = {key: at for key, at in placed.items() if key in configured}

    def _forget_wait(self) -> None:
        self.candidates = []
        self.deadline_ms = 0
        self.delay_ms = 0


@dataclass(frozen=True, slots=True)
class _Reassigned:
    """Lost work that does not wait any more: to be placed, or ``given`` to candidates already."""

    items: AbstractSet[StatusKey] = frozenset()
    given: AbstractSet[StatusKey] = frozenset()

    @property
    def all(self) -> AbstractSet[StatusKey]:
        return self.items | self.given


def _load(member_id: str, keys: Iterable[StatusKey]) -> _Load:
    load = _Load(member_id)
    for key in sorted(keys, key=_order):
        load.add(key)
    return load


def _duplicated(reports: Iterable[AbstractSet[StatusKey]]) -> set[StatusKey]:
    seen: set[StatusKey] = set()
    duplicated: set[StatusKey] = set()
    for keys in reports:
        duplicated |= seen & keys
        seen |= keys
    return duplicated


def _takers(loads: Sequence[_Load], draining: AbstractSet[str]) -> Sequence[_Load]:
    """The members that take work."""
    return [load for load in loads if load.member_id not in draining]


def _hand_over(loads: Sequence[_Load], takers: Sequence[_Load]) -> set[StatusKey]:
    """What members that are no takers hold: it leaves their loads. Nothing if nobody takes it."""
    handed_over: set[StatusKey] = set()
    if takers:
        taking = {load.member_id for load in takers}
        for load in loads:
            if load.member_id not in taking:
                handed_over.update(load.keys)
                load.connectors, load.tasks = [], []
    return handed_over


def _place(keys: Sequence[StatusKey], loads: Sequence[_Load], part: _Part) -> None:
    """Give each to the member with the least of its kind; of equal ones to that with the least of
    both kinds, then to the first by member id.
    """
    queue = [(len(part(load)), len(load.keys), load.member_id, load) for load in loads]
    heapify(queue)
    for key in keys:
        count, total, member_id, load = queue[0]
        part(load).append(key)
        heapreplace(queue, (count + 1, total + 1, member_id, load))


def _is_connector(key: StatusKey) -> bool:
    return not isinstance(key, TaskId)


def _is_task(key: StatusKey) -> bool:
    return isinstance(key, TaskId)


def _order(key: StatusKey) -> tuple[str, int]:
    return (key.connector, key.task) if isinstance(key, TaskId) else (key, -1)
