"""Timers: order, replacement, and a heap that does not grow with heartbeats."""

from hypothesis import given
from hypothesis import strategies as st

from drover.runtime.timers import Timers


def test_heartbeats_and_cancellations_leave_no_litter() -> None:
    timers = Timers()
    for beat in range(1_000):
        for member in range(10):
            timers.set(f"session {member}", 10_000 + beat, None)
    for call in range(10_000):
        timers.set(f"call {call}", 20_000, None)
        timers.cancel(f"call {call}")
    assert len(timers) == 10
    assert len(timers._heap) <= 200
    assert len(timers._heap_deadline) <= 200


KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
        st.tuples(st.just("next"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_timers_behave_like_a_sorted_list(steps: list[tuple[str, str, int]]) -> None:
    timers = Timers()
    model: dict[str, tuple[int, int]] = {}
    for number, (step, key, value) in enumerate(steps):
        if step == "set":
            timers.set(key, value, number)
            model[key] = (value, number)
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        elif step == "pop":
            first = min(model, key=lambda name: model[name], default=None)
            expected = None
            if first is not None and model[first][0] <= value:
                expected = (first, model.pop(first)[1])
            assert timers.pop_due(value) == expected
        else:
            assert timers.next_deadline_ms() == min(
                (deadline for deadline, _ in model.values()), default=None
            )
        assert len(timers) == len(model)


def test_none_is_due_while_timers_are_held() -> None:
    timers = Timers()
    timers.set("a", 10, "a")
    timers.set("b", 50, "b")
    timers.hold_until(30)
    timers.hold_until(20)  # an earlier end does not shorten the hold
    assert timers.next_deadline_ms() == 30
    assert timers.pop_due(29) is None
    assert timers.pop_due(30) == ("a", "a")
    assert timers.pop_due(30) is None
    assert timers.next_deadline_ms() == 50
    assert timers.pop_due(50) == ("b", "b")
