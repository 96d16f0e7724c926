"""The checker of histories accepts every valid history and finds every mutation of one."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulation.events import Event, Span, What, from_line, position, to_line
from simulation.history import Rule, check

CONNECTOR = "c"
EFFECTS = (What.PUBLISHED, What.DELIVERED, What.DEAD_LETTERED)


class Course:
    """Two owners, one after the other and again, who move the records of two partitions."""

    def __init__(self, random: Random, *, is_sink: bool) -> None:
        self._random = random
        self._is_sink = is_sink
        self.history: list[Event] = []
        self._claim = (0, 0)
        self._committed = {"p0": 0, "p1": 0}
        #: The next record of each partition to poll.
        self._next = dict(self._committed)
        self._output: dict[str, list[int]] = {"p0": [], "p1": []}
        self._begin()

    def run(self, step_count: int) -> list[Event]:
        """The history of so many steps."""
        steps: list[Callable[[], None]] = [self._move] * 8 + [self._begin, self._reset]
        if self._is_sink:
            steps += [self._rewind, self._deliver_only]
        for _ in range(step_count):
            self._random.choice(steps)()
        if not self._is_sink:
            for partition, records in self._output.items():
                spans = _runs(partition, records)
                if spans:
                    self._write(What.READ_BACK, *spans, owned=False)
        return self.history

    def _write(self, what: What, *spans: Span, owned: bool = True) -> None:
        task, claim = (0, self._claim) if owned else (None, None)
        self.history.append(Event(what, CONNECTOR, spans, task, claim, len(self.history)))

    def _begin(self) -> None:
        self._claim = (self._claim[0] + self._random.randrange(2), self._claim[1] + 1)
        self._write(What.CLAIMED)
        self._next = dict(self._committed)

    def _reset(self) -> None:
        """An operator resets a stopped connector."""
        partition = self._random.choice(["p0", "p1"])
        at = self._random.randint(0, self._committed[partition] + 2)
        self._begin()
        self._write(What.RESET, position(partition, at), owned=False)
        self._committed[partition] = self._next[partition] = at

    def _rewind(self) -> None:
        partition = self._random.choice(["p0", "p1"])
        at = self._random.randint(self._committed[partition], self._next[partition])
        self._next[partition] = at
        self._write(What.REWOUND, position(partition, at))

    def _poll(self) -> Span:
        partition = self._random.choice(["p0", "p1"])
        start = self._next[partition]
        span = Span(partition, start, start + self._random.randint(1, 4))
        self._write(What.POLLED, span)
        self._next[partition] = span.end
        return span

    def _deliver_only(self) -> None:
        """Deliver without a commit: the next owner delivers again."""
        self._write(What.DELIVERED, self._poll())

    def _move(self) -> None:
        span = self._poll()
        self._write(What.STAGED, span)
        if self._random.random() < 0.1:
            self._write(What.DEAD_LETTERED, span)
        elif self._is_sink:
            self._write(What.DELIVERED, span)
        else:
            self._write(What.PUBLISHED, span)
            self._output[span.partition].extend(range(span.start, span.end))
        self._write(What.COMMITTED, position(span.partition, span.end))
        self._committed[span.partition] = span.end
        self._write(What.ACKNOWLEDGED, position(span.partition, span.end))
        self._write(What.FETCHED, position(span.partition, span.end), owned=False)


def _runs(partition: str, records: list[int]) -> list[Span]:
    spans: list[Span] = []
    for record in records:
        if spans and spans[-1].end == record:
            spans[-1] = Span(partition, spans[-1].start, record + 1)
        else:
            spans.append(Span(partition, record, record + 1))
    return spans


@st.composite
def histories(draw: st.DrawFn, *, is_sink: bool | None = None) -> list[Event]:
    random = Random(draw(st.integers(0, 2**32)))
    kind = draw(st.booleans()) if is_sink is None else is_sink
    return Course(random, is_sink=kind).run(draw(st.integers(1, 40)))


def _pick(random: Random, history: list[Event], whats: tuple[What, ...]) -> int:
    found = [number for number, event in enumerate(history) if event.what in whats]
    assume(found)
    return random.choice(found)


def drop(random: Random, history: list[Event]) -> None:
    """A publication or delivery does not happen, and its records are committed."""
    number = _pick(random, history, (What.COMMITTED,))
    while history[number].what not in EFFECTS:
        number -= 1
    (span,) = history[number].spans
    twice = [
        each
        for each in history
        if each.what in EFFECTS
        and each.spans[0].partition == span.partition
        and each.spans[0].start < span.end
        and each.spans[0].end > span.start
    ]
    assume(len(twice) == 1)
    del history[number]


def duplicate(random: Random, history: list[Event]) -> None:
    """A publication happens twice."""
    number = _pick(random, history, (What.PUBLISHED, What.DEAD_LETTERED))
    history.insert(number + 1, history[number])


def deliver_again(random: Random, history: list[Event]) -> None:
    """A sink delivers again after the commit."""
    number = _pick(random, history, (What.COMMITTED,))
    assume(history[number - 1].what is What.DELIVERED)
    history.insert(number + 1, history[number - 1])


def swap(random: Random, history: list[Event]) -> None:
    """Two publications of a partition change places, with their commits."""
    pairs = []
    last: dict[str, int] = {}
    for number, event in enumerate(history):
        if event.what is What.RESET:
            last.clear()
        elif event.what is What.PUBLISHED:
            partition = event.spans[0].partition
            if partition in last:
                pairs.append((last[partition], number))
            last[partition] = number
    assume(pairs)
    first, second = random.choice(pairs)
    history[first], history[second] = (
        replace(history[first], spans=history[second].spans),
        replace(history[second], spans=history[first].spans),
    )


def late_effect(random: Random, history: list[Event]) -> None:
    """An owner publishes after the next one has started."""
    number = _pick(random, history, (What.PUBLISHED, What.COMMITTED, What.DEAD_LETTERED))
    later = [n for n in range(number, len(history)) if history[n].what is What.CLAIMED]
    assume(later)
    history.insert(later[0] + 1, history.pop(number))


def commit_back(random: Random, history: list[Event]) -> None:
    """A commit sets the position back."""
    number = _pick(random, history, (What.COMMITTED,))
    event = history[number]
    lower = position(event.spans[0].partition, random.randrange(event.spans[0].start))
    history.insert(number + 1, replace(event, spans=(lower,)))


def forget_commit(random: Random, history: list[Event]) -> None:
    """An acknowledged commit is not there later."""
    number = _pick(random, history, (What.FETCHED,))
    event = history[number]
    lower = position(event.spans[0].partition, random.randrange(event.spans[0].start))
    history.insert(number + 1, replace(event, spans=(lower,)))


Mutation = Callable[[Random, list[Event]], None]
MUTATIONS: dict[Mutation, set[Rule]] = {
    drop: {Rule.LOST, Rule.ORDER},
    duplicate: {Rule.DUPLICATED},
    deliver_again: {Rule.DUPLICATED},
    swap: {Rule.ORDER, Rule.UNKNOWN},
    late_effect: {Rule.FENCED},
    commit_back: {Rule.BACKWARDS},
    forget_commit: {Rule.BACKWARDS},
}


@given(histories())
def test_a_valid_history_passes(history: list[Event]) -> None:
    assert [each.report(history) for each in check(history)] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
@given(data=st.data())
def test_a_mutation_is_found(mutation: Mutation, data: st.DataObject) -> None:
    kinds: dict[Mutation, bool] = {swap: False, deliver_again: True}
    history = data.draw(histories(is_sink=kinds.get(mutation)))
    mutation(Random(data.draw(st.integers(0, 2**32))), history)
    found = check(history)
    assert found, "the mutation was not found"
    assert {each.rule for each in found} & MUTATIONS[mutation]


@given(histories())
def test_a_history_is_the_same_after_it_was_written_and_read(history: list[Event]) -> None:
    assert [from_line(to_line(event)) for event in history] == history
