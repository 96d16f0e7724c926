"""Plugin calls on threads: their outcomes, their time limits, the count of hung ones."""

import threading

import pytest

from drover_worker.engine.plugins.threads import (
    TRACE_MAX_BYTES,
    Outcome,
    PluginThreads,
    Raised,
    Returned,
    TimedOut,
    cap_text,
    format_trace,
)
from tests.support.waiting import wait_until

LONG_MS = 60_000


class Calls:
    """Runs calls and keeps their outcomes."""

    def __init__(self, abandoned_max: int = 8) -> None:
        self.exhausted: list[str] = []
        self.outcomes: dict[str, list[Outcome]] = {}
        self.threads = PluginThreads(
            abandoned_max=abandoned_max, on_exhausted=self.exhausted.append
        )

    def run(self, name: str, function: object, limit_ms: int = LONG_MS) -> None:
        assert callable(function)
        self.outcomes[name] = []
        self.threads.run(name, function, limit_ms=limit_ms, on_done=self.outcomes[name].append)

    def outcome(self, name: str) -> Outcome:
        wait_until(lambda: self.outcomes[name], describe=f"the outcome of {name}")
        (outcome,) = self.outcomes[name]
        return outcome


def test_a_call_returns_its_value_on_a_daemon_thread_of_its_name() -> None:
    calls = Calls()
    calls.run("start:files", threading.current_thread)
    outcome = calls.outcome("start:files")
    assert isinstance(outcome, Returned)
    assert isinstance(outcome.value, threading.Thread)
    assert (outcome.value.name, outcome.value.daemon) == ("start:files", True)


def test_a_call_that_raises_gives_its_error_even_when_it_asks_to_exit() -> None:
    def leave() -> None:
        raise SystemExit(3)

    calls = Calls()
    calls.run("leaver", leave)
    outcome = calls.outcome("leaver")
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, SystemExit)


def test_a_hung_call_is_abandoned_and_its_late_return_changes_nothing() -> None:
    release = threading.Event()
    calls = Calls()
    calls.run("hung", release.wait, limit_ms=20)
    calls.run("other", lambda: 1)
    assert calls.outcome("other") == Returned(1)
    assert calls.outcome("hung") == TimedOut(20)
    assert calls.threads.abandoned_count == 1
    release.set()
    wait_until(lambda: calls.threads.abandoned_count == 0, describe="the hung call's return")
    assert calls.outcomes["hung"] == [TimedOut(20)]


def test_too_many_hung_calls_are_told_once() -> None:
    release = threading.Event()
    calls = Calls(abandoned_max=2)
    for number in range(2):
        calls.run(f"hung-{number}", release.wait, limit_ms=1)
        calls.outcome(f"hung-{number}")
    assert calls.exhausted == []
    for number in range(2, 5):
        calls.run(f"hung-{number}", release.wait, limit_ms=1)
        calls.outcome(f"hung-{number}")
    wait_until(lambda: calls.exhausted, describe="the request for a replacement")
    assert len(calls.exhausted) == 1
    assert "3 plugin calls hang" in calls.exhausted[0]
    release.set()


def test_calls_over_the_bound_wait_for_a_thread() -> None:
    release = threading.Event()
    calls = Calls()
    for number in range(100):
        calls.run(f"call-{number}", release.wait)
    started = [t for t in threading.enumerate() if t.name.startswith("call-")]
    assert len(started) <= 64
    release.set()
    assert [calls.outcome(f"call-{number}") for number in range(100)] == [Returned(True)] * 100


def test_a_hung_call_gives_its_place_to_one_that_waits() -> None:
    release = threading.Event()
    calls = Calls(abandoned_max=100)
    for number in range(64):
        calls.run(f"hung-{number}", release.wait, limit_ms=50)
    calls.run("next", lambda: "ran")
    assert calls.outcome("next") == Returned("ran")
    release.set()


def test_a_trace_is_capped_in_the_middle() -> None:
    try:
        raise ValueError("ä" * TRACE_MAX_BYTES + " the end")
    except ValueError as error:
        trace = format_trace(error)
    assert len(trace.encode()) <= TRACE_MAX_BYTES
    assert trace.startswith("Traceback")
    assert "bytes cut" in trace
    assert trace.endswith("the end\n")


@pytest.mark.parametrize("text", ["", "short", "ä" * 50])
def test_a_text_below_the_cap_stays(text: str) -> None:
    assert cap_text(text, 100) == text
