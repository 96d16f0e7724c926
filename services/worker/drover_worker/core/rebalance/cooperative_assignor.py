"""The incremental cooperative assignment (KIP-415), which stops only what moves.

Each member reports its connectors and tasks to the leader, which returns what to start and to stop.
A task that moves is revoked in one generation and started elsewhere in the next. The work of a lost
member can wait for its return.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from itertools import cycle

from drover.model.ids import TaskId
from drover.model.status import StatusKey

#: The base of the delay between successive rounds of revocations; the exponent is their number in a
#: row (KAFKA-12495).
_SUCCESSIVE_REVOCATION_BASE_MS = 40
_POWER_MAX = 10


@dataclass(frozen=True, slots=True)
class MemberChange:
    """The keys that a member starts and stops, and all keys that it runs afterwards."""

    starts: Sequence[StatusKey]
    stops: Sequence[StatusKey]
    runs: Sequence[StatusKey]


@dataclass(frozen=True, slots=True)
class Round:
    """One assignment: the changes by member id.

    A follow-up rebalance is due after ``delay_ms``; 0 for none.
    """

    changes: Mapping[str, MemberChange]
    delay_ms: int


@dataclass(slots=True)
class _Load:
    """The connectors and the tasks of one member; each kind is balanced separately."""

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
    """The leader's assignor; its state lasts from round to round, and is lost with the leader.

    Attributes:
        delay_ms: How long lost work, or the next revocations, still wait; 0 for no wait.
        deadline_ms: When the wait ends; 0 for no wait.
        candidates: Members that joined without work while lost work waited. They may be lost
            members that rejoined under a new id.
    """

    def __init__(self, max_delay_ms: int) -> None:
        """``max_delay_ms`` is the longest wait for a lost member; 0 reassigns its work at once."""
        self._max_delay_ms = max_delay_ms
        self.delay_ms = 0
        self.deadline_ms = 0
        self.candidates: list[str] = []
        self._previous: AbstractSet[StatusKey] = frozenset()
        self._previous_stops: AbstractSet[StatusKey] = frozenset()
        self._previous_members: AbstractSet[str] = frozenset()
        #: The assignment of each member in the previous round.
        self._previous_loads: Mapping[str, AbstractSet[StatusKey]] = {}
        self._previous_generation = -1
        self._stopped_in_previous = False
        self._successive_stops = 0
        #: The generation in which this leader assigned a connector or task.
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
        """Compute the next round.

        Args:
            held: The connectors and tasks that each member runs, by member id.
            configured: Every connector and task in the config log.
            generation: The generation of this round.
            last_generation: The last generation that this worker completed. If the previous round
                was for another generation, it never reached the members, or another worker has led
                since; it is then ignored.
            now_ms: The time.
            draining: Members that hand over all their work and get none. If all members drain, they
                keep their work, and nothing starts.
            disconnected: Members of the previous generation whose processes have ended; their work
                is reassigned without a delay.
        """
        reports = {member_id: set(keys) for member_id, keys in sorted(held.items())}
        if self._previous_generation != last_generation:
            self._previous = frozenset()
        active: set[StatusKey] = set().union(*reports.values())
        if not self._previous_stops.isdisjoint(active):
            self._previous = frozenset(active)
        duplicated = _duplicated(reports.values())
        missing = self._previous - active - (self._previous - configured)
        of_disconnected = (self._previous_loads.get(each, ()) for each in disconnected)
        lost = missing - set().union(*of_disconnected)
        created = configured - self._previous - active
        loads = [
            _load(member_id, (keys & configured) - duplicated)
            for member_id, keys in reports.items()
        ]
        takers = _takers(loads, draining)
        stops = _hand_over(loads, takers)
        reassigned = self._handle_lost(lost, takers, reports.keys() | disconnected, now_ms)
        stops |= self._balance(configured, takers, now_ms, waits_for_lost=bool(lost))
        retained = {load.member_id: set(load.keys) for load in loads}
        # keys in stops that no member runs were given to a candidate in this round: place them now,
        # since no revocation would lead to another round
        unassigned = created | reassigned.items | (missing - lost) | (stops - active)
        stops &= active
        if takers:
            for kind in (_is_connector, _is_task):
                keys = sorted(filter(kind, unassigned), key=_order)
                _place(keys, takers, _tasks if kind is _is_task else _connectors)
            self._remember_placed(unassigned, configured, generation)
        stopped = (duplicated & configured) | stops
        # the work of a draining member is left out: if it leaves, its work is not lost but new
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
                    (reports[load.member_id] & stopped) - retained[load.member_id], key=_order
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
        """Decide which lost work is reassigned now; give it to candidates if there are any."""
        if not lost and not self._stopped_in_previous:
            self._clear_delay()
            return _Reassigned()
        no_member_left = self.deadline_ms <= 0 and self._previous_members <= members
        if no_member_left or self._max_delay_ms == 0:
            return _Reassigned(items=frozenset(lost))
        if 0 < self.deadline_ms <= now_ms:
            present = [load for load in loads if load.member_id in self.candidates]
            self._clear_delay()
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
        remaining_ms = self.deadline_ms - now_ms if self.deadline_ms > 0 else self._max_delay_ms
        self.delay_ms = min(remaining_ms, self._max_delay_ms)
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
        """Revoke what members hold above their fair share; returns it, removed from the loads."""
        if not loads:
            return set()
        if self.delay_ms > 0:
            # joins during the delay do not end it, unlike in Kafka Connect, which revokes at the
            # second join
            self._stopped_in_previous = self._stopped_in_previous and not waits_for_lost
            return set()
        task_count = sum(map(_is_task, configured))
        surplus = {
            *self._surplus(len(configured) - task_count, loads, _connectors),
            *self._surplus(task_count, loads, _tasks),
        }
        if not surplus:
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
            load.connectors = [key for key in load.connectors if key not in surplus]
            load.tasks = [key for key in load.tasks if key not in surplus]
        return surplus

    def _surplus(self, total: int, loads: Sequence[_Load], part: _Part) -> list[StatusKey]:
        """What members hold above their fair share of ``total``, latest assigned first.

        Fair shares differ by one at most; members that hold more get the larger shares. So a worker
        that was drained and takes work again gets its earlier work back, and nothing else stops.
        """
        floor, greater_count = divmod(total, len(loads))
        counts = [len(part(load)) for load in loads]
        held_greater = counts.count(floor + 1)
        balanced = held_greater == greater_count and held_greater + counts.count(floor) == len(
            loads
        )
        surplus: list[StatusKey] = []
        if balanced or not total:
            return surplus
        for load in loads:
            keys = sorted(part(load), key=lambda key: -self._placed.get(key, -1))
            if len(keys) <= floor:
                continue
            share = floor
            if greater_count:
                share, greater_count = floor + 1, greater_count - 1
            surplus += keys[: max(len(keys) - share, 0)]
        return surplus

    def _remember_placed(
        self, keys: Iterable[StatusKey], configured: AbstractSet[StatusKey], generation: int
    ) -> None:
        placed = {**self._placed, **dict.fromkeys(keys, generation)}
        self._placed = {key: placed_in for key, placed_in in placed.items() if key in configured}

    def _clear_delay(self) -> None:
        self.candidates = []
        self.deadline_ms = 0
        self.delay_ms = 0


@dataclass(frozen=True, slots=True)
class _Reassigned:
    """Lost work whose delay is over: ``items`` to assign, and ``given`` to candidates already."""

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
    """The members that accept work."""
    return [load for load in loads if load.member_id not in draining]


def _hand_over(loads: Sequence[_Load], takers: Sequence[_Load]) -> set[StatusKey]:
    """Remove the work of draining members from their loads and return it, if there are takers."""
    handed_over: set[StatusKey] = set()
    if takers:
        taker_ids = {load.member_id for load in takers}
        for load in loads:
            if load.member_id not in taker_ids:
                handed_over.update(load.keys)
                load.connectors, load.tasks = [], []
    return handed_over


def _place(keys: Sequence[StatusKey], loads: Sequence[_Load], part: _Part) -> None:
    """Assign each key to the member with the fewest keys of its kind.

    Ties are broken by the fewest keys of both kinds, then by member id.
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
