"""Decides which dead letters a replay may write: the ones that overwrite no newer data.

A record or tombstone is newer if it was delivered later than the dead letter's record under the key
that the sink overwrites by. Previews, requests and tasks decide with the same function.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from drover.config.patterns import Pattern
from drover.connector import SinkConnector
from drover.connector.connector import Connector
from drover.connector.settings import TOPICS, TOPICS_REGEX
from drover.dataplane.arrow_rows import ArrowFunction
from drover.dataplane.plane import DataPlane, PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.letter_states import OffsetSet
from drover.pipeline.layouts import renamable_records, topic_records
from drover.pipeline.overwrites import Identities, OverwriteKey
from drover.pipeline.replay import LetterRows
from drover_worker.engine.tasks.record_path import RecordPath

#: Dead letters that are read for one decision; further ones stay open.
LETTERS_MAX = 100_000
#: Records of topics that are searched for newer ones, and the time for it.
SEARCHED_MAX = 1_000_000
SEARCH_S = 20.0
#: The time for the search of a task, directly before it writes dead letters.
TASK_SEARCH_S = 600.0
_PLAN_RECORDS, _PLAN_BYTES = 20_000, 16 * 1024 * 1024
#: Records of a topic without the same key are equal to the key of a source.
_WHOLE_KEY = (OverwriteKey(keyless_appends=True),)

Offsets = Mapping[int, OffsetSet]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a dead letter is not replayed: newer data is known, or it is unknown whether there is."""

    is_newer: bool
    message: str


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter.

    Attributes:
        place: Its partition and offset in its queue.
        origin: The topic, partition and offset of its record; None if unknown.
        time_ms: The timestamp of its record.
        digest: Of the key and the value of its record.
        identities: The data that it overwrites; empty for none, None if unknown.
        fault: Why that is unknown.
        connector: The connector that wrote it; None if unknown.
        matches: Whether it meets the conditions of the request.
        target: The topic of its record after the transforms; None if unknown.
    """

    place: tuple[int, int]
    origin: tuple[str, int, int] | None
    time_ms: int | None
    digest: str
    identities: tuple[str, ...] | None
    fault: str | None
    connector: str | None
    matches: bool
    target: str | None

    def is_before(self, other: "Letter") -> bool:
        """Whether its record is older than that of the other one, as far as this is known."""
        own, others = self.origin, other.origin
        if own is not None and others is not None and own[:2] == others[:2]:
            return own[2] < others[2]
        if self.time_ms is not None and other.time_ms is not None and self.time_ms != other.time_ms:
            return self.time_ms < other.time_ms
        return self.place < other.place


@dataclass(frozen=True, slots=True)
class Checked:
    """The dead letters of a request.

    Attributes:
        selected: The dead letters to replay, by partition.
        refused: The others, by partition and offset.
        is_cut: Whether there are more dead letters than were read.
    """

    selected: Offsets
    refused: Mapping[tuple[int, int], Refusal]
    is_cut: bool = False


@dataclass(slots=True)
class _Newest:
    """The delivered records of one identity in a topic partition: the highest offset, the highest
    timestamp with its offset, and an offset without a timestamp.
    """

    offset: int = -1
    time_ms: int = -1
    time_offset: int = -1
    timeless_offset: int | None = None

    def add(self, offset: int, time_ms: int | None) -> None:
        self.offset = max(self.offset, offset)
        if time_ms is None:
            self.timeless_offset = offset
        elif time_ms >= self.time_ms:
            self.time_ms, self.time_offset = time_ms, offset


@dataclass(slots=True)
class _Search:
    """What is known about the newer records of some dead letters.

    ``ends`` are the ends of the topics at the last search; ``reached`` is how far it got.
    """

    #: The topics that are searched completely, and the starts in other partitions.
    whole: frozenset[str] = frozenset()
    starts: dict[PartitionKey, int] = field(default_factory=dict)
    ends: dict[PartitionKey, int] = field(default_factory=dict)
    reached: dict[PartitionKey, int] = field(default_factory=dict)
    #: By identity and topic partition.
    found: dict[str, dict[PartitionKey, "_Newest"]] = field(default_factory=dict)
    #: By place: the digests of the records of dead letters.
    digests: dict[tuple[str, int, int], str] = field(default_factory=dict)
    keyed_topics: set[str] = field(default_factory=set)
    #: The places of the records of dead letters.
    places: frozenset[tuple[str, int, int]] = frozenset()

    def is_complete(self, key: PartitionKey) -> bool:
        return self.reached.get(key, 0) >= self.ends.get(key, 0)


class LetterCheck:
    """Decides about the dead letters of one connector.

    Args:
        kind: The connector's class.
        config: Its parsed config.
        name: Its name.
        path: Its record path; the conditions of its replay select what is decided about.
        selects_only: Decide by the conditions alone: nothing is written.
    """

    def __init__(
        self,
        kind: type[Connector],
        config: Mapping[str, Any],
        name: str,
        path: RecordPath,
        plane: DataPlane,
        spark: SparkSession,
        *,
        selects_only: bool = False,
    ) -> None:
        self._config = config
        self.name = name
        self._path = path
        self.plane = plane
        self._spark = spark
        self.is_sink = issubclass(kind, SinkConnector)
        keys: Sequence[OverwriteKey] = _WHOLE_KEY
        if issubclass(kind, SinkConnector):
            keys = kind.overwrite_keys(config)
        if selects_only:
            keys = ()
        self.keys = tuple(keys)

    def begin(
        self,
        queue: str,
        wanted: Offsets,
        conditions: Sequence[Any] = (),
        *,
        replayed: Offsets | None = None,
        skips_newer: bool = True,
        search_s: float = SEARCH_S,
    ) -> "LetterDecisions":
        """Read the dead letters of the queue, to decide about ``wanted`` ones.

        Args:
            queue: The dead letter queue.
            wanted: The dead letters, by partition.
            conditions: Conditions for them; others are in no part of the result.
            replayed: Dead letters that were replayed before: their records were delivered.
            skips_newer: Whether to refuse dead letters that would overwrite newer data; older ones
                of the same key that come after newer ones are refused in any case.
            search_s: The time limit of a search.
        """
        letters, is_cut = self._letters(queue, conditions, wanted)
        none = OffsetSet()
        chosen = [
            each
            for each in letters
            if each.matches and each.place[1] in wanted.get(each.place[0], none)
        ]
        undelivered = self._undelivered(letters, replayed or {}) if self.is_sink else set()
        return LetterDecisions(
            self, queue, chosen, undelivered, skips_newer, search_s, is_cut=is_cut
        )

    # dead letters

    def _letters(
        self, queue: str, conditions: Sequence[Any], wanted: Offsets
    ) -> tuple[list[Letter], bool]:
        """The dead letters of the queue, up to a limit, and whether there are more."""
        bounds = self.plane.topic_bounds(queue)
        starts = {(queue, partition): first for partition, (first, _) in bounds.items()}
        if not self.keys:  # other dead letters do not matter
            starts = {
                (queue, partition): max(bounds[partition][0], each.ranges[0][0])
                for partition, each in wanted.items()
                if each and partition in bounds
            }
        ends = {(queue, partition): end for partition, (_, end) in bounds.items()}
        rows = LetterRows(
            self._identities_of_letters(), tuple(conditions), self._path.letter_decoder
        )
        found: list[Letter] = []
        positions = dict(starts)
        while positions and len(found) < LETTERS_MAX:
            plan = self.plan(positions, ends)
            if plan is None:
                return found, False
            found += [_letter(row, self._path.only_topic) for row in self.run(plan, rows)]
        return found, bool(self.plan(positions, ends))

    def _identities_of_letters(self) -> Identities:
        if not self.keys:
            return Identities(topic_records, (), ())
        path = self._path
        route = path.sink_route(replayed=True) if self.is_sink else path.dead_letter_route()
        if self.is_sink:
            return Identities(route.prepare, (*route.before, *route.shown), self.keys)
        return Identities(route.prepare, (*route.shown, *route.after), self.keys)

    def _undelivered(
        self, letters: Iterable[Letter], replayed: Offsets
    ) -> set[tuple[str, int, int]]:
        """The places of records that became dead letters and were not delivered by a replay."""
        last = {each.origin: each.place for each in letters if each.origin is not None}
        none = OffsetSet()
        return {
            origin
            for origin, (partition, offset) in last.items()
            if offset not in replayed.get(partition, none)
        }

    def topics_of(self, letter: Letter) -> list[str]:
        """The topics that may have newer records, apart from the partition of its record."""
        if not self.is_sink:
            return [] if letter.target is None else [letter.target]
        assert letter.origin is not None
        if any(not each.per_topic for each in self.keys) or self._path.has_transforms:
            return sorted({letter.origin[0], *self._sink_topics()})
        if any(each.part == "value" for each in self.keys):
            return [letter.origin[0]]
        return []

    def _sink_topics(self) -> list[str]:
        named = self._config.get(TOPICS)
        if named is not None:
            return list(named)
        pattern = Pattern(self._config[TOPICS_REGEX])
        queue = self._path.errors.dead_letter_topic
        return [each for each in self.plane.topics() if pattern.matches(each) and each != queue]

    def identities_of_records(self, letters: Sequence[Letter]) -> Identities:
        """Finds the records of topics with the identities of dead letters, on executors."""
        wanted = frozenset(name for each in letters for name in each.identities or ())
        places = frozenset(each.origin for each in letters if each.origin is not None)
        if not self.is_sink:
            return Identities(topic_records, (), self.keys, wanted, shows_keys=True)
        route = self._path.sink_route()
        return Identities(
            renamable_records, (*route.before, *route.shown), self.keys, wanted, places
        )

    # reading

    def plan(
        self, positions: dict[PartitionKey, int], ends: Mapping[PartitionKey, int]
    ) -> ReadPlan | None:
        """The next read below ``ends``, and advance ``positions`` behind it; None at the ends."""
        while starts := {key: at for key, at in positions.items() if at < ends[key]}:
            plan = self.plane.plan_read(starts, max_records=_PLAN_RECORDS, max_bytes=_PLAN_BYTES)
            for key, at in starts.items():
                moved = plan.next_offsets.get(key, at)
                is_stuck = moved <= at and not plan.record_count
                positions[key] = ends[key] if is_stuck else min(moved, ends[key])
            cut = plan.until(ends)
            if cut.ranges:
                return cut
        return None

    def run(self, plan: ReadPlan, function: ArrowFunction) -> Iterator[dict[str, Any]]:
        """Run a function over the records of a plan on executors; returns its rows."""
        yield from self.plane.rows(self._spark, plan).run(function)


class LetterDecisions:
    """The decisions about some dead letters of a queue, which may be repeated at a later time."""

    def __init__(
        self,
        check: LetterCheck,
        queue: str,
        chosen: Sequence[Letter],
        undelivered: Collection[tuple[str, int, int]],
        skips_newer: bool,
        search_s: float,
        *,
        is_cut: bool,
    ) -> None:
        self._check = check
        self._queue = queue
        self._chosen = chosen
        self._undelivered = undelivered
        self._skips_newer = skips_newer
        self._search_s = search_s
        self._is_cut = is_cut
        self._is_sink = check.is_sink
        self._search: _Search | None = None
        self._searched_letters: list[Letter] = []

    def now(self, within: Offsets | None = None) -> Checked:
        """The decisions at this time, with all records that the topics have now.

        Args:
            within: Decide only about these dead letters; about all by default.
        """
        refused = self._refused_at_once() if self._skips_newer else {}
        left = [each for each in self._chosen if each.place not in refused]
        if self._skips_newer and self._check.keys and left:
            refused |= self._refused_as_older(left)
            left = [each for each in left if each.place not in refused]
        if self._check.keys:
            refused |= _out_of_order(left, self._queue)
        places: dict[int, list[tuple[int, int]]] = {}
        for each in self._chosen:
            partition, offset = each.place
            if within is not None and offset not in within.get(partition, OffsetSet()):
                refused.pop(each.place, None)
            elif each.place not in refused:
                places.setdefault(partition, []).append((offset, offset + 1))
        selected = {partition: OffsetSet.of(each) for partition, each in places.items()}
        return Checked(selected, refused, self._is_cut)

    def _refused_at_once(self) -> dict[tuple[int, int], Refusal]:
        """The refusals that need no search."""
        found = {each.place: self._fault_of(each) for each in self._chosen}
        return {place: _unknown(fault) for place, fault in found.items() if fault is not None}

    def _fault_of(self, letter: Letter) -> str | None:
        if letter.connector not in (None, self._check.name):
            return f"it is a dead letter of the connector {letter.connector}"
        if not self._check.keys:
            return None
        if letter.identities is None and letter.fault is not None:
            return f"its key cannot be determined: {letter.fault}"
        if self._is_sink and letter.identities and letter.origin is None:
            return (
                "it has no headers with the place of its record "
                "(errors.deadletterqueue.context.headers.enable)"
            )
        return None

    def _refused_as_older(self, letters: Sequence[Letter]) -> dict[tuple[int, int], Refusal]:
        if self._search is None:
            # a dead letter that a transform drops overwrites nothing
            self._searched_letters = [
                each
                for each in letters
                if each.identities or (not self._is_sink and each.identities is not None)
            ]
            self._search = self._begin_search(self._searched_letters)
        search = self._search
        self._go_on(search)
        found = {each.place: self._refusal(each, search) for each in self._searched_letters}
        return {place: each for place, each in found.items() if each is not None}

    def _begin_search(self, letters: Sequence[Letter]) -> _Search:
        search = _Search(
            places=frozenset(each.origin for each in letters if each.origin is not None),
            whole=frozenset(topic for each in letters for topic in self._check.topics_of(each)),
        )
        for each in letters:
            if self._is_sink and each.origin is not None:
                topic, partition, offset = each.origin
                key = (topic, partition)
                search.starts[key] = min(search.starts.get(key, offset), offset)
        return search

    def _go_on(self, search: _Search) -> None:
        """Search the records that were added since the last time, up to a limit."""
        plane = self._check.plane
        topics = sorted(search.whole | {topic for topic, _ in search.starts})
        present = plane.partition_counts(topics)
        for topic in topics:
            bounds = plane.topic_bounds(topic) if topic in present else {}
            for partition, (first, end) in bounds.items():
                key = (topic, partition)
                search.ends[key] = end
                start = first if topic in search.whole else search.starts.get(key)
                if start is not None:
                    search.reached.setdefault(key, min(max(start, first), end))
        positions = {key: at for key, at in search.reached.items() if at < search.ends[key]}
        rows = self._check.identities_of_records(self._searched_letters)
        deadline_s, count = time.monotonic() + self._search_s, 0
        while positions and count < SEARCHED_MAX and time.monotonic() < deadline_s:
            plan = self._check.plan(positions, search.ends)
            if plan is None:
                break
            count += plan.record_count
            for row in self._check.run(plan, rows):
                _note(search, row, self._undelivered)
        search.reached.update(positions)

    def _refusal(self, letter: Letter, search: _Search) -> Refusal | None:
        own = self._state_of_record(letter, search) if self._is_sink else None
        newer: tuple[str, int, int] | None = None
        uncertain: tuple[str, int, int] | None = None
        for identity in letter.identities or ():
            for (topic, partition), found in search.found.get(identity, {}).items():
                origin = letter.origin if self._is_sink else None
                if origin is not None and origin[:2] == (topic, partition):
                    if found.offset > origin[2]:
                        newer = (topic, partition, found.offset)
                    continue
                if letter.time_ms is None or found.timeless_offset is not None:
                    uncertain = (topic, partition, found.timeless_offset or found.offset)
                if letter.time_ms is not None and found.time_ms >= letter.time_ms:
                    newer = (topic, partition, found.time_offset)
        if own is not None and own[0]:  # its topic is another one now
            return _unknown(own[1])
        if newer is not None:
            return Refusal(
                is_newer=True,
                message=f"{_shown(newer)} has the same key and is newer: it would be overwritten",
            )
        if uncertain is not None:
            return _unknown(f"{_shown(uncertain)} has the same key, and its time is unknown")
        if own is not None:
            return _unknown(own[1])
        if not self._is_sink and not letter.identities and letter.target in search.keyed_topics:
            return _unknown(f"it has no key, and other records of {letter.target} have one")
        return self._unsearched(letter, search)

    def _unsearched(self, letter: Letter, search: _Search) -> Refusal | None:
        needed = {key for key in search.ends if key[0] in self._check.topics_of(letter)}
        if letter.origin is not None and self._is_sink:
            needed.add(letter.origin[:2])
        for key in sorted(needed):
            if not search.is_complete(key):
                return _unknown(
                    f"the search for newer records ended at its limit, at {key[0]}-{key[1]}@"
                    f"{search.reached.get(key, 0)} of {search.ends[key]}"
                )
        return None

    def _state_of_record(self, letter: Letter, search: _Search) -> tuple[bool, str] | None:
        """What is wrong with the dead letter's own record: whether its topic is another one, and
        the fault; None if it is still there.
        """
        assert letter.origin is not None
        topic, partition, offset = letter.origin
        key, place = (topic, partition), _shown(letter.origin)
        if key not in search.ends:
            return True, f"its topic {topic} does not exist, or has no partition {partition}"
        if offset >= search.ends[key]:
            return True, (
                f"{topic}-{partition} ends at {search.ends[key]}, before its record {place}: the "
                "topic was deleted and created again"
            )
        digest = search.digests.get(letter.origin)
        if digest is not None:
            if digest == letter.digest:
                return None
            return True, (
                f"{place} is another record: the topic was deleted and created again, or the dead "
                "letter was changed"
            )
        if search.reached.get(key, 0) <= offset:
            return None  # the search did not get there, which is reported
        return False, (
            f"its record {place} is no longer in the topic (retention or compaction), so newer "
            "ones may be gone too"
        )


def _letter(row: Mapping[str, Any], default_topic: str | None) -> Letter:
    topic = row["origin_topic"] or default_topic
    partition, offset = row["origin_partition"], row["origin_offset"]
    origin = None
    if topic is not None and partition is not None and offset is not None:
        origin = (topic, partition, offset)
    identities = row["identities"]
    return Letter(
        place=(row["partition"], row["offset"]),
        origin=origin,
        time_ms=row["time_ms"],
        digest=row["digest"],
        identities=None if identities is None else tuple(identities),
        fault=row["fault"],
        connector=row["connector"],
        matches=row["matches"],
        target=row["target"],
    )


def _note(
    search: _Search, row: Mapping[str, Any], undelivered: Collection[tuple[str, int, int]]
) -> None:
    place = (row["topic"], row["partition"], row["offset"])
    if row["has_key"]:
        search.keyed_topics.add(row["topic"])
    if place in search.places:
        search.digests[place] = row["digest"]
    if place in undelivered:
        return
    for identity in row["identities"] or ():
        found = search.found.setdefault(identity, {})
        found.setdefault(place[:2], _Newest()).add(row["offset"], row["time_ms"])


def _out_of_order(letters: Sequence[Letter], queue: str) -> dict[tuple[int, int], Refusal]:
    """Older dead letters that a replay would write after newer ones of the same key, or at the same
    time, from another partition of the queue.
    """
    refused: dict[tuple[int, int], Refusal] = {}
    newest: dict[str, Letter] = {}
    for each in letters:
        for identity in each.identities or ():
            known = newest.get(identity)
            if known is None or known.is_before(each):
                newest[identity] = each
    last: dict[str, Letter] = {}
    for each in sorted(letters, key=lambda each: each.place):
        for identity in each.identities or ():
            ahead = last.get(identity)
            rival = newest[identity]
            is_apart = rival.place[0] != each.place[0] and each.is_before(rival)
            if is_apart or (ahead is not None and each.is_before(ahead)):
                other = rival if is_apart or ahead is None else ahead
                refused[each.place] = Refusal(
                    is_newer=True,
                    message=f"the dead letter {queue}-{other.place[0]}@{other.place[1]} has the "
                    "same key, is newer, and is replayed before it",
                )
                break
        else:
            last.update(dict.fromkeys(each.identities or (), each))
    return refused


def _unknown(message: str) -> Refusal:
    return Refusal(is_newer=False, message=message)


def _shown(place: tuple[str, int, int]) -> str:
    return f"{place[0]}-{place[1]}@{place[2]}"
