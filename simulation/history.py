"""Decides from a history of events alone whether a cluster kept its guarantees.

A history lists what tasks did and what readers saw, in the order of time. The simulation writes
one, and so do the tests that kill real processes. The checker uses the guarantees only, as the
checkers of Jepsen (https://jepsen.io) do, and no state of the program:

- nothing is lost: a committed offset covers only records that took effect before; a reader finds
  every record of the input
- nothing is duplicated: a record is published once, and not delivered again after its commit
- the records of a partition take effect in their order
- nothing is published or committed under a claim after the next owner of the task has started
- a committed offset does not decrease, and no acknowledged commit is lost

``python -m simulation.history FILE`` checks a file of JSON lines.
"""

import argparse
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from simulation.events import (
    Claim,
    Event,
    HistoryError,
    Span,
    What,
    claim_text,
    read_history,
    span_text,
)

#: How many events around a violation are shown.
AROUND_COUNT = 10
_FENCED = frozenset({What.PUBLISHED, What.DEAD_LETTERED, What.COMMITTED})


class Rule(StrEnum):
    """The guarantee that was broken."""

    LOST = "no record is lost"
    DUPLICATED = "no record is duplicated"
    ORDER = "the records of a partition keep their order"
    FENCED = "a fenced task has no effect"
    BACKWARDS = "no committed offset decreases"
    UNKNOWN = "no record appears that was not in the input"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee.

    Attributes:
        rule: The guarantee.
        text: The records, offsets and tasks concerned.
        number: The number of the event that shows it, from 0.
        around: The numbers of events before and after it that concern the same records.
        connector: The connector concerned.
        partition: The partition concerned; empty if the event concerns no partition.
    """

    rule: Rule
    text: str
    number: int
    around: tuple[int, ...]
    connector: str
    partition: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"

    def report(self, history: Sequence[Event]) -> str:
        """The violation with the events around it."""
        lines = [str(self)]
        for number in self.around:
            mark = ">" if number == self.number else " "
            lines.append(f"{mark} event {number:>5}  {history[number]}")
        return "\n".join(lines)


class Ranges:
    """A set of whole numbers, as sorted ranges."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add the numbers from ``start`` to before ``end``."""
        if start >= end:
            return
        low = bisect_right(self._ends, start - 1)
        high = bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]

    def cut(self, at: int) -> None:
        """Remove the numbers from ``at`` on."""
        keep = bisect_right(self._starts, at - 1)
        del self._starts[keep:], self._ends[keep:]
        if keep and self._ends[-1] > at:
            self._ends[-1] = at

    def first_common(self, start: int, end: int) -> int | None:
        """The first number of the set in a range."""
        index = bisect_right(self._ends, start)
        if start >= end or index == len(self._starts) or self._starts[index] >= end:
            return None
        return max(start, self._starts[index])

    def first_missing(self, start: int, end: int) -> int | None:
        """The first number of a range that is not in the set."""
        index = bisect_right(self._ends, start)
        if index < len(self._starts) and self._starts[index] <= start:
            start = self._ends[index]
        return start if start < end else None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)


@dataclass(slots=True)
class _Lane:
    """The records of one partition of one connector's input."""

    #: Records that took effect.
    handled: Ranges = field(default_factory=Ranges)
    #: Records that a task read; None while no such event was seen.
    polled: Ranges | None = None
    #: The record after the last one that was published or delivered.
    next: int = 0
    committed: int = 0
    acknowledged: int = 0
    fetched: int = 0
    input_end: int | None = None
    is_read_back: bool = False
    #: Records that were published or became dead letters, since the last reset.
    once: Ranges = field(default_factory=Ranges)
    #: Records that were ever published; a reader must find them.
    published: Ranges = field(default_factory=Ranges)
    #: Dead letters, and records that an operator skipped: a reader need not find them.
    excused: Ranges = field(default_factory=Ranges)
    #: Positions that operators set: a reader may find the records from there on again.
    resets: list[int] = field(default_factory=list)
    #: The numbers of the events that concern it.
    events: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Owner:
    """The claims of one task."""

    highest: Claim | None = None
    revoked: Claim | None = None
    events: list[int] = field(default_factory=list)

    def is_stale(self, claim: Claim | None) -> bool:
        """Whether an effect under ``claim`` is one of a fenced task."""
        if claim is None or self.highest is None:
            return False
        return claim < self.highest or (self.revoked is not None and claim <= self.revoked)


class Checker:
    """Checks a history event by event.

    Args:
        at_least_once: Connectors whose output may hold a record several times.
    """

    def __init__(self, at_least_once: Collection[str] = ()) -> None:
        self.history: list[Event] = []
        self.violations: list[Violation] = []
        self._at_least_once = frozenset(at_least_once)
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._owners: dict[tuple[str, int], _Owner] = {}

    def add(self, event: Event) -> list[Violation]:
        """Check the next event; returns the violations that it shows."""
        known = len(self.violations)
        number = len(self.history)
        self.history.append(event)
        if event.what in (What.CLAIMED, What.REVOKED):
            self._claims(event, number)
        elif event.what in _FENCED:
            self._check_claim(event, number)
        for span in event.spans:
            lane = self._lanes.setdefault((event.connector, span.partition), _Lane())
            lane.events.append(number)
            self._look(lane, event, span, number)
        return self.violations[known:]

    def end(self) -> list[Violation]:
        """Check what must be true at the end; returns the violations that it shows."""
        known = len(self.violations)
        for (connector, partition), lane in sorted(self._lanes.items()):
            missing = lane.handled.first_missing(0, lane.input_end or 0)
            if missing is not None and not lane.is_read_back:
                span = Span(partition, missing, missing + 1)
                text = f"record {missing} of {_where(connector, partition)} never arrived"
                self._broken(Rule.LOST, text, lane.events[-1], connector, span)
        return self.violations[known:]

    # --- claims ------------------------------------------------------------------------------

    def _claims(self, event: Event, number: int) -> None:
        if event.task is not None:
            owner = self._owners.setdefault((event.connector, event.task), _Owner())
            owners = [owner]
        else:
            owners = [each for (name, _), each in self._owners.items() if name == event.connector]
        for owner in owners:
            owner.events.append(number)
            if event.what is What.REVOKED:
                owner.revoked = owner.highest
            elif event.claim is not None:
                owner.highest = max(event.claim, owner.highest or event.claim)

    def _check_claim(self, event: Event, number: int) -> None:
        owner = None if event.task is None else self._owners.get((event.connector, event.task))
        if owner is None or not owner.is_stale(event.claim):
            return
        assert event.claim is not None
        later = f"its claims were revoked after {claim_text(owner.revoked)}"
        if owner.highest is not None and event.claim < owner.highest:
            later = f"{claim_text(owner.highest)} had started"
        spans = ", ".join(map(span_text, event.spans))
        self._broken(
            Rule.FENCED,
            f"{event.connector}-{event.task} {event.what} {spans} under {claim_text(event.claim)}"
            f" after {later}",
            number,
            event.connector,
            event.spans[0] if event.spans else None,
            owner.events,
        )

    # --- records -----------------------------------------------------------------------------

    def _look(self, lane: _Lane, event: Event, span: Span, number: int) -> None:
        match event.what:
            case What.POLLED:
                lane.polled = lane.polled or Ranges()
                lane.polled.add(span.start, span.end)
            case What.PUBLISHED | What.DEAD_LETTERED | What.DELIVERED:
                self._took_effect(lane, event, span, number)
            case What.REWOUND if not self._acts_late(event):
                at = max(span.start, lane.committed)
                lane.handled.cut(at)
                lane.next = min(lane.next, at)
            case What.COMMITTED:
                self._committed(lane, event, span, number)
            case What.ACKNOWLEDGED:
                if span.start > lane.committed:
                    self._broken(
                        Rule.LOST,
                        f"the commit of {span_text(span)} of {event.connector} was acknowledged and"
                        f" is not durable: the position is {lane.committed}",
                        number,
                        event.connector,
                        span,
                    )
                lane.acknowledged = max(lane.acknowledged, span.start)
            case What.FETCHED:
                self._fetched(lane, event, span, number)
            case What.RESET:
                _reset(lane, span.start)
            case What.INPUT:
                lane.input_end = max(lane.input_end or 0, span.end)
            case What.READ_BACK if not lane.is_read_back:
                lane.is_read_back = True
                runs = [each for each in event.spans if each.partition == span.partition]
                self._read_back(lane, event, runs, number)

    def _took_effect(self, lane: _Lane, event: Event, span: Span, number: int) -> None:
        start, end, connector = span.start, span.end, event.connector
        where = _where(connector, span.partition)
        delivered = event.what is What.DELIVERED
        if delivered and self._acts_late(event):
            return  # a system behind a sink cannot reject a fenced task
        again = lane.handled.first_common(start, min(end, lane.committed))
        if again is None and not delivered:
            again = lane.once.first_common(start, end)
        unordered = start < lane.next if event.what is What.PUBLISHED else False
        skipped = lane.handled.first_missing(lane.next, start) if delivered else None
        if again is not None:
            text = f"record {again} of {where} is {event.what} again by {_who(event)}"
            text += self._first_effect(lane, span.partition, again, number)
            self._broken(Rule.DUPLICATED, text, number, connector, span)
        elif unordered:
            text = f"record {start} of {where} is {event.what} by {_who(event)} after record"
            self._broken(Rule.ORDER, f"{text} {lane.next - 1}", number, connector, span)
        elif skipped is not None:
            text = f"record {start} of {where} is {event.what} by {_who(event)} before record"
            self._broken(Rule.ORDER, f"{text} {skipped}", number, connector, span)
        unread = None if lane.polled is None else lane.polled.first_missing(start, end)
        if unread is not None:
            text = f"record {unread} of {where} is {event.what} by {_who(event)} and was not read"
            self._broken(Rule.UNKNOWN, text, number, connector, span)
        lane.handled.add(start, end)
        if event.what is What.DEAD_LETTERED:
            lane.excused.add(start, end)
        else:
            lane.next = max(lane.next, end)
        if event.what is What.PUBLISHED:
            lane.published.add(start, end)
        if not delivered:
            lane.once.add(start, end)

    def _acts_late(self, event: Event) -> bool:
        owner = None if event.task is None else self._owners.get((event.connector, event.task))
        return owner is not None and owner.is_stale(event.claim)

    def _first_effect(self, lane: _Lane, partition: str, record: int, number: int) -> str:
        for earlier in lane.events:
            event = self.history[earlier]
            if earlier == number:
                break
            if event.what in (What.PUBLISHED, What.DEAD_LETTERED, What.DELIVERED) and any(
                each.partition == partition and each.start <= record < each.end
                for each in event.spans
            ):
                return f"; first {event.what} by {_who(event)} at {event.time_ms} ms"
        return ""

    # --- positions ---------------------------------------------------------------------------

    def _committed(self, lane: _Lane, event: Event, span: Span, number: int) -> None:
        at, where = span.start, _where(event.connector, span.partition)
        if at < lane.committed:
            text = f"{_who(event)} commits {at} of {where}, which was at {lane.committed}"
            self._broken(Rule.BACKWARDS, text, number, event.connector, span)
            return
        missing = lane.handled.first_missing(lane.committed, at)
        if missing is not None:
            text = f"{_who(event)} commits {at} of {where}, and record {missing} had no effect"
            self._broken(Rule.LOST, text, number, event.connector, span)
        lane.committed = at

    def _fetched(self, lane: _Lane, event: Event, span: Span, number: int) -> None:
        at, where = span.start, _where(event.connector, span.partition)
        before = max(lane.fetched, lane.acknowledged)
        if at < before:
            text = f"{at} of {where} is committed, after {before}"
            self._broken(Rule.BACKWARDS, text, number, event.connector, span)
        lane.fetched = max(lane.fetched, at)

    # --- what a reader found -----------------------------------------------------------------

    def _read_back(self, lane: _Lane, event: Event, runs: Sequence[Span], number: int) -> None:
        connector, partition = event.connector, runs[0].partition
        reader = f"a reader of {_where(connector, partition)}"
        found, seen, next_record, resets = Ranges(), Ranges(), 0, list(lane.resets)
        for run in runs:
            found.add(run.start, run.end)
            again = seen.first_common(run.start, run.end)
            goes_back = again is not None or run.start < next_record
            reset = max((each for each in resets if each <= run.start), default=None)
            if goes_back and reset is not None:
                resets.remove(reset)
                seen.cut(run.start)
                next_record, again = run.start, None
            if again is None and run.start < next_record:
                text = f"{reader} found record {run.start} after record {next_record - 1}"
                self._broken(Rule.ORDER, text, number, connector, run)
            elif again is not None and connector not in self._at_least_once:
                text = f"{reader} found record {again} twice"
                self._broken(Rule.DUPLICATED, text, number, connector, run)
            seen.add(run.start, run.end)
            next_record = max(next_record, run.end)
        for start, end in seen:
            lane.handled.add(start, end)
            lane.excused.add(start, end)
        input_end = lane.input_end or 0
        missing = [lane.excused.first_missing(0, max(lane.committed, lane.fetched, input_end))]
        missing += [found.first_missing(start, end) for start, end in lane.published]
        if any(each is not None for each in missing):
            first = min(each for each in missing if each is not None)
            text = f"{reader} did not find record {first}"
            span = Span(partition, first, first + 1)
            self._broken(Rule.LOST, text, number, connector, span)
        if lane.input_end is not None and next_record > lane.input_end:
            text = f"{reader} found record {next_record - 1}; the input has {lane.input_end}"
            self._broken(Rule.UNKNOWN, text, number, connector, runs[-1])

    def _broken(
        self,
        rule: Rule,
        text: str,
        number: int,
        connector: str,
        span: Span | None,
        also: Sequence[int] = (),
    ) -> None:
        partition = "" if span is None else span.partition
        lane = self._lanes.get((connector, partition))
        near = () if lane is None else lane.events[-AROUND_COUNT:]
        around = tuple(sorted({*near, *also[-3:], number}))
        self.violations.append(Violation(rule, text, number, around, connector, partition))


def check(history: Iterable[Event], at_least_once: Collection[str] = ()) -> list[Violation]:
    """Check a whole history; returns all violations, in the order of the events that show them."""
    checker = Checker(at_least_once)
    for event in history:
        checker.add(event)
    checker.end()
    return checker.violations


def _reset(lane: _Lane, at: int) -> None:
    """An operator skips records, or has them delivered again."""
    lane.resets.append(at)
    for ranges in (lane.handled, lane.excused, lane.once):
        ranges.add(lane.committed, at)
        ranges.cut(at)
    lane.next = lane.committed = lane.acknowledged = lane.fetched = at


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a file; returns 0 if it keeps the guarantees, 1 if not, 2 if it cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation.history", description="Check a history of events."
    )
    parser.add_argument("file", type=Path, help="JSON lines, one event each")
    parser.add_argument(
        "--at-least-once",
        action="append",
        default=[],
        metavar="CONNECTOR",
        help="its output may hold a record several times; may be repeated",
    )
    given = parser.parse_args(arguments)
    try:
        history = read_history(given.file)
    except (HistoryError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    violations = check(history, given.at_least_once)
    for violation in violations:
        print(violation.report(history), end="\n\n")  # noqa: T201
    verdict = f"{len(violations)} violations" if violations else "the guarantees hold"
    print(f"{len(history)} events: {verdict}")  # noqa: T201
    return 1 if violations else 0


def _who(event: Event) -> str:
    if event.task is None:
        return event.connector
    under = "" if event.claim is None else f" under {claim_text(event.claim)}"
    return f"{event.connector}-{event.task}{under}"


def _where(connector: str, partition: str) -> str:
    return f"partition {partition} of {connector}"


if __name__ == "__main__":
    sys.exit(main())
