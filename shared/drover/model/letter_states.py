"""Which dead letters of a connector were replayed, repaired or discarded. Pure.

The config store keeps these states apart from the connector's config, so that they survive a new
config, a reset of offsets, and a connector that is deleted and created again.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from drover.model.dead_letters import ReplayRange
from drover.model.offsets import CommittedOffset
from drover.model.sink_offsets import parse_partition, parse_position
from drover.model.sink_outputs import SinkMetadata, SinkOutput, decode_mark

#: States of more dead letter queues than this are dropped, the oldest first.
QUEUES_MAX = 10
#: Of earlier repairs only that the dead letters were discarded is kept.
REPAIRS_MAX = 1_000


class LetterState(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    REPAIRED = "repaired"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """Offsets as ranges: sorted, not empty, each with a gap before the next."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> "OffsetSet":
        """The set of all offsets from each start up to, but not including, its end."""
        joined: list[tuple[int, int]] = []
        for start, end in sorted(each for each in ranges if each[0] < each[1]):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return cls(tuple(joined))

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self.ranges, (offset, float("inf")))
        return place > 0 and offset < self.ranges[place - 1][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: "OffsetSet") -> "OffsetSet":
        return OffsetSet.of((*self.ranges, *other.ranges))

    def __sub__(self, other: "OffsetSet") -> "OffsetSet":
        left, cuts, place = [], other.ranges, 0
        for start, end in self.ranges:
            at = start
            while place < len(cuts) and cuts[place][0] < end:
                left.append((at, cuts[place][0]))
                at = max(at, cuts[place][1])
                if cuts[place][1] > end:
                    break  # it may cut the next range too
                place += 1
            left.append((at, end))
        return OffsetSet.of(left)

    @property
    def count(self) -> int:
        """The number of offsets."""
        return sum(end - start for start, end in self.ranges)

    def below(self, end: int) -> "OffsetSet":
        """The offsets below ``end``."""
        return OffsetSet.of((start, min(stop, end)) for start, stop in self.ranges)


Offsets = Mapping[int, OffsetSet]
#: The offset of the repaired dead letter by partition and offset of the original.
Repairs = Mapping[int, Mapping[int, int]]


def joined(first: Offsets, second: Offsets) -> dict[int, OffsetSet]:
    """The offsets of both, by partition."""
    keys = sorted({*first, *second})
    return {key: first.get(key, OffsetSet()) | second.get(key, OffsetSet()) for key in keys}


def without(first: Offsets, second: Offsets) -> dict[int, OffsetSet]:
    """The offsets of ``first`` that ``second`` does not have, by partition."""
    left = {key: each - second.get(key, OffsetSet()) for key, each in first.items()}
    return {key: each for key, each in left.items() if each}


def within(first: Offsets, second: Offsets) -> dict[int, OffsetSet]:
    """The offsets that both have, by partition."""
    return without(first, without(first, second))


def count_of(offsets: Offsets) -> int:
    """The number of offsets of all partitions."""
    return sum(each.count for each in offsets.values())


def ranges_of(offsets: Offsets) -> list[ReplayRange]:
    """As ranges, in order."""
    return [
        ReplayRange(partition, *each)
        for partition, found in sorted(offsets.items())
        for each in found.ranges
    ]


def offsets_of_ranges(ranges: Iterable[ReplayRange]) -> dict[int, OffsetSet]:
    """Ranges as offsets by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    for each in ranges:
        found.setdefault(each.partition, []).append((each.start_offset, each.end_offset))
    return {partition: OffsetSet.of(each) for partition, each in found.items()}


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """What a connector's committed offset in its dead letter queue shows.

    Attributes:
        offset: The next dead letter.
        topic_id: The id of the queue; empty if unknown.
        output_id: The id of the replay that committed it; empty if it was not a replay with an id.
        is_reset: An operator reset the offset, so ``output_id`` is the next one.
    """

    offset: int
    topic_id: str = ""
    output_id: str = ""
    is_reset: bool = False

    def end_of(self, replay_id: str) -> int | None:
        """How far the replay with this id got, and None if the offset is of another replay."""
        if self.is_reset:
            own = SinkOutput(self.topic_id, replay_id).after_reset()
            return self.offset if self.output_id == own.output_id else None
        return self.offset if self.output_id in ("", replay_id) else None

    def is_reset_of(self, replay_id: str) -> bool:
        """Whether an operator reset the offset of this replay: it is not done again."""
        return self.is_reset and self.end_of(replay_id) is not None


def replay_progress(
    offsets: Iterable[CommittedOffset], topic: str, topic_id: str = ""
) -> dict[int, ReplayProgress]:
    """The progress in a dead letter queue among a connector's committed offsets and marks, by
    partition. Offsets of a queue that was deleted and created again do not count.
    """
    found: dict[int, ReplayProgress] = {}
    for each in offsets:
        try:
            place = parse_partition(each.partition_json)
            if place.topic != topic:
                continue
            if each.offset_json is not None:
                output = SinkMetadata.parsed(each.metadata).output
                position, is_reset = parse_position(each.offset_json), False
            elif each.metadata:
                mark = decode_mark(each.metadata)
                output, position, is_reset = mark.output, mark.offset, mark.is_reset
            else:
                continue
        except ValueError:
            continue
        if output.is_of(topic_id):
            progress = ReplayProgress(position, output.topic_id, output.output_id, is_reset)
            found[place.partition] = progress
    return found


@dataclass(frozen=True, slots=True)
class CurrentReplay:
    """The last replay of a queue, which may be in progress; ``id`` has 8 hexadecimal digits.

    With ``is_forced`` it overwrites newer data.
    """

    id: str
    offsets: Offsets
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class LetterStates:
    """The states of the dead letters of one queue; all others are open.

    Attributes:
        topic: The dead letter queue.
        topic_id: Its id; empty if unknown. The dead letters of a queue that was deleted and created
            again are others.
        replayed: Replayed before the last replay.
        discarded: Discarded by an operator, or replaced by a repaired one.
        repaired: Of these, the ones that were replaced.
        current: The last replay; its progress is a committed offset.
    """

    topic: str
    topic_id: str = ""
    replayed: Offsets = field(default_factory=dict)
    discarded: Offsets = field(default_factory=dict)
    current: CurrentReplay | None = None
    repaired: Repairs = field(default_factory=dict)

    def with_repairs(self, places: Iterable[tuple[int, int, int]]) -> "LetterStates":
        """The states after dead letters were replaced: partition, offset, and the new offset."""
        added = [*places]
        originals = offsets_of_ranges(ReplayRange(p, offset, offset + 1) for p, offset, _ in added)
        known = [
            (partition, *pair) for partition, each in self.repaired.items() for pair in each.items()
        ]
        repaired: dict[int, dict[int, int]] = {}
        for partition, offset, new_offset in [*known, *added][-REPAIRS_MAX:]:
            repaired.setdefault(partition, {})[offset] = new_offset
        return replace(self, discarded=joined(self.discarded, originals), repaired=repaired)

    def settled(self, progress: Mapping[int, ReplayProgress]) -> "LetterStates":
        """The states without a current replay; dead letters that it has not passed are open."""
        done: dict[int, OffsetSet] = {}
        for partition, each in progress.items():
            if not each.output_id and not each.is_reset:  # of a version without states
                done[partition] = OffsetSet.of([(0, each.offset)])
        return replace(
            self,
            replayed=joined(
                joined(self.replayed, without(done, self.discarded)), self.done(progress)
            ),
            current=None,
        )

    def done(self, progress: Mapping[int, ReplayProgress]) -> dict[int, OffsetSet]:
        """The dead letters that the current replay has passed."""
        if self.current is None:
            return {}
        found = {}
        for partition, offsets in self.current.offsets.items():
            at = progress.get(partition)
            end = None if at is None else at.end_of(self.current.id)
            if end:
                found[partition] = offsets.below(end)
        return {partition: each for partition, each in found.items() if each}

    def left(self, progress: Mapping[int, ReplayProgress]) -> dict[int, OffsetSet]:
        """The dead letters that the current replay has not passed yet; none after a reset."""
        if self.current is None:
            return {}
        replay_id = self.current.id
        waiting = {
            partition: each
            for partition, each in self.current.offsets.items()
            if partition not in progress or not progress[partition].is_reset_of(replay_id)
        }
        return without(waiting, self.done(progress))

    def of(self, progress: Mapping[int, ReplayProgress]) -> "StatesNow":
        """The state of each dead letter with this progress."""
        settled = self.settled(progress)
        return StatesNow(settled.replayed, settled.discarded, self.left(progress), settled.repaired)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "replayed": _document(self.replayed),
            "discarded": _document(self.discarded),
        }
        if self.repaired:
            found["repaired"] = {
                str(partition): [list(pair) for pair in each.items()]
                for partition, each in self.repaired.items()
            }
        if self.current is not None:
            found["current"] = {
                "id": self.current.id,
                "offsets": _document(self.current.offsets),
                "forced": self.current.is_forced,
            }
        return found

    @classmethod
    def parsed(cls, document: Mapping[str, Any]) -> "LetterStates":
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError: It does not have the form of ``document``.
        """
        current = document.get("current")
        return cls(
            str(document["topic"]),
            str(document["topic_id"]),
            _parsed(document["replayed"]),
            _parsed(document["discarded"]),
            None
            if current is None
            else CurrentReplay(
                str(current["id"]), _parsed(current["offsets"]), current.get("forced") is True
            ),
            {
                int(partition): {int(offset): int(new_offset) for offset, new_offset in pairs}
                for partition, pairs in document.get("repaired", {}).items()
            },
        )


@dataclass(frozen=True, slots=True)
class StatesNow:
    """The states of the dead letters of one queue at one time; see ``LetterStates``."""

    replayed: Offsets = field(default_factory=dict)
    discarded: Offsets = field(default_factory=dict)
    replaying: Offsets = field(default_factory=dict)
    repaired: Repairs = field(default_factory=dict)

    def state_of(self, partition: int, offset: int) -> LetterState:
        """The state of one dead letter."""
        if self.repaired_as(partition, offset) is not None:
            return LetterState.REPAIRED
        none = OffsetSet()
        for state, offsets in (
            (LetterState.DISCARDED, self.discarded),
            (LetterState.REPLAYING, self.replaying),
            (LetterState.REPLAYED, self.replayed),
        ):
            if offset in offsets.get(partition, none):
                return state
        return LetterState.OPEN

    def repaired_as(self, partition: int, offset: int) -> int | None:
        """The offset of the repaired dead letter in the same partition; None if there is none."""
        return self.repaired.get(partition, {}).get(offset)

    @property
    def closed(self) -> dict[int, OffsetSet]:
        """All dead letters that are not open."""
        return joined(joined(self.replayed, self.discarded), self.replaying)


def encode_states(states: Sequence[LetterStates]) -> str:
    """The states of a connector's queues as text, of the last ``QUEUES_MAX``."""
    documents = [each.document() for each in states[-QUEUES_MAX:]]
    return json.dumps(documents, separators=(",", ":"))


def decode_states(text: str) -> list[LetterStates]:
    """The states in a text; an empty text has none.

    Raises:
        ValueError: The text is not of ``encode_states``.
    """
    try:
        return [LetterStates.parsed(each) for each in json.loads(text)] if text else []
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not states of dead letters: {text[:80]!r}") from error


def states_in(states: Iterable[LetterStates], topic: str, topic_id: str) -> LetterStates:
    """The states in the queue that exists now; none if the topic was created again."""
    present = SinkOutput(topic_id)
    for each in states:
        if each.topic == topic and present.is_of(each.topic_id):
            return replace(each, topic_id=topic_id or each.topic_id)
    return LetterStates(topic, topic_id)


def with_states(states: Iterable[LetterStates], changed: LetterStates) -> list[LetterStates]:
    """All states, with the states of one queue replaced; they are the last ones."""
    return [*(each for each in states if each.topic != changed.topic), changed]


def _document(offsets: Offsets) -> dict[str, list[list[int]]]:
    return {str(key): [list(pair) for pair in each.ranges] for key, each in offsets.items() if each}


def _parsed(document: Mapping[str, Any]) -> dict[int, OffsetSet]:
    return {
        int(key): OffsetSet.of((int(start), int(end)) for start, end in ranges)
        for key, ranges in document.items()
    }
