"""Log events of plugin calls carry the log context of their caller."""

import threading

import structlog

from drover.rpc.logs import log_context
from drover_worker.engine.plugins.threads import Outcome, PluginThreads, TimedOut

BOUND = {"connector": "c", "task": "c-0", "generation": 7}


def bound() -> dict[str, object]:
    return structlog.contextvars.get_contextvars()


def test_a_call_and_its_end_log_for_their_task() -> None:
    threads = PluginThreads(abandoned_max=8, on_exhausted=lambda _why: None)
    seen: list[object] = []
    ended = threading.Event()

    def done(_outcome: Outcome) -> None:
        seen.append(bound())
        ended.set()

    with log_context(connector="c", task="c-0", generation=7):
        threads.run("start", lambda: seen.append(bound()), limit_ms=60_000, on_done=done)
    assert ended.wait(60)
    assert seen == [BOUND, BOUND]
    assert bound() == {}


def test_so_does_the_end_of_a_call_that_hangs() -> None:
    threads = PluginThreads(abandoned_max=8, on_exhausted=lambda _why: None)
    seen: list[object] = []
    ended, release = threading.Event(), threading.Event()

    def done(outcome: Outcome) -> None:
        assert isinstance(outcome, TimedOut)
        seen.append(bound())
        ended.set()

    with log_context(connector="c", task="c-0", generation=7):
        threads.run("hang", lambda: release.wait(60), limit_ms=1, on_done=done)
    assert ended.wait(60)
    release.set()
    assert seen == [BOUND]
